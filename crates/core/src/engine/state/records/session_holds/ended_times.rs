//! The deadlines of the holds of ended sessions. They give the number of live holds without a look at each session.
//!
//! Sessions that end with a few holds share one set of deadlines. A session with many holds keeps its own set:
//! each of these sessions has more than `A_FEW` of the lock's holds, so there are far fewer of them than holds.

use hashbrown::HashSet;

use foldhash::fast::FixedState;

use super::session::Session;
use crate::holds::{Deadlines, Sum};
use crate::{SessionKey, UnixMs};

/// The ended sessions of one lock that still have holds.
#[derive(Clone, Debug, Default)]
pub(super) struct EndedTimes {
    keys: HashSet<SessionKey, FixedState>,
    /// The deadlines of sessions that ended with a few holds.
    together: Deadlines,
    /// The sessions that ended with more holds, each of which keeps its own deadlines.
    apart: Vec<SessionKey>,
    /// The end of the last grace of all these sessions.
    latest: UnixMs,
}

/// A session with at most this many holds adds its deadlines to the shared set.
const A_FEW: usize = 64;

impl EndedTimes {
    /// Records that a session has ended. Its grace ends at `over`.
    pub(super) fn add(&mut self, key: SessionKey, session: &mut Session, over: UnixMs) {
        self.keys.insert(key);
        self.latest = self.latest.max(over);
        if session.deadlines.total().holds > A_FEW {
            return self.apart.push(key);
        }
        session.shares_deadlines = true;
        session.deadlines.items().for_each(|(at, id, entries)| self.together.insert(at, id, entries, false));
    }

    /// Forgets a session that has no hold any more.
    pub(super) fn remove(&mut self, key: SessionKey, session: &Session) {
        self.keys.remove(&key);
        if !session.shares_deadlines {
            self.apart.retain(|other| *other != key);
        }
        if self.keys.is_empty() {
            *self = EndedTimes::default();
        }
    }

    /// Returns the shared set of deadlines, if those of this session are in it.
    pub(super) fn of(&mut self, session: &Session) -> Option<&mut Deadlines> {
        session.shares_deadlines.then_some(&mut self.together)
    }

    /// Returns whether a session has ended.
    pub(super) fn has(&self, key: SessionKey) -> bool {
        self.keys.contains(&key)
    }

    /// Returns whether no ended session has a grace left at `now`.
    pub(super) fn are_over(&self, now: UnixMs) -> bool {
        self.latest <= now
    }

    /// Returns the sum of the holds that are live at `clock`. Takes one step for each 512 holds, and one for each
    /// session with more than [`A_FEW`].
    pub(super) fn live<'s>(&self, clock: UnixMs, session: impl Fn(SessionKey) -> Option<&'s Session>) -> Sum {
        let apart = self.apart.iter().filter_map(|key| session(*key));
        apart.fold(self.together.live(clock), |sum, session| sum.plus(session.deadlines.live(clock)))
    }
}
