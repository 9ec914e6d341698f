//! What can be read of a lock without changing it. Lapsed holds do not show, except where a name says so.

use crate::{Hold, Lock, Mode, Owner, Token, UnixMs, Waiters};

/// What the live holds of a lock come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Summary {
    /// The modes held.
    pub mode: LockMode,
    /// How many owners hold it.
    pub holders: u64,
    /// Entries of all holds together.
    pub entries: u64,
    /// The highest token.
    pub token: Token,
    /// The last deadline.
    pub deadline: UnixMs,
}

/// The modes in which a lock is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockMode {
    /// By one owner, exclusively.
    Exclusive,
    /// By one or more owners, shared.
    Shared,
    /// By one owner, in both modes.
    Both,
}

impl Lock {
    /// Whether there is no hold at all, not even a lapsed one.
    pub fn is_empty(&self) -> bool {
        self.holds.len() == 0
    }

    /// How many holds are stored, lapsed ones too.
    pub fn stored(&self) -> usize {
        self.holds.len()
    }

    /// Whether a stored hold has lapsed at `now`. O(1).
    pub fn has_lapsed(&self, now: UnixMs) -> bool {
        self.holds.first_deadline().is_some_and(|deadline| deadline <= now)
    }

    /// The first deadline of all stored holds; `None` if there are none. O(1).
    pub fn first_deadline(&self) -> Option<UnixMs> {
        self.holds.first_deadline()
    }

    /// The last deadline of all stored holds; `None` if there are none. O(1).
    pub fn last_deadline(&self) -> Option<UnixMs> {
        self.holds.last_deadline()
    }

    /// Whether a key that ends then (`None`: never) outlives the last deadline by more than it may: somebody has changed
    /// its time to live, or has ceased to wait. O(1).
    pub fn is_outlived(&self, key_end: Option<UnixMs>, waiters: Waiters) -> bool {
        let is_late = |last| key_end.is_none_or(|end| end > waiters.key_end(last));
        self.last_deadline().is_some_and(is_late)
    }

    /// What the live holds come to; `None` if there are none. One step a lapsed hold, none a live one.
    pub fn summary(&self, now: UnixMs) -> Option<Summary> {
        let deadline = self.last_deadline()?;
        let exclusive = self.holds.exclusive().filter(|hold| hold.is_live(now));
        let (mut holds, mut entries) = (self.holds.len() as u64, self.holds.entries());
        for hold in self.holds.by_deadline().rev().take_while(|hold| !hold.is_live(now)) {
            holds -= 1;
            entries -= u64::from(hold.count);
        }
        let (mode, holders) = match (exclusive, holds) {
            (Some(_), 1) => (LockMode::Exclusive, 1),
            // Beside a live exclusive hold there is only the same owner's shared one.
            (Some(_), _) => (LockMode::Both, 1),
            (None, _) => (LockMode::Shared, holds),
        };
        let token = self.holds.by_token().rev().find(|hold| hold.is_live(now))?.token;
        Some(Summary { mode, holders, entries, token, deadline })
    }

    /// The latest deadline of a live hold with this token. O(log n).
    pub fn deadline_of(&self, token: Token, now: UnixMs) -> Option<UnixMs> {
        self.holds.with_token(token).filter(|hold| hold.is_live(now)).map(|hold| hold.deadline).max()
    }

    /// The live holds, lowest token first.
    pub fn live_holds(&self, now: UnixMs) -> impl Iterator<Item = &Hold> {
        self.holds.by_token().filter(move |hold| hold.is_live(now))
    }

    /// The live holds of one owner, lowest token first: none to two. O(log n).
    pub fn live_holds_of(&self, owner: &Owner, now: UnixMs) -> impl Iterator<Item = &Hold> {
        let (exclusive, shared) = self.mine(owner, now);
        let (first, second) = match (exclusive, shared) {
            (Some(a), Some(b)) if b.token < a.token => (shared, exclusive),
            _ => (exclusive, shared),
        };
        first.into_iter().chain(second)
    }

    /// Who keeps others from entering in `mode`: the exclusive owner, and for `Mode::Exclusive` the readers too.
    pub fn owners_in_the_way(&self, mode: Mode, now: UnixMs) -> impl Iterator<Item = &Owner> {
        let is_in_the_way = move |hold: &&Hold| mode == Mode::Exclusive || hold.mode == Mode::Exclusive;
        self.live_holds(now).filter(is_in_the_way).map(|hold| &hold.owner)
    }

    /// All stored holds, lapsed ones too, lowest token first.
    pub fn stored_holds(&self) -> impl Iterator<Item = &Hold> {
        self.holds.by_token()
    }

    /// Bytes on the heap beside the value itself, about. One step a hold.
    pub fn heap_bytes(&self) -> usize {
        self.holds.heap_bytes()
    }
}
