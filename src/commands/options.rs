//! Options that several commands have.

use crate::ffi::spec::Argument;

/// `EX seconds | PX milliseconds | EXAT unix-seconds | PXAT unix-milliseconds`.
pub const LEASE: Argument = Argument::OneOf(
    "lease",
    &[
        Argument::Number("EX", "seconds"),
        Argument::Number("PX", "milliseconds"),
        Argument::Number("EXAT", "unix-time-seconds"),
        Argument::Number("PXAT", "unix-time-milliseconds"),
    ],
);

/// `READ | WRITE`.
pub const MODE: Argument = Argument::OneOf("mode", &[Argument::Word("READ"), Argument::Word("WRITE")]);

/// `BLOCK milliseconds`.
pub const BLOCK: Argument = Argument::Number("BLOCK", "milliseconds");

/// `SESSION | SESSIONID id`.
pub const SESSION: Argument =
    Argument::OneOf("session", &[Argument::Word("SESSION"), Argument::NamedText("SESSIONID", "id")]);

/// `MAXHOLD milliseconds`.
pub const MAXHOLD: Argument = Argument::Number("MAXHOLD", "milliseconds");

/// `REQUEST id`.
pub const REQUEST: Argument = Argument::NamedText("REQUEST", "id");
