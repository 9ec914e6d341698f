//! Requests whose grants replicas have to acknowledge.

use std::time::{Duration, Instant};

use redis::{Cmd, Value};

use super::Server;
use super::at::At;
use super::commands;
use super::fault::Fault;
use super::link::Link;
use super::nodes::{Lane, REPLY};
use crate::limits::Limits;
use crate::options::{Replicas, Terms};

impl Server {
    /// Asks for a lock that may be free, and lets replicas acknowledge the grant, in one round trip.
    pub(super) async fn ask_with(
        &self,
        replicas: Replicas,
        terms: &Terms,
        limits: &Limits,
        request: Cmd,
        is_repeat: bool,
        at: &At,
    ) -> Result<(Vec<Value>, Link), Fault> {
        let replicas = limits.cut(replicas, Instant::now());
        let mut all = vec![request];
        // No server counts a repeat that is not executed as a write, and `WAIT` then waits for nothing.
        if is_repeat {
            all.extend(commands::confirm(terms));
        }
        all.push(commands::wait(replicas));
        self.nodes.call_at(terms.name(), &all, Lane::Own, Some(REPLY), replicas.timeout + REPLY, at).await
    }

    /// Waits for a lock. Replicas acknowledge the grant in the time that is left then.
    pub(super) async fn wait_with(
        &self,
        replicas: Replicas,
        terms: &Terms,
        limits: &Limits,
        request: Cmd,
        at: &At,
    ) -> Result<(Vec<Value>, Link), Fault> {
        let (mut replies, link) =
            self.nodes.call_at(terms.name(), &[request], Lane::Own, None, Duration::ZERO, at).await?;
        if replies != [Value::Nil] {
            let replicas = limits.cut(replicas, Instant::now());
            // Redis 7.0.0 to 7.0.11 does not count a grant to a blocked client as its write. A renewal is one.
            let all: Vec<_> = commands::confirm(terms).chain([commands::wait(replicas)]).collect();
            let acknowledged = link.ask_all(&all, Some(REPLY), replicas.timeout + REPLY, at.has_begun()).await;
            // The request was executed, whatever became of the renewal.
            let acknowledged = acknowledged.map_err(Fault::of_one_ahead);
            if let Err(Fault::OutcomeUnknown(_)) = acknowledged {
                self.nodes.forget(&link);
            }
            replies.extend(acknowledged?);
        }
        Ok((replies, link))
    }
}
