//! The session of each bound hold, and what a heartbeat, a new server or a silent server means for it.
//!
//! Pure: the time is an argument. A session is certain until its timeout has passed since the last confirmed heartbeat
//! was sent.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use redis::{Cmd, ConnectionInfo};
use tokio::sync::{Notify, watch};

use crate::heartbeat::{Duty, Heartbeat};
use crate::upgrade::Upgrade;
use crate::validity::{Command, State, Validity, end};

/// Releases that failed.
pub(crate) struct Owed {
    /// The commands, each with the key that selects its server.
    pub releases: Vec<(Vec<u8>, Cmd)>,
    /// The upgrade whose hold they release, if they name no token. The next upgrade waits until it is dropped.
    pub upgrade: Option<Arc<Upgrade>>,
}

/// A hold with all that is needed to bind it again.
pub(crate) struct BoundHold {
    pub names: Vec<Vec<u8>>,
    pub owner: String,
    pub token: u64,
}

/// The state of a named session.
#[derive(Default)]
pub(crate) struct Kept {
    /// The hearts by address, one for each node of a cluster that has locks of the session. Outside a cluster, there is
    /// one.
    pub hearts: BTreeMap<String, Heart>,
    pub in_cluster: bool,
    pub bindings: BTreeMap<u64, Bound>,
    /// The number of the next binding.
    pub next: u64,
    /// Why the last heartbeat failed, if it did.
    pub failure: Option<String>,
}

/// The session on one server, which heartbeats keep alive there.
pub(crate) struct Heart {
    /// The session's id on this server. Other nodes have other ids, so that a lock that moves cannot be bound to a
    /// session that gets no heartbeats there.
    pub id: String,
    /// The node of a cluster. `None` outside a cluster.
    pub node: Option<ConnectionInfo>,
    /// The session seen as a hold: its lease is the timeout, its renewals are the heartbeats. `None` before the first
    /// one.
    life: Option<(Validity, Heartbeat)>,
    /// When the next heartbeat is due.
    pub due: Instant,
    /// Whether the program has called `beat` since the last heartbeat was sent.
    pub beaten: bool,
    /// When the program called it last; at first, when the session was opened.
    last_beat: Instant,
    /// How often the session was opened on this server. Locks granted before the last opening must be bound again.
    pub openings: u64,
    /// Until when the bindings of earlier openings are certain. `None` before the first opening.
    former: Option<Instant>,
    pub wake: Arc<Notify>,
}

/// The session's knowledge of a hold.
pub(crate) struct Bound {
    pub hold: Arc<BoundHold>,
    /// The key of the heart that keeps the hold.
    pub heart: String,
    /// If the hold must be bound again: until when it is certain.
    pub unbound: Option<Instant>,
    pub cap: Cap,
    pub lost: watch::Sender<bool>,
}

/// When a hold ends even if it is renewed.
#[derive(Clone, Copy)]
pub(crate) enum Cap {
    /// The hold was granted until `granted_until`. The server is asked for the cap at `ask`, a third of the way.
    Unknown {
        granted_until: Instant,
        ask: Instant,
    },
    At(Instant),
    None,
}

impl Bound {
    /// Returns when the hold may be over even if heartbeats keep its session open.
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
    /// Returns until when at least one server certainly has the session; `None` if no server does.
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

    /// Returns the locks of a server that are not certain any more even if heartbeats keep the session open.
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

    /// Records that a server has lost all bindings. The holds stay certain for as long as they were.
    pub fn unbind(&mut self, name: &str, now: Instant) {
        let Some(heart) = self.hearts.get_mut(name) else { return };
        heart.openings += 1;
        let until = heart.until().unwrap_or(now);
        heart.former = Some(until);
        for bound in self.bindings.values_mut().filter(|bound| bound.heart == name) {
            bound.unbound.get_or_insert(until);
        }
    }

    /// Takes the number of bindings that the server had at a heartbeat, before the heartbeat is recorded as confirmed.
    /// `known`: the locks that were bound before it was sent. If bindings are missing, nobody knows which: all of these
    /// locks must be bound again, and until then they are certain only for as long as they were before the heartbeat.
    pub fn counted(&mut self, name: &str, known: &[u64], count: u64, now: Instant) {
        let Some(heart) = self.hearts.get(name) else { return };
        let until = heart.until().unwrap_or(now);
        let is_known = |number: &u64| known.binary_search(number).is_ok();
        let there = self.of(name).filter(|(number, _)| is_known(number));
        let expected: usize = there.map(|(_, bound)| bound.hold.names.len()).sum();
        if count >= expected as u64 {
            return;
        }
        for (_, bound) in self.bindings.iter_mut().filter(|(number, bound)| bound.heart == name && is_known(number)) {
            bound.unbound.get_or_insert(until);
        }
    }

