//! When the leases of bound holds are extended.

use crate::engine::state::load::Load;
use crate::{Hold, SessionKey, UnixMs};

/// When the lease of a bound hold is extended, and what that costs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Renewal {
    pub at: UnixMs,
    pub load: Load,
}

/// The next renewal of a hold of one lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NextRenewal {
    /// When the renewal is due.
    pub at: UnixMs,
    /// When the lease ends without the renewal.
    pub deadline: UnixMs,
    pub key: SessionKey,
}

impl Renewal {
    /// Returns the renewal of a hold: a lease is extended when a third of it has passed, or up to a twelfth of that
    /// third earlier, so that holds that are bound together are not all extended at once, and drift apart. `spread` is
    /// a random number. A hold that has reached its cap is left alone: it is due at its end, to be forgotten.
    pub(crate) fn of(hold: &Hold, spread: u64, load: Load) -> Renewal {
        if hold.has_reached_cap() {
            return Renewal { at: hold.deadline, load };
        }
        let third = hold.lease.get() / 3;
        let begin = hold.deadline.get().saturating_sub(hold.lease.get());
        Renewal { at: UnixMs::new(begin + third - spread % (third / 12 + 1)), load }
    }
}

/// A change for a session with holds on a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LoadChange {
    pub key: SessionKey,
    pub load: i64,
    /// How many more holds are bound to the session; negative: fewer.
    pub holds: i64,
}
