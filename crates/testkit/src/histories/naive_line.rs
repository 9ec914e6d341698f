//! What the contract says of a waiting line, as simply as it can be written: a list, the head first.

use dlock_core::{Mode, Refusal};

use super::history::{Lease, Who};
use super::naive::{Enter, Naive, Reply};

/// Somebody who waits.
#[derive(Clone, Copy, Debug)]
pub struct Waiter<O = Who> {
    pub ticket: u64,
    pub since: u64,
    /// When its request came, or came again: what its lease is relative to if it is absolute.
    pub asked: u64,
    pub enter: Enter<O>,
    pub is_upgrade: bool,
}

impl<O: Clone> Waiter<O> {
    fn enter_at(&self, now: u64) -> Enter<O> {
        let lease = match self.enter.lease {
            Lease::Until(more) => Lease::Until(more - i64::try_from(now - self.asked).expect("a small number")),
            lease @ (Lease::Own | Lease::For(_)) => lease,
        };
        Enter { lease, ..self.enter.clone() }
    }
}

#[derive(Clone, Debug)]
pub struct NaiveLine<O = Who>(pub Vec<Waiter<O>>);

impl<O> Default for NaiveLine<O> {
    fn default() -> NaiveLine<O> {
        NaiveLine(Vec::new())
    }
}

impl<O: Clone + Ord> NaiveLine<O> {
    /// What a request is answered that has just come.
    pub fn ask(&self, lock: &mut Naive<O>, now: u64, enter: Enter<O>) -> Reply {
        let is_in = lock.live(now).iter().any(|hold| hold.owner == enter.owner);
        if is_in || self.0.is_empty() { lock.acquire(now, enter) } else { Reply::Nil(Some(Refusal::Held)) }
    }

    /// Lets a request wait; `false` if it would upgrade while another owner waits to.
    pub fn join(&mut self, lock: &Naive<O>, now: u64, enter: Enter<O>, ticket: u64) -> bool {
        let is_upgrade = enter.mode == Mode::Exclusive && lock.live(now).iter().any(|hold| hold.owner == enter.owner);
        let upgrades: Vec<&Waiter<O>> = self.0.iter().filter(|waiter| waiter.is_upgrade).collect();
        if is_upgrade && upgrades.iter().any(|waiter| waiter.enter.owner != enter.owner) {
            return false;
        }
        let place = if is_upgrade { upgrades.len() } else { self.0.len() };
        self.0.insert(place, Waiter { ticket, since: now, asked: now, enter, is_upgrade });
        true
    }

    /// The waiter that a request repeats.
    pub fn repeated(&self, enter: &Enter<O>) -> Option<usize> {
        let is_it = |waiter: &Waiter<O>| waiter.enter.owner == enter.owner && waiter.enter.request == enter.request;
        enter.request.and_then(|_| self.0.iter().position(is_it))
    }

    /// Everybody who gets an answer now, in order.
    pub fn serve(&mut self, lock: &mut Naive<O>, now: u64) -> Vec<(Waiter<O>, Reply)> {
        let mut served = Vec::new();
        while let Some(head) = self.0.first().cloned() {
            let reply = lock.acquire(now, head.enter_at(now));
            if let Reply::Nil(Some(Refusal::Held | Refusal::Owned)) = reply {
                break;
            }
            self.0.remove(0);
            served.push((head, reply));
        }
        served
    }

    /// The mode in which holds are in the way of this waiter.
    pub fn waits_for(&self, place: usize) -> Mode {
        let has_writer = self.0[..=place].iter().any(|waiter| waiter.enter.mode == Mode::Exclusive);
        if has_writer { Mode::Exclusive } else { Mode::Shared }
    }
}
