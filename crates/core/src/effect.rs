//! Effects: the only way to change a lock.
//!
//! A primary decides, applies the effect of its decision and replicates the effect. A replica, and a server that loads
//! an AOF, apply the effects they get. An effect has only absolute times, and the primary's clock. Applying an effect
//! first drops the holds that have lapsed by that clock; a server's own clock is not read. Applying an effect twice is
//! the same as applying it once.

use crate::holds::Trash;
use crate::{Hold, Lock, Mode, Owner, TokenClock, UnixMs};

/// A change of a lock at a time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Effect {
    /// The primary's clock. The holds that have lapsed by this clock are dropped first.
    pub clock: UnixMs,
    /// The change after that.
    pub change: Change,
}

impl Effect {
    /// Returns whether the key's TTL becomes the last deadline, even if a client set an earlier one.
    #[inline]
    pub(crate) fn sets_ttl_anew(&self) -> bool {
        matches!(self.change, Change::Put { expiry: Expiry::Anew, .. })
    }
}

/// The change that an [`Effect`] makes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// The owner has this hold from now on. It replaces the owner's hold of the same mode, if there is one.
    Put {
        /// The whole hold.
        hold: Hold,
        /// The change of the key's TTL.
        expiry: Expiry,
    },
    /// The owner's hold of this mode, or of both, ends.
    Remove {
        /// The owner.
        owner: Owner,
        /// The mode; `None` for both.
        mode: Option<Mode>,
    },
    /// Nothing but the drop of lapsed holds. A TTL beyond the last deadline becomes the last deadline.
    Sweep,
}

/// The change that an effect makes to the key's TTL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expiry {
    /// The TTL becomes the last deadline.
    Anew,
    /// The TTL becomes the last deadline, unless a client set it to an earlier time, which stays.
    Keep,
    /// The TTL stays. Effects of a rewritten AOF need this: there the server itself writes the TTL.
    Leave,
}

/// The part of a server's state, beside its locks, that effects change.
#[derive(Clone, Debug, Default)]
pub struct Memory {
    /// The token clock, which advances with every token in an effect.
    pub tokens: TokenClock,
    /// Memory of holds that are gone, to be freed a piece at a time.
    pub trash: Trash,
}

impl Memory {
    /// Returns the state of a server that has seen no effect.
    pub const fn new() -> Memory {
        Memory { tokens: TokenClock::new(), trash: Trash::new() }
    }
}

/// The result of applying an effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Applied {
    /// How many lapsed holds were dropped.
    pub lapsed: u64,
    /// The change of the key's TTL, if a hold is left.
    pub expiry: Expiry,
    /// Whether the holders or their counts changed. A renewal changes neither.
    pub is_visible: bool,
}

impl Lock {
    /// Drops the holds that have lapsed by the effect's clock, then makes the effect's change. O(log n).
    ///
    /// If the lock is empty afterwards, the caller deletes its key.
    #[inline(always)]
    pub fn apply(&mut self, effect: Effect, memory: &mut Memory) -> Applied {
        let Memory { tokens, trash } = memory;
        let lapsed = self.holds.drop_lapsed(effect.clock, trash);
        let (expiry, is_changed) = match effect.change {
            Change::Put { hold, expiry } => {
                tokens.observe(hold.token);
                let count = hold.count;
                (expiry, self.holds.put(hold, trash) != Some(count))
            }
            Change::Remove { owner, mode } => {
                let exclusive = mode != Some(Mode::Shared) && self.holds.remove(&owner, Mode::Exclusive, trash);
                let shared = mode != Some(Mode::Exclusive) && self.holds.remove(&owner, Mode::Shared, trash);
                (Expiry::Keep, exclusive || shared)
            }
            Change::Sweep => (Expiry::Keep, false),
        };
        Applied { lapsed, expiry, is_visible: is_changed || lapsed > 0 }
    }
}
