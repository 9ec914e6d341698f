//! Former bugs of packages, which a test plants in the reference one by one.

/// A bug that the invariants must find.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Planted {
    /// A lease counts from when the answer is read, instead of when the command was sent.
    CountsFromReply,
    /// A renewal without an answer is forgotten, although it has a shorter lease and the server may still execute it.
    ForgetsOpen,
    /// The answer to `CHECK` counts from when it is read, instead of when the command was sent.
    CheckFromReply,
    /// The answer to `CHECK` counts, although a renewal with a shorter lease was unanswered when it was sent.
    CheckForgetsOpen,
    /// An answer counts as the answer to the last command.
    LateAnswer,
    /// All holds share a single state, so that a guard reports the validity of the newest hold.
    SharedSlot,
    /// The whole lease counts, although client and server count in whole milliseconds.
    CountsFractions,
    /// A grant counts from the copy of the request that was answered, although an earlier copy may have been granted.
    ForgetsCopy,
    /// An unanswered copy of the request is not cleaned up when the acquisition ends.
    LeavesCopies,
    /// A nil ends the wait, although a copy of the request may have taken its place.
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
