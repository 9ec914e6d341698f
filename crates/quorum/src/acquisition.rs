//! The way to a majority: an attempt asks all servers at once, or begins in the queue of the gate server.
//!
//! # Implementation details
//! A client asks all servers at once. If the lock is free, their answers give the client the lock.
//!
//! The gate server decides which client gets the lock. It is the first server that is up, in an order that all clients
//! share. A client that it refuses releases what the other servers granted and, if it may wait, enters the queue of the
//! gate server, so that all clients wait in one queue and none polls. When the gate server grants the lock, the client
//! asks the other servers. If some of them refuse, the client waits in their queues for a moment, since the owner that
//! released the gate server is releasing them, too. If that fails, the client releases everything and, after a random
//! time, enters the queue of the first server that refused it.
//!
//! A client enters a second queue only if the gate server has granted it the lock, and only for a moment, because two
//! clients that see different gate servers may wait for each other.

use std::time::Duration;

use crate::call::Entry;
use crate::clocks::{Floor, MARGIN_US};
use crate::dice::Dice;
use crate::votes::{Vote, Votes};
use crate::{Answer, Ask, Call, Hold, Terms};

/// How long a client tries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Patience {
    /// A single attempt, which waits in no queue.
    None,
    /// Attempts until this time.
    Until(Duration),
    /// Attempts without a limit.
    Endless,
}

/// The outcome of an acquisition.
#[derive(Clone, Debug)]
pub enum Outcome {
    /// The lock is held on a majority.
    Held(Hold),
    /// The patience ended before a majority granted the lock. Usually another client holds it; the last server that was
    /// asked may also have stopped answering.
    Contended,
    /// Fewer servers than a majority answered: this many. With [`Patience::None`], also a majority that granted the
    /// lock too late for its leases.
    TooFew(usize),
}

/// A client's knowledge at the start of an acquisition.
#[derive(Clone, Copy, Debug)]
pub struct Start<'a> {
    /// Servers that did not answer lately. The client asks them, too, but waits neither for their answers nor in their
    /// queues.
    pub suspects: &'a [usize],
    /// Whether another client held the lock lately. If so, a client that may wait starts in the gate server's queue.
    pub contended: bool,
    /// The token to ask for.
    pub floor: Floor,
    /// The seed of the random times of back-offs.
    pub seed: u64,
}

/// A client on its way to a majority.
#[derive(Clone, Debug)]
pub struct Acquisition {
    pub(crate) terms: Terms,
    pub(crate) patience: Patience,
    pub(crate) floor: Floor,
    dice: Dice,
    pub(crate) attempt: u32,
    /// How often the client has backed off.
    back_offs: u32,
    /// How many requests were refused.
    refusals: u32,
    /// For each server, whether it has failed lately, in this acquisition or before. A suspect is not the gate server.
    pub(crate) suspects: Vec<bool>,
    /// For each server, whether a `PING` is unanswered.
    pinged: Vec<bool>,
    pub(crate) votes: Votes,
    pub(crate) phase: Phase,
}

#[derive(Clone, Debug)]
pub(crate) enum Phase {
    /// The client waits in the queue of the gate server, which is server `at`.
    Gate { at: usize, probe: Probe },
    /// All servers have been asked.
    Gather(Gather),
    /// Everything has been released. After `until`, the client enters the queue of `gate`.
    BackOff { until: Duration, gate: usize },
    /// The acquisition has ended. The outcome is there until the caller takes it.
    Ended(Option<Outcome>),
}

/// The times of an attempt for which all servers have been asked.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Gather {
    pub began: Duration,
    /// The time by which a server must answer. A server that has not answered then counts as failed.
    pub until: Duration,
    /// The time after which lower tokens are raised, if a majority has granted different ones. Until then, the servers
    /// that have not answered may still make up a majority with one token.
    pub agree_by: Option<Duration>,
    /// Whether `agree_by` or `until` has passed.
    pub is_overdue: bool,
    /// The lease that servers are asked for.
    pub lease: Duration,
}

/// The `PING`s to the gate server while a client waits in its queue. A wait alone does not show whether the server is
/// still up.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Probe {
    /// The next `PING` is due at this time. The first one goes to all servers, to learn which server is up if the gate
    /// server is not.
    Due(Duration, Probed),
    /// The `PING` was sent, and must be answered by this time.
    Open(Duration),
}

/// The servers to which a `PING` goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Probed {
    All,
    GateServer,
}

