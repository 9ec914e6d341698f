//! Exit codes: those of `sysexits.h`, which `flock` uses too, and those of a shell for a command that cannot run.

use std::process::ExitStatus;

use dlock_client::Error;
use std::os::unix::process::ExitStatusExt;

/// The answer is no: the lock was not acquired, is free or has another owner, or nothing has changed.
pub const NEGATIVE: u8 = 1;
/// The command line is wrong (`EX_USAGE`).
pub const USAGE: u8 = 64;
/// No server answers, or it refuses (`EX_UNAVAILABLE`).
pub const UNAVAILABLE: u8 = 69;
/// The system does not tell how the command ended (`EX_OSERR`).
pub const SYSTEM: u8 = 71;
/// The output cannot be written (`EX_IOERR`).
pub const OUTPUT: u8 = 74;
/// The lock was lost while the command ran (`EX_TEMPFAIL`).
pub const LOST: u8 = 75;
/// The command was found but could not be started.
pub const CANNOT_RUN: u8 = 126;
/// The command was not found.
pub const NOT_FOUND: u8 = 127;

/// Returns the code for an error.
pub fn of(error: &Error) -> u8 {
    match error {
        Error::Contention => NEGATIVE,
        Error::Lost => LOST,
        Error::Invalid(_) => USAGE,
        _ => UNAVAILABLE,
    }
}

/// Returns the exit code of a command that has ended or, as a shell does, 128 plus the signal that killed it.
pub fn of_command(status: ExitStatus) -> u8 {
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal));
    code.and_then(|code| u8::try_from(code).ok()).unwrap_or(u8::MAX)
}
