//! The state that a session keeps for each server, and its clock.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use redis::ConnectionInfo;
use tokio::sync::{Notify, watch};
use tokio::time::{sleep_until, timeout_at};

use super::locks::BoundHold;
use super::{Commands, Inner, Phase};
use crate::server::Fault;

#[derive(Default)]
pub(super) struct Kept {
    /// One, or in a cluster one for each node that has locks, by its address.
    pub hearts: BTreeMap<String, Heart>,
    pub in_cluster: bool,
    pub bindings: BTreeMap<u64, Bound>,
    pub next: u64,
    /// Releases that no server answered. Without its session, a hold would end with its lease.
    pub owed: Vec<Commands>,
    /// Why the last heartbeat failed, if it did.
    pub failure: Option<String>,
}

/// The session on one server.
pub(super) struct Heart {
    /// The session's name there. No other node knows it: a lock that moves cannot be bound where nothing beats.
    pub id: String,
    /// In a cluster, which server that is.
    pub node: Option<ConnectionInfo>,
    /// Until when the server has the session for certain. `None` before the first heartbeat.
    pub until: Option<Instant>,
    /// When the next heartbeat is due.
    pub due: Instant,
    /// Whether the program has called `beat` since the last heartbeat.
    pub beaten: bool,
    /// How often it was opened there. Locks that were granted before the last time must be bound again.
    pub openings: u64,
    pub wake: Arc<Notify>,
}

/// The session's knowledge of a hold.
pub(super) struct Bound {
    pub hold: Arc<BoundHold>,
    /// The heart that keeps it.
    pub heart: String,
    /// Until when the hold is certain although it must be bound again.
    pub unbound: Option<Instant>,
    pub cap: Cap,
    pub lost: watch::Sender<bool>,
}

/// When a hold ends whatever keeps it.
#[derive(Clone, Copy)]
pub(super) enum Cap {
    /// It was granted until then. The server is asked when a third of that time has passed.
    Unknown {
        granted_until: Instant,
        ask: Instant,
    },
    At(Instant),
    None,
}

impl Bound {
    /// Returns when the hold may be over, whatever its heart does.
    pub fn latest(&self) -> Option<Instant> {
        let cap = match self.cap {
            Cap::Unknown { granted_until, .. } => Some(granted_until),
            Cap::At(end) => Some(end),
            Cap::None => None,
        };
        self.unbound.into_iter().chain(cap).min()
    }
}

impl Kept {
    /// Returns until when the last of its servers has the session; the past if there is none.
    pub fn latest(&self) -> Instant {
        let now = Instant::now();
        self.hearts.values().filter_map(|heart| heart.until).max().unwrap_or(now)
    }

    /// Returns the locks that a heart keeps.
    pub fn of<'a>(&'a self, heart: &'a str) -> impl Iterator<Item = (u64, &'a Bound)> {
        self.bindings.iter().filter(move |(_, bound)| bound.heart == heart).map(|(number, bound)| (*number, bound))
    }
}

impl Heart {
    pub fn new(id: String, node: Option<ConnectionInfo>) -> Self {
        let due = Instant::now();
        Self { id, node, until: None, due, beaten: false, openings: 0, wake: Arc::default() }
    }

    pub fn beat(&mut self) {
        if !std::mem::replace(&mut self.beaten, true) {
            self.wake.notify_one();
        }
    }

    /// Makes the next heartbeat due now, whether or not the program beats.
    pub fn hurry(&mut self) {
        (self.due, self.beaten) = (Instant::now(), true);
        self.wake.notify_one();
    }
}

impl Inner {
    /// Opens the session on a server, and begins to send heartbeats to it.
    pub(super) async fn begin(self: &Arc<Self>, name: &str, heart: Heart, patience: Duration) -> Result<(), Fault> {
        let wake = heart.wake.clone();
        self.kept().hearts.insert(name.to_owned(), heart);
        let opened = self.round(name, Some(patience)).await;
        let is_open = self.kept().hearts.get(name).is_some_and(|heart| heart.until.is_some());
        if !is_open {
            self.kept().hearts.remove(name);
            return opened.and_then(|()| Err(Fault::Later("the session has ended".into())));
        }
        self.runtime.spawn(beat(Arc::downgrade(self), name.to_owned(), wake));
        Ok(())
    }

