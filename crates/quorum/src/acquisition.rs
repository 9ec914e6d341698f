//! The way to a majority: the gate server, the others, the confirmation, the next attempt.
//!
//! # Implementation details
//! A client that may wait enters the queue of one server first, the gate server, and asks the others when it is granted
//! there. All clients take the first server that is up, in the same order, so that they wait in one queue and nobody
//! polls. A client that finds others held waits in their queues for a moment, since whoever left the gate server is
//! leaving them too. If that does not help it gives everything back, and after a random time enters the queue of the
//! first server that refused it. A client that may not wait asks all at once.
//!
//! A client enters a second queue only if the gate server has let it in, and never for long: two clients with different
//! gate servers wait for each other.

use std::time::Duration;

use crate::dice::Dice;
use crate::terms::Confirm;
use crate::votes::{Vote, Votes};
use crate::{Answer, Ask, Call, Hold, Terms};

/// For how long to try.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Patience {
    /// One attempt, no waiting in a queue.
    None,
    /// Until this time.
    Until(Duration),
    /// For ever.
    Endless,
}

/// What an acquisition came to.
#[derive(Clone, Debug)]
pub enum Outcome {
    /// The lock is held on a majority.
    Held(Hold),
    /// Somebody else holds it, and still did when the patience ended.
    Contended,
    /// No majority of servers answers; so many did.
    TooFew(usize),
}

/// A client on its way to a majority.
#[derive(Clone, Debug)]
pub struct Acquisition {
    terms: Terms,
    patience: Patience,
    dice: Dice,
    attempt: u32,
    splits: u32,
    /// Not to be the gate server: it failed, before this acquisition or in it.
    suspects: Vec<bool>,
    /// Has been asked whether it is there, and has not answered.
    pinged: Vec<bool>,
    votes: Votes,
    phase: Phase,
}

#[derive(Clone, Debug)]
enum Phase {
    /// In the queue of the gate server.
    Door { at: usize, probe: Probe },
    /// The others have been asked.
    Gather { until: Duration, refusals: Refusals },
    /// The token is being confirmed.
    Confirm { until: Duration, hold: Hold },
    /// Everything has been given back; then to this door.
    BackOff { until: Duration, door: usize },
    /// The outcome is there, until it is taken.
    Ended(Option<Outcome>),
}

/// Whether the gate server is there: a queue is silent, and so is a server that has stopped.
#[derive(Clone, Copy, Debug)]
enum Probe {
    /// Ask then; the first time all servers, so as to know whom to go to.
    Due(Duration, Whom),
    /// Asked; an answer is due by then.
    Open(Duration),
}

/// What it means that one of the others is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Refusals {
    /// It may be free in a moment: the gate server has let us in.
    MayPass,
    /// It is held.
    Count,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Whom {
    All,
    GateServer,
}

impl Acquisition {
    /// Begins. `suspects` names servers that did not answer lately: they are asked, but not waited at.
    pub fn begin(
        terms: Terms,
        patience: Patience,
        suspects: impl IntoIterator<Item = usize>,
        seed: u64,
        now: Duration,
        calls: &mut Vec<Call>,
    ) -> Acquisition {
        let members = terms.members();
        let mut suspected = vec![false; members];
        for member in suspects {
            suspected.get_mut(member).into_iter().for_each(|suspect| *suspect = true);
        }
        let mut acquisition = Acquisition {
            terms,
            patience,
            dice: Dice::new(seed),
            attempt: 0,
            splits: 0,
            suspects: suspected,
            pinged: vec![false; members],
            votes: Votes::new(members),
            phase: Phase::Ended(None),
        };
        match patience {
            Patience::None => acquisition.try_once(now, calls),
            Patience::Until(_) | Patience::Endless => acquisition.knock(acquisition.gate_server(), now, calls),
        }
        acquisition
    }

    /// When to call [`Acquisition::pass`], if nothing comes back before.
    pub fn next_timeout(&self) -> Option<Duration> {
        match &self.phase {
            Phase::Door { probe: Probe::Due(at, _) | Probe::Open(at), .. } => {
                Some(self.end_of_wait().unwrap_or(*at).min(*at))
            }
            Phase::Gather { until, .. } | Phase::Confirm { until, .. } | Phase::BackOff { until, .. } => Some(*until),
            Phase::Ended(_) => None,
        }
    }

