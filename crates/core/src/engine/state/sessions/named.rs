//! The named sessions of a server: the user of each, and when it ends without another heartbeat. An id belongs to the
//! user that opens the session: two users may have sessions with the same id.
//!
//! # Implementation details
//! Session time advances by the machine's monotonic clock, but by [`MAX_STEP_US`] at most between two turns of the
//! timer, and not at all in a pause. The timer therefore runs every [`BEAT_MS`] while a session is open. A stall of the
//! server must not end sessions whose heartbeats wait to be read: the first turn of the timer after a stall ends none.
//! A heartbeat only records the new end. The agenda may keep an earlier time (`listed`). When that time comes,
//! [`NamedSessions::next_overdue`] corrects it.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::rc::Rc;

use foldhash::fast::FixedState;
use hashbrown::HashMap;
use smallvec::SmallVec;

use crate::engine::keyspace::UserState;
use crate::engine::state::budget::LOOKED_AT_ONCE;
use crate::engine::state::load::Load;
use crate::session::NamedId;
use crate::{Now, SessionId, UnixMs, Uptime};

/// How many sessions, or locks and holds, `LIST` looks at, at most. Lapsed holds and those that a flush removed count,
/// but are not shown.
pub(crate) const LISTED: usize = 20_000;

/// How often the timer runs while a session is open, in ms. An end must be noticed within 200 ms.
const BEAT_MS: u64 = 50;
/// How much session time passes at most between two turns of the timer, in µs: the contract says 100 ms.
const MAX_STEP_US: u64 = 100_000;
/// How many users a turn of the timer checks: whether they were deleted or disabled.
const USERS_AT_ONCE: usize = 256;

/// Session time, in µs since the engine began.
type SessionUs = u64;

#[derive(Clone, Debug)]
pub(crate) struct NamedSessions {
    open: HashMap<NamedId, NamedSession, FixedState>,
    /// The users that have open sessions.
    users: BTreeMap<Rc<[u8]>, UserSessions>,
    /// The user that was checked last (`None`: begin with the first), and when: the next are checked [`BEAT_MS`] later.
    checked: (Option<Rc<[u8]>>, Uptime),
    /// The users that were found to be deleted or disabled, whose sessions end.
    lost_users: Vec<Rc<[u8]>>,
    hasher: FixedState,
    /// When each session is looked at: at its end, or earlier.
    agenda: BTreeSet<(SessionUs, NamedId)>,
    /// How many sessions have been opened so far.
    opened: u64,
    now: SessionUs,
    /// When session time advanced last.
    advanced: Uptime,
    /// When the timer runs next for sessions; [`UnixMs::MAX`]: not at all.
    wake_at: UnixMs,
    /// Whether the timer may end sessions in this turn.
    is_due: bool,
    /// Whether the last turn came after a stall, and ended no session.
    skipped_a_turn: bool,
}

/// The sessions of one user.
#[derive(Clone, Debug)]
struct UserSessions {
    ids: HashMap<SessionId, NamedId, FixedState>,
    /// The load of all their renewals.
    load: Load,
    /// Whether the server knew the user when the last session was opened. Only such a user counts as deleted if the
    /// server does not know the name later.
    is_known: bool,
}

/// An open session, as `LIST` shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenSession {
    /// The user that opened it.
    pub user: Rc<[u8]>,
    /// The id that the client chose.
    pub id: SessionId,
    /// How many holds are bound to it.
    pub holds: usize,
    /// In how many ms it ends without another heartbeat.
    pub left: u64,
}

#[derive(Clone, Debug)]
struct NamedSession {
    id: SessionId,
    user: Rc<[u8]>,
    ends: SessionUs,
    /// The session's place in the agenda.
    listed: SessionUs,
    /// How many holds are bound to it.
    holds: usize,
    /// The load of its renewals.
    load: Load,
}

