//! Clients that keep a server busy: each always has a batch on its way.

use std::time::{Duration, Instant};

use crate::connection::Connection;
use crate::contenders::Contender;
use crate::error::Error;
use crate::load::{Batch, Load};
use crate::owners;
use crate::server::Server;

/// The locks that pairs are about.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Keys {
    /// A single lock for all clients. They do not refuse each other, since the server executes a batch in one piece.
    /// Without pipelining, each client has a lock of its own.
    Hot,
    /// A million locks, in an order that jumps about. No two clients are at the same lock.
    Million,
}

impl Keys {
    pub const ALL: [Self; 2] = [Self::Hot, Self::Million];

    /// Returns the name in figures.
    pub fn name(self) -> &'static str {
        match self {
            Self::Hot => "hot",
            Self::Million => "million",
        }
    }

    /// Returns the name for people.
    pub fn label(self) -> &'static str {
        match self {
            Self::Hot => "hot key",
            Self::Million => "million keys",
        }
    }
}

pub struct Team {
    lanes: Vec<Lane>,
}

impl Team {
    /// Clients that do the contender's operation with these locks.
    pub fn of_pairs(server: &Server, contender: &Contender, pipeline: usize, keys: Keys) -> Result<Self, Error> {
        let lane = |client: usize| {
            let mut connection = server.connect_locally()?;
            let number = if keys == Keys::Hot && pipeline > 1 { 0 } else { client };
            let load = (contender.prepare)(&mut connection, number..number + 1)?;
            let jumps = match keys {
                Keys::Hot => None,
                Keys::Million => Some(Jumps { lane: client, step: 0, key: Vec::new() }),
            };
            Ok(Lane::new(connection, &load, pipeline, jumps))
        };
        Ok(Self { lanes: (0..CLIENTS).map(lane).collect::<Result<_, Error>>()? })
    }

    /// Returns a team of one client with that load.
    pub fn of_one(connection: Connection, load: &Load, pipeline: usize) -> Self {
        Self { lanes: vec![Lane::new(connection, load, pipeline, None)] }
    }

    /// Returns the operations a second, over that time and until the last one has ended.
    pub fn run(&mut self, time: Duration) -> Result<f64, Error> {
        let start = Instant::now();
        let mut operations = 0;
        for lane in &mut self.lanes {
            lane.send()?;
        }
        let mut on_their_way = self.lanes.len();
        while on_their_way > 0 {
            for lane in self.lanes.iter_mut().filter(|lane| lane.is_on_its_way) {
                operations += lane.receive()?;
                if start.elapsed() < time || !lane.is_between_operations() {
                    lane.send()?;
                } else {
                    on_their_way -= 1;
                }
            }
        }
        Ok(operations as f64 / start.elapsed().as_secs_f64())
    }
}

struct Lane {
    connection: Connection,
    batches: Vec<Batch>,
    /// The index of the batch that is sent next, or is on its way.
    turn: usize,
    jumps: Option<Jumps>,
    is_on_its_way: bool,
}

impl Lane {
    fn new(connection: Connection, load: &Load, pipeline: usize, jumps: Option<Jumps>) -> Self {
        let batches = load.batches(pipeline);
        Self { connection, batches, turn: 0, jumps, is_on_its_way: false }
    }

    fn send(&mut self) -> Result<(), Error> {
        self.is_on_its_way = true;
        let Some(batch) = self.batches.get_mut(self.turn) else { return Ok(()) };
        if let Some(jumps) = &mut self.jumps {
            let Jumps { lane, step, key } = jumps;
            batch.put_keys(key, || next_key(*lane, step));
        }
        self.connection.send(&batch.bytes)
    }

    /// Reads and judges the replies. Returns how many operations end with them.
    fn receive(&mut self) -> Result<usize, Error> {
        self.is_on_its_way = false;
        let Some(batch) = self.batches.get(self.turn) else { return Ok(0) };
        for request in &batch.requests {
            self.connection.receive_for(request)?;
        }
        self.turn = (self.turn + 1) % self.batches.len();
        Ok(batch.operations_ended)
    }

    /// Returns whether the next batch begins with an operation.
    fn is_between_operations(&self) -> bool {
        self.batches.get(self.turn).is_some_and(|batch| batch.begins_operation)
    }
}

/// The way of a lane over the locks that no other lane has.
struct Jumps {
    lane: usize,
    step: usize,
    /// The key of the current operation.
    key: Vec<u8>,
}

fn next_key(lane: usize, step: &mut usize) -> Vec<u8> {
    *step += 1;
    owners::key(*step * STRIDE % (LOCKS / CLIENTS) * CLIENTS + lane)
}

/// The default of redis-benchmark.
const CLIENTS: usize = 50;
/// The keys have six digits.
const LOCKS: usize = 1_000_000;
/// A prime number, so that a lane takes each of its locks before it takes one again.
const STRIDE: usize = 7_919;

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn lanes_go_over_different_locks_and_over_all() {
        let keys: HashSet<Vec<u8>> = (0..CLIENTS)
            .flat_map(|lane| {
                let mut step = 0;
                (0..LOCKS / CLIENTS).map(move |_| next_key(lane, &mut step))
            })
            .collect();
        assert_eq!(keys.len(), LOCKS);
    }
}
