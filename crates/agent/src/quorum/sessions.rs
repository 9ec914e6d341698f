//! Named sessions, which the agent itself keeps open as long as their heartbeats come.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use dlock_core::args::Session as Said;
use dlock_core::engine::OpenIf;
use dlock_core::{Lease, Mode, SessionId};

use super::table::Table;
use crate::quorum::hold::{Anchor, AnchorId};
use crate::resp::Reply;

/// The sessions that are open.
#[derive(Default)]
pub(crate) struct Sessions(Mutex<HashMap<SessionId, Open>>);

struct Open {
    anchor: Arc<Anchor>,
    /// The timeout of its last heartbeat.
    timeout: Duration,
    /// The rest of that timeout.
    left: Duration,
}

impl Sessions {
    pub fn len(&self) -> usize {
        self.open().len()
    }

    /// Returns a session that is open, and its timeout.
    pub fn find(&self, id: &SessionId) -> Option<(Arc<Anchor>, Duration)> {
        let sessions = self.open();
        let open = sessions.get(id).filter(|open| !open.anchor.has_ended())?;
        Some((open.anchor.clone(), open.timeout))
    }

    /// Answers `DLOCK.SESSION`.
    pub fn answer(&self, said: Said<'_>, table: &Table) -> Reply {
        match said {
            Said::Keep(id, timeout, only) => self.keep(id, timeout, only),
            // The agent has one user.
            Said::Close(_, Some(user)) | Said::List(_, Some(user), _) if user != USER => Reply::Nil,
            Said::Close(id, _) => match self.take(&id) {
                Some(anchor) => {
                    let count = anchor.holds().len();
                    table.end(&anchor);
                    Reply::number(count)
                }
                None => Reply::Nil,
            },
            Said::ListAll(count) => Reply::Array(self.list(count)),
            Said::List(id, _, count) => match self.find(&id) {
                Some((anchor, _)) => Reply::Array(anchor.holds().iter().take(count).map(|hold| listed(hold)).collect()),
                None => Reply::Nil,
            },
        }
    }

    fn list(&self, count: usize) -> Vec<Reply> {
        let sessions = self.open();
        let mut open: Vec<_> = sessions.iter().filter(|(_, open)| !open.anchor.has_ended()).collect();
        open.sort_unstable_by_key(|(id, _)| *id);
        open.truncate(count);
        let listed = open.into_iter().map(|(id, open)| {
            let (holds, left) = (Reply::number(open.anchor.holds().len()), Reply::number(open.left.as_millis()));
            Reply::Array(vec![Reply::bulk(USER), Reply::bulk(id.as_bytes()), holds, left])
        });
        listed.collect()
    }

    fn keep(&self, id: SessionId, timeout: Lease, only: OpenIf) -> Reply {
        let timeout = Duration::from_millis(timeout.get());
        let mut sessions = self.open();
        let has_room = sessions.len() < MOST;
        let mut found = match sessions.entry(id) {
            Entry::Occupied(open) if open.get().anchor.has_ended() => {
                // The holds of the old session are released, or live by their own leases.
                let (id, _) = open.remove_entry();
                sessions.entry(id)
            }
            entry => entry,
        };
        match (&mut found, only) {
            (Entry::Occupied(_), OpenIf::New) => Reply::Nil,
            (Entry::Occupied(open), OpenIf::Any | OpenIf::Open) => {
                let open = open.get_mut();
                // The answer promises that all holds live for this time.
                let Some(count) = open.anchor.vouch(timeout) else {
                    Self::forget(&open.anchor);
                    return Reply::error(NO_SESSION);
                };
                (open.timeout, open.left) = (timeout, timeout);
                Reply::number(count)
            }
            (Entry::Vacant(_), OpenIf::Open) => Reply::error(NO_SESSION),
            (Entry::Vacant(_), OpenIf::New | OpenIf::Any) if !has_room => {
                Reply::error("ERR max number of named sessions reached: dlock.max-sessions")
            }
            (Entry::Vacant(place), OpenIf::New | OpenIf::Any) => {
                let anchor = Anchor::new(AnchorId::Named(place.key().clone()), timeout);
                found.or_insert(Open { anchor, timeout, left: timeout });
                Reply::Integer(0)
            }
        }
    }

    /// Ends a session without releasing its holds. The client may bind them to a new session.
    fn forget(anchor: &Arc<Anchor>) {
        anchor.end(super::hold::End::Forgotten).iter().for_each(|hold| hold.unbind(anchor));
    }

    fn take(&self, id: &SessionId) -> Option<Arc<Anchor>> {
        let open = self.open().remove(id)?;
        (!open.anchor.has_ended()).then_some(open.anchor)
    }

    /// Ends sessions whose heartbeat is overdue. Runs forever. A stall of the machine counts as 100 ms at most, so that
    /// heartbeats that wait in the sockets are read before their sessions end.
    pub async fn watch(&self, table: &Table) {
        let mut last = Instant::now();
        loop {
            tokio::time::sleep(TURN).await;
            let passed = last.elapsed().min(MOST_A_TURN);
            last = Instant::now();
            for anchor in self.advance(passed) {
                table.end(&anchor);
            }
        }
    }

    /// Takes this time from all sessions. Removes and returns those that are over.
    fn advance(&self, time: Duration) -> Vec<Arc<Anchor>> {
        let mut sessions = self.open();
        sessions.values_mut().for_each(|open| open.left = open.left.saturating_sub(time));
        sessions
            .extract_if(|_, open| open.left.is_zero() || open.anchor.has_ended())
            .map(|(_, open)| open.anchor)
            .collect()
    }

    fn open(&self) -> MutexGuard<'_, HashMap<SessionId, Open>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn listed(hold: &super::hold::Hold) -> Reply {
    let (owner, token) = (Reply::bulk(&*hold.owner.text()), Reply::number(hold.token.get()));
    Reply::Array(vec![Reply::Integer(0), Reply::bulk(&hold.key), owner, Reply::bulk(mode_name(hold.mode)), token])
}

/// Returns the name of a mode in replies.
pub(crate) fn mode_name(mode: Mode) -> &'static str {
    match mode {
        Mode::Exclusive => "exclusive",
        Mode::Shared => "shared",
    }
}

pub(crate) const NO_SESSION: &str =
    "NOSESSION no such session, or it has ended: open it with DLOCK.SESSION id PX milliseconds";

/// The user that all sessions belong to.
const USER: &[u8] = b"default";

/// The most sessions that are open.
const MOST: usize = 10_000;

/// The time between two checks for overdue heartbeats.
const TURN: Duration = Duration::from_millis(50);

/// How much of a session's time passes between two checks at most.
const MOST_A_TURN: Duration = Duration::from_millis(100);