    /// The outcome, once: the acquisition has ended.
    pub fn outcome(&mut self) -> Option<Outcome> {
        if let Phase::Ended(outcome) = &mut self.phase { outcome.take() } else { None }
    }

    /// Takes note of what came back to `call`.
    pub fn answer(&mut self, now: Duration, call: &Call, answer: Answer, calls: &mut Vec<Call>) {
        self.note_health(call, answer);
        if call.attempt != self.attempt {
            return;
        }
        match (call.ask, &mut self.phase) {
            (Ask::Queue(_), Phase::Door { at, .. }) if *at == call.to => self.at_the_door(now, call.to, answer, calls),
            (Ask::Ping, Phase::Door { at, probe }) if *at == call.to => match answer {
                Answer::Failed => self.door_is_down(now, call.to, calls),
                Answer::Granted(_) | Answer::Refused | Answer::Done | Answer::Gone => {
                    *probe = Probe::Due(now + self.terms.timeout().max(PROBE_EVERY), Whom::GateServer);
                }
            },
            (Ask::Enter, Phase::Gather { until, refusals: Refusals::MayPass })
                if answer == Answer::Refused && now + SHORTEST_WAIT * 2 <= *until =>
            {
                let wait = (*until - now) / 2;
                self.call(call.to, Ask::Queue(Some(wait)), now, calls);
            }
            (Ask::Enter | Ask::Queue(_), Phase::Gather { .. }) => {
                self.votes.note(call.to, answer);
                self.tally(now, calls);
            }
            // Too late to count, but the hold is there.
            (Ask::Enter | Ask::Queue(_), Phase::Confirm { hold, .. }) => hold.note_entry(call.to, answer),
            (Ask::Confirm(_), Phase::Confirm { hold, .. }) => {
                hold.note_renewal(call.to, call.sent, answer);
                match answer {
                    Answer::Done => {}
                    Answer::Gone => self.votes.set(call.to, Vote::Refused),
                    Answer::Failed | Answer::Granted(_) | Answer::Refused => self.votes.set(call.to, Vote::Failed),
                }
                self.count_confirmations(now, calls);
            }
            _ => {}
        }
    }

    /// Time has passed.
    pub fn pass(&mut self, now: Duration, calls: &mut Vec<Call>) {
        if self.next_timeout().is_none_or(|at| now < at) {
            return;
        }
        match self.phase {
            Phase::Door { at, .. } if self.end_of_wait().is_some_and(|end| now >= end) => {
                self.votes.set(at, Vote::Failed);
                self.give_back(now, calls);
                self.end(Outcome::Contended);
            }
            Phase::Door { at, probe: Probe::Due(..) } => self.probe(now, at, calls),
            Phase::Door { at, probe: Probe::Open(_) } => self.door_is_down(now, at, calls),
            Phase::Gather { .. } => {
                self.close_votes();
                self.tally(now, calls);
            }
            Phase::Confirm { .. } => {
                self.close_confirmations();
                self.fail(now, calls);
            }
            Phase::BackOff { door, .. } => self.knock(door, now, calls),
            Phase::Ended(_) => {}
        }
    }

    /// Gives up: everything that was asked for is given back.
    pub fn abandon(&mut self, now: Duration, calls: &mut Vec<Call>) {
        self.give_back(now, calls);
        self.phase = Phase::Ended(None);
    }

    /// The servers that did not answer.
    pub fn suspects(&self) -> impl Iterator<Item = usize> {
        self.suspects.iter().enumerate().filter(|(_, suspect)| **suspect).map(|(member, _)| member)
    }

    fn try_once(&mut self, now: Duration, calls: &mut Vec<Call>) {
        self.attempt += 1;
        self.votes.reset();
        self.gather(Refusals::Count, now, calls);
    }

    /// Enters the queue of a server.
    fn knock(&mut self, at: usize, now: Duration, calls: &mut Vec<Call>) {
        let block = match self.patience {
            Patience::Until(end) if now < end => Some(end - now),
            Patience::Until(_) | Patience::None => return self.end(Outcome::Contended),
            Patience::Endless => None,
        };
        self.attempt += 1;
        self.votes.reset();
        self.votes.set(at, Vote::Open);
        self.phase = Phase::Door { at, probe: Probe::Due(now + self.terms.timeout() / 2, Whom::All) };
        self.call(at, Ask::Queue(block), now, calls);
    }

