//! The servers' cost of a thousand waiting clients while nothing happens.

use std::fs;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::Round;
use crate::result::{Result, failed};

pub async fn run(round: &mut Round) -> Result<()> {
    let mut holder = round.client_among(WAITERS).await?;
    let held = holder.acquire("waiters").await?;
    sleep(Duration::from_millis(300)).await;
    let before = round.servers.memory();
    let (stop, stopped) = watch::channel(false);
    let mut tasks = JoinSet::new();
    let joined = async {
        for _ in 0..WAITERS / BATCH {
            for mut client in round.clients_among(BATCH, WAITERS).await? {
                let mut stopped = stopped.clone();
                tasks.spawn_local(async move {
                    let granted = tokio::select! {
                        granted = client.acquire("waiters") => Some(granted.map(drop).map_err(|error| error.to_string())),
                        _ = stopped.wait_for(|stop| *stop) => None,
                    };
                    client.close().await;
                    granted
                });
            }
        }
        // Connecting and joining leave work behind.
        sleep(Duration::from_millis(1500)).await;
        let (waiting, carried) = (round.servers.usage(), packets());
        sleep(LOOK).await;
        let carried = (packets() - carried) / LOOK.as_secs_f64();
        Ok::<_, Box<dyn std::error::Error>>((carried, waiting, round.servers.usage(), round.servers.memory()))
    };
    let (carried, waiting, after, memory) = tokio::select! {
        looked = joined => looked?,
        lost = holder.keep("waiters", &held) => return lost,
    };
    stop.send(true)?;
    while let Some(ended) = tasks.join_next().await {
        match ended? {
            None => {}
            Some(Ok(())) => return failed("a waiter was granted a lock that is held"),
            Some(Err(error)) => return failed(error),
        }
    }
    holder.release("waiters", held).await?;
    holder.close().await;
    round.note("waiters/packets", carried);
    round.note("waiters/cpu", (after.cpu_seconds - waiting.cpu_seconds) / LOOK.as_secs_f64() * 100.0);
    round.note("waiters/memory", (memory - before) / WAITERS as f64 / 1024.0);
    Ok(())
}

/// Returns the number of packets on the loopback interface.
fn packets() -> f64 {
    let text = fs::read_to_string("/proc/net/dev").unwrap_or_default();
    let line = text.lines().find_map(|line| line.trim_start().strip_prefix("lo:"));
    // Received: bytes, packets.
    line.and_then(|line| line.split_whitespace().nth(1)?.parse().ok()).unwrap_or(f64::NAN)
}

pub const WAITERS: usize = 1000;
const BATCH: usize = 100;
/// How long the packets are counted: at least a whole period of each system. Waiters that join together send together, so
/// the result of a shorter look depends on when it begins.
const LOOK: Duration = Duration::from_secs(20);
