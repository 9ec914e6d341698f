//! What a history came to: proof that the drawn ones come to the states that are hard.

use std::collections::BTreeMap;

use dlock_core::{Mode, Refusal};

use super::naive::{How, Naive, Reply};

/// How often a history came to something, and how many holds and waiters there were at most.
#[derive(Debug, Default)]
pub struct Reached {
    pub times: BTreeMap<&'static str, u64>,
    pub holds: usize,
    pub waiting: usize,
}

impl Reached {
    pub fn add(&mut self, other: &Reached) {
        self.holds = self.holds.max(other.holds);
        self.waiting = self.waiting.max(other.waiting);
        for (what, times) in &other.times {
            *self.times.entry(what).or_default() += times;
        }
    }

    pub fn count(&mut self, what: &'static str) {
        *self.times.entry(what).or_default() += 1;
    }

    pub fn acquired(&mut self, reply: Reply) {
        self.count(match reply {
            Reply::Token(_, How::New) => "granted",
            Reply::Token(_, How::Again) => "entered again",
            Reply::Replayed(_) => "acquire replayed",
            Reply::Nil(Some(Refusal::Held)) => "held",
            Reply::Nil(Some(Refusal::Owned)) => "owned",
            Reply::Nil(Some(Refusal::LeasePassed)) => "lease passed",
            _ => "acquired otherwise",
        });
    }

    /// What a waiter came to when its turn had come.
    pub fn served(&mut self, is_upgrade: bool, reply: Reply) {
        self.count(match reply {
            Reply::Token(_, How::New) if is_upgrade => "upgraded from the line",
            Reply::Token(_, How::New) => "granted from the line",
            Reply::Token(_, How::Again) => "entered again from the line",
            Reply::Replayed(_) => "replayed from the line",
            Reply::Nil(_) => "refused from the line",
            Reply::One | Reply::Zero | Reply::Ambiguous => "served otherwise",
        });
    }

    pub fn released(&mut self, reply: Reply) {
        self.count(match reply {
            Reply::One => "released",
            Reply::Zero => "released partly",
            Reply::Ambiguous => "ambiguous",
            Reply::Replayed(_) => "release replayed",
            _ => "not released",
        });
    }

    /// The state after a step.
    pub fn state(&mut self, naive: &Naive, now: u64) {
        let (holds, lapsed) = (&naive.holds, naive.lapsed(now));
        self.holds = self.holds.max(holds.len());
        match lapsed {
            0 => {}
            all if all == holds.len() => self.count("all lapsed"),
            _ => self.count("lapsed beside live"),
        }
        if naive.end.is_some_and(|end| Some(end) < naive.last_deadline()) {
            self.count("early end");
        }
        let writer = holds.iter().find(|hold| hold.mode == Mode::Exclusive);
        let both = writer.zip(holds.iter().find(|hold| hold.mode == Mode::Shared));
        if let Some((writer, reader)) = both {
            self.count("both modes");
            if writer.token == reader.token {
                self.count("both modes, one token");
            }
        }
    }
}
