//! Explores every scope and prints a table: `dlock-check-model [NAME [DEPTH]]`. Fails if a property is broken, or if a
//! counter-example is not found.

#![allow(clippy::unwrap_used, reason = "a checker that panics has failed, which is what it is for")]

use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, OnceLock};
use std::thread;

use dlock_check_model::report::{self, Explored};
use dlock_check_model::{engine, quorum};

/// A scope to explore, and the property that must break in it, if one must.
type Job = (Box<dyn FnOnce() -> Explored + Send>, Option<&'static str>);

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let wanted = arguments.next().unwrap_or_default();
    let depth: Option<usize> = arguments.next().and_then(|depth| depth.parse().ok());
    let mut jobs: Vec<Job> = Vec::new();
    for scope in engine::scopes().into_iter().filter(|scope| scope.name.contains(&wanted)) {
        let depth = depth.unwrap_or(scope.depth[0]);
        jobs.push((Box::new(move || report::explore::<engine::World>(scope.name, &scope, depth)), None));
    }
    let quorum = quorum::scopes().into_iter().map(|scope| (scope, None));
    let counter_examples = quorum::counter_examples().into_iter().map(|(scope, property)| (scope, Some(property)));
    for (scope, broken) in quorum.chain(counter_examples).filter(|(scope, _)| scope.name.contains(&wanted)) {
        let depth = depth.unwrap_or(scope.depth[0]);
        jobs.push((Box::new(move || report::explore::<quorum::World>(scope.name, &scope, depth)), broken));
    }
    println!("{}", report::head());
    // Each exploration has one thread, so that it is strictly breadth first.
    let results: Vec<OnceLock<Explored>> = jobs.iter().map(|_| OnceLock::new()).collect();
    let (jobs, printed) = (Mutex::new(jobs.into_iter().zip(&results)), Mutex::new(0));
    let is_right = AtomicBool::new(true);
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while let Some(((explore, broken), result)) = { jobs.lock().unwrap().next() } {
                    let explored = explore();
                    if explored.broken.as_ref().map(|(broken, _)| broken.property) != broken {
                        is_right.store(false, Ordering::Relaxed);
                        let nothing = || format!("{}: nothing breaks", explored.name);
                        eprintln!("{}", explored.story().unwrap_or_else(nothing));
                    }
                    result.set(explored).unwrap();
                    // The rows are printed in the order of the scopes.
                    let mut printed = printed.lock().unwrap();
                    while let Some(explored) = results.get(*printed).and_then(OnceLock::get) {
                        println!("{explored}");
                        *printed += 1;
                    }
                }
            });
        }
    });
    let sum = |of: fn(&Explored) -> usize| results.iter().flat_map(OnceLock::get).map(of).sum::<usize>();
    eprintln!("{} states, {} steps", sum(|explored| explored.states), sum(|explored| explored.steps));
    if is_right.into_inner() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
