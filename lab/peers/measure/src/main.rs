//! `dlock-peers`: times dlock beside etcd, ZooKeeper, PostgreSQL and Redlock, on servers that it starts.
//!
//! | to change | look in |
//! |---|---|
//! | which systems are compared | `lab/peers/src/systems.rs` |
//! | how their servers are started | `servers/` |
//! | their lock recipes | `clients/` |
//! | what is measured | `measure/` |
//! | what the page says | `lab/peers/src/page.rs` |

mod clients;
mod facts;
mod measure;
mod processes;
mod result;
mod servers;
mod systems;

use std::cell::RefCell;
use std::process::ExitCode;
use std::rc::Rc;
use std::time::{Duration, Instant};
use std::{env, fs};

use dlock_comparison::figures::Figures;
use measure::{Round, holder};
use result::{Result, failed};
use systems::System;
use tokio::runtime::{Builder, Runtime};
use tokio::task::LocalSet;
use tokio::time::timeout;

fn main() -> ExitCode {
    let words: Vec<String> = env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let done = match words.as_slice() {
        ["hold", system, addresses, lock] => hold(system, addresses, lock),
        options => Options::parse(options).and_then(|options| run(&options)),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("dlock-peers: {error}");
            ExitCode::FAILURE
        }
    }
}

struct Options {
    rounds: usize,
    window: Duration,
    only: Vec<System>,
    /// The file for the figures.
    keep: Option<String>,
}

impl Options {
    fn parse(words: &[&str]) -> Result<Self> {
        let mut options = Self { rounds: 3, window: Duration::from_millis(1500), only: Vec::new(), keep: None };
        let mut words = words.iter();
        while let Some(word) = words.next() {
            let Some(value) = words.next() else { return failed(USAGE) };
            match *word {
                "--rounds" => options.rounds = value.parse()?,
                "--window" => options.window = Duration::from_millis(value.parse()?),
                "--only" => options.only.push(System::named(value)?),
                "--keep" => options.keep = Some((*value).to_owned()),
                _ => return failed(USAGE),
            }
        }
        if options.only.is_empty() {
            options.only = System::all().collect();
        }
        if options.keep.is_some() && options.rounds < 3 {
            return failed("figures of fewer than 3 rounds are not kept");
        }
        Ok(options)
    }
}

const USAGE: &str = "usage: dlock-peers [--rounds N] [--window MS] [--only SYSTEM]… [--keep FILE]";

fn run(options: &Options) -> Result<()> {
    let began = Instant::now();
    processes::move_clients()?;
    let mut figures = Figures { facts: facts::all(options.rounds)?, ..Figures::default() };
    let mut missing = Vec::new();
    for number in 0..options.rounds {
        for system in &options.only {
            let name = system.0.name;
            let seconds = began.elapsed().as_secs();
            println!("\n{seconds:4} s  round {} of {}: {name}", number + 1, options.rounds);
            // All that a system has started ends with its runtime.
            let local = LocalSet::new();
            let measured = Rc::default();
            let all = measure(*system, number == 0, options.window, Rc::clone(&measured));
            let error = match local.block_on(&runtime()?, async { timeout(PATIENCE, all).await }) {
                Ok(Ok(version)) => {
                    figures.facts.insert(format!("version/{name}"), version);
                    None
                }
                Ok(Err(error)) => Some(error.to_string()),
                Err(_) => Some(format!("not done after {} s", PATIENCE.as_secs())),
            };
            drop(local);
            for (figure, value) in measured.take() {
                figures.note(name, &figure, value);
            }
            if let Some(error) = error {
                println!("        MISSING: {error}");
                missing.push(format!("{name} in round {}: {error}", number + 1));
            }
        }
    }
    if let Some(file) = &options.keep {
        figures.facts.insert("missing".to_owned(), missing.join("; "));
        fs::write(file, figures.to_json())?;
    }
    println!("\nmeasured in {} s", began.elapsed().as_secs());
    if missing.is_empty() { Ok(()) } else { failed(format!("missing:\n  {}", missing.join("\n  "))) }
}

/// How long a system may take for a round.
const PATIENCE: Duration = Duration::from_secs(240);

type Measured = Rc<RefCell<Vec<(String, Option<f64>)>>>;

/// Measures everything; the version of the servers.
async fn measure(system: System, is_first: bool, window: Duration, figures: Measured) -> Result<String> {
    let servers = system.start().await?;
    let mut round = Round { system, servers, window, figures };
    let version = round.servers.version.clone();
    round.run(is_first).await?;
    Ok(version)
}

/// The process of a holder that is going to be killed.
fn hold(system: &str, addresses: &str, lock: &str) -> Result<()> {
    let addresses: Vec<String> = addresses.split(',').map(str::to_owned).collect();
    let local = LocalSet::new();
    local.block_on(&runtime()?, holder::hold(System::named(system)?, &addresses, lock))
}

/// One thread, for the clients of every system.
fn runtime() -> Result<Runtime> {
    Ok(Builder::new_current_thread().enable_all().build()?)
}
