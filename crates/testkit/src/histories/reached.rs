//! Counts the states that histories reach, to show that random histories reach the difficult ones.

use std::collections::BTreeMap;

use dlock_core::engine::{Answer, Fault};

use super::naive::{Reply, Request, Turn, Verdict};

/// How often histories reached each state.
#[derive(Clone, Debug, Default)]
pub struct Reached {
    pub times: BTreeMap<&'static str, u64>,
    /// The most requests that waited at once.
    pub waiting: usize,
}

impl Reached {
    pub fn add(&mut self, other: &Reached) {
        self.waiting = self.waiting.max(other.waiting);
        for (what, times) in &other.times {
            *self.times.entry(what).or_default() += times;
        }
    }

    pub fn count(&mut self, what: &'static str) {
        *self.times.entry(what).or_default() += 1;
    }

    pub fn count_if(&mut self, what: &'static str, is_so: bool) {
        if is_so {
            self.count(what);
        }
    }

    pub fn acquired(&mut self, request: &Request, reply: Reply) {
        let is_multiple = request.keys.len() > 1;
        self.count(match reply {
            Reply::Granted(_) if is_multiple => "several granted",
            Reply::Granted(_) => "granted",
            Reply::Replayed(_) if is_multiple => "several replayed",
            Reply::Replayed(_) => "replayed",
            Reply::Waits if is_multiple => "several wait",
            Reply::Waits => "waits",
            Reply::TakesOver(_) if is_multiple => "several taken over",
            Reply::TakesOver(_) => "taken over",
            Reply::Nil => "refused",
            Reply::Deadlock => "deadlock",
            Reply::SessionLease => "session lease",
            Reply::TooManyWaiters => "too many waiters",
            Reply::WrongType => "wrong type",
            Reply::NoSession => "no session",
            Reply::SessionAbsolute | Reply::Ambiguous | Reply::Number(_) => "acquired otherwise",
        });
    }

    /// Counts the slot numbers in the answers to granted requests.
    pub fn slot(&mut self, told: Option<Option<u32>>) {
        self.count_if("slot 0", told == Some(Some(0)));
        self.count_if("a higher slot", told.flatten() > Some(0));
        self.count_if("a record without a slot", told == Some(None));
    }

    pub fn released(&mut self, reply: Reply) {
        self.count(match reply {
            Reply::Number(0) => "released partly",
            Reply::Number(_) => "released",
            Reply::Ambiguous => "ambiguous",
            _ => "not released",
        });
    }

    pub fn renewed(&mut self, reply: Reply) {
        self.count(match reply {
            Reply::Number(0) => "renewed up to a cap",
            Reply::Number(_) => "renewed",
            Reply::SessionAbsolute => "renewed absolutely",
            Reply::SessionLease => "renewed too shortly",
            _ => "not renewed",
        });
    }

    pub fn served(&mut self, waiter: &Request, turn: Turn) {
        self.count(match turn {
            Turn::Enters(_) if waiter.keys.len() > 1 => "several served",
            Turn::Recorded(_) if waiter.keys.len() > 1 => "several served by a record",
            Turn::Enters(_) if waiter.is_upgrade => "upgraded",
            Turn::Enters(_) if waiter.how.want.limit().is_some() => "permits served",
            Turn::Enters(Verdict::Again) => "entered again from the queue",
            Turn::Enters(_) => "served",
            Turn::Recorded(_) => "served by a record",
            Turn::NotYet | Turn::LeasePassed | Turn::SessionLease | Turn::NoSession => "served otherwise",
        });
    }

    pub fn ended(&mut self, answer: &Answer) {
        self.count(match answer {
            Answer::Granted(..) => "served otherwise",
            Answer::Nil => "lease passed in the queue",
            Answer::Fault(Fault::WrongType) => "sent away from another type",
            Answer::Fault(Fault::TryAgain) => "sent away to another node",
            Answer::Fault(Fault::NoSession(_)) => "session ended in the queue",
            Answer::Fault(_) => "too short for a session in the queue",
        });
    }
}
