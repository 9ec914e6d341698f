//! `DLOCK.SESSION`, and the end of named sessions.

use std::rc::Rc;

use super::Engine;
use super::budget::{Budget, REJECTED_AT_ONCE};
use super::fault::Fault;
use super::outbox::Answer;
use super::session_holds::SessionEnd;
use crate::{Lease, Mode, NamedId, NoSession, Now, Owner, SessionId, SessionKey, Token, Uptime};

/// A heartbeat, or the opening of a session.
#[derive(Clone, Copy, Debug)]
pub struct Heartbeat<'a> {
    /// The session.
    pub id: &'a SessionId,
    /// The user whose command it is.
    pub user: &'a [u8],
    /// When the session ends without another, from now.
    pub timeout: Lease,
    /// Whether it opens or keeps, or both.
    pub only: OpenIf,
}

/// The effects that a heartbeat may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenIf {
    /// Keep the session, or open it.
    Any,
    /// `NX`: open it.
    New,
    /// `XX`: keep it.
    Open,
}

/// A hold that is bound to a session, as `LIST` shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BoundHold {
    /// The database.
    pub db: i32,
    /// The key.
    pub key: Rc<[u8]>,
    /// The owner.
    pub owner: Owner,
    /// The mode.
    pub mode: Mode,
    /// The fencing token.
    pub token: Token,
}

/// How many bytes of names `LIST` returns, about, before it returns no more.
const LISTED_BYTES: usize = 1 << 20;
/// At how many locks and holds `LIST` looks at most: those that lapsed, or that a flush took, are not shown.
const LISTED: usize = 20_000;

impl<T> Engine<T> {
    /// Opens a named session, or keeps it open. Returns how many holds are bound to it; `None` if it is open and `only` is
    /// [`OpenIf::New`]. O(1), O(log n) to open one.
    ///
    /// # Errors
    /// [`Fault::NoSession`] and [`Fault::TooManySessions`].
    pub fn keep_session(&mut self, beat: Heartbeat<'_>, (uptime, now): (Uptime, Now)) -> Result<Option<usize>, Fault> {
        let named = &mut self.parts.sessions.named;
        let ms = beat.timeout.get();
        named.come_back(now);
        match (named.find_for(beat.id.as_bytes(), Some(beat.user)), beat.only) {
            (Ok(_), OpenIf::New) => Ok(None),
            (Ok(open), OpenIf::Any | OpenIf::Open) => {
                named.beat(open, ms, uptime);
                Ok(Some(named.holds(open)))
            }
            (Err(NoSession::Unknown), OpenIf::Any | OpenIf::New) => {
                if self.parts.settings.max_sessions.is_some_and(|max| named.len() >= max) {
                    return Err(Fault::TooManySessions);
                }
                named.open(beat.id, beat.user, ms, (uptime, now));
                Ok(Some(0))
            }
            (Err(why), _) => Err(Fault::NoSession(why)),
        }
    }

    /// Ends a named session at once, and releases its holds, whatever the grace. `user`: `None` may end those of all.
    /// Returns how many holds were bound to it; `None` if there is no such session.
    ///
    /// # Errors
    /// [`Fault::NoSession`]: it is another user's.
    pub fn close_session(&mut self, id: &SessionId, user: Option<&[u8]>, now: Now) -> Result<Option<usize>, Fault> {
        let Some(named) = self.find_session(id, user)? else { return Ok(None) };
        let holds = self.parts.sessions.named.holds(named);
        self.end_named(named, SessionEnd { at: now.ms(), grace: None });
        // In a pause, and in a transaction, no timer sends them away before the next command.
        let (waiting, sent_away) = (self.parts.waiters.len(), self.parts.sessions.sent_away);
        self.reject_orphans(REJECTED_AT_ONCE.saturating_sub(sent_away));
        self.parts.sessions.sent_away = sent_away + waiting - self.parts.waiters.len();
        Ok(Some(holds))
    }

    /// Returns the live holds that are bound to a named session, at most this many; `None` if there is no such session.
    ///
    /// # Errors
    /// [`Fault::NoSession`]: it is another user's.
    pub fn list_session(
        &mut self,
        id: &SessionId,
        user: Option<&[u8]>,
        most: usize,
        now: Now,
    ) -> Result<Option<Vec<BoundHold>>, Fault> {
        let Some(named) = self.find_session(id, user)? else { return Ok(None) };
        let key = SessionKey::Named(named);
        let (mut listed, mut steps, mut bytes) = (Vec::new(), LISTED, 0);
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
                    listed.push(BoundHold {
                        db: record.db,
                        key: Rc::clone(&record.key),
                        owner: binding.owner.clone(),
                        mode: binding.mode,
                        token: binding.token,
                    });
                }
            }
        }
        Ok(Some(listed))
    }

    /// Looks a named session up for a request of this user; `None`: the request has none.
    pub fn look_up_session(&self, id: &SessionId, user: Option<&[u8]>) -> Result<NamedId, NoSession> {
        let user = user.ok_or(NoSession::Userless)?;
        self.parts.sessions.named.find_for(id.as_bytes(), Some(user))
    }

    fn find_session(&self, id: &SessionId, user: Option<&[u8]>) -> Result<Option<NamedId>, Fault> {
        match self.parts.sessions.named.find_for(id.as_bytes(), user) {
            Ok(named) => Ok(Some(named)),
            Err(NoSession::Unknown) => Ok(None),
            Err(why) => Err(Fault::NoSession(why)),
        }
    }

    /// Ends the named sessions whose time has passed, and sends those away that waited to be bound to them: some, if there
    /// are many. Returns whether there was one.
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
        // `reject_orphans` answers those who wait, a piece at a time.
        if self.parts.waiters.of_session(named).is_some() {
            self.parts.sessions.orphaned.push(named);
        }
    }

    /// Answers some of those who wait to be bound to a session that has ended. Returns whether there was such a session.
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
