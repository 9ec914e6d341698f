//! `dlock failover`: hands a primary's work over to a replica, as planned, and grants no lock twice.
//!
//! The process may be killed at any moment, and still no two servers grant: the pause of writes ends by itself, and a
//! replica is promoted only after the old primary has become a replica and the other replicas have all its data.

mod by_hand;
mod cluster;
pub mod options;
mod plain;
mod sentinel;
mod server;
mod steps;
mod stop;
mod watched;

use dlock_client::{Client, Error, Operator};

use crate::failover::options::FailoverOptions;
use crate::output::{print, say};
use crate::{exit, fail};
pub use server::{Info, info};
use steps::Steps;
use stop::Stop;

/// Hands over, and returns the exit code.
pub async fn failover(client: &Client, options: &FailoverOptions) -> Result<u8, Error> {
    let operator = client.operator()?;
    let mut steps = match Steps::begin(options.dry_run) {
        Ok(steps) => steps,
        Err(error) => return Ok(fail(exit::UNAVAILABLE, &error.to_string())),
    };
    let outcome = match operator.sentinels() {
        Some((name, sentinels)) => sentinel::hand_over(&operator, name, sentinels, options, &mut steps).await,
        None => without_sentinel(&operator, options, &mut steps).await,
    };
    Ok(match outcome {
        Ok(_) if options.dry_run => 0,
        Ok(primary) => {
            print(&format!("{primary} is the primary now"));
            steps.left_to_do().iter().for_each(|left| say(&format!("dlock: {left}")));
            0
        }
        Err(stop) => report(stop),
    })
}

/// Prints why the failover stopped, and returns the exit code for that.
fn report(stop: Stop) -> u8 {
    match stop {
        Stop::Kept(why) => fail(exit::NEGATIVE, &format!("no failover: {why}")),
        Stop::Failed(error) => fail(exit::of(&error), &format!("no failover: {error}")),
        Stop::Usage(why) => fail(exit::USAGE, &why),
        Stop::Ended(signal) => {
            let code = 128_u8.saturating_add(u8::try_from(signal as i32).unwrap_or(0));
            fail(code, &format!("no failover: ended by {signal}"))
        }
        Stop::Unclear(what) => fail(exit::UNAVAILABLE, &what),
    }
}

/// Fails over without Sentinel: in a cluster, or from a primary to one of its replicas.
async fn without_sentinel(operator: &Operator, options: &FailoverOptions, steps: &mut Steps) -> Result<String, Stop> {
    let nodes = operator.nodes();
    let mut missing = Error::Unreachable("no server".into());
    for node in &nodes {
        match info(node).await {
            Err(error) => missing = error,
            Ok(found) if !found.is_in_cluster() => return plain::hand_over(operator, node, options, steps).await,
            Ok(_) if nodes.len() > 1 && options.to.is_none() => {
                return Err(Stop::Usage("of several nodes, name the replica to promote: --to HOST:PORT".to_owned()));
            }
            Ok(_) => return cluster::hand_over(operator, node, options, steps).await,
        }
    }
    Err(missing.into())
}
