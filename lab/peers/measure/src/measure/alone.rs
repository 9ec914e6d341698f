//! One client, one lock, nobody else.

use std::time::Instant;

use super::{Round, microseconds, rank};
use crate::result::Result;

pub async fn run(round: &mut Round) -> Result<()> {
    let mut client = round.client().await?;
    for _ in 0..20 {
        let held = client.acquire("alone").await?;
        client.release("alone", held).await?;
    }
    let mut took = Vec::new();
    let before = round.servers.usage();
    let began = Instant::now();
    while began.elapsed() < round.window {
        let one = Instant::now();
        let held = client.acquire("alone").await?;
        client.release("alone", held).await?;
        took.push(microseconds(one.elapsed()));
    }
    let seconds = began.elapsed().as_secs_f64();
    let after = round.servers.usage();
    client.close().await;
    let pairs = took.len() as f64;
    took.sort_by(f64::total_cmp);
    round.note_if("alone/median", rank(&took, 0.5));
    round.note_if("alone/p99", rank(&took, 0.99));
    round.note("pairs/1", pairs / seconds);
    round.note("written", (after.written - before.written) / pairs);
    round.note("cpu", (after.cpu_seconds - before.cpu_seconds) * 1e6 / pairs);
    Ok(())
}
