//! Rounds of random steps, each with a seed that repeats it.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use dlock_testkit::random::Random;

use crate::model::{Ask, Hold, Model, Waiter};
use crate::option;
use crate::round::{Round, now};
use crate::server::Server;

/// Plays rounds until the time is over, or something differs.
pub fn run(options: &[String]) -> Result<(), String> {
    let time = Duration::from_secs(option(options, "--seconds")?.unwrap_or(10));
    let first = option(options, "--seed")?.unwrap_or_else(now);
    let rounds = option(options, "--rounds")?.unwrap_or(u64::MAX);
    let share = option(options, "--share")?.unwrap_or(100).clamp(1, 100);
    let server = Server::start("default-lease 900000")?;
    let start = Instant::now();
    let (mut steps, mut done) = (0, 0);
    let mut reached: BTreeMap<String, u64> = BTreeMap::new();
    while done < rounds && start.elapsed() < time {
        let (seed, began) = (first + done, Instant::now());
        for (what, times) in play(&server, seed)? {
            *reached.entry(what).or_default() += times;
        }
        (steps, done) = (steps + STEPS, done + 1);
        let busy = began.elapsed();
        std::thread::sleep(busy * u32::try_from(100 - share).unwrap_or(0) / u32::try_from(share).unwrap_or(100));
    }
    println!("{done} rounds from seed {first}, {steps} steps in {} s, no difference", start.elapsed().as_secs());
    for (what, times) in reached {
        println!("{times:>9}  {what}");
    }
    server.stop()
}

fn play(server: &Server, seed: u64) -> Result<BTreeMap<String, u64>, String> {
    let mut random = Random::seeded(seed);
    let max_waiters = if random.one_in(4) { 3 } else { 0 };
    let with_time = random.one_in(3);
    let mut round =
        Round::begin(server.port, max_waiters).map_err(|e| format!("seed {seed}: {e}\n{}", server.log()))?;
    if let Err(difference) = round.play(&mut random, STEPS, with_time) {
        let story = round.story.get(round.story.len().saturating_sub(SHOWN)..).unwrap_or_default().join("\n  ");
        return Err(format!(
            "a difference with seed {seed}: {difference}\n\nthe last steps:\n  {story}\n\n\
             the model:\n{}\n\nthe server's log:\n{}\n\nto repeat it: --seed {seed} --rounds 1",
            shown(&round.model),
            server.log()
        ));
    }
    round.end().map_err(|e| format!("seed {seed}, after its end: {e}"))
}

fn shown(model: &Model) -> String {
    let holds = model.all_holds().map(|((db, name), hold)| {
        let Hold { owner, mode, count, session, request, serial, .. } = hold;
        let token = model.tokens.get(serial);
        format!("  {db} {name}: {} {mode:?} {count} token {token:?} {session:?} {request:?}", owner.escape_ascii())
    });
    let waiters = model.lines.iter().flat_map(|((db, name), line)| {
        line.iter().map(move |Waiter { client, ask, is_upgrade }| {
            let Ask { owner, command, request, .. } = ask;
            format!("  {db} {name}: {client} waits, {command} {} {request:?} {is_upgrade}", owner.escape_ascii())
        })
    });
    holds.chain(waiters).collect::<Vec<_>>().join("\n")
}

const STEPS: u64 = 300;
const SHOWN: usize = 25;
