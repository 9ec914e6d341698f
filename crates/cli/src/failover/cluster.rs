//! Failover in a cluster: `CLUSTER FAILOVER`, which the nodes themselves coordinate.

use std::time::Duration;

use dlock_client::{Node, Operator};

use super::server::{REPLY, Server, address, best, info};
use super::steps::{Phase, Steps, Waited};
use super::stop::Stop;
use crate::failover::options::FailoverOptions;

/// Hands the slots of a primary over to a replica, and returns the address of the new primary.
pub async fn hand_over(
    operator: &Operator,
    node: &Node,
    options: &FailoverOptions,
    steps: &mut Steps,
) -> Result<String, Stop> {
    let (primary, replica) = pair(operator, node, options).await?;
    replica.check().await?;
    steps.notes_module(&primary.node).await?;
    steps.say(&format!("primary {}, replica {}", primary.address(), replica.address()));
    steps.caught_up(Phase::Checks, &primary.node, std::slice::from_ref(&replica), options.timeout).await?;
    steps.send(&replica.node, &["CLUSTER", "FAILOVER"]).await?;
    let mut is_over = async || {
        let (Ok(old), Ok(new)) = (info(&primary.node).await, info(&replica.node).await) else { return false };
        new.is_primary() && old.is_replica()
    };
    // A signal does not end the wait: the nodes are handing over already.
    loop {
        match steps.until("the replica is the primary", ATTEMPT, &mut is_over).await {
            Waited::Done => return Ok(replica.address()),
            Waited::Signal(signal) => {
                steps.say(&format!("{signal}: the nodes hand over, or give up within 5 seconds"));
            }
            Waited::Late if info(&primary.node).await.is_ok_and(|info| info.is_primary()) => {
                return Err(Stop::Kept("the nodes have given up, see their logs".to_owned()));
            }
            Waited::Late => {
                let servers = format!("{} and {}", primary.address(), replica.address());
                return Err(Stop::Unclear(format!("the failover does not end: look at {servers} (CLUSTER NODES)")));
            }
        }
    }
}

/// Returns the primary, and the replica to promote: the server of `--to` or, without that, the node of the URL. If this
/// node is the primary, its replica that has received most is promoted. Fails if the cluster is not well.
async fn pair(operator: &Operator, node: &Node, options: &FailoverOptions) -> Result<(Server, Server), Stop> {
    let replica = match &options.to {
        Some((host, port)) => Server::at(operator, host, *port)?,
        None => match info(node).await? {
            known if known.is_replica() => {
                let (host, port) = address(&node.address()).map_err(Stop::Usage)?;
                Server::at(operator, &host, port)?
            }
            known => best(operator, &known, None).await?,
        },
    };
    let known = info(&replica.node).await?;
    if !known.is_replica() {
        return Err(Stop::Usage(format!("{} is no replica: name the one to promote", replica.address())));
    }
    let (host, port) = address(&known.primary()).map_err(Stop::Kept)?;
    let primary = Server::at(operator, &host, port)?;
    let state: String = primary.node.ask(&["CLUSTER", "INFO"], REPLY).await?;
    if !state.contains("cluster_state:ok") {
        return Err(Stop::Kept(format!("the cluster is not well: {} says so (CLUSTER INFO)", primary.address())));
    }
    Ok((primary, replica))
}

/// How long to wait for the failover: longer than the 5 seconds after which the nodes give up.
const ATTEMPT: Duration = Duration::from_secs(8);
