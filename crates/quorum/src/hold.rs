//! How a lock is kept on a majority, repaired, lost and released.

use std::time::Duration;

use crate::terms::Rule;
use crate::votes::{Vote, Votes};
use crate::{Answer, Ask, Call, Terms};

/// A lock that is held on a majority of servers.
///
/// The hold is valid until [`Hold::valid_until`], the time up to which a majority has granted or renewed it. After that
/// time it is lost for good, even if later answers report a renewal.
#[derive(Clone, Debug)]
pub struct Hold {
    terms: Terms,
    attempt: u32,
    token: u64,
    /// Whether all servers have been asked to raise their holds to the token.
    is_raised: bool,
    /// The state of the hold on each server.
    parts: Vec<Part>,
    /// When each server was last asked to grant a hold that it had lost.
    repairs: Vec<Option<Duration>>,
    state: State,
}

/// The state of the hold on one server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    /// The server may have a hold.
    Unknown,
    /// The server may have a hold, because a request for the lock is unanswered. The server may grant the request even
    /// after it has answered a renewal with nil.
    Entering,
    /// The server has a hold that does not count, because the server is too young.
    Reserved,
    /// The server has a hold that is valid until this time.
    Kept(Duration),
    /// The server has no hold.
    None,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// The lock is held. The last renewal, if any, was sent at the first time, and no other is sent before the second.
    Kept(Option<Duration>, Duration),
    /// The lock is lost: its time has passed, or no majority has it any more.
    Lost,
    /// All servers have been asked to release the hold. The release ends by this time, even without answers.
    Leaving(Duration),
    /// The release has ended.
    Left,
}

impl Hold {
    /// Makes a hold from the votes of an attempt. From now on, every live hold on a server counts, even with another token.
    pub(crate) fn of(terms: Terms, attempt: u32, token: u64, votes: &Votes, now: Duration) -> Hold {
        let part = |vote| match vote {
            Vote::Refused { .. } | Vote::Unasked => Part::None,
            Vote::Granted { until, .. } => Part::Kept(until),
            Vote::Open => Part::Entering,
            Vote::Raising(_) | Vote::Failed => Part::Unknown,
        };
        let parts = votes.iter().map(|(_, vote)| part(vote)).collect();
        let state = State::Kept(None, now + terms.timeout() / 2);
        Hold { terms, attempt, token, is_raised: false, parts, repairs: vec![None; terms.members()], state }
    }

    /// Returns the fencing token, which is higher than that of every earlier hold.
    pub fn token(&self) -> u64 {
        self.token
    }

    /// Returns the attempt that acquired the hold. Its owner is the owner of the hold.
    pub fn attempt(&self) -> u32 {
        self.attempt
    }

    /// Returns until when no other client can hold the lock. If the lock is lost, that is in the past.
    pub fn valid_until(&self) -> Duration {
        if self.state == State::Lost { Duration::ZERO } else { self.majority_until() }
    }

    /// Returns whether a majority has renewed the hold by requests that were sent at `sent` or later.
    pub fn is_renewed_since(&self, sent: Duration) -> bool {
        self.valid_until() >= Terms::valid_until(sent, self.terms.lease())
    }

    /// Returns whether the lock is held: it has neither expired nor been released.
    pub fn is_good(&self, now: Duration) -> bool {
        matches!(self.state, State::Kept(..)) && now < self.valid_until()
    }

    /// Returns when to call [`Hold::handle_timeout`], unless an answer arrives before.
    pub fn next_timeout(&self) -> Option<Duration> {
        match self.state {
            State::Kept(_, not_before) => {
                let renewal = self.next_renewal(not_before);
                Some(if self.terms.keeps(Rule::LostForGood) { renewal.min(self.valid_until()) } else { renewal })
            }
            State::Leaving(until) => Some(until),
            State::Lost | State::Left => None,
        }
    }

    /// Returns when the next renewal is due: a third of the lease after the last one, or soon if the servers have granted
    /// a shorter lease, but not before the last renewal has had its timeout.
    pub fn renewal_due(&self) -> Option<Duration> {
        if let State::Kept(_, not_before) = self.state { Some(self.next_renewal(not_before)) } else { None }
    }

