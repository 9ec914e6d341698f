//! `DLOCK.SESSION`, and the end of named sessions.

use crate::engine::keyspace::Keyspace;
use crate::engine::keyspace::UserState;
use crate::engine::state::budget::{Budget, REJECTED_AT_ONCE};
use crate::engine::state::engine::Engine;
use crate::engine::state::fault::Fault;
use crate::engine::state::outbox::Answer;
use crate::engine::state::records::record::Record;
use crate::engine::state::records::session_holds::{Binding, SessionEnd};
use crate::engine::state::sessions::named::{LISTED, OpenSession};
use crate::settings::Settings;
use crate::{Lease, Mode, NamedId, NoSession, Now, SessionId, SessionKey, Token, Uptime};

/// A heartbeat, or the opening of a session.
#[derive(Clone, Copy, Debug)]
pub struct Heartbeat<'a> {
    /// The session.
    pub id: &'a SessionId,
    /// The user that sends the command.
    pub user: &'a [u8],
    /// How long the session lasts without another heartbeat.
    pub timeout: Lease,
    /// Whether the command may open the session, keep an open one, or both.
    pub only: OpenIf,
}

/// The actions that a heartbeat may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenIf {
    /// Keep the session if it is open, open it otherwise.
    Any,
    /// `NX`: only open the session.
    New,
    /// `XX`: only keep the session.
    Open,
}

/// A hold that is bound to a session, as `LIST` shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BoundHold<'a> {
    /// The database.
    pub db: i32,
    /// The key.
    pub key: &'a [u8],
    /// The owner, as the client sent it.
    pub owner: &'a [u8],
    /// The mode.
    pub mode: Mode,
    /// The fencing token.
    pub token: Token,
}

/// The holds that are bound to a session, as `LIST` shows them.
///
/// All names are copied into one piece of memory. A list may be long: an allocation for each name would cost much time,
/// and so would looking up each key again for the reply.
#[derive(Clone, Debug)]
pub struct BoundHolds {
    holds: Vec<Listed>,
    /// The key and the owner of each hold, one after the other.
    names: Vec<u8>,
}

/// A hold in a list, without its names.
#[derive(Clone, Copy, Debug)]
struct Listed {
    db: i32,
    mode: Mode,
    token: Token,
    key_len: usize,
    owner_len: usize,
}

impl BoundHolds {
    fn with_capacity(holds: usize) -> BoundHolds {
        BoundHolds { holds: Vec::with_capacity(holds), names: Vec::new() }
    }

    fn push(&mut self, record: &Record, binding: &Binding) {
        let owner = binding.owner.text();
        self.names.extend_from_slice(&record.key);
        self.names.extend_from_slice(&owner);
        let (key_len, owner_len) = (record.key.len(), owner.len());
        self.holds.push(Listed { db: record.db, mode: binding.mode, token: binding.token, key_len, owner_len });
    }

    /// Returns how many holds there are.
    pub fn len(&self) -> usize {
        self.holds.len()
    }

    /// Returns whether there is no hold.
    pub fn is_empty(&self) -> bool {
        self.holds.is_empty()
    }

    /// Returns the holds.
    pub fn iter(&self) -> impl Iterator<Item = BoundHold<'_>> {
        let mut names = &*self.names;
        let mut take = move |len| {
            let (name, rest) = names.split_at_checked(len).unwrap_or_default();
            names = rest;
            name
        };
        self.holds.iter().map(move |hold| {
            let (key, owner) = (take(hold.key_len), take(hold.owner_len));
            BoundHold { db: hold.db, key, owner, mode: hold.mode, token: hold.token }
        })
    }
}

/// `LIST` stops after about this many bytes of names.
const LISTED_BYTES: usize = 1 << 20;

impl<T> Engine<T> {
    /// Opens a named session, or keeps it open. Returns how many holds are bound to it; `None` if it is open and `only`
    /// is [`OpenIf::New`]. `state` returns what the server knows of the user; it is called only if a session is opened.
    /// O(log n).
    ///
    /// # Errors
    /// [`Fault::NoSession`], [`Fault::DisabledUser`], [`Fault::TooManySessions`] and [`Fault::TooManySessionsOfUser`].
    pub fn keep_session(
        &mut self,
        beat: Heartbeat<'_>,
        (uptime, now): (Uptime, Now),
        state: impl FnOnce() -> UserState,
    ) -> Result<Option<usize>, Fault> {
        let named = &mut self.parts.sessions.named;
        let ms = beat.timeout.get();
        named.limit_wake(now);
        match (named.find(beat.id.as_bytes(), beat.user), beat.only) {
            (Some(_), OpenIf::New) => Ok(None),
            (Some(open), OpenIf::Any | OpenIf::Open) => {
                named.beat(open, ms, uptime);
                Ok(Some(named.holds(open)))
            }
            (None, OpenIf::Open) => Err(Fault::NoSession(NoSession::Unknown)),
            (None, _) => {
                let Settings { max_sessions, max_sessions_per_user, .. } = self.parts.settings;
                if max_sessions.is_some_and(|max| named.len() >= max) {
                    return Err(Fault::TooManySessions);
                }
                if max_sessions_per_user.is_some_and(|max| named.count_of(beat.user) >= max) {
                    return Err(Fault::TooManySessionsOfUser);
                }
                let is_known = match state() {
                    UserState::Enabled => true,
                    UserState::Unknown => false,
                    UserState::Disabled => return Err(Fault::DisabledUser),
                };
                named.open(beat.id, (beat.user, is_known), ms, (uptime, now));
                Ok(Some(0))
            }
        }
    }