    /// Returns the locks to bind again, those first that are certain for the shortest time.
    pub fn to_bind(&self, name: &str) -> Vec<u64> {
        let mut unbound: Vec<_> = self.of(name).filter_map(|(number, bound)| Some((bound.unbound?, number))).collect();
        unbound.sort_unstable();
        unbound.into_iter().map(|(_, number)| number).collect()
    }

    /// Records that the server has bound a lock to the session, which had been opened there `openings` times when the
    /// server was asked. False: the lock is not certain any more, and nothing revives it.
    pub fn bound(&mut self, number: u64, openings: u64, now: Instant) -> bool {
        let Some(bound) = self.bindings.get_mut(&number) else { return true };
        if bound.latest().is_some_and(|latest| now >= latest) {
            return false;
        }
        // A session that was opened again since does not have the binding.
        if self.hearts.get(&bound.heart).is_some_and(|heart| heart.openings == openings) {
            bound.unbound = None;
        }
        true
    }

    /// Records that a round has ended. If something is left to do, the next one follows soon.
    pub fn round_ended(&mut self, name: &str, now: Instant) {
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
        Self {
            id,
            node,
            life: None,
            due: now,
            beaten: false,
            last_beat: now,
            openings: 0,
            former: None,
            wake: Arc::default(),
        }
    }

    /// The program has called `beat`.
    pub fn beat(&mut self, now: Instant) {
        self.last_beat = now;
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
        self.plan(now);
    }

    /// A heartbeat has failed, or something is left to do after it. The program's `beat` has stood for that heartbeat,
    /// and stands for no other: the session of a program that hangs must not live longer because its heartbeat failed.
    fn failed(&mut self, now: Instant) {
        match &mut self.life {
            Some((life, beats)) => {
                beats.failed(now, life);
                self.plan(now);
            }
            None => self.due = now + FIRST_PAUSE,
        }
    }

    /// Sets when the next heartbeat is due.
    fn plan(&mut self, now: Instant) {
        self.due = match self.life.as_ref().map(|(_, beats)| beats.duty()) {
            Some(Duty::Renew(at) | Duty::Again(at)) => at,
            Some(Duty::Check | Duty::Nothing) | None => now,
        };
    }

    /// Returns whether no heartbeat was confirmed in time.
    pub fn is_over(&self, now: Instant) -> bool {
        self.until().is_some_and(|until| now >= until)
    }

    /// Makes the next heartbeat due now. A recent `beat` of the program stands for this heartbeat, too: a beat that comes
    /// just after one heartbeat stands for the next, which follows a third of the timeout later.
    pub fn hurry(&mut self, now: Instant, timeout: Duration) {
        self.beaten |= now < self.last_beat + timeout / 3;
        self.due = now;
        self.wake.notify_one();
    }

    /// Returns until when a hold is certain that was granted with this ticket. `None`: as long as the session, which
    /// was not opened again since.
    pub fn unbound(&self, ticket: &Ticket) -> Option<Instant> {
        self.former.filter(|_| self.openings != ticket.openings || self.id != ticket.id)
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
    pub id: String,
    /// The key of the session's heart.
    pub heart: String,
    /// How often the session had been opened on the server.
    pub openings: u64,
}

#[cfg(test)]
#[allow(clippy::expect_used, reason = "a test that panics has failed, which is what it is for")]
mod tests {
    use super::*;

    const TIMEOUT: Duration = Duration::from_secs(3);
    const ONLY: &str = "";

    fn at(start: Instant, seconds: u64) -> Instant {
        start + Duration::from_secs(seconds)
    }

    fn beat(kept: &mut Kept, now: Instant, counted: Option<(&[u64], u64)>) {
        let command = kept.hearts.get_mut(ONLY).expect("a heart").sends(now, TIMEOUT);
        if let Some((known, count)) = counted {
            kept.counted(ONLY, known, count, now);
        }
        kept.hearts.get_mut(ONLY).expect("a heart").confirmed(now, command, TIMEOUT);
    }

    /// Returns a session that was opened now, with locks that have these numbers.
    fn opened(now: Instant, numbers: &[u64]) -> Kept {
        let mut kept = Kept::default();
        kept.hearts.insert(ONLY.to_owned(), Heart::new("s".to_owned(), None, now));
        kept.unbind(ONLY, now);
        beat(&mut kept, now, None);
        numbers.iter().for_each(|number| add(&mut kept, *number));
        kept
    }

    fn add(kept: &mut Kept, number: u64) {
        let hold = BoundHold { names: vec![b"k".to_vec()], owner: "o".to_owned(), token: number };
        let (hold, heart, lost) = (Arc::new(hold), ONLY.to_owned(), watch::channel(false).0);
        kept.bindings.insert(number, Bound { hold, heart, unbound: None, cap: Cap::None, lost });
    }

