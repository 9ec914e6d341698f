//! Failover of a primary without Sentinel or cluster: `FAILOVER`, which the servers themselves coordinate.

use std::time::Duration;

use dlock_client::{Node, Operator};

use super::server::{REPLY, Server, best, info};
use super::steps::{Phase, Steps, Waited};
use super::stop::Stop;
use crate::failover::options::FailoverOptions;

/// Hands over to a replica, and returns the address of the new primary.
pub async fn hand_over(
    operator: &Operator,
    primary: &Node,
    options: &FailoverOptions,
    steps: &mut Steps,
) -> Result<String, Stop> {
    let known = info(primary).await?;
    if !known.is_primary() {
        return Err(Stop::Usage(format!("{} is a replica: name its primary {}", primary.address(), known.primary())));
    }
    steps.notes_module(primary).await?;
    let clients: String = primary.ask(&["CLIENT", "LIST", "TYPE", "normal"], REPLY).await?;
    // Sentinels give their connections such names.
    if clients.contains(" name=sentinel-") {
        let what = "Sentinels watch this server and would undo it: name them";
        return Err(Stop::Usage(format!("{what} (redis-sentinel://HOST/NAME)")));
    }
    let replica = best(operator, &known, options.to.as_ref()).await?;
    replica.check().await?;
    steps.say(&format!("primary {}, replica {}", primary.address(), replica.address()));
    steps.caught_up(Phase::Checks, primary, std::slice::from_ref(&replica), options.timeout).await?;
    // The server refuses a limit of 0.
    let (port, limit) = (replica.port.to_string(), options.timeout.as_millis().max(1).to_string());
    steps.send(primary, &["FAILOVER", "TO", &replica.host, &port, "TIMEOUT", &limit]).await?;
    finished(primary, &replica, options.timeout, steps).await
}

/// Waits until the primary has handed over or given up. A signal does not end the wait.
async fn finished(primary: &Node, replica: &Server, limit: Duration, steps: &mut Steps) -> Result<String, Stop> {
    loop {
        let mut has_handed_over = false;
        let mut over = async || {
            let (Ok(old), Ok(new)) = (info(primary).await, info(&replica.node).await) else { return false };
            has_handed_over = new.is_primary() && old.follows();
            let has_given_up = old.is_primary() && old.field("master_failover_state") == "no-failover";
            // While both are primaries, the outcome is open.
            has_handed_over || has_given_up && new.is_replica()
        };
        match steps.until("the replica is the primary", limit + SETTLE, &mut over).await {
            Waited::Done if has_handed_over || steps.is_dry() => return Ok(replica.address()),
            Waited::Done => return Err(Stop::Kept("the primary has given up, see its log".to_owned())),
            Waited::Signal(signal) => {
                steps.say(&format!("{signal}: the primary gives way, or gives up within {limit:?}"));
            }
            Waited::Late => {
                let servers = format!("{} and {}", primary.address(), replica.address());
                return Err(Stop::Unclear(format!("the failover does not end: look at {servers} (INFO replication)")));
            }
        }
    }
}

/// How long the old primary may take to follow the new one, after the limit of the handover itself.
const SETTLE: Duration = Duration::from_secs(30);
