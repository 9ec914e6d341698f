//! The ways in which packages were wrong, put back into the reference one by one.

/// A defect that the invariant must find.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Planted {
    /// A lease counts from when the answer is read.
    CountsFromReply,
    /// A renewal without an answer is none any more, although it is shorter and may still come.
    ForgetsOpen,
    /// The answer to `CHECK` counts from when it is read.
    CheckFromReply,
    /// `CHECK` is believed although a shorter lease was open when it was sent.
    CheckForgetsOpen,
    /// An answer is taken for that to the last command.
    LateAnswer,
    /// A single state for several holds: a guard says what the newest one knows.
    SharedSlot,
    /// The whole lease counts, although both sides count whole milliseconds.
    CountsFractions,
    /// A grant counts from the copy that was answered, although an earlier one may have been granted.
    ForgetsCopy,
    /// A copy without an answer is forgotten when the acquisition ends.
    LeavesCopies,
    /// The nil of a repeat ends the wait.
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
