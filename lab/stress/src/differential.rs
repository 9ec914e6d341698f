//! Rounds of random steps, each with a seed that repeats it.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use dlock_testkit::histories::word::name_of;
use dlock_testkit::random::Random;
use dlock_testkit::{Serve, Server, Setup};

use crate::model::{DEFAULT_LEASE, Model, Settings, db_of};
use crate::round::{Round, now};

#[derive(clap::Args)]
pub struct Options {
    /// How long.
    #[arg(long, default_value_t = 10)]
    seconds: u64,
    /// The seed of the first round; each further round has the next number. The default is the time.
    #[arg(long)]
    seed: Option<u64>,
    /// The most rounds: 1 repeats a seed.
    #[arg(long, default_value_t = u64::MAX, hide_default_value = true)]
    rounds: u64,
    /// How much of the time to be busy, in percent.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=100))]
    share: u32,
    /// The program `dlock`, whose `serve` is held against the model in place of a server with the module. Steps that
    /// it does not offer are left out.
    #[arg(long)]
    serve: Option<PathBuf>,
}

impl Options {
    /// Returns options for this many rounds of `dlock serve`, from this seed on.
    pub fn of_serve(program: PathBuf, seed: u64, rounds: u64) -> Options {
        Options { seconds: u64::MAX, seed: Some(seed), rounds, share: 100, serve: Some(program) }
    }
}

/// The server that is held against the model.
enum Held {
    Module(Box<Server>),
    Memory(Serve),
}

impl Held {
    fn start(options: &Options) -> Held {
        match &options.serve {
            None => {
                let arguments = format!("default-lease {DEFAULT_LEASE}");
                Held::Module(Box::new(Setup::new().conf("hz 100").module_args(&arguments).start()))
            }
            Some(program) => Held::Memory(Serve::start(program, &["--set", &format!("default-lease={DEFAULT_LEASE}")])),
        }
    }

    fn port(&self) -> u16 {
        match self {
            Held::Module(server) => server.port(),
            Held::Memory(server) => server.port(),
        }
    }

    fn log(&self) -> String {
        match self {
            Held::Module(server) => server.log(),
            Held::Memory(server) => server.log(),
        }
    }
}

/// Plays rounds until the time is over, or something differs.
pub fn run(options: &Options) -> Result<(), String> {
    let first = options.seed.unwrap_or_else(now);
    let mut server = Held::start(options);
    let start = Instant::now();
    let (mut steps, mut done) = (0, 0);
    let mut reached: BTreeMap<String, u64> = BTreeMap::new();
    while done < options.rounds && start.elapsed() < Duration::from_secs(options.seconds) {
        let (seed, began) = (first + done, Instant::now());
        for (what, times) in play(&server, seed)? {
            *reached.entry(what).or_default() += times;
        }
        (steps, done) = (steps + STEPS, done + 1);
        std::thread::sleep(began.elapsed() * (100 - options.share) / options.share);
    }
    println!("{done} rounds from seed {first}, {steps} steps in {} s, no difference", start.elapsed().as_secs());
    for (what, times) in reached {
        println!("{times:>9}  {what}");
    }
    // An orderly end lets the tool that the server may run under (valgrind) say what it has found.
    if let Held::Module(server) = &mut server {
        server.shutdown();
    }
    Ok(())
}

/// Plays a round. Returns how often it reached each situation, or a difference from the model.
fn play(server: &Held, seed: u64) -> Result<BTreeMap<String, u64>, String> {
    let mut random = Random::seeded(seed);
    let settings = Settings { max_waiters: random.one_in(4).then_some(3), grace: random.one_in(4).then_some(600_000) };
    let with_time = random.one_in(3);
    let mut round = Round::begin(server.port(), settings);
    round.has_locks_only = matches!(server, Held::Memory(_));
    let played = catch_unwind(AssertUnwindSafe(|| round.play(&mut random, STEPS, with_time)));
    if let Err(difference) = played.unwrap_or_else(|_| Err("the panic above".to_owned())) {
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
    let of = |key: usize| format!("{} {}", db_of(key), name_of(key));
    let holds = model.holds().map(|(key, hold)| format!("  {}: {hold:?}", of(key)));
    let waiters = model.naive.waiting.iter().map(|waiter| format!("  waits: {waiter:?}"));
    holds.chain(waiters).collect::<Vec<_>>().join("\n")
}

const STEPS: u64 = 300;
/// How many of the last steps a difference is reported with.
const SHOWN: usize = 25;