    /// Acts on the time that has passed: sends renewals that are due, and ends a release that takes too long.
    pub fn handle_timeout(&mut self, now: Duration, calls: &mut Vec<Call>) {
        self.note_loss(now);
        match self.state {
            State::Kept(_, not_before) if now >= self.next_renewal(not_before) => self.renew(now, calls),
            State::Leaving(until) if now >= until => self.state = State::Left,
            _ => {}
        }
    }

    /// Asks all servers to renew the hold for another lease. When a majority has renewed it, the others are asked to grant
    /// it again. Does nothing if the lock is lost or released.
    pub fn renew(&mut self, now: Duration, calls: &mut Vec<Call>) {
        self.note_loss(now);
        if !matches!(self.state, State::Kept(..)) {
            return;
        }
        self.state = State::Kept(Some(now), now + self.terms.timeout());
        let renew = if self.is_raised { Ask::Renew } else { Ask::Raise(self.token) };
        self.is_raised = true;
        for to in 0..self.parts.len() {
            if self.part(to) != Part::None {
                self.call(to, renew, now, calls);
            }
        }
    }

    /// Records the answer that came back to `call`.
    pub fn answer(&mut self, now: Duration, call: &Call, answer: Answer, calls: &mut Vec<Call>) {
        if call.attempt != self.attempt {
            return;
        }
        self.note_loss(now);
        match self.state {
            State::Kept(..) => {
                self.answer_kept(now, call, answer, calls);
                self.note_loss(now);
                self.repair(now, calls);
            }
            State::Leaving(_) if call.ask == Ask::Release => {
                // A release does not wait for servers that fail.
                self.set(call.to, if answer == Answer::Failed { Part::Unknown } else { Part::None });
                self.end_leaving();
            }
            // The server may have executed the release before this grant.
            State::Leaving(_) | State::Left if matches!(answer, Answer::Granted(_)) => {
                self.call(call.to, Ask::Release, now, calls);
            }
            State::Lost | State::Leaving(_) | State::Left => {}
        }
    }

    fn answer_kept(&mut self, now: Duration, call: &Call, answer: Answer, calls: &mut Vec<Call>) {
        let part = match (call.ask, answer) {
            (Ask::Enter(entry) | Ask::Queue(entry, _), Answer::Granted(_)) => {
                Part::Kept(Terms::valid_until(call.sent, entry.lease))
            }
            (Ask::Repair(_), Answer::Granted(_)) => {
                // A repeated request may have been granted long ago. Only a renewal tells how long the hold is valid.
                self.call(call.to, Ask::Renew, now, calls);
                Part::Unknown
            }
            (Ask::Raise(_) | Ask::Renew, Answer::Done) => Part::Kept(Terms::valid_until(call.sent, self.terms.lease())),
            (Ask::Raise(_) | Ask::Renew, Answer::Reserved) if self.terms.keeps(Rule::YoungRepairs) => Part::Reserved,
            (Ask::Raise(_) | Ask::Renew, Answer::Reserved) => {
                Part::Kept(Terms::valid_until(call.sent, self.terms.lease()))
            }
            (Ask::Enter(_) | Ask::Queue(..) | Ask::Repair(_), Answer::Refused) => Part::None,
            (Ask::Enter(_) | Ask::Queue(..), Answer::Failed) => Part::Unknown,
            (Ask::Raise(_) | Ask::Renew, Answer::Gone) if self.part(call.to) != Part::Entering => {
                return self.set(call.to, Part::None);
            }
            _ => return,
        };
        match (self.part(call.to), part) {
            (Part::Kept(before), Part::Kept(until)) => self.set(call.to, Part::Kept(until.max(before))),
            (Part::Kept(_), Part::Unknown | Part::Reserved) => {}
            _ => self.set(call.to, part),
        }
    }

    /// Asks the servers that have no hold to grant it again, once for each renewal that a majority has answered. A server
    /// where another client holds the lock refuses. A lock that was broken on a majority is not repaired.
    fn repair(&mut self, now: Duration, calls: &mut Vec<Call>) {
        let State::Kept(Some(renewed), _) = self.state else { return };
        if self.terms.keeps(Rule::LostForGood) && !(self.is_renewed_since(renewed) && self.is_good(now)) {
            return;
        }
        for to in 0..self.parts.len() {
            let Some(repaired) = self.repairs.get_mut(to) else { return };
            if self.parts.get(to) == Some(&Part::None) && repaired.is_none_or(|repaired| repaired < renewed) {
                *repaired = Some(now);
                self.set(to, Part::Unknown);
                self.call(to, Ask::Repair(self.token), now, calls);
            }
        }
    }

