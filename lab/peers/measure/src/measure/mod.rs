//! What is measured of a system in a round.

mod alone;
mod failover;
mod hand_off;
pub mod holder;
mod pairs;
mod waiters;

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use futures::future::join_all;
use tokio::time::{sleep, timeout};

use crate::clients::{Client, LEASE};
use crate::result::{Result, failed};
use crate::servers::Servers;
use crate::systems::System;

/// A system that runs, and what has been measured of it.
pub struct Round {
    pub system: System,
    pub servers: Servers,
    /// How long each load runs.
    pub window: Duration,
    /// Kept by the caller, too: what was measured before a system hangs is not lost.
    pub figures: Rc<RefCell<Vec<(String, Option<f64>)>>>,
}

impl Round {
    /// Everything, in an order in which nothing is left over for the next. What fails twice, or takes too long,
    /// is named, and the rest is measured all the same.
    pub async fn run(&mut self, is_first: bool) -> Result<()> {
        let mut parts = PARTS.to_vec();
        if self.system.0.fails_over() {
            parts.push(Part::Failover);
        }
        let mut missing = Vec::new();
        for part in parts {
            for again in [part != Part::Failover, false] {
                let (why, again) = match timeout(PATIENCE, self.measure(part, is_first)).await {
                    Ok(Ok(())) => break,
                    Ok(Err(error)) => (error.to_string(), again),
                    Err(_) => (format!("not done after {} s", PATIENCE.as_secs()), false),
                };
                println!("        {part:?}: {why}");
                if !again {
                    missing.push(format!("{part:?}: {why}"));
                    break;
                }
                // What is left of it may hold locks until its leases end.
                sleep(LEASE).await;
            }
        }
        if missing.is_empty() { Ok(()) } else { failed(missing.join(", ")) }
    }

    async fn measure(&mut self, part: Part, is_first: bool) -> Result<()> {
        match part {
            Part::Alone => alone::run(self).await,
            Part::Pairs(clients) => pairs::run(self, clients).await,
            Part::HandOff(waiters) => hand_off::run(self, waiters).await,
            Part::Waiters => waiters::run(self).await,
            Part::Holder => holder::run(self, is_first).await,
            Part::Failover => failover::run(self).await,
        }
    }

    fn note(&self, figure: impl Into<String>, value: f64) {
        self.note_if(figure, Some(value));
    }

    fn note_if(&self, figure: impl Into<String>, value: Option<f64>) {
        let figure = figure.into();
        let shown = value.map_or("not while it was waited for".to_owned(), |value| format!("{value:.4}"));
        println!("        {figure:24} {shown}");
        self.figures.borrow_mut().push((figure, value));
    }

    async fn client(&self) -> Result<Client> {
        self.system.connect(&self.servers.addresses).await
    }

    /// That many, each with its connection.
    async fn clients(&self, count: usize) -> Result<Vec<Client>> {
        let mut clients = Vec::new();
        while clients.len() < count {
            // A server queues only so many new connections.
            let some = (count - clients.len()).min(32);
            for client in join_all((0..some).map(|_| self.client())).await {
                clients.push(client?);
            }
        }
        Ok(clients)
    }
}

/// One measurement.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Part {
    Alone,
    Pairs(usize),
    HandOff(usize),
    Waiters,
    Holder,
    Failover,
}

const PARTS: [Part; 8] = [
    Part::Alone,
    Part::Pairs(16),
    Part::Pairs(64),
    Part::HandOff(2),
    Part::HandOff(64),
    Part::HandOff(512),
    Part::Waiters,
    Part::Holder,
];

/// How long one may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// The smallest value that this share of all does not exceed.
fn rank(sorted: &[f64], share: f64) -> Option<f64> {
    let at = (sorted.len() as f64 * share).ceil() as usize;
    sorted.get(at.saturating_sub(1)).copied()
}

fn microseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}