    /// Returns when something is due. `None`: the heart has stopped.
    fn next(&self, name: &str) -> Option<Instant> {
        let kept = self.kept();
        let heart = kept.hearts.get(name)?;
        let due = (!self.manual || heart.beaten).then_some(heart.due);
        let latest = kept.of(name).filter_map(|(_, bound)| bound.latest());
        latest.chain(due).chain(heart.until).min()
    }

    /// Returns whether a heartbeat must be sent. Loses the locks that are not certain any more.
    fn is_due(&self, name: &str) -> bool {
        let now = Instant::now();
        let mut kept = self.kept();
        let late = |bound: &Bound| bound.latest().is_some_and(|latest| now >= latest);
        let late: Vec<u64> = kept.of(name).filter(|(_, bound)| late(bound)).map(|(number, _)| number).collect();
        let Some(heart) = kept.hearts.get_mut(name) else { return false };
        if heart.until.is_some_and(|until| now >= until) {
            drop(kept);
            self.stop(name);
            return false;
        }
        let due = now >= heart.due && (!self.manual || heart.beaten);
        if due {
            heart.beaten = false;
        }
        drop(kept);
        self.lose(late);
        due
    }

    /// Gives a server up, because no heartbeat was confirmed in time. The locks of this server are lost; with the last
    /// server, so is the session.
    fn stop(&self, name: &str) {
        let mut kept = self.kept();
        let others = kept.hearts.keys().any(|other| other != name);
        if others {
            kept.hearts.remove(name);
        }
        let lost: Vec<u64> = kept.of(name).map(|(number, _)| number).collect();
        drop(kept);
        if others { self.lose(lost) } else { _ = self.end(Phase::Lost) }
    }

    /// Records that a round has ended. If something is left to do, the next one follows soon.
    fn went(&self, name: &str, outcome: Result<(), Fault>) {
        let mut kept = self.kept();
        kept.failure = outcome.err().map(|fault| fault.cause().to_string());
        let left = kept.failure.is_some() || kept.of(name).any(|(_, bound)| bound.unbound.is_some());
        if let Some(heart) = kept.hearts.get_mut(name).filter(|_| left) {
            let next = Instant::now() + (self.timeout / 30).min(LONGEST_PAUSE);
            (heart.due, heart.beaten) = (heart.until.map_or(next, |until| next.min(until)), true);
        }
    }

    /// Ends the session and loses its locks. False: it was not open.
    pub(super) fn end(&self, phase: Phase) -> bool {
        let was_open = self.phase.send_if_modified(|before| {
            let was_open = *before == Phase::Open;
            *before = phase;
            was_open
        });
        let bindings = std::mem::take(&mut self.kept().bindings);
        for bound in bindings.into_values() {
            bound.lost.send_replace(true);
        }
        self.kept().hearts.values().for_each(|heart| heart.wake.notify_one());
        was_open
    }

    pub(super) fn lose(&self, numbers: impl IntoIterator<Item = u64>) {
        for number in numbers {
            let bound = self.kept().bindings.remove(&number);
            if let Some(bound) = bound {
                bound.lost.send_replace(true);
            }
        }
    }

    fn until_of(&self, name: &str) -> Option<Instant> {
        self.kept().hearts.get(name)?.until
    }
}

/// Sends heartbeats to a server until the session is over there.
async fn beat(session: Weak<Inner>, name: String, wake: Arc<Notify>) {
    loop {
        let next = match session.upgrade() {
            Some(session) if *session.phase.borrow() == Phase::Open => session.next(&name),
            _ => return,
        };
        let Some(next) = next else { return };
        tokio::select! {
            () = sleep_until(next.into()) => {}
            () = wake.notified() => {}
        }
        let Some(session) = session.upgrade() else { return };
        if *session.phase.borrow() == Phase::Open
            && session.is_due(&name)
            && let Some(until) = session.until_of(&name)
        {
            let outcome = timeout_at(until.into(), session.round(&name, None)).await;
            session.went(&name, outcome.unwrap_or_else(|_| Err(Fault::OutcomeUnknown("no reply in time".into()))));
        }
    }
}

/// At most so long after a heartbeat that failed, the next one follows.
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
