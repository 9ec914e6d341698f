//! Simulates deployments: one seed, one run, always the same.

#![allow(clippy::expect_used, reason = "no lock is poisoned: what a run panics with is caught")]

use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use clap::Parser;
use dlock_simulation::{Counts, Plan, outcome, shortest, trace};

/// Plays deployments of dlock, each drawn from a seed. Shows the first that fails as its shortest history.
#[derive(Parser)]
struct Options {
    /// The first seed.
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// How many seeds.
    #[arg(long, default_value_t = 10_000)]
    runs: u64,
    /// Writes histories of one lock instead, of this many steps, a line for each seed: lab/spec checks them.
    #[arg(long)]
    trace: Option<usize>,
}

fn main() -> ExitCode {
    let Options { seed, runs, trace: steps } = Options::parse();
    if let Some(steps) = steps {
        (seed..seed + runs).for_each(|seed| println!("{}", trace(seed, if seed % 2 == 0 { 2 } else { 3 }, steps)));
        return ExitCode::SUCCESS;
    }
    // The message of a panic is shown once, at the end.
    std::panic::set_hook(Box::new(|_| {}));
    let (started, next) = (Instant::now(), AtomicU64::new(0));
    let (total, failed) = (Mutex::new(Counts::default()), Mutex::new(None::<u64>));
    let work = || {
        let mut counts = Counts::default();
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed);
            if at >= runs {
                break;
            }
            match outcome(&Plan::of(seed + at)) {
                Ok(run) => counts.add(&run),
                Err(_) => {
                    next.store(runs, Ordering::Relaxed);
                    let mut failed = failed.lock().expect("no panic inside");
                    *failed = Some(failed.map_or(seed + at, |other| other.min(seed + at)));
                }
            }
        }
        total.lock().expect("no panic inside").add(&counts);
    };
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| (0..threads).for_each(|_| drop(scope.spawn(work))));
    let failed = *failed.lock().expect("all have ended");
    let Some(seed) = failed else {
        let (counts, seconds) = (*total.lock().expect("all have ended"), started.elapsed().as_secs_f64());
        println!("{runs} runs, no violation, {seconds:.1} s");
        println!("{counts:#?}");
        return ExitCode::SUCCESS;
    };
    let (plan, why) = shortest(&Plan::of(seed));
    println!("VIOLATION at seed {seed} after {:.1} s: {why}", started.elapsed().as_secs_f64());
    println!("{:?}", plan.setting);
    for event in &plan.events {
        println!("  after {} µs: {:?}", event.after_us, event.what);
    }
    ExitCode::FAILURE
}
