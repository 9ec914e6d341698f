//! The parts of a system's measurement in a round.

mod alone;
mod failover;
mod hand_off;
pub mod holder;
mod pairs;
mod waiters;

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use dlock_comparison::systems::Made;
use futures::future::join_all;
use tokio::time::timeout;

use crate::clients::Client;
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
    pub notes: Rc<Notes>,
}

/// The figures of a system in a round.
#[derive(Default)]
pub struct Notes {
    pub figures: RefCell<Vec<(String, Option<f64>)>>,
    /// Parts, and why they have no figures.
    pub failed: RefCell<Vec<(String, String)>>,
    /// The version of the servers.
    pub version: RefCell<Option<String>>,
}

impl Notes {
    pub fn failed(&self, part: &str, why: &str) {
        println!("        {part}: FAILED: {why}");
        self.failed.borrow_mut().push((part.to_owned(), why.to_owned()));
    }
}

impl Round {
    /// Measures everything, or these parts. A part that fails twice is named, and the rest is measured all the same.
    pub async fn run(&mut self, is_first: bool, only: &[Part]) {
        let parts = PARTS.into_iter().filter(|part| *part != Part::Failover || self.system.0.fails_over());
        let parts: Vec<Part> = parts.filter(|part| only.is_empty() || only.contains(part)).collect();
        let mut last = None;
        for part in parts {
            let mut anew = last.is_some_and(|last| self.needs_other_servers(last, part));
            for again in [true, false] {
                let patience = part.patience();
                let why = match timeout(patience, self.measure(part, is_first, anew)).await {
                    Ok(Ok(())) => break,
                    Ok(Err(error)) => error.to_string(),
                    Err(_) => format!("not done after {} s", patience.as_secs()),
                };
                if again {
                    println!("        {}: once more: {why}", part.name());
                } else {
                    self.notes.failed(&part.name(), &why);
                }
                // Clients of the failed attempt may hold locks until their leases end, which is work for the servers.
                anew = true;
            }
            last = Some(part);
        }
    }

    /// Returns whether what a part leaves behind would change what the next one measures.
    fn needs_other_servers(&self, last: Part, next: Part) -> bool {
        // A server is killed soon after the start of its load; sessions that end at that time are load, too.
        let dies = next == Part::Failover;
        // The lock service of etcd may hang when many calls are canceled at once: etcd's issues 13336 and 18879.
        dies || (self.system.0.made == Made::Etcd && last.gives_up())
    }

    async fn measure(&mut self, part: Part, is_first: bool, anew: bool) -> Result<()> {
        if anew {
            self.servers.end();
            self.servers = self.system.start().await?;
        }
        self.servers.must_run()?;
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
        let shown = value.map_or("not seen in time".to_owned(), |value| format!("{value:.4}"));
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

    /// Returns `count` of the `all` clients of a part, each with its connection.
    async fn clients_among(&self, count: usize, all: usize) -> Result<Vec<Client>> {
        let mut clients = Vec::new();
        while clients.len() < count {
            // A server's queue of new connections is limited.
            let some = (count - clients.len()).min(32);
            for client in join_all((0..some).map(|_| self.client_among(all))).await {
                clients.push(client?);
            }
        }
        Ok(clients)
    }
}

/// A measurement.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Part {
    Alone,
    Pairs(usize),
    HandOff(usize),
    Waiters,
    Holder,
    Failover,
}

impl Part {
    pub fn named(name: &str) -> Result<Self> {
        match PARTS.into_iter().find(|part| part.name() == name) {
            Some(part) => Ok(part),
            None => failed(format!("no part `{name}`")),
        }
    }

    /// Returns the beginning of the names of the part's figures.
    pub fn name(self) -> String {
        match self {
            Self::Alone => "alone".to_owned(),
            Self::Pairs(clients) => format!("pairs/{clients}"),
            Self::HandOff(waiters) => format!("hand-off/{waiters}"),
            Self::Waiters => "waiters".to_owned(),
            Self::Holder => "holder".to_owned(),
            Self::Failover => "failover".to_owned(),
        }
    }

    /// Returns whether many clients stop waiting at once when the part ends.
    fn gives_up(self) -> bool {
        matches!(self, Self::HandOff(_) | Self::Waiters)
    }

    /// Returns how long the part may take: each client has to connect, and its server to start a process or a session
    /// for the client.
    fn patience(self) -> Duration {
        let clients = match self {
            Self::Pairs(clients) | Self::HandOff(clients) => clients,
            Self::Waiters => waiters::WAITERS,
            Self::Alone | Self::Holder | Self::Failover => 1,
        };
        Duration::from_secs(40) + Duration::from_millis(60) * u32::try_from(clients).unwrap_or(u32::MAX)
    }
}

const PARTS: [Part; 9] = [
    Part::Alone,
    Part::Pairs(16),
    Part::Pairs(64),
    Part::HandOff(2),
    Part::HandOff(64),
    Part::HandOff(512),
    Part::Waiters,
    Part::Holder,
    Part::Failover,
];

/// Returns the smallest value that this share of all values does not exceed (`0.5`: the median).
fn rank(sorted: &[f64], share: f64) -> Option<f64> {
    let at = (sorted.len() as f64 * share).ceil() as usize;
    sorted.get(at.saturating_sub(1)).copied()
}

fn microseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}
