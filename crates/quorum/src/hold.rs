//! How a lock is kept on a majority, lost and given up.

use std::time::Duration;

use crate::votes::{Vote, Votes};
use crate::{Answer, Ask, Call, Terms};

/// A lock that is held on a majority of servers.
///
/// It is good until the time up to which a majority has been asked, with success, to keep it: [`Hold::valid_until`].
#[derive(Clone, Debug)]
pub struct Hold {
    terms: Terms,
    attempt: u32,
    token: u64,
    parts: Vec<Part>,
    state: State,
}

/// One server's part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    /// There may be a hold that nobody has confirmed.
    Unknown,
    /// The hold was there, and asked to stay at this time.
    Kept(Duration),
    /// There is no hold.
    None,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// The last renewals were sent then, `None`: none yet.
    Kept(Option<Duration>),
    /// All have been told; by then it is over.
    Leaving(Duration),
    /// Nobody needs to be told any more.
    Left,
}

impl Hold {
    pub(crate) fn unconfirmed(terms: Terms, attempt: u32, token: u64, votes: &Votes) -> Hold {
        let part = |vote| match vote {
            Vote::Refused | Vote::Unasked => Part::None,
            Vote::Open | Vote::Granted(_) | Vote::Failed => Part::Unknown,
        };
        let parts = votes.iter().map(|(_, vote)| part(vote)).collect();
        Hold { terms, attempt, token, parts, state: State::Kept(None) }
    }

    /// The fencing token: higher than that of every hold before.
    pub fn token(&self) -> u64 {
        self.token
    }

    /// Which attempt, and so which owner, it is held by.
    pub fn attempt(&self) -> u32 {
        self.attempt
    }

    /// Until when nobody else can hold the lock. The past, if no majority keeps it any more.
    pub fn valid_until(&self) -> Duration {
        self.majority_asked().map_or(Duration::ZERO, |sent| self.terms.valid_until(sent))
    }

    /// Whether it is held: it has neither run out nor been given up.
    pub fn is_good(&self, now: Duration) -> bool {
        matches!(self.state, State::Kept(_)) && now < self.valid_until()
    }

    /// When to call [`Hold::pass`], if nothing comes back before.
    pub fn next_timeout(&self) -> Option<Duration> {
        match self.state {
            State::Kept(sent) => Some(self.next_renewal(sent).min(self.valid_until())),
            State::Leaving(until) => Some(until),
            State::Left => None,
        }
    }

    /// Time has passed: sends renewals when they are due.
    pub fn pass(&mut self, now: Duration, calls: &mut Vec<Call>) {
        match self.state {
            State::Kept(sent) if self.is_good(now) && now >= self.next_renewal(sent) => self.renew(now, calls),
            State::Leaving(until) if now >= until => self.state = State::Left,
            State::Kept(_) | State::Leaving(_) | State::Left => {}
        }
    }

    /// Asks all servers that may keep it to do so for another lease.
    pub fn renew(&mut self, now: Duration, calls: &mut Vec<Call>) {
        self.state = State::Kept(Some(now));
        for (to, part) in self.parts.iter().enumerate() {
            if *part != Part::None {
                calls.push(Call { to, attempt: self.attempt, sent: now, ask: Ask::Renew });
            }
        }
    }

    /// Takes note of what came back to `call`.
    pub fn answer(&mut self, call: &Call, answer: Answer) {
        if call.attempt != self.attempt {
            return;
        }
        match call.ask {
            Ask::Enter | Ask::Queue(_) => self.note_entry(call.to, answer),
            Ask::Confirm(_) | Ask::Renew => self.note_renewal(call.to, call.sent, answer),
            Ask::Release => {
                // Nobody waits for one that cannot be told.
                self.set(call.to, if answer == Answer::Failed { Part::Unknown } else { Part::None });
                self.end_leaving();
            }
            Ask::Ping => {}
        }
    }

