//! The values of every command's arguments, and the errors for invalid ones. A case is a line of words; `''` is an
//! empty word.

#![allow(clippy::unwrap_used, reason = "a test that panics has failed, which is what it is for")]

mod acquire;
mod leases;
mod log;
mod messages;
mod release;
mod renew;
mod show;
mod spec;

use std::num::NonZeroU32;

use dlock_core::args::{Acquire, Limits, Malformed, Renew};
use dlock_core::{Command, Lease, LeaseChoice, Owner, Token};

fn nonzero(number: u32) -> NonZeroU32 {
    NonZeroU32::new(number).unwrap()
}

fn acquire(line: &str) -> Result<Acquire, Malformed> {
    Acquire::parse(words(line), Command::Acquire, LIMITS)
}

fn renew(line: &str) -> Result<Renew, Malformed> {
    Renew::parse(words(line), LIMITS)
}

fn words(line: &str) -> impl Iterator<Item = &[u8]> {
    line.split_terminator(' ').map(|word| if word == "''" { b"" } else { word.as_bytes() })
}

fn lasting(ms: u64) -> LeaseChoice {
    LeaseChoice::For(Lease::new(ms).unwrap())
}

fn token(number: u64) -> Option<Token> {
    Token::new(number)
}

fn owner(name: &str) -> Owner {
    Owner::new(name.as_bytes()).unwrap()
}

/// The clock is at 5000.999 ms, and the longest lease is 100 s.
const LIMITS: Limits =
    Limits { now_us: 5_000_999, max_lease: Lease::new(100_000).unwrap(), max_hold: None, max_token_lead: 7 };

/// Returns the text that the client of `DLOCK.ACQUIRE` reads after `ERR syntax error: `.
#[track_caller]
fn syntax_error<T: std::fmt::Debug>(said: Result<T, Malformed>) -> String {
    let text = said.unwrap_err().text("DLOCK.ACQUIRE");
    text.strip_prefix("ERR syntax error: ").unwrap_or_else(|| panic!("{text}")).to_owned()
}
