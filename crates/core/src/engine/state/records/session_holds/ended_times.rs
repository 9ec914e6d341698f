//! The deadlines of the holds of ended sessions. They give the number of live holds without a look at each session.
//!
//! Sessions that end with a few holds share one set of deadlines. A session with many holds keeps its own set:
//! each of these sessions has more than `A_FEW` of the lock's holds, so there are far fewer of them than holds.

use hashbrown::HashMap;

use foldhash::fast::FixedState;

use super::session::{Session, SessionEnd};
use crate::holds::{Deadlines, HoldId, Sum};
use crate::{SessionKey, UnixMs};

/// The ended sessions of one lock that still have holds.
#[derive(Clone, Debug, Default)]
pub(super) struct EndedTimes {
    ends: HashMap<SessionKey, SessionEnd, FixedState>,
    /// The deadlines of sessions that ended with a few holds.
    together: Deadlines,
    /// When the graces of these holds end. Holds without a grace, or that had lapsed before the end of their session,
    /// are left out.
    graces: Deadlines,
    /// The sessions that ended with more holds, each of which keeps its own deadlines.
    apart: Vec<SessionKey>,
    /// The end of the first grace, or of a session without one, of all that have ended since there were none.
    earliest: Option<UnixMs>,
    /// The end of the last grace, or of a session without one, of all that have ended since there was no grace.
    latest: UnixMs,
    /// When the last of these sessions ended.
    last_end: UnixMs,
    /// How many of these sessions have a grace.
    with_grace: usize,
    /// When the first session with a grace ended, of all that have ended since there was none.
    first_end: Option<UnixMs>,
}

/// A session with at most this many holds adds its deadlines to the shared set.
const A_FEW: usize = 64;

impl EndedTimes {
    /// Records that a session has ended.
    pub(super) fn add(&mut self, key: SessionKey, session: &mut Session, end: SessionEnd) {
        self.ends.insert(key, end);
        self.earliest = Some(self.earliest.map_or(end.deadline(), |earliest| earliest.min(end.deadline())));
        self.latest = self.latest.max(end.deadline());
        self.last_end = self.last_end.max(end.at);
        if end.grace.is_some() {
            self.with_grace += 1;
            self.first_end = Some(self.first_end.map_or(end.at, |first| first.min(end.at)));
        }
        if session.deadlines.total().holds > A_FEW {
            return self.apart.push(key);
        }
        session.shares_deadlines = true;
        session.deadlines.items().for_each(|(at, id, entries)| self.insert(Some(end), at, id, entries));
    }

    /// Forgets a session that has no hold any more.
    pub(super) fn remove(&mut self, key: SessionKey, session: &Session) {
        if self.ends.remove(&key).is_some_and(|end| end.grace.is_some()) {
            self.with_grace -= 1;
            if self.with_grace == 0 {
                (self.first_end, self.latest) = (None, self.last_end);
            }
        }
        if !session.shares_deadlines {
            self.apart.retain(|other| *other != key);
        }
        if self.ends.is_empty() {
            *self = EndedTimes::default();
        }
    }

    /// Adds a hold to the shared set. `end`: that of its session.
    pub(super) fn insert(&mut self, end: Option<SessionEnd>, deadline: UnixMs, id: HoldId, entries: u32) {
        self.together.insert(deadline, id, entries, false);
        if let Some(end) = end.filter(|end| end.grace.is_some() && end.at < deadline) {
            self.graces.insert(end.deadline(), id, entries, false);
        }
    }

    /// Takes a hold out of the shared set. `end`: that of its session.
    pub(super) fn take_out(&mut self, end: Option<SessionEnd>, deadline: UnixMs, id: HoldId) {
        self.together.remove(deadline, id);
        if let Some(end) = end {
            self.graces.remove(end.deadline(), id);
        }
    }

    /// Returns the end of a session that has ended.
    pub(super) fn end_of(&self, key: SessionKey) -> Option<SessionEnd> {
        self.ends.get(&key).copied()
    }

    /// Returns whether all of these sessions had ended at `now`. `false` is possible only if the clock was set back.
    pub(super) fn have_ended_by(&self, now: UnixMs) -> bool {
        self.last_end <= now
    }

    /// Returns `now` or, if an ended session may have a grace left then, a time before which no grace has begun.
    pub(super) fn before_graces(&self, now: UnixMs) -> UnixMs {
        self.first_end.filter(|_| !self.are_over(now)).map_or(now, |first| first.min(now))
    }

    /// Returns whether no ended session has a grace left at `now`.
    pub(super) fn are_over(&self, now: UnixMs) -> bool {
        self.latest <= now
    }

    /// Returns whether all ended sessions have a grace left at `now`. May be `false` without need.
    pub(super) fn are_all_left(&self, now: UnixMs) -> bool {
        self.earliest.is_none_or(|earliest| now < earliest)
    }

    /// Returns the sum of the holds that are live at `clock`. Takes one step for each 512 holds, and one for each
    /// session with more than [`A_FEW`].
    pub(super) fn live<'s>(&self, clock: UnixMs, session: impl Fn(SessionKey) -> Option<&'s Session>) -> Sum {
        let apart = self.apart.iter().filter_map(|key| session(*key));
        apart.fold(self.together.live(clock), |sum, session| sum.plus(session.deadlines.live(clock)))
    }

    /// Returns the sum of the holds that are in a grace at `now`, and the end of the last such grace. `swept`: holds
    /// with a deadline up to this time are not in the lock any more. The steps are those of `live`.
    pub(super) fn graced<'s>(
        &self,
        (now, swept): (UnixMs, UnixMs),
        session: impl Fn(SessionKey) -> Option<&'s Session>,
    ) -> (Sum, Option<UnixMs>) {
        // If some graces are over, and a change of the lock has dropped some holds after their leases, the sum may be
        // too high: the deadlines do not tell which holds are both.
        let (graced, stored) = (self.graces.live(now), self.together.live(swept));
        let mut sum = if graced.holds < stored.holds { graced } else { stored };
        let last = self.graces.last().map(|(at, _)| at);
        let mut last = last.filter(|last| now < *last && sum.holds > 0);
        for session in self.apart.iter().filter_map(|key| session(*key)) {
            let Some(end) = session.end.filter(|end| now < end.deadline()) else { continue };
            let graced = session.deadlines.live(swept.max(end.at));
            sum = sum.plus(graced);
            last = last.max(Some(end.deadline()).filter(|_| graced.holds > 0));
        }
        (sum, last)
    }
}
