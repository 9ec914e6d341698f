//! Methods of a lock that do not change it. They leave out lapsed holds, except where a name or a comment says
//! otherwise.

use crate::{Hold, Lock, Mode, Owner, Token, UnixMs};

/// The live holds of a lock, summed up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Summary {
    /// The modes held.
    pub mode: LockMode,
    /// How many owners hold it.
    pub holders: u64,
    /// Entries of all holds together.
    pub entries: u64,
    /// The highest token; `None` without a live hold.
    pub token: Option<Token>,
    /// The last deadline; `None` without a live hold.
    pub deadline: Option<UnixMs>,
}

/// The modes in which a lock is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockMode {
    /// Not at all.
    Free,
    /// By one owner, exclusively.
    Exclusive,
    /// By one or more owners, shared.
    Shared,
    /// By one owner, in both modes.
    Both,
}

impl Summary {
    /// Returns the sum of holds that are all live, in any order. One step a hold.
    pub(crate) fn of<'a>(holds: impl Iterator<Item = &'a Hold>) -> Summary {
        let (mut exclusive, mut shared) = (0, 0);
        let mut summary = Summary { mode: LockMode::Free, holders: 0, entries: 0, token: None, deadline: None };
        for hold in holds {
            match hold.mode {
                Mode::Exclusive => exclusive += 1,
                Mode::Shared => shared += 1,
            }
            summary.entries += u64::from(hold.count);
            summary.token = summary.token.max(Some(hold.token));
            summary.deadline = summary.deadline.max(Some(hold.deadline));
        }
        (summary.mode, summary.holders) = mode(exclusive, shared);
        summary
    }
}

/// Returns the mode and the number of holders. Beside an exclusive hold there is only the same owner's shared one.
fn mode(exclusive: usize, shared: usize) -> (LockMode, u64) {
    match (exclusive, shared) {
        (0, 0) => (LockMode::Free, 0),
        (0, _) => (LockMode::Shared, shared as u64),
        (_, 0) => (LockMode::Exclusive, 1),
        (_, _) => (LockMode::Both, 1),
    }
}

impl Lock {
    /// Returns whether there is no hold at all, not even a lapsed one.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.holds.len() == 0
    }

    /// Returns how many holds are stored, lapsed ones too. Holds that an effect has dropped do not count, even those
    /// that are not freed yet.
    pub fn stored(&self) -> usize {
        self.holds.len()
    }

    /// Returns how many holds are stored, lapsed ones and dropped ones that are not freed yet, too.
    pub(crate) fn stored_or_dropped(&self) -> usize {
        self.holds.stored_or_dropped()
    }

    /// Returns how many holds freeing the lock frees.
    pub fn free_effort(&self) -> usize {
        self.stored_or_dropped()
    }

    /// Returns whether a stored hold has lapsed at `now`. O(1).
    #[inline]
    pub fn has_lapsed(&self, now: UnixMs) -> bool {
        self.holds.first_deadline().is_some_and(|deadline| deadline <= now)
    }

    /// Returns how many stored holds have lapsed at `now`. One step for each 512.
    pub fn lapsed(&self, now: UnixMs) -> usize {
        self.holds.lapsed(now).holds
    }

    /// Returns how many stored holds have lapsed at `now` because of their cap. One step for each 512.
    pub(crate) fn lapsed_at_cap(&self, now: UnixMs) -> usize {
        self.holds.lapsed_at_cap(now)
    }

    /// Returns the first deadline of all stored holds; `None` if there are none. O(1).
    #[inline]
    pub fn first_deadline(&self) -> Option<UnixMs> {
        self.holds.first_deadline()
    }

    /// Returns the last deadline of all stored holds; `None` if there are none. O(1).
    #[inline]
    pub fn last_deadline(&self) -> Option<UnixMs> {
        self.holds.last_deadline()
    }

    /// Sums up the live holds. One step for each 64 that have lapsed.
    pub fn summary(&self, now: UnixMs) -> Summary {
        let exclusive = self.holds.exclusive().filter(|hold| hold.is_live(now));
        let shared = self.holds.live_shared(now);
        let (mode, holders) = mode(usize::from(exclusive.is_some()), shared.holds);
        let entries = exclusive.map_or(0, |hold| u64::from(hold.count)) + shared.entries;
        let token = self.holds.live_by_token(now).next_back().map(|hold| hold.token);
        Summary { mode, holders, entries, token, deadline: token.and(self.last_deadline()) }
    }

    /// Returns the live holds with this token. O(log n).
    pub fn with_token(&self, token: Token, now: UnixMs) -> impl Iterator<Item = &Hold> {
        self.holds.with_token(token).filter(move |hold| hold.is_live(now))
    }

    /// Returns the latest deadline of a live hold with this token. O(log n).
    pub fn deadline_of(&self, token: Token, now: UnixMs) -> Option<UnixMs> {
        self.with_token(token, now).map(|hold| hold.deadline).max()
    }

    /// Returns the live holds, lowest token first. One step for each 64 that have lapsed, and for each neighbour of a
    /// live one.
    pub fn live_holds(&self, now: UnixMs) -> impl Iterator<Item = &Hold> {
        self.holds.live_by_token(now)
    }

    /// Returns the live holds of one owner, lowest token first: none to two. O(log n).
    pub fn live_holds_of(&self, owner: &Owner, now: UnixMs) -> impl Iterator<Item = &Hold> {
        let (exclusive, shared) = self.mine(owner, now);
        let (first, second) = match (exclusive, shared) {
            (Some(a), Some(b)) if b.token < a.token => (shared, exclusive),
            _ => (exclusive, shared),
        };
        first.into_iter().chain(second)
    }

    /// Returns the live exclusive hold.
    pub fn exclusive(&self, now: UnixMs) -> Option<&Hold> {
        self.holds.exclusive().filter(|hold| hold.is_live(now))
    }

    /// Returns all stored holds, lapsed ones too, in no order: the fastest way to list them.
    pub(crate) fn stored_in_no_order(&self) -> impl Iterator<Item = &Hold> {
        self.holds.iter()
    }

    /// Returns how many holds are live. One step for each 512 that have lapsed.
    pub(crate) fn live_count(&self, now: UnixMs) -> usize {
        self.stored() - self.lapsed(now)
    }

    /// Returns the live holds, the one with the last deadline first.
    pub(crate) fn live_by_deadline(&self, now: UnixMs) -> impl Iterator<Item = &Hold> {
        self.holds.by_deadline().take_while(move |hold| hold.is_live(now))
    }

    /// Returns all stored holds, lapsed ones too, lowest token first.
    pub fn stored_holds(&self) -> impl Iterator<Item = &Hold> {
        self.holds.by_token()
    }

    /// Returns the bytes on the heap beside the value itself, about. One step for each of the first 1,000 holds, and
    /// for each 64 of all.
    pub fn heap_bytes(&self) -> usize {
        self.holds.heap_bytes()
    }
}