    /// Releases the hold on all servers.
    ///
    /// The gate server, the first server that keeps the hold, is asked second. When the gate server grants the lock to
    /// the next client, the hold on the server that was asked first is gone already. The other servers are asked while
    /// the next client's requests are on their way. If these arrive earlier, the next client waits in the queues for a
    /// moment. Servers known to have no hold are asked last: an earlier request to them may still be on its way.
    pub fn release(&mut self, now: Duration, calls: &mut Vec<Call>) {
        if !matches!(self.state, State::Kept(..) | State::Lost) {
            return;
        }
        self.state = State::Leaving(now + self.terms.timeout());
        let mut order: Vec<usize> = (0..self.parts.len()).collect();
        let mut kept = order.iter().copied().filter(|to| self.is_kept_by(*to));
        let (gate, first) = (kept.next(), kept.next());
        order.sort_by_key(|to| (Some(*to) != first, Some(*to) != gate, self.part(*to) == Part::None));
        order.into_iter().for_each(|to| self.call(to, Ask::Release, now, calls));
        self.end_leaving();
    }

    /// Returns whether the release has ended.
    pub fn has_left(&self) -> bool {
        self.state == State::Left
    }

    /// Marks the lock as lost when its time has passed. No later answer revives it, because another client may have had
    /// the lock in between.
    fn note_loss(&mut self, now: Duration) {
        if matches!(self.state, State::Kept(..)) && now >= self.majority_until() && self.terms.keeps(Rule::LostForGood)
        {
            self.state = State::Lost;
        }
    }

    fn is_kept_by(&self, member: usize) -> bool {
        matches!(self.part(member), Part::Kept(_))
    }

    /// Returns the time until which a majority keeps the hold.
    fn majority_until(&self) -> Duration {
        let kept = |part: &Part| if let Part::Kept(until) = part { Some(*until) } else { None };
        let mut until: Vec<Duration> = self.parts.iter().filter_map(kept).collect();
        until.sort_unstable_by(|a, b| b.cmp(a));
        until.get(self.terms.majority() - 1).copied().unwrap_or_default()
    }

    fn next_renewal(&self, not_before: Duration) -> Duration {
        self.majority_until().saturating_sub(self.terms.lease() * 2 / 3).max(not_before)
    }

    /// Ends the release when all servers that are known to keep the hold have answered.
    fn end_leaving(&mut self) {
        let is_kept = self.parts.iter().any(|part| matches!(part, Part::Kept(_)));
        if matches!(self.state, State::Leaving(_)) && !is_kept {
            self.state = State::Left;
        }
    }

    fn part(&self, member: usize) -> Part {
        self.parts.get(member).copied().unwrap_or(Part::None)
    }

    fn set(&mut self, member: usize, part: Part) {
        if let Some(place) = self.parts.get_mut(member) {
            *place = part;
        }
    }

    fn call(&self, to: usize, ask: Ask, now: Duration, calls: &mut Vec<Call>) {
        calls.push(Call { to, attempt: self.attempt, sent: now, ask });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_release_goes_to_the_gate_server_second() {
        let second = Duration::from_secs(1);
        let released = |members: usize, kept: &[usize], refused: &[usize]| {
            let mut votes = Votes::new(members);
            (0..members).for_each(|member| votes.set(member, Vote::Failed));
            refused.iter().for_each(|member| votes.set(*member, Vote::Refused { waited: false }));
            kept.iter().for_each(|member| votes.set(*member, Vote::Granted { token: 1, until: second * 2 }));
            let terms = Terms::new(members, second, second / 10, second).unwrap();
            let mut hold = Hold::of(terms, 1, 1, &votes, second);
            let mut calls = Vec::new();
            hold.release(second, &mut calls);
            calls.iter().map(|call| call.to).collect::<Vec<_>>()
        };
        assert_eq!(released(1, &[0], &[]), [0]);
        assert_eq!(released(3, &[0, 2], &[]), [2, 0, 1]);
        assert_eq!(released(5, &[0, 1, 2], &[]), [1, 0, 2, 3, 4]);
        // Server 0 is down, so server 1 is the gate server.
        assert_eq!(released(5, &[1, 2, 3], &[]), [2, 1, 0, 3, 4]);
        assert_eq!(released(5, &[1, 2, 3], &[0, 4]), [2, 1, 3, 0, 4]);
    }
}
