//! The one way a lock changes.
//!
//! A primary decides, applies the effect of its decision and replicates it; a replica, and a server that loads an
//! AOF, apply what they get. An effect carries absolute times only and the primary's clock, by which whoever applies
//! it first drops what had lapsed: nobody else's clock matters, and applying twice is the same as once.

use crate::{Hold, Lock, Mode, Owner, TokenClock, UnixMs};

/// A change of a lock at a time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Effect {
    /// The primary's clock: holds that had lapsed by it are dropped first.
    pub clock: UnixMs,
    /// What happens then.
    pub change: Change,
    /// Whether somebody waits for the lock afterwards.
    pub waiters: Waiters,
}

impl Effect {
    /// The hold as it is after this, if this gives or changes one.
    pub fn hold(&self) -> Option<&Hold> {
        match &self.change {
            Change::Put { hold, .. } => Some(hold),
            Change::Remove { .. } | Change::Sweep => None,
        }
    }
}

/// Whether somebody waits for a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waiters {
    /// Nobody does.
    None,
    /// Somebody does: the key ends [`Waiters::GRACE_MS`] after the last deadline, so that the module's timer finds it
    /// still there and hands over in place. To delete and make it again would wake every waiter in vain.
    Some,
}

impl Waiters {
    /// How much longer than its holds the key of a lock lives while somebody waits.
    pub const GRACE_MS: u64 = 50;

    /// When the key of a lock ends whose last deadline this is.
    pub(crate) fn key_end(self, last: UnixMs) -> UnixMs {
        match self {
            Waiters::None => last,
            Waiters::Some => UnixMs::new(last.get() + Self::GRACE_MS),
        }
    }
}

/// What an [`Effect`] does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// The hold is as given, in place of the same owner's in that mode.
    Put {
        /// The whole hold.
        hold: Hold,
        /// What becomes of the key's time to live.
        expiry: Expiry,
    },
    /// The owner's hold of this mode, or of both, is gone.
    Remove {
        /// Whose.
        owner: Owner,
        /// Which; `None` for both.
        mode: Option<Mode>,
    },
    /// Nothing more: lapsed holds are dropped, and a time to live beyond the last deadline is put back.
    Sweep,
}

/// What an effect does to the key's time to live.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expiry {
    /// It becomes the last deadline.
    Anew,
    /// It becomes the last deadline, unless somebody made it earlier than that (`EXPIRE`): that stands.
    Keep,
}

impl Expiry {
    /// When the key ends, if the last deadline is `last` now and it ended at what `current` says (`None`: never), which
    /// is asked only if it matters.
    pub fn key_deadline(self, current: impl FnOnce() -> Option<UnixMs>, last: UnixMs, waiters: Waiters) -> UnixMs {
        match self {
            Expiry::Anew => waiters.key_end(last),
            Expiry::Keep => current().filter(|current| *current < last).unwrap_or(waiters.key_end(last)),
        }
    }
}

/// What applying an effect did beside its change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Applied {
    /// How many lapsed holds were dropped.
    pub lapsed: u64,
    /// What becomes of the key's time to live, if a hold is left.
    pub expiry: Expiry,
    /// Whether somebody waits.
    pub waiters: Waiters,
    /// Whether it changed who holds what, or a count: a renewal does not.
    pub is_visible: bool,
}

impl Lock {
    /// Drops what had lapsed by the effect's clock, then makes its change. O(log n) and one step a dropped hold.
    ///
    /// A token in the effect is noted by `tokens`. The lock may be empty afterwards: then its key has to go.
    pub fn apply(&mut self, effect: Effect, tokens: &mut TokenClock) -> Applied {
        let lapsed = self.holds.drop_lapsed(effect.clock);
        let (expiry, changed) = match effect.change {
            Change::Put { hold, expiry } => {
                tokens.observe(hold.token);
                let old = self.holds.get(&hold.owner, hold.mode).map(|old| old.count);
                let count = hold.count;
                self.holds.put(hold);
                (expiry, old != Some(count))
            }
            Change::Remove { owner, mode } => {
                let exclusive = mode != Some(Mode::Shared) && self.holds.remove(&owner, Mode::Exclusive);
                let shared = mode != Some(Mode::Exclusive) && self.holds.remove(&owner, Mode::Shared);
                (Expiry::Keep, exclusive || shared)
            }
            Change::Sweep => (Expiry::Keep, false),
        };
        Applied { lapsed, expiry, waiters: effect.waiters, is_visible: changed || lapsed > 0 }
    }
}
