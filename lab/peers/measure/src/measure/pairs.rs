//! Measures many clients, each with a lock of its own: what a pair costs, and how many pairs there are in a second.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Instant;

use futures::future::join_all;
use tokio::task::JoinSet;

use super::Round;
use crate::processes::Cost;
use crate::result::{Result, failed};

pub async fn run(round: &mut Round, count: usize) -> Result<()> {
    let clients = round.clients(count).await?;
    let pairs = Rc::new(Cell::new(0_u64));
    // Each client acquires once before the window begins, so that its first use is not measured.
    let warm = clients.into_iter().enumerate().map(|(number, mut client)| async move {
        let lock = format!("pairs-{count}-{number}");
        let held = client.acquire(&lock).await.map_err(|error| error.to_string())?;
        client.release(&lock, held).await.map_err(|error| error.to_string())?;
        Ok((lock, client))
    });
    let warm: std::result::Result<Vec<_>, String> = join_all(warm).await.into_iter().collect();
    let cost = Cost::begin(round.servers.usage());
    let end = Instant::now() + round.window;
    let mut tasks = JoinSet::new();
    for (lock, mut client) in warm? {
        let pairs = pairs.clone();
        tasks.spawn_local(async move {
            while Instant::now() < end {
                let held = client.acquire(&lock).await.map_err(|error| error.to_string())?;
                client.release(&lock, held).await.map_err(|error| error.to_string())?;
                pairs.set(pairs.get() + 1);
            }
            Ok::<_, String>(client)
        });
    }
    let mut ended = Vec::new();
    while let Some(task) = tasks.join_next().await {
        ended.push(task);
    }
    // Pairs that begin before the end of the window and end after it count, and so does their time.
    let costs = cost.of_each(pairs.get() as f64, || round.servers.usage());
    for task in ended {
        match task? {
            Ok(client) => client.close().await,
            Err(error) => return failed(error),
        }
    }
    round.note_costs(&format!("pairs/{count}"), costs);
    Ok(())
}