impl NamedSessions {
    pub(crate) fn new(hasher: FixedState) -> NamedSessions {
        NamedSessions {
            open: HashMap::with_hasher(hasher.clone()),
            users: BTreeMap::new(),
            checked: (None, Uptime::default()),
            lost_users: Vec::new(),
            hasher,
            agenda: BTreeSet::new(),
            opened: 0,
            now: 0,
            advanced: Uptime::default(),
            wake_at: UnixMs::MAX,
            is_due: false,
            skipped_a_turn: false,
        }
    }

    /// Returns how many sessions are open.
    pub(crate) fn len(&self) -> usize {
        self.open.len()
    }

    /// Returns when the timer runs next for sessions: now, if one has ended; [`UnixMs::MAX`]: not at all.
    #[inline]
    pub(crate) fn wake_at(&self) -> UnixMs {
        if self.is_due() { UnixMs::ZERO } else { self.wake_at }
    }

    fn set_wake(&mut self, now: Now) {
        self.wake_at = if self.open.is_empty() { UnixMs::MAX } else { now.ms_later(BEAT_MS) };
    }

    /// Brings the next turn of the timer nearer, if the clock was set back.
    pub(crate) fn limit_wake(&mut self, now: Now) {
        if self.wake_at != UnixMs::MAX {
            self.wake_at = self.wake_at.min(now.ms_later(BEAT_MS));
        }
    }

    /// Lets session time pass: a turn of the timer.
    pub(crate) fn advance(&mut self, uptime: Uptime, now: Now) {
        let has_stalled = uptime.us().saturating_sub(self.advanced.us()) > MAX_STEP_US;
        self.now = self.time_at(uptime);
        self.advanced = uptime;
        self.set_wake(now);
        // Two turns in a row are never skipped: a server that is always slow ends sessions in every other turn.
        self.skipped_a_turn = has_stalled && !self.skipped_a_turn;
        self.is_due = !self.skipped_a_turn && self.is_overdue();
    }

    /// Lets session time stand still: a turn of the timer in a pause.
    pub(crate) fn stand_still(&mut self, uptime: Uptime) {
        self.advanced = uptime;
        self.is_due = false;
    }

    fn time_at(&self, uptime: Uptime) -> SessionUs {
        self.now + uptime.us().saturating_sub(self.advanced.us()).min(MAX_STEP_US)
    }

    /// Returns the open session of this user with this id.
    pub(crate) fn find(&self, id: &[u8], user: &[u8]) -> Option<NamedId> {
        self.users.get(user)?.ids.get(id).copied()
    }

    /// Returns how many sessions a user has open.
    pub(crate) fn count_of(&self, user: &[u8]) -> usize {
        self.users.get(user).map_or(0, |of_user| of_user.ids.len())
    }

    /// Returns the first open sessions of a user, or of all, in the order of users and ids: at most `most`, and about
    /// `bytes` bytes of names. Looks at [`LISTED`] sessions at most: if there are more, the list may miss some.
    pub(crate) fn list(&self, user: Option<&[u8]>, (most, bytes): (usize, usize), uptime: Uptime) -> Vec<OpenSession> {
        let now = self.time_at(uptime);
        let (mut listed, mut bytes, mut steps) = (Vec::new(), bytes, LISTED);
        let users = self.users.iter().filter(|(name, _)| user.is_none_or(|user| *user == ***name));
        for (user, of_user) in users {
            let left = most - listed.len();
            if left.min(steps).min(bytes) == 0 {
                break;
            }
            let mut ids: Vec<_> = of_user.ids.iter().take(steps).collect();
            steps -= ids.len();
            if left < ids.len() {
                ids.select_nth_unstable(left);
                ids.truncate(left);
            }
            ids.sort_unstable();
            for session in ids.into_iter().filter_map(|(_, named)| self.open.get(named)) {
                let (id, holds) = (session.id.clone(), session.holds);
                bytes = bytes.saturating_sub(user.len() + id.as_bytes().len());
                listed.push(OpenSession {
                    user: Rc::clone(user),
                    id,
                    holds,
                    left: session.ends.saturating_sub(now) / 1000,
                });
                if bytes == 0 {
                    break;
                }
            }
        }
        listed
    }