impl Acquisition {
    /// Begins an acquisition.
    pub fn begin(
        terms: Terms,
        patience: Patience,
        start: Start<'_>,
        now: Duration,
        calls: &mut Vec<Call>,
    ) -> Acquisition {
        let members = terms.members();
        let mut acquisition = Acquisition {
            terms,
            patience,
            floor: start.floor,
            dice: Dice::new(start.seed),
            attempt: 0,
            back_offs: 0,
            refusals: 0,
            suspects: vec![false; members],
            pinged: vec![false; members],
            votes: Votes::new(members),
            phase: Phase::Ended(None),
        };
        start.suspects.iter().for_each(|member| acquisition.suspect(*member));
        if patience != Patience::None && start.contended {
            acquisition.join_gate(acquisition.gate_server(), now, calls);
        } else {
            acquisition.ask_all(now, calls);
        }
        acquisition
    }

    /// Sets the token to ask for from now on, after the servers' clocks have been read again.
    pub fn set_floor(&mut self, floor: Floor) {
        self.floor = floor;
    }

    /// Returns whether a server has refused.
    pub fn was_refused(&self) -> bool {
        self.refusals > 0
    }

    /// Returns whether the first attempt has failed, and every hold of it has been released.
    #[cfg(test)]
    pub(crate) fn has_failed(&self) -> bool {
        self.attempt > 1 || matches!(self.phase, Phase::BackOff { .. })
    }

    /// Returns when to call [`Acquisition::handle_timeout`] if no answer arrives before. Every answer may change it.
    pub fn next_timeout(&self) -> Option<Duration> {
        match &self.phase {
            Phase::Gate { probe: Probe::Due(at, _) | Probe::Open(at), .. } => {
                Some(self.end_of_wait().unwrap_or(*at).min(*at))
            }
            Phase::Gather(gather) => Some(gather.next_timeout()),
            Phase::BackOff { until, .. } => Some(*until),
            Phase::Ended(_) => None,
        }
    }

    /// Returns the outcome if the acquisition has ended. Only the first call after the end returns it.
    pub fn outcome(&mut self) -> Option<Outcome> {
        if let Phase::Ended(outcome) = &mut self.phase { outcome.take() } else { None }
    }

    /// Records the answer that came back to `call`.
    pub fn answer(&mut self, now: Duration, call: &Call, answer: Answer, calls: &mut Vec<Call>) {
        self.note_health(call, answer);
        if call.attempt != self.attempt {
            return;
        }
        self.refusals += u32::from(answer == Answer::Refused);
        match (call.ask, &mut self.phase) {
            (Ask::Queue(..), Phase::Gate { at, .. }) if *at == call.to => self.answer_gate(now, call, answer, calls),
            (Ask::Ping, Phase::Gate { at, probe }) if *at == call.to => match answer {
                Answer::Failed => self.gate_is_down(now, call.to, calls),
                _ => *probe = Probe::Due(now + self.terms.timeout().max(PROBE_EVERY), Probed::GateServer),
            },
            (Ask::Enter(_) | Ask::Queue(..) | Ask::Raise(_), Phase::Gather(_)) => {
                self.note_vote(now, call, answer, calls);
            }
            _ => {}
        }
    }

    /// Acts on the time that has passed.
    pub fn handle_timeout(&mut self, now: Duration, calls: &mut Vec<Call>) {
        if self.next_timeout().is_none_or(|at| now < at) {
            return;
        }
        match self.phase {
            Phase::Gate { at, .. } if self.end_of_wait().is_some_and(|end| now >= end) => {
                self.votes.set(at, Vote::Failed);
                self.give_back(now, calls);
                self.end(Outcome::Contended);
            }
            Phase::Gate { at, probe: Probe::Due(..) } => self.probe(now, at, calls),
            Phase::Gate { at, probe: Probe::Open(_) } => self.gate_is_down(now, at, calls),
            Phase::Gather(gather) => self.end_gathering(now, gather, calls),
            Phase::BackOff { gate, .. } => self.join_gate(gate, now, calls),
            Phase::Ended(_) => {}
        }
    }

    /// Ends the acquisition without an outcome, and releases every hold that was requested.
    pub fn abandon(&mut self, now: Duration, calls: &mut Vec<Call>) {
        self.give_back(now, calls);
        self.phase = Phase::Ended(None);
    }

    /// Returns the servers that did not answer lately, for the [`Start`] of the next acquisition.
    pub fn suspects(&self) -> impl Iterator<Item = usize> {
        self.suspects.iter().enumerate().filter(|(_, suspect)| **suspect).map(|(member, _)| member)
    }

    /// Starts an attempt that asks all servers at once, for the lease of a lock that may not be free.
    fn ask_all(&mut self, now: Duration, calls: &mut Vec<Call>) {
        self.attempt += 1;
        self.votes.reset();
        let entry = Entry { lease: self.terms.newcomers_lease(), min_token: self.floor.token(now) };
        self.gather(entry, now, calls);
    }

