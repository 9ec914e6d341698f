//! The session of each bound hold, and what a heartbeat, a new server or a silent server means for it.
//!
//! Pure: the time is an argument. A session is certain from before its last confirmed heartbeat was sent, for its timeout.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use redis::{Cmd, ConnectionInfo};
use tokio::sync::{Notify, watch};

use crate::heartbeat::{Duty, Heartbeat};
use crate::validity::{Command, State, Validity, end};

/// Commands, each with the key whose server gets it.
pub(crate) type Commands = Arc<Vec<(Vec<u8>, Cmd)>>;

/// A hold with all that is needed to bind it again.
pub(crate) struct BoundHold {
    pub names: Vec<Vec<u8>>,
    pub owner: String,
    pub token: u64,
}

#[derive(Default)]
pub(crate) struct Kept {
    /// A single heart, or in a cluster one for each node that has locks, by its address.
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
pub(crate) struct Heart {
    /// The session's name there. No other node knows it: a lock that moves cannot be bound where nothing beats.
    pub id: String,
    /// In a cluster, which server that is.
    pub node: Option<ConnectionInfo>,
    /// A session is a hold: its lease is its timeout, its renewals are the heartbeats. `None` before the first one.
    life: Option<(Validity, Heartbeat)>,
    /// When the next heartbeat is due.
    pub due: Instant,
    /// Whether the program has called `beat` since the last heartbeat.
    pub beaten: bool,
    /// How often it was opened there. Locks that were granted before the last time must be bound again.
    pub openings: u64,
    pub wake: Arc<Notify>,
}

/// The session's knowledge of a hold.
pub(crate) struct Bound {
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
pub(crate) enum Cap {
    /// The hold was granted until then. The server is asked when a third of that time has passed.
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
    /// Returns until when the last of its servers has the session; `None` if there is none.
    pub fn latest(&self) -> Option<Instant> {
        self.hearts.values().filter_map(|heart| heart.until()).max()
    }

    /// Returns until when a lock is certain. `None`: it is lost.
    pub fn until(&self, number: u64) -> Option<Instant> {
        let bound = self.bindings.get(&number)?;
        let until = self.hearts.get(&bound.heart)?.until()?;
        Some(bound.latest().map_or(until, |latest| latest.min(until)))
    }

    /// Returns when something is due on a server. `None`: its heart has stopped.
    pub fn next(&self, name: &str, manual: bool) -> Option<Instant> {
        let heart = self.hearts.get(name)?;
        let due = (!manual || heart.beaten).then_some(heart.due);
        let latest = self.of(name).filter_map(|(_, bound)| bound.latest());
        latest.chain(due).chain(heart.until()).min()
    }

    /// Returns the locks of a server that are not certain any more, whatever its heart does.
    pub fn late(&self, name: &str, now: Instant) -> Vec<u64> {
        let is_late = |bound: &Bound| bound.latest().is_some_and(|latest| now >= latest);
        self.of(name).filter(|(_, bound)| is_late(bound)).map(|(number, _)| number).collect()
    }

    /// Returns what a heart has to do now.
    pub fn beats(&mut self, name: &str, now: Instant, manual: bool) -> Beat {
        let Some(heart) = self.hearts.get_mut(name) else { return Beat::Waits };
        if heart.is_over(now) {
            return Beat::IsOver;
        }
        if now < heart.due || (manual && !heart.beaten) {
            return Beat::Waits;
        }
        heart.beaten = false;
        Beat::IsDue
    }

    /// Notes that a server has none of the bindings. The holds are certain only for as long as they were.
    pub fn unbind(&mut self, name: &str, now: Instant) {
        let Some(heart) = self.hearts.get_mut(name) else { return };
        heart.openings += 1;
        let until = heart.until().unwrap_or(now);
        for bound in self.bindings.values_mut().filter(|bound| bound.heart == name) {
            bound.unbound.get_or_insert(until);
        }
    }

