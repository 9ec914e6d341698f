//! The part of one client in a round.

use std::hint;
use std::sync::atomic::Ordering;
use std::time::Instant;

use super::client::Client;
use super::round::Round;
use super::way::Entry;
use crate::error::Error;

impl Round {
    /// Acquires and releases the lock until the round ends. Returns how long the hand-offs to this client took, in
    /// microseconds.
    pub fn take_part(&self, client: &mut Client) -> Result<Vec<f64>, Error> {
        let result = self.contend(client);
        if result.is_err() {
            // The round ends, so that no other client waits for the one that failed.
            self.end();
        }
        result
    }

    fn contend(&self, client: &mut Client) -> Result<Vec<f64>, Error> {
        let mut latencies = Vec::new();
        loop {
            client.begin();
            if self.way.enter(client, self)? == Entry::Over {
                return Ok(latencies);
            }
            latencies.extend(self.latency().filter(|_| self.is_watched.load(Ordering::SeqCst)));
            client.join(self);
            let grant = self.note_grant();
            self.until(|line| line.waiting == self.clients - 1);
            let entered = Instant::now();
            while !self.is_over() && entered.elapsed() < self.held {
                hint::spin_loop();
            }
            self.given_back.store(self.nanoseconds(), Ordering::SeqCst);
            self.way.leave(client, self)?;
            self.until(|line| line.grants > grant);
            if self.is_over() {
                return Ok(latencies);
            }
        }
    }
}