    /// By when the server must have ended a wait in its queue.
    fn end_of_wait(&self) -> Option<Duration> {
        match self.patience {
            Patience::Until(end) => Some(end + self.terms.timeout()),
            Patience::None | Patience::Endless => None,
        }
    }

    fn probe(&mut self, now: Duration, at: usize, calls: &mut Vec<Call>) {
        let Phase::Door { probe, .. } = &mut self.phase else { return };
        let whom = if let Probe::Due(_, whom) = probe { *whom } else { Whom::GateServer };
        *probe = Probe::Open(now + self.terms.timeout() / 2);
        match whom {
            Whom::GateServer => self.call(at, Ask::Ping, now, calls),
            Whom::All => {
                self.pinged.fill(true);
                (0..self.terms.members()).for_each(|member| self.call(member, Ask::Ping, now, calls));
            }
        }
    }

    fn at_the_door(&mut self, now: Duration, at: usize, answer: Answer, calls: &mut Vec<Call>) {
        self.votes.note(at, answer);
        match answer {
            Answer::Granted(_) => self.gather(Refusals::MayPass, now, calls),
            Answer::Failed => self.door_is_down(now, at, calls),
            // The wait has run out, or somebody ended it.
            Answer::Refused | Answer::Done | Answer::Gone => self.back_off(now, at),
        }
    }

    fn door_is_down(&mut self, now: Duration, at: usize, calls: &mut Vec<Call>) {
        self.suspect(at);
        // Who has not answered by now is no better.
        for (suspect, pinged) in self.suspects.iter_mut().zip(&mut self.pinged) {
            *suspect |= std::mem::take(pinged);
        }
        self.votes.set(at, Vote::Failed);
        self.give_back(now, calls);
        if self.suspects.iter().all(|suspect| *suspect) {
            // Nobody to wait at, as far as is known. All are asked once: that tells.
            return self.try_once(now, calls);
        }
        self.knock(self.gate_server(), now, calls);
    }

    /// The first server that is up, as far as is known.
    fn gate_server(&self) -> usize {
        self.suspects.iter().position(|suspect| !suspect).unwrap_or(0)
    }

    fn suspect(&mut self, member: usize) {
        self.suspects.get_mut(member).into_iter().for_each(|suspect| *suspect = true);
    }

    fn note_health(&mut self, call: &Call, answer: Answer) {
        let suspect = matches!(answer, Answer::Failed);
        // A server that does not count answers a release, too.
        if call.ask == Ask::Release && !suspect {
            return;
        }
        self.suspects.get_mut(call.to).into_iter().for_each(|known| *known = suspect);
        self.pinged.get_mut(call.to).into_iter().for_each(|pinged| *pinged = false);
    }

    /// Asks all that have not been asked yet.
    fn gather(&mut self, refusals: Refusals, now: Duration, calls: &mut Vec<Call>) {
        self.phase = Phase::Gather { until: now + self.terms.timeout(), refusals };
        for member in 0..self.terms.members() {
            if self.votes.get(member) == Vote::Unasked {
                self.votes.set(member, Vote::Open);
                self.call(member, Ask::Enter, now, calls);
            }
        }
        self.tally(now, calls);
    }

    fn close_votes(&mut self) {
        let late: Vec<usize> = self.votes.iter().filter(|(_, vote)| *vote == Vote::Open).map(|(at, _)| at).collect();
        late.into_iter().for_each(|member| self.suspect(member));
        self.votes.close();
    }

    fn tally(&mut self, now: Duration, calls: &mut Vec<Call>) {
        let granted = self.votes.granted();
        if granted >= self.terms.majority() {
            self.confirm(now, calls);
        } else if granted + self.votes.count(|vote| vote == Vote::Open) < self.terms.majority() {
            self.fail(now, calls);
        }
    }

