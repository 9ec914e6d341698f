//! When the votes of an attempt are enough for the lock, and what to ask for if they are not.
//!
//! # Implementation details
//! A client has the lock when the gate server has granted it, and a majority has the same token, by live holds. If all
//! servers were asked for a token ahead of their clocks, each grants that token, and the grants are enough. If the
//! tokens differ, the lower ones are raised to the highest.

use std::time::Duration;

use crate::acquisition::{Gather, Patience, Phase};
use crate::call::Entry;
use crate::terms::Rule;
use crate::votes::Vote;
use crate::{Acquisition, Answer, Ask, Call, Hold, Outcome, Terms};

impl Acquisition {
    /// Records the answer to a request for the lock or to raise the token.
    pub(crate) fn note_vote(&mut self, now: Duration, call: &Call, answer: Answer, calls: &mut Vec<Call>) {
        let vote = match (call.ask, answer) {
            (Ask::Enter(entry) | Ask::Queue(entry, _), Answer::Granted(token)) => {
                Vote::Granted { token, until: Terms::valid_until(call.sent, entry.lease) }
            }
            (Ask::Enter(_), Answer::Refused) => Vote::Refused { waited: false },
            (Ask::Queue(..), Answer::Refused) => Vote::Refused { waited: true },
            (Ask::Raise(token), Answer::Done) => {
                Vote::Granted { token, until: Terms::valid_until(call.sent, self.terms.lease()) }
            }
            // The hold has ended, so another client may have the lock. The client does not wait in this queue.
            (Ask::Raise(_), Answer::Gone) => Vote::Refused { waited: true },
            _ => Vote::Failed,
        };
        self.votes.set(call.to, vote);
        self.count(now, calls);
    }

    /// Ends the attempt if the votes decide it, or asks servers for what is missing.
    pub(crate) fn count(&mut self, now: Duration, calls: &mut Vec<Call>) {
        if self.votes.count(|vote| vote != Vote::Failed) < self.terms.majority() {
            return self.fail(now, calls);
        }
        match self.gate_of_votes().map(|gate| self.votes.get(gate)) {
            Some(Vote::Refused { .. }) if self.terms.keeps(Rule::Gate) => return self.turn_away(now, calls),
            Some(Vote::Granted { .. } | Vote::Raising(_)) => self.wait_where_refused(now, calls),
            // The gate server has not answered yet, or is not known.
            _ if self.terms.keeps(Rule::Gate) => return,
            _ => {}
        }
        if let Some(token) = self.agreed(now) {
            let hold = Hold::of(self.terms, self.attempt, token, &self.votes, now);
            return self.end(Outcome::Held(hold));
        }
        if self.votes.granted() + self.votes.count(|vote| vote == Vote::Open) < self.terms.majority() {
            return self.fail(now, calls);
        }
        self.agree(now, calls);
    }

    /// Returns the token of the lock, if a majority has granted that token.
    fn agreed(&self, now: Duration) -> Option<u64> {
        #[cfg(test)]
        if let Some(weaker) = self.votes.weakly_agreed(&self.terms, now) {
            return weaker;
        }
        self.votes.agreed(self.terms.majority(), now)
    }

    /// Returns the first server that is neither suspected to be down nor has failed in this attempt.
    fn gate_of_votes(&self) -> Option<usize> {
        let is_up = |at: &usize| !self.is_suspect(*at) && self.votes.get(*at) != Vote::Failed;
        (0..self.terms.members()).find(is_up)
    }

    /// Waits for a moment in the queues of the servers that refused. The gate server has granted the lock to this
    /// client, so another client with a hold on one of them is releasing it, or will be turned away.
    fn wait_where_refused(&mut self, now: Duration, calls: &mut Vec<Call>) {
        let Phase::Gather(Gather { until, lease, .. }) = self.phase else { return };
        if self.patience == Patience::None || now + SHORTEST_WAIT * 2 > until {
            return;
        }
        let entry = Entry { lease, min_token: self.votes.highest().max(self.floor.token(now)) };
        let refused = self.votes.iter().filter(|(_, vote)| *vote == Vote::Refused { waited: false });
        let refused: Vec<usize> = refused.map(|(at, _)| at).collect();
        for member in refused {
            self.votes.set(member, Vote::Open);
            // The wait takes half of the time that is left, so that its answer arrives before `until`.
            self.call(member, Ask::Queue(entry, Some((until - now) / 2)), now, calls);
        }
    }

    /// Releases everything and enters the queue of the gate server, which has refused. A client that may not wait ends
    /// its attempt instead.
    fn turn_away(&mut self, now: Duration, calls: &mut Vec<Call>) {
        if self.patience == Patience::None {
            // The answers tell whether a majority is up: the attempt ends with those of a majority or of all.
            let answered = self.votes.count(|vote| !matches!(vote, Vote::Open | Vote::Failed));
            if answered >= self.terms.majority() || self.votes.count(|vote| vote == Vote::Open) == 0 {
                self.fail(now, calls);
            }
            return;
        }
        self.give_back(now, calls);
        let gate = self.gate_of_votes().unwrap_or_else(|| self.gate_server());
        self.join_gate(gate, now, calls);
    }

    /// If a majority has granted different tokens, raises the lower ones to the highest, unless pending answers may
    /// still make a majority with one token.
    fn agree(&mut self, now: Duration, calls: &mut Vec<Call>) {
        let (granted, majority) = (self.votes.granted(), self.terms.majority());
        let Phase::Gather(gather) = &mut self.phase else { return };
        if granted < majority || !self.terms.keeps(Rule::Raising) {
            return;
        }
        // The other servers get as much time again as the majority took to answer.
        let wait = *gather.agree_by.get_or_insert(now + (now - gather.began));
        let is_over = gather.is_overdue || now >= wait;
        let is_due = |at: usize| !is_over && !self.suspects.get(at).copied().unwrap_or(true);
        let due = self.votes.iter().filter(|(at, vote)| *vote == Vote::Open && is_due(*at)).count();
        // The most servers that share a token. With the pending answers, they may become a majority.
        let most = self.votes.iter().filter_map(|(_, vote)| Some(self.votes.with(vote.token()?))).max();
        if most.unwrap_or(0) + due >= majority {
            return;
        }
        let Some(highest) = self.votes.highest() else { return };
        gather.until = gather.until.max(now + self.terms.timeout());
        let lower = |vote: Vote| matches!(vote, Vote::Granted { token, .. } if token < highest);
        let lower: Vec<usize> = self.votes.iter().filter(|(_, vote)| lower(*vote)).map(|(at, _)| at).collect();
        for member in lower {
            self.votes.set(member, Vote::Raising(highest));
            self.call(member, Ask::Raise(highest), now, calls);
        }
    }
}

/// The shortest wait that a server can be asked for: servers count whole milliseconds.
const SHORTEST_WAIT: Duration = Duration::from_millis(1);
