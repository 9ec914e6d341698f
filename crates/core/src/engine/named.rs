//! The named sessions of a server: who has opened each, and when it ends unless another heartbeat comes.
//!
//! # Implementation details
//! Session time advances by the machine's monotonic clock, but by [`MAX_STEP_US`] at most between two turns of the timer, and
//! not at all in a pause. The timer therefore runs every [`BEAT_MS`] while a session is open. A stall of the server ends no
//! session whose heartbeats wait to be read: after one, the timer ends none before its next turn. A heartbeat only notes the
//! new end. The agenda may keep an earlier time (`listed`); [`NamedSessions::next_overdue`] corrects it when that has come.

use std::collections::BTreeSet;

use foldhash::fast::FixedState;
use hashbrown::HashMap;

use super::budget::LOOKED_AT_ONCE;
use super::load::Load;
use crate::session::NamedId;
use crate::{NoSession, Now, SessionId, UnixMs, Uptime};

/// How often the timer runs while a session is open, in ms.
const BEAT_MS: u64 = 50;
/// How much session time passes at most between two turns of the timer, in µs.
const MAX_STEP_US: u64 = 100_000;

/// Session time, in µs since the engine began.
type SessionUs = u64;

#[derive(Clone, Debug)]
pub(super) struct NamedSessions {
    ids: HashMap<SessionId, NamedId, FixedState>,
    open: HashMap<NamedId, NamedSession, FixedState>,
    /// The watchdog's work for the sessions of each user together.
    loads: HashMap<Box<[u8]>, Load, FixedState>,
    /// When each is looked at: at its end, or earlier.
    agenda: BTreeSet<(SessionUs, NamedId)>,
    /// How many have been opened so far.
    opened: u64,
    now: SessionUs,
    /// When session time advanced last.
    advanced: Uptime,
    /// When the timer runs next for sessions; [`UnixMs::MAX`]: not at all.
    wake_at: UnixMs,
    /// Whether the timer may end sessions in this turn.
    is_due: bool,
    /// The turn before came after a stall, and ended no session.
    skipped_a_turn: bool,
}

#[derive(Clone, Debug)]
struct NamedSession {
    id: SessionId,
    user: Box<[u8]>,
    ends: SessionUs,
    /// Its place in the agenda.
    listed: SessionUs,
    /// How many holds are bound to it.
    holds: usize,
    /// The watchdog's work for it.
    load: Load,
}

impl NamedSessions {
    pub(super) fn new(hasher: FixedState) -> NamedSessions {
        NamedSessions {
            ids: HashMap::with_hasher(hasher.clone()),
            open: HashMap::with_hasher(hasher.clone()),
            loads: HashMap::with_hasher(hasher),
            agenda: BTreeSet::new(),
            opened: 0,
            now: 0,
            advanced: Uptime::default(),
            wake_at: UnixMs::MAX,
            is_due: false,
            skipped_a_turn: false,
        }
    }

    /// Returns how many are open.
    pub(super) fn len(&self) -> usize {
        self.open.len()
    }

    /// Returns when the timer runs next for sessions: now, if one has ended; [`UnixMs::MAX`]: not at all.
    #[inline]
    pub(super) fn wake_at(&self) -> UnixMs {
        if self.is_due { UnixMs::ZERO } else { self.wake_at }
    }

    fn rest(&mut self, now: Now) {
        self.wake_at = if self.open.is_empty() { UnixMs::MAX } else { now.ms_later(BEAT_MS) };
    }

    /// Sets the timer anew if the clock may have been set back.
    pub(super) fn come_back(&mut self, now: Now) {
        if self.wake_at != UnixMs::MAX {
            self.wake_at = self.wake_at.min(now.ms_later(BEAT_MS));
        }
    }

    /// Lets session time pass: a turn of the timer.
    pub(super) fn advance(&mut self, uptime: Uptime, now: Now) {
        let has_stalled = uptime.us().saturating_sub(self.advanced.us()) > MAX_STEP_US;
        self.now = self.time_at(uptime);
        self.advanced = uptime;
        self.rest(now);
        // A server that is always slow ends sessions in every other turn.
        self.skipped_a_turn = has_stalled && !self.skipped_a_turn;
        self.is_due = !self.skipped_a_turn && self.is_overdue();
    }

    /// Lets session time stand still: a turn of the timer in a pause.
    pub(super) fn stand_still(&mut self, uptime: Uptime) {
        self.advanced = uptime;
        self.is_due = false;
    }

    fn time_at(&self, uptime: Uptime) -> SessionUs {
        self.now + uptime.us().saturating_sub(self.advanced.us()).min(MAX_STEP_US)
    }

    /// Returns the open session with this id.
    pub(super) fn find(&self, id: &[u8]) -> Option<NamedId> {
        self.ids.get(id).copied()
    }

    /// Returns the open session with this id, for this user; `None`: for anybody.
    pub(super) fn find_for(&self, id: &[u8], user: Option<&[u8]>) -> Result<NamedId, NoSession> {
        let named = self.find(id).ok_or(NoSession::Unknown)?;
        let session = self.open.get(&named).ok_or(NoSession::Unknown)?;
        if user.is_none_or(|user| *user == *session.user) { Ok(named) } else { Err(NoSession::Foreign) }
    }

    /// Returns whether a session is open.
    pub(super) fn is_open(&self, named: NamedId) -> bool {
        self.open.contains_key(&named)
    }

    /// Returns the id of an open session.
    pub(super) fn id_of(&self, named: NamedId) -> Option<SessionId> {
        self.open.get(&named).map(|session| session.id.clone())
    }