    #[test]
    fn heartbeats_prove_nothing_about_a_lock_that_may_be_missing() {
        let start = Instant::now();
        let mut kept = opened(start, &[1, 2]);
        beat(&mut kept, at(start, 1), Some((&[1, 2], 2)));
        assert_eq!(kept.until(1), Some(end(at(start, 1), TIMEOUT)));
        for second in [2, 3] {
            beat(&mut kept, at(start, second), Some((&[1, 2], 1)));
            assert_eq!(kept.latest(), Some(end(at(start, second), TIMEOUT)), "the session lives");
            assert_eq!(kept.to_bind(ONLY), [1, 2]);
            assert_eq!(kept.until(1), Some(end(at(start, 1), TIMEOUT)), "the last heartbeat that counted all");
        }
        assert!(kept.bound(1, 1, at(start, 3)));
        assert_eq!(kept.until(1), kept.latest());
        assert_eq!((kept.to_bind(ONLY), kept.late(ONLY, at(start, 4))), (vec![2], vec![2]));
    }

    #[test]
    fn a_lock_that_is_bound_too_late_stays_lost() {
        let start = Instant::now();
        let mut kept = opened(start, &[1]);
        beat(&mut kept, at(start, 2), Some((&[1], 0)));
        assert!(!kept.bound(1, 1, end(start, TIMEOUT)));
        assert_eq!(kept.until(1), Some(end(start, TIMEOUT)));
    }

    #[test]
    fn a_binding_counts_only_for_the_session_that_it_named() {
        let start = Instant::now();
        let mut kept = opened(start, &[1]);
        let first = Ticket { id: "s".to_owned(), heart: ONLY.to_owned(), openings: 1 };
        assert_eq!(kept.hearts.get(ONLY).expect("a heart").unbound(&first), None);
        kept.unbind(ONLY, at(start, 1));
        beat(&mut kept, at(start, 1), Some((&[1], 0)));
        // The server has bound the lock before it was restarted, or granted it.
        assert!(kept.bound(1, 1, at(start, 1)));
        assert_eq!((kept.until(1), kept.to_bind(ONLY)), (Some(end(start, TIMEOUT)), vec![1]));
        let heart = kept.hearts.get(ONLY).expect("a heart");
        assert_eq!(heart.unbound(&first), Some(end(start, TIMEOUT)));
        assert_eq!(heart.unbound(&Ticket { openings: 2, ..first.clone() }), None);
        assert!(heart.unbound(&Ticket { openings: 2, id: "another".to_owned(), ..first }).is_some());
        assert!(kept.bound(1, 2, at(start, 1)));
        assert_eq!(kept.until(1), kept.latest());
    }

    #[test]
    fn locks_that_end_first_are_bound_first() {
        let start = Instant::now();
        let mut kept = opened(start, &[3, 4]);
        beat(&mut kept, at(start, 1), Some((&[3, 4], 0)));
        add(&mut kept, 1);
        beat(&mut kept, at(start, 2), Some((&[1, 3, 4], 0)));
        assert_eq!(kept.to_bind(ONLY), [3, 4, 1]);
    }

    #[test]
    fn a_beat_of_the_program_stands_for_one_heartbeat() {
        let start = Instant::now();
        let mut kept = opened(start, &[]);
        let due = at(start, 1);
        assert_eq!(kept.beats(ONLY, due, true), Beat::Waits);
        kept.hearts.get_mut(ONLY).expect("a heart").beat(due);
        assert_eq!(kept.beats(ONLY, due, true), Beat::IsDue);
        kept.failure = Some("no reply".to_owned());
        kept.round_ended(ONLY, due);
        assert_eq!(kept.beats(ONLY, at(start, 2), true), Beat::Waits, "the program may hang");
        assert_eq!(kept.next(ONLY, true), Some(end(start, TIMEOUT)));
        assert_eq!(kept.beats(ONLY, at(start, 2), false), Beat::IsDue, "without `beat`, it is repeated");
        kept.hearts.get_mut(ONLY).expect("a heart").beat(at(start, 2));
        assert_eq!(kept.beats(ONLY, at(start, 2), true), Beat::IsDue);
        assert_eq!(kept.beats(ONLY, at(start, 3), true), Beat::IsOver);
    }

    #[test]
    fn only_a_recent_beat_opens_a_session_again() {
        let start = Instant::now();
        for (asked, then) in [(0, Beat::IsDue), (1, Beat::Waits)] {
            let mut kept = opened(start, &[]);
            kept.hearts.get_mut(ONLY).expect("a heart").hurry(at(start, asked), TIMEOUT);
            assert_eq!(kept.beats(ONLY, at(start, asked), true), then, "{asked}");
        }
    }
}
