//! What is measured of a system in a round.

mod alone;
mod failover;
mod hand_off;
pub mod holder;
mod pairs;
mod waiters;

use std::time::Duration;

use futures::future::join_all;

use crate::clients::Client;
use crate::result::Result;
use crate::servers::Servers;
use crate::systems::System;

/// A system that runs, and what has been measured of it.
pub struct Round {
    pub system: System,
    pub servers: Servers,
    /// How long each load runs.
    pub window: Duration,
    pub figures: Vec<(String, Option<f64>)>,
}

impl Round {
    /// Everything, in an order in which nothing is left over for the next.
    pub async fn run(&mut self, is_first: bool) -> Result<()> {
        alone::run(self).await?;
        for clients in [16, 64] {
            pairs::run(self, clients).await?;
        }
        for waiters in [2, 64, 512] {
            hand_off::run(self, waiters).await?;
        }
        waiters::run(self).await?;
        holder::run(self, is_first).await?;
        if self.system.0.fails_over() {
            failover::run(self).await?;
        }
        Ok(())
    }

    fn note(&mut self, figure: impl Into<String>, value: f64) {
        self.figures.push((figure.into(), Some(value)));
    }

    fn note_if(&mut self, figure: impl Into<String>, value: Option<f64>) {
        self.figures.push((figure.into(), value));
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

/// The smallest value that this share of all does not exceed.
fn rank(sorted: &[f64], share: f64) -> Option<f64> {
    let at = (sorted.len() as f64 * share).ceil() as usize;
    sorted.get(at.saturating_sub(1)).copied()
}

fn microseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}
