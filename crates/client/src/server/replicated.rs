//! Requests whose grants replicas have to acknowledge.

use std::time::{Duration, Instant};

use redis::{Cmd, Value};

use super::Server;
use super::commands;
use super::fault::Fault;
use super::in_flight::InFlight;
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
        at: &InFlight,
    ) -> Result<(Vec<Value>, Link), Fault> {
        let replicas = limits.cut(replicas, Instant::now());
        let mut all = vec![request];
        // A repeat that is not executed is no write, and `WAIT` then waits for nothing. A renewal is a write.
        if is_repeat {
            all.extend(commands::confirm(terms));
        }
        all.push(commands::wait(replicas));
        self.nodes.call_at(terms.name(), &all, Lane::Own, Some(REPLY), replicas.timeout + REPLY, at).await
    }

    /// Waits for a lock. Replicas acknowledge the grant in the time that is left after the wait.
    pub(super) async fn wait_with(
        &self,
        replicas: Replicas,
        terms: &Terms,
        limits: &Limits,
        request: Cmd,
        at: &InFlight,
    ) -> Result<(Vec<Value>, Link), Fault> {
        let (mut replies, link) =
            self.nodes.call_at(terms.name(), &[request], Lane::Own, None, Duration::ZERO, at).await?;
        if replies != [Value::Nil] {
            let replicas = limits.cut(replicas, Instant::now());
            // Redis 7.0.0 to 7.0.11 does not count a grant to a blocked client as a write of that client, and `WAIT`
            // then waits for nothing. A renewal is a write.
            let all: Vec<_> = commands::confirm(terms).chain([commands::wait(replicas)]).collect();
            let acknowledged = link.ask_all(&all, Some(REPLY), replicas.timeout + REPLY, at.has_begun()).await;
            // The acquiring request was executed, even if the renewal was not.
            let acknowledged = acknowledged.map_err(Fault::of_earlier_command);
            if let Err(Fault::OutcomeUnknown(_)) = acknowledged {
                self.nodes.forget(&link);
            }
            replies.extend(acknowledged?);
        }
        Ok((replies, link))
    }
}
