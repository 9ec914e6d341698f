//! Options that several commands have.

use super::Argument;

/// `EX seconds | PX milliseconds | EXAT unix-seconds | PXAT unix-milliseconds`.
pub(super) const LEASE: Argument = Argument::OneOf(
    "lease",
    &[
        Argument::Number("EX", "seconds"),
        Argument::Number("PX", "milliseconds"),
        Argument::Number("EXAT", "unix-time-seconds"),
        Argument::Number("PXAT", "unix-time-milliseconds"),
    ],
);

/// `READ | WRITE`.
pub(super) const MODE: Argument = Argument::OneOf("mode", &[Argument::Word("READ"), Argument::Word("WRITE")]);

/// `BLOCK milliseconds`.
pub(super) const BLOCK: Argument = Argument::Number("BLOCK", "milliseconds");

/// `SESSION | SESSIONID id`.
pub(super) const SESSION: Argument =
    Argument::OneOf("session", &[Argument::Word("SESSION"), Argument::NamedText("SESSIONID", "id")]);

/// `MAXHOLD milliseconds`.
pub(super) const MAXHOLD: Argument = Argument::Number("MAXHOLD", "milliseconds");

/// `REQUEST id`.
pub(super) const REQUEST: Argument = Argument::NamedText("REQUEST", "id");