    /// Starts an attempt in the queue of a server.
    pub(crate) fn join_gate(&mut self, at: usize, now: Duration, calls: &mut Vec<Call>) {
        let block = match self.patience {
            Patience::Until(end) if now < end => Some(end - now),
            Patience::Until(_) | Patience::None => return self.end(Outcome::Contended),
            Patience::Endless => None,
        };
        self.attempt += 1;
        self.votes.reset();
        self.votes.set(at, Vote::Open);
        self.phase = Phase::Gate { at, probe: Probe::Due(now + self.terms.timeout() / 2, Probed::All) };
        let entry = Entry { lease: self.terms.lease(), min_token: self.floor.token(now) };
        self.call(at, Ask::Queue(entry, block), now, calls);
    }

    /// Returns the time by which the gate server must have ended the wait in its queue.
    fn end_of_wait(&self) -> Option<Duration> {
        match self.patience {
            Patience::Until(end) => Some(end + self.terms.timeout()),
            Patience::None | Patience::Endless => None,
        }
    }

    /// Sends the `PING` that is due.
    fn probe(&mut self, now: Duration, at: usize, calls: &mut Vec<Call>) {
        let Phase::Gate { probe, .. } = &mut self.phase else { return };
        let probed = if let Probe::Due(_, probed) = probe { *probed } else { Probed::GateServer };
        *probe = Probe::Open(now + self.terms.timeout() / 2);
        match probed {
            Probed::GateServer => self.call(at, Ask::Ping, now, calls),
            Probed::All => {
                self.pinged.fill(true);
                (0..self.terms.members()).for_each(|member| self.call(member, Ask::Ping, now, calls));
            }
        }
    }

    /// Acts on the answer of the gate server to a request in its queue.
    fn answer_gate(&mut self, now: Duration, call: &Call, answer: Answer, calls: &mut Vec<Call>) {
        match answer {
            Answer::Granted(token) => self.gather_after_gate(now, call, token, calls),
            Answer::Failed => self.gate_is_down(now, call.to, calls),
            // The time of the wait is over, or another client has ended the wait, for example with `CLIENT UNBLOCK`.
            _ => {
                self.votes.set(call.to, Vote::Refused { waited: true });
                self.back_off(now, call.to);
            }
        }
    }

    /// Asks the other servers for the token that the gate server has granted. The gate server's grant counts as it is
    /// if it came within the timeout of a server, with a token ahead of the other servers' clocks. Otherwise its hold
    /// is renewed and its token raised. After a wait, the client does not know when the hold began.
    fn gather_after_gate(&mut self, now: Duration, call: &Call, token: u64, calls: &mut Vec<Call>) {
        let lease = self.terms.lease();
        let floor = self.floor.token(now).unwrap_or(0);
        let is_ahead = token.saturating_add(AHEAD_US) >= floor && floor > 0;
        let min_token = if is_ahead && now <= call.sent + self.terms.timeout() {
            self.votes.set(call.to, Vote::Granted { token, until: Terms::valid_until(call.sent, lease) });
            token
        } else {
            let target = token.max(floor);
            self.votes.set(call.to, Vote::Raising(target));
            self.call(call.to, Ask::Raise(target), now, calls);
            target
        };
        self.gather(Entry { lease, min_token: Some(min_token) }, now, calls);
    }

    /// Leaves the queue of a gate server that does not answer, for that of the next server.
    fn gate_is_down(&mut self, now: Duration, at: usize, calls: &mut Vec<Call>) {
        self.suspect(at);
        // Servers that have not answered their `PING` by now are down, too.
        for (suspect, pinged) in self.suspects.iter_mut().zip(&mut self.pinged) {
            *suspect |= std::mem::take(pinged);
        }
        self.votes.set(at, Vote::Failed);
        self.give_back(now, calls);
        if self.suspects.iter().all(|suspect| *suspect) {
            // No server is known to be up. The answers to one more attempt tell whether a majority is.
            return self.ask_all(now, calls);
        }
        self.join_gate(self.gate_server(), now, calls);
    }

    /// Returns the first server that is not suspected to be down.
    pub(crate) fn gate_server(&self) -> usize {
        self.suspects.iter().position(|suspect| !suspect).unwrap_or(0)
    }

    fn suspect(&mut self, member: usize) {
        self.suspects.get_mut(member).into_iter().for_each(|suspect| *suspect = true);
    }