    /// Returns whether a session is open.
    pub(crate) fn is_open(&self, named: NamedId) -> bool {
        self.open.contains_key(&named)
    }

    /// Returns the id of an open session.
    pub(crate) fn id_of(&self, named: NamedId) -> Option<SessionId> {
        self.open.get(&named).map(|session| session.id.clone())
    }

    /// Returns how many holds are bound to a session.
    pub(crate) fn holds(&self, named: NamedId) -> usize {
        self.open.get(&named).map_or(0, |session| session.holds)
    }

    /// Returns the load of all sessions of the user that has opened this one. The limit is for all of them together:
    /// otherwise, a user could open another session for each excess hold.
    pub(crate) fn load_of_user(&self, named: NamedId) -> Load {
        let user = self.open.get(&named).map(|session| &session.user);
        user.and_then(|user| self.users.get(user)).map_or(0, |of_user| of_user.load)
    }

    /// Returns whether both are the same session, or open sessions of one user.
    pub(crate) fn have_one_user(&self, one: NamedId, other: NamedId) -> bool {
        one == other
            || match (self.open.get(&one), self.open.get(&other)) {
                (Some(one), Some(other)) => one.user == other.user,
                _ => false,
            }
    }

    /// Adds to the number of holds and to the load of a session. Negative numbers subtract.
    pub(crate) fn note_change(&mut self, named: NamedId, holds: i64, load: i64) {
        let Some(session) = self.open.get_mut(&named) else { return };
        let holds = isize::try_from(holds).unwrap_or(0);
        debug_assert!(session.holds.checked_add_signed(holds).is_some(), "a session has fewer holds than none");
        session.holds = session.holds.saturating_add_signed(holds);
        if load != 0 {
            debug_assert!(session.load.checked_add_signed(load).is_some(), "a session has less load than none");
            session.load = session.load.saturating_add_signed(load);
            if let Some(of_user) = self.users.get_mut(&session.user) {
                of_user.load = of_user.load.saturating_add_signed(load);
            }
        }
    }

    /// Opens a session. `is_known`: whether the server knows the user.
    pub(crate) fn open(
        &mut self,
        id: &SessionId,
        (user, is_known): (&[u8], bool),
        ms: u64,
        (uptime, now): (Uptime, Now),
    ) {
        let id = id.clone();
        if self.open.is_empty() {
            self.advanced = uptime;
            self.set_wake(now);
        }
        self.opened += 1;
        let named = NamedId(self.opened);
        let ends = self.time_at(uptime) + ms * 1000;
        let user = self.users.get_key_value(user).map_or_else(|| user.into(), |(user, _)| Rc::clone(user));
        let new = || UserSessions { ids: HashMap::with_hasher(self.hasher.clone()), load: 0, is_known };
        let of_user = self.users.entry(Rc::clone(&user)).or_insert_with(new);
        of_user.is_known = is_known;
        of_user.ids.insert(id.clone(), named);
        self.open.insert(named, NamedSession { id, user, ends, listed: ends, holds: 0, load: 0 });
        self.agenda.insert((ends, named));
        self.wake_at = self.wake_at.min(now.ms_later(BEAT_MS));
    }