    /// A majority has granted: lifts the token of its holds, and the token clocks of its servers, to the highest.
    fn confirm(&mut self, now: Duration, calls: &mut Vec<Call>) {
        let Some(token) = self.votes.highest() else { return };
        let counted = |vote: Vote| match self.terms.rules.confirm {
            Confirm::WhatWasCounted => matches!(vote, Vote::Granted(_)),
            #[cfg(test)]
            Confirm::Nobody => false,
        };
        let asked: Vec<usize> = self.votes.iter().filter(|(_, vote)| counted(*vote)).map(|(at, _)| at).collect();
        let hold = Hold::unconfirmed(self.terms, self.attempt, token, &self.votes);
        self.phase = Phase::Confirm { until: now + self.terms.timeout(), hold };
        asked.into_iter().for_each(|member| self.call(member, Ask::Confirm(token), now, calls));
        self.skip_confirmation(now, calls);
    }

    #[cfg(not(test))]
    #[allow(clippy::unused_self, reason = "the rule is left out in checks only")]
    fn skip_confirmation(&mut self, _now: Duration, _calls: &mut Vec<Call>) {}

    #[cfg(test)]
    fn skip_confirmation(&mut self, now: Duration, calls: &mut Vec<Call>) {
        if let (Confirm::Nobody, Phase::Confirm { hold, .. }) = (self.terms.rules.confirm, &mut self.phase) {
            for (member, _) in self.votes.iter().filter(|(_, vote)| matches!(vote, Vote::Granted(_))) {
                hold.note_renewal(member, now, Answer::Done);
            }
            self.count_confirmations(now, calls);
        }
    }

    fn count_confirmations(&mut self, now: Duration, calls: &mut Vec<Call>) {
        let Phase::Confirm { hold, .. } = &self.phase else { return };
        if hold.is_good(now) {
            let hold = hold.clone();
            self.end(Outcome::Held(hold));
        } else if self.votes.granted() < self.terms.majority() {
            self.fail(now, calls);
        }
    }

    fn close_confirmations(&mut self) {
        let Phase::Confirm { hold, .. } = &self.phase else { return };
        let silent = |(at, vote): &(usize, Vote)| matches!(vote, Vote::Granted(_)) && !hold.is_kept_by(*at);
        let silent: Vec<usize> = self.votes.iter().filter(silent).map(|(at, _)| at).collect();
        for member in silent {
            self.votes.set(member, Vote::Failed);
            self.suspect(member);
        }
    }

    /// This attempt has come to nothing.
    fn fail(&mut self, now: Duration, calls: &mut Vec<Call>) {
        self.give_back(now, calls);
        let answered = self.votes.count(|vote| vote != Vote::Failed);
        let refusal = self.votes.first_refusal();
        if answered < self.terms.majority() || (self.patience == Patience::None && refusal.is_none()) {
            return self.end(Outcome::TooFew(answered));
        }
        let door = refusal.unwrap_or_else(|| self.gate_server());
        self.back_off(now, door);
    }

    fn back_off(&mut self, now: Duration, door: usize) {
        let is_over = match self.patience {
            Patience::None => true,
            Patience::Until(end) => now >= end,
            Patience::Endless => false,
        };
        if is_over {
            return self.end(Outcome::Contended);
        }
        let most = BACK_OFF.saturating_mul(1 << self.splits.min(16)).min(self.terms.timeout());
        self.splits += 1;
        self.phase = Phase::BackOff { until: now + self.dice.up_to(most), door };
    }

    /// Releases wherever a hold may be, also where no answer came.
    fn give_back(&mut self, now: Duration, calls: &mut Vec<Call>) {
        let asked = |vote: Vote| matches!(vote, Vote::Open | Vote::Granted(_) | Vote::Failed);
        let asked: Vec<usize> = self.votes.iter().filter(|(_, vote)| asked(*vote)).map(|(at, _)| at).collect();
        asked.into_iter().for_each(|member| self.call(member, Ask::Release, now, calls));
    }

    fn call(&self, to: usize, ask: Ask, now: Duration, calls: &mut Vec<Call>) {
        calls.push(Call { to, attempt: self.attempt, sent: now, ask });
    }

    fn end(&mut self, outcome: Outcome) {
        self.phase = Phase::Ended(Some(outcome));
    }
}

/// How often a client in the queue asks the gate server whether it is there.
const PROBE_EVERY: Duration = Duration::from_secs(1);

/// Less than this is no wait: servers count whole milliseconds.
const SHORTEST_WAIT: Duration = Duration::from_millis(1);

/// The longest back-off after the first split. Each further one may take twice as long, up to the timeout of a server.
const BACK_OFF: Duration = Duration::from_millis(4);
