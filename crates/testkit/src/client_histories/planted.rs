//! Former bugs of packages, which a test plants in the reference one by one.

/// A bug that the invariants must find.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Planted {
    /// A lease counts from when the client reads the answer, instead of when it sent the command.
    CountsFromReply,
    /// The client forgets a renewal without an answer, although the server may still execute it, with a shorter lease.
    ForgetsOpen,
    /// The answer to `CHECK` counts from when the client reads the answer, instead of when it sent the command.
    CheckFromReply,
    /// The answer to `CHECK` counts, although a renewal with a shorter lease was unanswered when the `CHECK` was sent.
    CheckForgetsOpen,
    /// The answer to an earlier renewal counts as the answer to the last one.
    LateAnswer,
    /// All holds share a single state, so that a guard reports the validity of the newest hold.
    SharedSlot,
    /// The whole lease counts, although client and server count in whole milliseconds.
    CountsFractions,
    /// A grant counts from the copy that was answered, although an earlier copy may have been granted.
    ForgetsCopy,
    /// An unanswered copy of the request is not cleaned up when the acquisition ends.
    LeavesCopies,
    /// A nil ends the wait, although a copy of the request may have taken its place in the queue.
    BelievesNilOfRepeat,
}

impl Planted {
    /// The bugs of a hold.
    pub const OF_VALIDITY: [Planted; 7] = [
        Self::CountsFromReply,
        Self::ForgetsOpen,
        Self::CheckFromReply,
        Self::CheckForgetsOpen,
        Self::LateAnswer,
        Self::SharedSlot,
        Self::CountsFractions,
    ];

    /// The bugs of an acquisition.
    pub const OF_ATTEMPT: [Planted; 4] =
        [Self::CountsFromReply, Self::ForgetsCopy, Self::BelievesNilOfRepeat, Self::LeavesCopies];
}