    /// Ends a named session of a user, and releases its holds without a grace. Returns how many holds were bound to it;
    /// `None` if there is no such session.
    pub fn close_session(&mut self, id: &SessionId, user: &[u8], now: Now) -> Option<usize> {
        let named = self.parts.sessions.named.find(id.as_bytes(), user)?;
        let holds = self.parts.sessions.named.holds(named);
        self.end_named(named, SessionEnd { at: now.ms(), grace: None });
        // Some requests that wait for the session are answered here, because in a pause or in a transaction no timer
        // runs before the next command. All commands between two ticks together answer REJECTED_AT_ONCE of them.
        let (waiting, sent_away) = (self.parts.waiters.len(), self.parts.sessions.sent_away);
        self.reject_orphans(REJECTED_AT_ONCE.saturating_sub(sent_away));
        self.parts.sessions.sent_away = sent_away + waiting - self.parts.waiters.len();
        Some(holds)
    }

    /// Returns the open named sessions of a user, or of all users: at most `most`.
    pub fn list_sessions(&self, user: Option<&[u8]>, most: usize, uptime: Uptime) -> Vec<OpenSession> {
        self.parts.sessions.named.list(user, (most, LISTED_BYTES), uptime)
    }

    /// Returns the live holds that are bound to a named session of a user, at most `most`; `None` if there is no such
    /// session. The list of a session with more than 20,000 locks and holds has only a part.
    pub fn list_session(&mut self, id: &SessionId, user: &[u8], most: usize, now: Now) -> Option<BoundHolds> {
        let named = self.parts.sessions.named.find(id.as_bytes(), user)?;
        let key = SessionKey::Named(named);
        let expected = self.parts.sessions.named.holds(named).min(most).min(LISTED);
        let (mut listed, mut steps, mut bytes) = (BoundHolds::with_capacity(expected), LISTED, 0);
        for id in self.parts.sessions.locks_of(key) {
            if steps == 0 || listed.len() >= most || bytes >= LISTED_BYTES {
                break;
            }
            steps -= 1;
            let Some(record) = self.registry.get(id).filter(|record| !self.registry.is_stale(record)) else { continue };
            for binding in record.bound.of_session(key).take(steps.min(most - listed.len())) {
                steps -= 1;
                if bytes >= LISTED_BYTES {
                    break;
                }
                if now.ms() < binding.deadline {
                    bytes += record.key.len() + binding.owner.heap_bytes();
                    listed.push(record, binding);
                }
            }
        }
        Some(listed)
    }

    /// Looks up a named session for a request of this user. `user` is `None` if the client has no user.
    pub fn look_up_session(&self, id: &SessionId, user: Option<&[u8]>) -> Result<NamedId, NoSession> {
        let user = user.ok_or(NoSession::Userless)?;
        self.parts.sessions.named.find(id.as_bytes(), user).ok_or(NoSession::Unknown)
    }

    /// Asks the server about some of the users that have named sessions: the sessions of a deleted or disabled user
    /// end.
    pub(super) fn check_users<S: Keyspace>(&mut self, space: &mut S) {
        for user in self.parts.sessions.named.users_to_check() {
            let state = space.user_state(&user);
            self.parts.sessions.named.note_user(&user, state);
        }
    }

    /// Ends a named session whose time has passed or whose user is gone, and answers some of the requests that waited
    /// to be bound to an ended session. Returns whether there was such a session or request.
    pub(super) fn end_overdue(&mut self, now: Now, budget: &mut Budget) -> bool {
        let has_orphans = self.reject_orphans(REJECTED_AT_ONCE);
        if !self.parts.sessions.named.is_due() {
            return has_orphans;
        }
        budget.should_yield = true;
        if let Some(named) = self.parts.sessions.named.next_overdue() {
            let grace = self.parts.settings.session_grace;
            self.end_named(named, SessionEnd { at: now.ms(), grace });
        }
        true
    }

    fn end_named(&mut self, named: NamedId, end: SessionEnd) {
        let Some(id) = self.parts.sessions.named.close(named) else { return };
        self.end_session(SessionKey::Named(named), Some(&id), end);
        // `reject_orphans` answers the requests that wait to be bound to the session, a piece at a time.
        if self.parts.waiters.of_session(named).is_some() {
            self.parts.sessions.orphaned.push(named);
        }
    }

    /// Answers up to `most` requests that wait to be bound to a session that has ended. Returns whether there was such
    /// a session.
    fn reject_orphans(&mut self, most: usize) -> bool {
        let Some(named) = self.parts.sessions.orphaned.last().copied() else { return false };
        for _ in 0..most {
            let Some(waiter) = self.parts.waiters.of_session(named) else {
                self.parts.sessions.orphaned.pop();
                return true;
            };
            self.answer(waiter, Answer::Fault(Fault::NoSession(NoSession::Unknown)));
        }
        true
    }
}
