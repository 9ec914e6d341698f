//! Translates the core's holds into the plain numbers of the model.

use dlock_core::Mode;

use super::naive::Hold;
use super::plain::{asked, who};

pub fn hold(hold: &dlock_core::Hold) -> Hold {
    Hold {
        owner: who(&hold.owner),
        mode: hold.mode,
        count: u64::from(hold.count),
        lease: hold.lease.get(),
        deadline: hold.deadline.get(),
        cap: hold.cap().map(|cap| cap.get()),
        slot: hold.slot(),
        token: hold.token.get(),
        request: hold.request().map(asked),
        session: None,
        ended: None,
    }
}

/// Sorts holds, so that two lists of the same holds are equal.
pub fn sorted(mut holds: Vec<Hold>) -> Vec<Hold> {
    holds.sort_by_key(|hold| (hold.token, hold.owner, hold.mode == Mode::Shared));
    holds
}
