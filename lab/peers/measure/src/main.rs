//! `dlock-peers`: times dlock beside etcd, ZooKeeper, PostgreSQL and Redlock, on servers that it starts.
//!
//! | to change | look in |
//! |---|---|
//! | which systems are compared | `lab/peers/src/systems.rs` |
//! | how their servers are started | `servers/` |
//! | their lock recipes | `clients/` |
//! | what is measured | `measure/` |
//! | the tables of the page | `lab/peers/src/page.rs` |

mod clients;
mod facts;
mod measure;
mod processes;
mod result;
mod servers;
mod systems;

use std::process::ExitCode;
use std::rc::Rc;
use std::time::{Duration, Instant};
use std::{env, fs};

use dlock_comparison::figures::{Failure, Figures, START};
use measure::holder::Tie;
use measure::{Notes, Part, Round, holder};
use result::{Result, failed};
use systems::System;
use tokio::runtime::{Builder, Runtime};
use tokio::task::LocalSet;
use tokio::time::timeout;

fn main() -> ExitCode {
    let words: Vec<String> = env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let done = match words.as_slice() {
        ["hold", system, addresses, lock, tie] => hold(system, addresses, lock, tie),
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

#[derive(Default)]
struct Options {
    rounds: usize,
    window: Duration,
    only: Vec<System>,
    /// All if empty.
    parts: Vec<Part>,
    /// The file for the figures.
    keep: Option<String>,
}

impl Options {
    fn parse(words: &[&str]) -> Result<Self> {
        let mut options = Self { rounds: 3, window: Duration::from_millis(1500), ..Self::default() };
        let mut words = words.iter();
        while let Some(word) = words.next() {
            let Some(value) = words.next() else { return failed(USAGE) };
            match *word {
                "--rounds" => options.rounds = value.parse()?,
                "--window" => options.window = Duration::from_millis(value.parse()?),
                "--only" => options.only.push(System::named(value)?),
                "--part" => options.parts.push(Part::named(value)?),
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

impl Options {
    /// Returns the figures. If only some parts were measured, the kept figures of the others are among them.
    fn among_the_others(&self, figures: &Figures) -> Result<Figures> {
        let mut all = match &self.keep {
            Some(file) if !self.parts.is_empty() => Figures::from_json(&fs::read_to_string(file)?)?,
            _ => Figures::default(),
        };
        let parts: Vec<String> = self.parts.iter().map(|part| part.name()).collect();
        all.replace(&parts, figures);
        Ok(all)
    }
}

const USAGE: &str = "usage: dlock-peers [--rounds N] [--window MS] [--only SYSTEM]… [--part PART]… [--keep FILE]";

fn run(options: &Options) -> Result<()> {
    let began = Instant::now();
    processes::move_clients()?;
    let mut figures = Figures { facts: facts::all()?, ..Figures::default() };
    for number in 1..=options.rounds {
        for system in &options.only {
            let name = system.0.name;
            let seconds = began.elapsed().as_secs();
            println!("\n{seconds:4} s  round {number} of {}: {name}", options.rounds);
            // All that a system has started ends with its runtime.
            let local = LocalSet::new();
            let notes = Rc::new(Notes::default());
            let all = measure(*system, number == 1, options, Rc::clone(&notes));
            let runtime = runtime()?;
            match local.block_on(&runtime, async { timeout(PATIENCE, all).await }) {
                Ok(Ok(())) => {}
                Ok(Err(error)) => notes.failed(START, &error.to_string()),
                Err(_) => notes.failed(START, &format!("the round took over {} s", PATIENCE.as_secs())),
            }
            // Clients that are dropped with it may have a last request to send.
            let entered = runtime.enter();
            drop(local);
            drop(entered);
            for (figure, value) in notes.figures.take() {
                figures.note(name, &figure, value);
            }
            figures.facts.extend(notes.version.take().map(|version| (format!("version/{name}"), version)));
            figures.failed.extend(notes.failed.take().into_iter().map(|(part, why)| Failure {
                system: name.to_owned(),
                part,
                round: number,
                why,
            }));
        }
        // After each round: if the machine fails, the rounds before are not lost.
        figures.facts.insert("rounds".to_owned(), number.to_string());
        figures.facts.insert("minutes".to_owned(), began.elapsed().as_secs().div_ceil(60).to_string());
        if let Some(file) = &options.keep {
            fs::write(file, options.among_the_others(&figures)?.to_json())?;
        }
    }
    println!("\nmeasured in {} s", began.elapsed().as_secs());
    if figures.failed.is_empty() {
        return Ok(());
    }
    let lines = figures.failed.iter().map(|Failure { system, part, round, why }| {
        format!("\n  {system}, {part}, round {round}: {}", why.lines().next().unwrap_or_default())
    });
    failed(format!("failed, all else was measured:{}", lines.collect::<String>()))
}

/// How long a system may take for a round.
const PATIENCE: Duration = Duration::from_secs(400);

/// Measures everything that can be measured. An error: the servers did not start.
async fn measure(system: System, is_first: bool, options: &Options, notes: Rc<Notes>) -> Result<()> {
    let servers = system.start().await?;
    *notes.version.borrow_mut() = Some(servers.version.clone());
    Round { system, servers, window: options.window, notes }.run(is_first, &options.parts).await;
    Ok(())
}

/// The process of a holder that is going to be killed.
fn hold(system: &str, addresses: &str, lock: &str, tie: &str) -> Result<()> {
    let addresses: Vec<String> = addresses.split(',').map(str::to_owned).collect();
    let local = LocalSet::new();
    local.block_on(&runtime()?, holder::hold(System::named(system)?, &addresses, lock, Tie::named(tie)?))
}

/// Returns a single thread, for the clients of every system.
fn runtime() -> Result<Runtime> {
    Ok(Builder::new_current_thread().enable_all().build()?)
}
