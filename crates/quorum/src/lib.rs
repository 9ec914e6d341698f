//! A lock over a majority of independent servers, as a pure state machine: no connection, no clock, seeded randomness.
//!
//! An [`Acquisition`] returns the commands to send ([`Call`]). The caller sends them, hands in the [`Answer`]s, and
//! calls `handle_timeout` when time has passed. An acquisition ends with an [`Outcome`]: a [`Hold`], which is renewed
//! and released in the same way, or one of two reasons for the failure. Times are arguments: the caller's monotonic
//! clock, counted from any fixed point. [`standing`] decides whether a server may count at all.
//!
//! Each attempt has an owner of its own, which the caller makes from [`Call::attempt`], so that a leftover of an old
//! attempt cannot affect a later one. `docs/quorum.md` says why the lock is safe, and under which assumptions. The
//! simulation (`make quorum-sim`) runs this code against servers with the rules of `dlock-core`.
//!
//! | file | contents |
//! |---|---|
//! | `terms` | the number of servers, lease and timeout, and how long a grant is valid |
//! | `call` | requests and answers |
//! | `clocks` | the servers' clocks, and the token to ask for |
//! | `votes` | the answers of the servers in one attempt |
//! | `acquisition` | the way to a majority: all servers at once or the queue of the gate server, the next attempt |
//! | `count` | when the votes of an attempt are enough for the lock, and what to ask for if they are not |
//! | `hold` | how a lock is kept on a majority, repaired, lost and released |
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