    /// Records whether a server answers.
    fn note_health(&mut self, call: &Call, answer: Answer) {
        let suspect = matches!(answer, Answer::Failed);
        // Even a server that does not count answers a release, so the answer does not clear the suspicion.
        if call.ask == Ask::Release && !suspect {
            return;
        }
        self.suspects.get_mut(call.to).into_iter().for_each(|known| *known = suspect);
        self.pinged.get_mut(call.to).into_iter().for_each(|pinged| *pinged = false);
    }

    pub(crate) fn is_suspect(&self, member: usize) -> bool {
        self.suspects.get(member).copied().unwrap_or(true)
    }

    /// Asks all servers that have not been asked in this attempt.
    fn gather(&mut self, entry: Entry, now: Duration, calls: &mut Vec<Call>) {
        let until = now + self.terms.timeout();
        self.phase = Phase::Gather(Gather { began: now, until, agree_by: None, is_overdue: false, lease: entry.lease });
        for member in 0..self.terms.members() {
            if self.votes.get(member) == Vote::Unasked {
                self.votes.set(member, Vote::Open);
                self.call(member, Ask::Enter(entry), now, calls);
            }
        }
        self.count(now, calls);
    }

    /// Acts when `agree_by` or `until` has passed. After `until`, the servers that have not answered count as failed.
    /// If the gate server is one of them, the next server takes its place.
    fn end_gathering(&mut self, now: Duration, gather: Gather, calls: &mut Vec<Call>) {
        self.phase = Phase::Gather(Gather { is_overdue: true, ..gather });
        if now >= gather.until {
            let late: Vec<usize> = self.votes.iter().filter(|(_, vote)| vote.is_pending()).map(|(at, _)| at).collect();
            for member in late {
                self.suspect(member);
                self.votes.set(member, Vote::Failed);
            }
        }
        self.count(now, calls);
        // If `count` has ended the attempt, the phase is another one. If `count` has asked for more, `until` is later.
        // Otherwise, no majority has one token by live holds.
        if let Phase::Gather(gather) = self.phase
            && now >= gather.until
        {
            self.fail(now, calls);
        }
    }

    /// Ends an attempt that has failed: releases its holds, and backs off or ends the acquisition.
    pub(crate) fn fail(&mut self, now: Duration, calls: &mut Vec<Call>) {
        self.give_back(now, calls);
        let answered = self.votes.count(|vote| vote != Vote::Failed);
        let refusal = self.votes.first_refusal();
        if answered < self.terms.majority() || (self.patience == Patience::None && refusal.is_none()) {
            return self.end(Outcome::TooFew(answered));
        }
        let gate = refusal.unwrap_or_else(|| self.gate_server());
        self.back_off(now, gate);
    }

    /// Schedules the next attempt, in the queue of `gate`, or ends the acquisition if its time is over.
    fn back_off(&mut self, now: Duration, gate: usize) {
        let is_over = match self.patience {
            Patience::None => true,
            Patience::Until(end) => now >= end,
            Patience::Endless => false,
        };
        if is_over {
            return self.end(Outcome::Contended);
        }
        let most = BACK_OFF.saturating_mul(1 << self.back_offs.min(16)).min(self.terms.timeout());
        self.back_offs += 1;
        self.phase = Phase::BackOff { until: now + self.dice.up_to(most), gate };
    }

    /// Sends a release to every server that may have a hold, including those that have not answered.
    pub(crate) fn give_back(&mut self, now: Duration, calls: &mut Vec<Call>) {
        let asked: Vec<usize> = self.votes.iter().filter(|(_, vote)| vote.may_hold()).map(|(at, _)| at).collect();
        asked.into_iter().for_each(|member| self.call(member, Ask::Release, now, calls));
    }

    pub(crate) fn call(&self, to: usize, ask: Ask, now: Duration, calls: &mut Vec<Call>) {
        calls.push(Call { to, attempt: self.attempt, sent: now, ask });
    }

    pub(crate) fn end(&mut self, outcome: Outcome) {
        self.phase = Phase::Ended(Some(outcome));
    }
}

impl Gather {
    fn next_timeout(&self) -> Duration {
        self.agree_by.filter(|_| !self.is_overdue).map_or(self.until, |agree_by| agree_by.min(self.until))
    }
}

/// The least time between an answer of the gate server and the next `PING`, unless a server's timeout is longer.
const PROBE_EVERY: Duration = Duration::from_secs(4);

/// By how many µs a granted token may be lower than the token to ask for, and still be ahead of the servers' clocks.
const AHEAD_US: u64 = MARGIN_US / 2;

/// The longest first back-off, which is random. This limit doubles each time, up to the timeout of a server.
const BACK_OFF: Duration = Duration::from_millis(4);