    /// Returns how many holds are bound to a session.
    pub(super) fn holds(&self, named: NamedId) -> usize {
        self.open.get(&named).map_or(0, |session| session.holds)
    }

    /// Returns the watchdog's work for the sessions of the user that has opened this one. A session costs nothing: were
    /// each limited by itself, its user could open as many as it needs.
    pub(super) fn load_of_user(&self, named: NamedId) -> Load {
        let user = self.open.get(&named).map(|session| &session.user);
        user.and_then(|user| self.loads.get(user)).copied().unwrap_or(0)
    }

    /// Returns whether both sessions are open, and of one user.
    pub(super) fn have_one_user(&self, one: NamedId, other: NamedId) -> bool {
        one == other
            || match (self.open.get(&one), self.open.get(&other)) {
                (Some(one), Some(other)) => one.user == other.user,
                _ => false,
            }
    }

    /// Records that a session has more holds, or fewer, and that the watchdog does more for it, or less.
    pub(super) fn note_change(&mut self, named: NamedId, holds: i64, load: i64) {
        let Some(session) = self.open.get_mut(&named) else { return };
        let holds = isize::try_from(holds).unwrap_or(0);
        debug_assert!(session.holds.checked_add_signed(holds).is_some(), "a session has fewer holds than none");
        session.holds = session.holds.saturating_add_signed(holds);
        if load != 0 {
            debug_assert!(session.load.checked_add_signed(load).is_some(), "a session has less load than none");
            session.load = session.load.saturating_add_signed(load);
            let of_user = self.loads.entry_ref(&session.user).or_default();
            *of_user = of_user.saturating_add_signed(load);
        }
    }

    /// Opens a session.
    pub(super) fn open(&mut self, id: &SessionId, user: &[u8], ms: u64, (uptime, now): (Uptime, Now)) {
        let id = id.clone();
        if self.open.is_empty() {
            self.advanced = uptime;
            self.rest(now);
        }
        self.opened += 1;
        let named = NamedId(self.opened);
        let ends = self.time_at(uptime) + ms * 1000;
        self.ids.insert(id.clone(), named);
        self.open.insert(named, NamedSession { id, user: user.into(), ends, listed: ends, holds: 0, load: 0 });
        self.agenda.insert((ends, named));
        self.wake_at = self.wake_at.min(now.ms_later(BEAT_MS));
    }

    /// Records a heartbeat: the session ends `ms` from now. O(1), unless that is earlier than before.
    pub(super) fn beat(&mut self, named: NamedId, ms: u64, uptime: Uptime) {
        let ends = self.time_at(uptime) + ms * 1000;
        let Some(session) = self.open.get_mut(&named) else { return };
        session.ends = ends;
        if ends < session.listed {
            self.agenda.remove(&(session.listed, named));
            session.listed = ends;
            self.agenda.insert((ends, named));
        }
    }

    /// Closes a session. Returns its id.
    pub(super) fn close(&mut self, named: NamedId) -> Option<SessionId> {
        let session = self.open.remove(&named)?;
        self.agenda.remove(&(session.listed, named));
        self.ids.remove(session.id.as_bytes());
        if let Some(of_user) = self.loads.get_mut(&session.user) {
            *of_user = of_user.saturating_sub(session.load);
            if *of_user == 0 {
                self.loads.remove(&session.user);
            }
        }
        Some(session.id)
    }

    /// Returns a session that ends in this turn. Looks at a few: there may be more while [`NamedSessions::is_due`].
    pub(super) fn next_overdue(&mut self) -> Option<NamedId> {
        for _ in 0..LOOKED_AT_ONCE {
            let Some((at, named)) = self.agenda.first().copied().filter(|(at, _)| *at <= self.now) else { break };
            let session = self.open.get_mut(&named)?;
            if session.ends <= self.now {
                return Some(named);
            }
            self.agenda.remove(&(at, named));
            session.listed = session.ends;
            self.agenda.insert((session.ends, named));
        }
        self.is_due = self.is_overdue();
        None
    }

    /// Returns whether sessions may end in this turn, and one has to be checked.
    pub(super) fn is_due(&self) -> bool {
        self.is_due
    }

    fn is_overdue(&self) -> bool {
        self.agenda.first().is_some_and(|(at, _)| *at <= self.now)
    }

    /// Forgets all: the server is no primary any more. Returns whether there was one.
    pub(super) fn forget(&mut self) -> bool {
        let had_some = !self.open.is_empty();
        self.ids.clear();
        self.open.clear();
        self.loads.clear();
        self.agenda.clear();
        (self.wake_at, self.is_due) = (UnixMs::MAX, false);
        had_some
    }

    /// Checks that these are the loads and the holds of all open sessions.
    #[cfg(feature = "check")]
    pub(super) fn audit(&self, bound: impl Fn(NamedId) -> (Load, usize)) -> bool {
        let of_user = |user: &[u8]| -> Load {
            self.open.values().filter(|session| *session.user == *user).map(|session| session.load).sum()
        };
        let is_right = |(named, session): (&NamedId, &NamedSession)| {
            (session.load, session.holds) == bound(*named)
                && self.ids.get(session.id.as_bytes()) == Some(named)
                && self.agenda.contains(&(session.listed, *named))
                && session.listed <= session.ends
        };
        self.loads.iter().all(|(user, load)| of_user(user) == *load)
            && self.open.len() == self.ids.len()
            && self.open.len() == self.agenda.len()
            && self.open.iter().all(is_right)
            && (self.open.is_empty() || self.wake_at != UnixMs::MAX)
    }
}
