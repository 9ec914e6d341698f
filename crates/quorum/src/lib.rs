//! A lock over a majority of independent servers, as a pure state machine: no connection, no clock, no randomness.
//!
//! An [`Acquisition`] says what to send ([`Call`]); the caller sends it, and hands in what came back ([`Answer`]) and
//! that time has passed. It ends as an [`Outcome`]: a [`Hold`], which is renewed and released in the same way, or one
//! of two reasons why not. Time is the caller's monotonic clock, since any fixed point, and an argument everywhere.
//! [`standing`] decides which servers may count at all.
//!
//! Each attempt has an owner of its own, made by the caller out of [`Call::attempt`], so that whatever is left of an
//! old attempt cannot touch a later one. Why this is safe, and under which assumptions, is in `docs/quorum.md`; the
//! simulation (`make quorum-sim`) runs this code against servers with the rules of `dlock-core`.
//!
//! | file | knows |
//! |---|---|
//! | `terms` | how many, how long, and how long a grant is good for |
//! | `call` | what is sent and what comes back |
//! | `clocks` | the servers' clocks, and the token to ask for |
//! | `votes` | what each server has said in one attempt |
//! | `acquisition` | the way to a majority: all servers at once or the queue of the gate server, the next attempt |
//! | `count` | when the votes of an attempt are the lock, and what to ask if they are not |
//! | `hold` | how a lock is kept on a majority, repaired, lost and given up |
//! | `member` | whether a server may count |
//! | `dice` | the random back-off |
#![forbid(unsafe_code)]
#![deny(missing_debug_implementations)]

mod acquisition;
mod call;
mod clocks;
mod count;
mod dice;
mod hold;
mod member;
mod terms;
mod votes;

#[cfg(test)]
mod simulation;

pub use acquisition::{Acquisition, Outcome, Patience, Start};
pub use call::{Answer, Ask, Call, Entry};
pub use clocks::{Clocks, Floor};
pub use hold::Hold;
pub use member::{Facts, Keeping, Standing, standing};
pub use terms::{Terms, TermsError, drift_bound};
