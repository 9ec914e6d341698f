//! `dlock-check-model [NAME [DEPTH]]` explores the scopes whose names contain NAME, by default all, and prints a table.
//! Fails if the engine differs from its model.

#![allow(clippy::unwrap_used, reason = "a checker that panics has failed, which is what it is for")]

use std::process::ExitCode;
use std::sync::{Mutex, OnceLock};
use std::thread;

use dlock_check_model::explorer::{Explored, explore, head};
use dlock_check_model::instances::scopes;

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let wanted = arguments.next().unwrap_or_default();
    let depth: Option<usize> = arguments.next().and_then(|depth| depth.parse().ok());
    let scopes: Vec<_> = scopes().into_iter().filter(|scope| scope.name.contains(&wanted)).collect();
    let results: Vec<OnceLock<Explored>> = scopes.iter().map(|_| OnceLock::new()).collect();
    let (jobs, printed) = (Mutex::new(scopes.iter().zip(&results)), Mutex::new(0));
    println!("{}", head());
    thread::scope(|threads| {
        for _ in 0..2 {
            threads.spawn(|| {
                while let Some((scope, result)) = { jobs.lock().unwrap().next() } {
                    let explored = explore(scope, depth.unwrap_or(scope.depth[0]));
                    if let Some(story) = explored.story() {
                        eprintln!("{story}");
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
    let all = || results.iter().flat_map(OnceLock::get);
    let sum = |of: fn(&Explored) -> usize| all().map(of).sum::<usize>();
    eprintln!("{} states, {} steps", sum(|explored| explored.states), sum(|explored| explored.steps));
    if all().all(|explored| explored.broken.is_none()) { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
