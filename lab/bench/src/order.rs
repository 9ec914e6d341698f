//! A model of what first come, first served costs requests for several locks. Its server takes no time.
//!
//! Clients need two of the locks for one unit of time each, again and again. The model tells which part of the rate is
//! the order's, not the server's.

#![allow(clippy::indexing_slicing, reason = "clients and locks are drawn below the lengths of the arrays")]

use std::collections::VecDeque;

const CLIENTS: usize = 32;
const LOCKS: usize = 16;
const ROUNDS: usize = 100_000;

/// Returns the rate of requests for both locks at once, served when first in both queues, as a ratio to the rate of
/// clients that take one lock after the other, all in the same order.
pub fn rate_against_ordered() -> f64 {
    Model::new(Means::Both).rate() / Model::new(Means::Ordered).rate()
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Means {
    Both,
    Ordered,
}

struct Model {
    means: Means,
    queues: [VecDeque<usize>; LOCKS],
    is_held: [bool; LOCKS],
    /// The locks that a client needs, the lower first.
    needs: [[usize; 2]; CLIENTS],
    /// How many locks a client has.
    has: [usize; CLIENTS],
    /// The clients inside, with the time at which each leaves. All stay equally long: the first to enter leaves first.
    leaving: VecDeque<(u64, usize)>,
    now: u64,
    random: u64,
}

impl Model {
    const STAY: u64 = 1000;

    fn new(means: Means) -> Model {
        let mut model = Model {
            means,
            queues: Default::default(),
            is_held: [false; LOCKS],
            needs: [[0; 2]; CLIENTS],
            has: [0; CLIENTS],
            leaving: VecDeque::new(),
            now: 0,
            random: 1,
        };
        (0..CLIENTS).for_each(|client| model.arrive(client));
        model
    }

    /// Returns how many clients leave in a unit of time.
    fn rate(mut self) -> f64 {
        for _ in 0..ROUNDS {
            let Some((now, client)) = self.leaving.pop_front() else { break };
            self.now = now;
            self.has[client] = 0;
            let left = self.needs[client];
            left.iter().for_each(|lock| self.is_held[*lock] = false);
            left.iter().for_each(|lock| self.serve(*lock));
            self.arrive(client);
        }
        ROUNDS as f64 * Self::STAY as f64 / self.now as f64
    }

    fn arrive(&mut self, client: usize) {
        let first = self.draw(LOCKS);
        let second = (first + 1 + self.draw(LOCKS - 1)) % LOCKS;
        self.needs[client] = [first.min(second), first.max(second)];
        match self.means {
            Means::Both => {
                self.needs[client].iter().for_each(|lock| self.queues[*lock].push_back(client));
                self.serve(first);
            }
            Means::Ordered => self.ask_next(client),
        }
    }

    fn ask_next(&mut self, client: usize) {
        match self.needs[client].get(self.has[client]) {
            Some(lock) => {
                self.queues[*lock].push_back(client);
                self.serve(*lock);
            }
            None => self.leaving.push_back((self.now + Self::STAY, client)),
        }
    }

    /// Lets the head of a queue in, if it can go.
    fn serve(&mut self, lock: usize) {
        let Some(client) = self.queues[lock].front().copied() else { return };
        let is_first = |lock: &usize| !self.is_held[*lock] && self.queues[*lock].front() == Some(&client);
        let takes = match self.means {
            Means::Both => self.needs[client].to_vec(),
            Means::Ordered => vec![lock],
        };
        if !takes.iter().all(is_first) {
            return;
        }
        for lock in &takes {
            self.queues[*lock].pop_front();
            self.is_held[*lock] = true;
        }
        self.has[client] += takes.len();
        self.ask_next(client);
    }

    /// Returns a number below `below`, by xorshift.
    fn draw(&mut self, below: usize) -> usize {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        (self.random >> 11) as usize % below
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_for_two_locks_at_once_have_a_lower_rate_than_ordered_ones() {
        let (both, ordered) = (Model::new(Means::Both).rate(), Model::new(Means::Ordered).rate());
        // Eight pairs of 16 locks at most.
        assert!(both < ordered && ordered < 8.0, "{both} and {ordered} a unit of time");
        assert!((0.82..0.88).contains(&rate_against_ordered()), "{}", rate_against_ordered());
    }
}
