//! The contract on named sessions.

use dlock_core::NamedId;
use dlock_core::engine::OpenIf;

use super::naive::{Naive, Reply};
use crate::histories::naive::Session;
use crate::histories::values::{CLIENTS, SessionNo, User};

/// How much session time passes at most between two turns of the timer, in µs: contract, section 4.
pub const MAX_STEP_US: u64 = 100_000;
/// Above the numbers of clients.
const NAMED: u64 = 1 << 63;

impl Naive {
    /// Returns the user of a client, by how the server numbers clients: one of those of a history has a user of its
    /// own.
    pub fn user_of(&self, client: u64) -> User {
        usize::from(self.has_users && client.is_multiple_of(CLIENTS as u64))
    }

    /// Returns whether a session has not ended. Nobody waits without the connection.
    pub fn is_open(&self, number: u64) -> bool {
        number < NAMED || self.sessions.iter().any(|session| session.number == number)
    }

    /// Returns the named session with this id that belongs to the user of a client.
    pub fn session(&self, client: u64, id: SessionNo) -> Option<&Session> {
        let user = self.user_of(client);
        self.sessions.iter().find(|session| session.id == id && session.user == user)
    }

    /// Returns the session that the holds of a request are bound to.
    pub(super) fn binding(&self, client: u64, binds: bool, named: Option<SessionNo>) -> Result<Option<u64>, Reply> {
        match named.map(|id| self.session(client, id)) {
            None => Ok(binds.then_some(client)),
            Some(Some(session)) => Ok(Some(session.number)),
            Some(None) => Err(Reply::NoSession),
        }
    }

    /// Returns the reply to a heartbeat: 1 if it opens or keeps the session.
    pub fn may_keep(&self, client: u64, id: SessionNo, only: OpenIf) -> Reply {
        match (self.session(client, id), only) {
            (Some(_), OpenIf::New) => Reply::Nil,
            (None, OpenIf::Open) => Reply::NoSession,
            _ => Reply::Number(1),
        }
    }

    /// A heartbeat that opens or keeps a session.
    pub fn keep(&mut self, client: u64, id: SessionNo, named: Option<NamedId>, timeout: u64) {
        let (now, turns_late, user) = (self.uptime_us(), 0, self.user_of(client));
        if let Some(session) = self.sessions.iter_mut().find(|session| session.id == id && session.user == user) {
            assert_eq!(session.named, named, "a heartbeat opened a session that is open");
            (session.timeout, session.beat_at, session.passed, session.turns_late) = (timeout * 1000, now, 0, 0);
            return;
        }
        self.openings += 1;
        let number = NAMED + self.openings;
        let timeout = timeout * 1000;
        self.sessions.push(Session { id, user, number, named, timeout, beat_at: now, passed: 0, turns_late });
    }

    /// `CLOSE`: 1 if it ends the session.
    pub fn close_session(&mut self, client: u64, id: SessionNo) -> Reply {
        match self.session(client, id).copied() {
            None => Reply::Nil,
            Some(session) => {
                self.end_named(session.number, None);
                Reply::Number(1)
            }
        }
    }

    /// A named session ends.
    pub fn end_named(&mut self, number: u64, grace: Option<u64>) {
        self.sessions.retain(|session| session.number != number);
        self.end_session(number, grace);
    }
}
