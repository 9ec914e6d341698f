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
use crate::result::Result;
use crate::servers::Servers;
use crate::systems::System;

/// A system that runs, and what has been measured of it.
pub struct Round {
    pub system: System,
    pub servers: Servers,
    /// How long each load runs.
    pub window: Duration,
    /// Kept by the caller, too: what was measured before a system hangs is not lost.
    pub notes: Rc<Notes>,
}

/// What a round has to say of a system.
#[derive(Default)]
pub struct Notes {
    pub figures: RefCell<Vec<(String, Option<f64>)>>,
    /// Parts, and why they have no figures.
    pub failed: RefCell<Vec<(String, String)>>,
    /// Of the servers.
    pub version: RefCell<Option<String>>,
}

impl Notes {
    pub fn failed(&self, part: &str, why: &str) {
        println!("        {part}: FAILED: {why}");
        self.failed.borrow_mut().push((part.to_owned(), why.to_owned()));
    }
}

impl Round {
    /// Everything, in an order in which nothing is left over for the next. What fails twice, or takes too long,
    /// is named, and the rest is measured all the same.
    pub async fn run(&mut self, is_first: bool) {
        let mut parts = PARTS.to_vec();
        if self.system.0.fails_over() {
            parts.push(Part::Failover);
        }
        for part in parts {
            for again in [part != Part::Failover, false] {
                let (why, again) = match timeout(PATIENCE, self.measure(part, is_first)).await {
                    Ok(Ok(())) => break,
                    Ok(Err(error)) => (error.to_string(), again),
                    Err(_) => (format!("not done after {} s", PATIENCE.as_secs()), false),
                };
                if !again {
                    self.notes.failed(&part.name(), &why);
                    break;
                }
                println!("        {}: once more: {why}", part.name());
                // What is left of it may hold locks until its leases end, and ending them is work for the servers.
                sleep(LEASE * 2).await;
            }
        }
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
        self.notes.figures.borrow_mut().push((figure, value));
    }

    fn note_costs<const N: usize>(&self, part: &str, costs: [(&str, f64); N]) {
        for (what, value) in costs {
            self.note(format!("{part}/{what}"), value);
        }
    }

    async fn client(&self) -> Result<Client> {
        self.client_among(1).await
    }

    async fn client_among(&self, all: usize) -> Result<Client> {
        self.system.connect(&self.servers.addresses, all).await
    }

    async fn clients(&self, count: usize) -> Result<Vec<Client>> {
        self.clients_among(count, count).await
    }

    /// Some of all clients, each with its connection.
    async fn clients_among(&self, count: usize, all: usize) -> Result<Vec<Client>> {
        let mut clients = Vec::new();
        while clients.len() < count {
            // A server queues only so many new connections.
            let some = (count - clients.len()).min(32);
            for client in join_all((0..some).map(|_| self.client_among(all))).await {
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

impl Part {
    /// What its figures begin with.
    fn name(self) -> String {
        match self {
            Self::Alone => "alone".to_owned(),
            Self::Pairs(clients) => format!("pairs/{clients}"),
            Self::HandOff(waiters) => format!("hand-off/{waiters}"),
            Self::Waiters => "waiters".to_owned(),
            Self::Holder => "holder".to_owned(),
            Self::Failover => "failover".to_owned(),
        }
    }
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
const PATIENCE: Duration = Duration::from_secs(45);

/// The smallest value that this share of all does not exceed.
fn rank(sorted: &[f64], share: f64) -> Option<f64> {
    let at = (sorted.len() as f64 * share).ceil() as usize;
    sorted.get(at.saturating_sub(1)).copied()
}

fn microseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}