    /// Records a heartbeat: the session ends `ms` from now. O(1), unless that is earlier than the time in the agenda.
    pub(crate) fn beat(&mut self, named: NamedId, ms: u64, uptime: Uptime) {
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
    pub(crate) fn close(&mut self, named: NamedId) -> Option<SessionId> {
        let session = self.open.remove(&named)?;
        self.agenda.remove(&(session.listed, named));
        if let Some(of_user) = self.users.get_mut(&session.user) {
            of_user.load = of_user.load.saturating_sub(session.load);
            of_user.ids.remove(session.id.as_bytes());
            if of_user.ids.is_empty() {
                self.users.remove(&session.user);
            }
        }
        Some(session.id)
    }

    /// Returns the next users to check. No event tells that a user was deleted or disabled.
    pub(crate) fn users_to_check(&mut self) -> SmallVec<[Rc<[u8]>; 4]> {
        let (last, at) = &self.checked;
        if self.advanced.us().saturating_sub(at.us()) < BEAT_MS * 1000 {
            return SmallVec::new();
        }
        let behind = last.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
        let next = self.users.range::<[u8], _>((behind, Bound::Unbounded));
        let next: SmallVec<[Rc<[u8]>; 4]> = next.take(USERS_AT_ONCE).map(|(user, _)| Rc::clone(user)).collect();
        // After the last user, the next check begins with the first again.
        self.checked = (next.last().filter(|_| next.len() == USERS_AT_ONCE).cloned(), self.advanced);
        next
    }

    /// Records what the server knows of a user. The sessions of a deleted or disabled user end.
    pub(crate) fn note_user(&mut self, user: &Rc<[u8]>, state: UserState) {
        let is_known = self.users.get(user).is_some_and(|of_user| of_user.is_known);
        let is_lost = match state {
            UserState::Enabled => false,
            UserState::Disabled => true,
            UserState::Unknown => is_known,
        };
        if is_lost && !self.lost_users.contains(user) {
            self.lost_users.push(Rc::clone(user));
        }
    }

    /// Returns a session of a user that was deleted or disabled.
    fn next_of_lost_user(&mut self) -> Option<NamedId> {
        while let Some(user) = self.lost_users.last() {
            let named = self.users.get(user).and_then(|of_user| of_user.ids.values().next().copied());
            if named.is_some() {
                return named;
            }
            self.lost_users.pop();
        }
        None
    }

    /// Returns a session that ends in this turn. One call looks at a few sessions only: even after a `None`, there may
    /// be more while [`NamedSessions::is_due`] is true.
    pub(crate) fn next_overdue(&mut self) -> Option<NamedId> {
        if let Some(named) = self.next_of_lost_user() {
            return Some(named);
        }
        if !self.is_due {
            return None;
        }
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
    #[inline]
    pub(crate) fn is_due(&self) -> bool {
        self.is_due || !self.lost_users.is_empty()
    }

    fn is_overdue(&self) -> bool {
        self.agenda.first().is_some_and(|(at, _)| *at <= self.now)
    }

    /// Forgets all sessions: the server is no primary any more. Returns whether there was one.
    pub(crate) fn forget(&mut self) -> bool {
        let had_some = !self.open.is_empty();
        self.open.clear();
        self.users.clear();
        self.lost_users.clear();
        self.agenda.clear();
        (self.wake_at, self.is_due) = (UnixMs::MAX, false);
        had_some
    }

    /// Returns whether the indexes agree, and all open sessions have the loads and holds that `bound` counts.
    #[cfg(feature = "check")]
    pub(crate) fn audit(&self, bound: impl Fn(NamedId) -> (Load, usize)) -> bool {
        let of_user = |user: &[u8]| -> Load {
            self.open.values().filter(|session| *session.user == *user).map(|session| session.load).sum()
        };
        let is_right = |(named, session): (&NamedId, &NamedSession)| {
            (session.load, session.holds) == bound(*named)
                && self.find(session.id.as_bytes(), &session.user) == Some(*named)
                && self.agenda.contains(&(session.listed, *named))
                && session.listed <= session.ends
        };
        self.users.iter().all(|(user, sessions)| of_user(user) == sessions.load && !sessions.ids.is_empty())
            && self.open.len() == self.users.values().map(|sessions| sessions.ids.len()).sum::<usize>()
            && self.open.len() == self.agenda.len()
            && self.open.iter().all(is_right)
            && (self.open.is_empty() || self.wake_at != UnixMs::MAX)
    }
}