    /// Returns the locks to bind again. `count`: how many bindings the server has, which had all the known ones.
    pub fn to_bind(&self, name: &str, known: &[u64], count: u64) -> Vec<u64> {
        let there = self.of(name).filter(|(number, _)| known.binary_search(number).is_ok());
        let expected: usize = there.map(|(_, bound)| bound.hold.names.len()).sum();
        if count < expected as u64 {
            return known.to_vec();
        }
        self.of(name).filter(|(_, bound)| bound.unbound.is_some()).map(|(number, _)| number).collect()
    }

    /// Notes that a round has ended. If something is left to do, the next one follows soon.
    pub fn went(&mut self, name: &str, now: Instant) {
        let left = self.failure.is_some() || self.of(name).any(|(_, bound)| bound.unbound.is_some());
        if let Some(heart) = self.hearts.get_mut(name).filter(|_| left) {
            heart.failed(now);
        }
    }

    /// Returns the locks that a heart keeps.
    pub fn of<'a>(&'a self, heart: &'a str) -> impl Iterator<Item = (u64, &'a Bound)> {
        self.bindings.iter().filter(move |(_, bound)| bound.heart == heart).map(|(number, bound)| (*number, bound))
    }
}

impl Heart {
    pub fn new(id: String, node: Option<ConnectionInfo>, now: Instant) -> Self {
        Self { id, node, life: None, due: now, beaten: false, openings: 0, wake: Arc::default() }
    }

    pub fn beat(&mut self) {
        if !std::mem::replace(&mut self.beaten, true) {
            self.wake.notify_one();
        }
    }

    /// Returns until when the server certainly has the session. `None` before the first heartbeat.
    pub fn until(&self) -> Option<Instant> {
        match self.life.as_ref()?.0.state() {
            State::Until(until) => Some(until),
            State::Lost | State::Released => None,
        }
    }

    /// A heartbeat is about to be sent.
    pub fn sends(&mut self, now: Instant, timeout: Duration) -> Command {
        let Some((life, beats)) = &mut self.life else { return Command { sent: now } };
        beats.sends(now, life);
        life.sends(now, timeout)
    }

    /// The server did not know the session.
    pub fn refused(&mut self, command: Command) {
        if let Some((life, _)) = &mut self.life {
            life.refused(command);
        }
    }

    /// A heartbeat is confirmed.
    pub fn confirmed(&mut self, now: Instant, command: Command, timeout: Duration) {
        let sent = command.sent;
        match &mut self.life {
            Some((life, beats)) => {
                life.ok(command);
                beats.ok(now, sent, life);
            }
            None => {
                let life = Validity::granted(end(sent, timeout), timeout, false);
                let beats = Heartbeat::granted(now, sent, timeout, 1.0, &life);
                self.life = Some((life, beats));
            }
        }
        self.plans(now);
    }

    /// A heartbeat has failed, or something is left to do after it.
    fn failed(&mut self, now: Instant) {
        match &mut self.life {
            Some((life, beats)) => {
                beats.failed(now, life);
                self.plans(now);
            }
            None => self.due = now + FIRST_PAUSE,
        }
        self.beaten = true;
    }

    fn plans(&mut self, now: Instant) {
        self.due = match self.life.as_ref().map(|(_, beats)| beats.duty()) {
            Some(Duty::Renew(at) | Duty::Again(at)) => at,
            Some(Duty::Check | Duty::Nothing) | None => now,
        };
    }

    /// Returns whether no heartbeat was confirmed in time.
    pub fn is_over(&self, now: Instant) -> bool {
        self.until().is_some_and(|until| now >= until)
    }

    /// Makes the next heartbeat due now, whether or not the program beats.
    pub fn hurry(&mut self, now: Instant) {
        (self.due, self.beaten) = (now, true);
        self.wake.notify_one();
    }
}

/// The next thing to do for the session on a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Beat {
    Waits,
    IsDue,
    /// No heartbeat was confirmed in time.
    IsOver,
}

/// The pause after an opening that failed.
const FIRST_PAUSE: Duration = Duration::from_millis(500);

/// The id of the session on its server, sent with each request for a lock.
#[derive(Clone, Debug)]
pub(crate) struct Ticket {
    /// The session's name there.
    pub id: String,
    pub heart: String,
    /// How often it had been opened there.
    pub openings: u64,
}
