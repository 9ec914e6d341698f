//! One command one file: its registration and docs, its arguments, what it does.

mod acquire;
mod apply;
mod check;
mod info;
#[cfg(feature = "panic-hook")]
mod panic;
mod release;
mod renew;

pub use acquire::{Acquire, Racquire, Rlock, Wlock};
pub use apply::Apply;
pub use check::Check;
pub use info::Info;
#[cfg(feature = "panic-hook")]
pub use panic::Panic;
pub use release::Release;
pub use renew::Renew;

use crate::ffi::command::Argument;

/// How long: `EX seconds | PX milliseconds | EXAT unix-seconds | PXAT unix-milliseconds`.
const LEASE: Argument = Argument::OneOf(
    "lease",
    &[
        Argument::Number("EX", "seconds"),
        Argument::Number("PX", "milliseconds"),
        Argument::Number("EXAT", "unix-time-seconds"),
        Argument::Number("PXAT", "unix-time-milliseconds"),
    ],
);

/// Which hold: `READ | WRITE`.
const MODE: Argument = Argument::OneOf("mode", &[Argument::Word("READ"), Argument::Word("WRITE")]);
