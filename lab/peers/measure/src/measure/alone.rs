//! A client, a lock, nobody else.

use std::time::Instant;

use super::{Round, microseconds, rank};
use crate::processes::Cost;
use crate::result::Result;

pub async fn run(round: &mut Round) -> Result<()> {
    let mut client = round.client().await?;
    for _ in 0..20 {
        let held = client.acquire("alone").await?;
        client.release("alone", held).await?;
    }
    let mut took = Vec::new();
    let cost = Cost::begin(round.servers.usage());
    let began = Instant::now();
    while began.elapsed() < round.window {
        let one = Instant::now();
        let held = client.acquire("alone").await?;
        client.release("alone", held).await?;
        took.push(microseconds(one.elapsed()));
    }
    let costs = cost.of_each(took.len() as f64, || round.servers.usage());
    client.close().await;
    took.sort_by(f64::total_cmp);
    round.note_if("alone/median", rank(&took, 0.5));
    round.note_if("alone/p99", rank(&took, 0.99));
    round.note_costs("alone", costs);
    Ok(())
}