    /// Gives it up everywhere, from now on. The gate server, the first that keeps it, is told second: the client that it
    /// lets in finds the server that was told first free, and the others are told while that client is on its way. If it
    /// is faster, it waits in their queues.
    pub fn release(&mut self, now: Duration, calls: &mut Vec<Call>) {
        if !matches!(self.state, State::Kept(_)) {
            return;
        }
        self.state = State::Leaving(now + self.terms.timeout());
        let parts = self.parts.iter().enumerate();
        let mut told: Vec<usize> = parts.filter(|(_, part)| **part != Part::None).map(|(to, _)| to).collect();
        let mut kept = told.iter().copied().filter(|to| self.is_kept_by(*to));
        let (gate, first) = (kept.next(), kept.next());
        told.sort_by_key(|to| (Some(*to) != first, Some(*to) != gate));
        calls.extend(told.into_iter().map(|to| Call { to, attempt: self.attempt, sent: now, ask: Ask::Release }));
        self.end_leaving();
    }

    /// Whether there is nobody left to tell.
    pub fn has_left(&self) -> bool {
        self.state == State::Left
    }

    pub(crate) fn note_entry(&mut self, member: usize, answer: Answer) {
        if answer == Answer::Refused {
            self.set(member, Part::None);
        }
    }

    pub(crate) fn note_renewal(&mut self, member: usize, sent: Duration, answer: Answer) {
        match (answer, self.parts.get(member)) {
            (Answer::Done, Some(Part::Unknown)) => self.set(member, Part::Kept(sent)),
            (Answer::Done, Some(Part::Kept(before))) => self.set(member, Part::Kept(sent.max(*before))),
            (Answer::Gone, _) => self.set(member, Part::None),
            (Answer::Done | Answer::Granted(_) | Answer::Refused | Answer::Failed, _) => {}
        }
    }

    pub(crate) fn is_kept_by(&self, member: usize) -> bool {
        matches!(self.parts.get(member), Some(Part::Kept(_)))
    }

    /// The time at or after which a majority was asked to keep it, and did.
    fn majority_asked(&self) -> Option<Duration> {
        let kept = |part: &Part| if let Part::Kept(sent) = part { Some(*sent) } else { None };
        let mut sent: Vec<Duration> = self.parts.iter().filter_map(kept).collect();
        sent.sort_unstable_by(|a, b| b.cmp(a));
        sent.get(self.terms.majority() - 1).copied()
    }

    /// A third of the lease after the last renewal that a majority answered, or a timeout after one that it did not.
    fn next_renewal(&self, last: Option<Duration>) -> Duration {
        let due = self.majority_asked().unwrap_or_default() + self.terms.lease() / 3;
        last.map_or(due, |last| due.max(last + self.terms.timeout()))
    }

    /// It is over when all have answered that are known to keep it.
    fn end_leaving(&mut self) {
        let is_kept = self.parts.iter().any(|part| matches!(part, Part::Kept(_)));
        if matches!(self.state, State::Leaving(_)) && !is_kept {
            self.state = State::Left;
        }
    }

    fn set(&mut self, member: usize, part: Part) {
        if let Some(place) = self.parts.get_mut(member) {
            *place = part;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_gate_server_is_told_second() {
        let second = Duration::from_secs(1);
        let told = |members: usize, kept: &[usize], refused: &[usize]| {
            let mut votes = Votes::new(members);
            (0..members).for_each(|member| votes.set(member, Vote::Failed));
            refused.iter().for_each(|member| votes.set(*member, Vote::Refused));
            let terms = Terms::new(members, second, second / 10, second).unwrap();
            let mut hold = Hold::unconfirmed(terms, 1, 1, &votes);
            kept.iter().for_each(|member| hold.note_renewal(*member, second, Answer::Done));
            let mut calls = Vec::new();
            hold.release(second, &mut calls);
            calls.iter().map(|call| call.to).collect::<Vec<_>>()
        };
        assert_eq!(told(1, &[0], &[]), [0]);
        assert_eq!(told(3, &[0, 2], &[]), [2, 0, 1]);
        assert_eq!(told(5, &[0, 1, 2], &[]), [1, 0, 2, 3, 4]);
        // The first one is down.
        assert_eq!(told(5, &[1, 2, 3], &[]), [2, 1, 0, 3, 4]);
        assert_eq!(told(5, &[1, 2, 3], &[0, 4]), [2, 1, 3]);
    }
}
