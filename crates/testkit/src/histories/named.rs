//! The part of the naive model that is about named sessions.

use dlock_core::NamedId;
use dlock_core::engine::OpenIf;

use super::naive::{Naive, Reply};
use crate::histories::naive::Session;
use crate::histories::values::{CLIENTS, SessionNo, User};

/// The most session time that passes between two turns of the timer, in µs (section 4 of the contract).
pub const MAX_STEP_US: u64 = 100_000;
/// The numbers of named sessions are above this number, those of connections below.
const NAMED: u64 = 1 << 63;

impl Naive {
    /// Returns the user of a client. If `has_users` is set, client 0 is user 1, and the others are user 0.
    pub fn user_of(&self, client: u64) -> User {
        usize::from(self.has_users && client.is_multiple_of(CLIENTS as u64))
    }

    /// Returns whether the session with this number is open. That of a connection counts as open: no request outlives
    /// its connection.
    pub fn is_open(&self, number: u64) -> bool {
        number < NAMED || self.sessions.iter().any(|session| session.number == number)
    }

    /// Returns the named session with this id that belongs to the user of a client.
    pub fn session(&self, client: u64, id: SessionNo) -> Option<&Session> {
        let user = self.user_of(client);
        self.sessions.iter().find(|session| session.id == id && session.user == user)
    }

    /// Returns the session that a command binds its holds to.
    pub(super) fn binding(&self, client: u64, binds: bool, named: Option<SessionNo>) -> Result<Option<u64>, Reply> {
        match named.map(|id| self.session(client, id)) {
            None => Ok(binds.then_some(client)),
            Some(Some(session)) => Ok(Some(session.number)),
            Some(None) => Err(Reply::NoSession),
        }
    }

    /// Returns the reply to a heartbeat, which is 1 if the heartbeat opens or keeps the session.
    pub fn heartbeat_reply(&self, client: u64, id: SessionNo, only: OpenIf) -> Reply {
        match (self.session(client, id), only) {
            (Some(_), OpenIf::New) => Reply::Nil,
            (None, OpenIf::Open) => Reply::NoSession,
            _ => Reply::Number(1),
        }
    }

    /// Opens or keeps a session by a heartbeat. The timeout is in ms; `named` is the engine's id of the session.
    pub fn heartbeat(&mut self, client: u64, id: SessionNo, named: Option<NamedId>, timeout: u64) {
        let (now, turns_late, user) = (self.uptime_us(), 0, self.user_of(client));
        if let Some(session) = self.sessions.iter_mut().find(|session| session.id == id && session.user == user) {
            assert_eq!(session.named, named, "a heartbeat has opened a session that was open already");
            (session.timeout, session.beat_at, session.passed, session.turns_late) = (timeout * 1000, now, 0, 0);
            return;
        }
        self.openings += 1;
        let number = NAMED + self.openings;
        let timeout = timeout * 1000;
        self.sessions.push(Session { id, user, number, named, timeout, beat_at: now, passed: 0, turns_late });
    }

    /// Runs `CLOSE`. Returns 1 if it ends a session.
    pub fn close_session(&mut self, client: u64, id: SessionNo) -> Reply {
        match self.session(client, id).copied() {
            None => Reply::Nil,
            Some(session) => {
                self.end_named(session.number, None);
                Reply::Number(1)
            }
        }
    }

    /// Ends a named session. With a `grace`, in ms, its holds are unbound instead of released.
    pub fn end_named(&mut self, number: u64, grace: Option<u64>) {
        self.sessions.retain(|session| session.number != number);
        self.end_session(number, grace);
    }
}
