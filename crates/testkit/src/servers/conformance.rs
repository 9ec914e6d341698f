//! A harness for programs that run the conformance suite of all clients (`tests/conformance`). The program starts the
//! suite, which starts the same program again as the adapter: the part that drives the client.

use std::fmt::Display;
use std::io::Write;
use std::process::Command;
use std::sync::Mutex;
use std::thread;

use super::skip::skipped;
use super::stopwatch::Stopwatch;

/// The number of scenarios that are played at the same time.
const AT_A_TIME: usize = 3;

/// The suite, and the program of Python that runs it.
pub struct Suite {
    python: String,
    root: &'static str,
}

/// Runs the program: as the adapter with the argument `adapter`, otherwise as a test that plays the suite by `play`.
pub fn main(adapter: fn(), play: fn(&Suite)) {
    // With the arguments of `cargo test`, the program is a single test with the name `conformance`.
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).find(|argument| !argument.starts_with('-')) {
        Some("adapter") => adapter(),
        Some(filter) if !"conformance".contains(filter) => {}
        _ if arguments.iter().any(|argument| argument == "--list") => println!("conformance: test"),
        _ => match Suite::find() {
            Some(suite) => play(&suite),
            None => println!("skipped: Python, or its packages, is missing (make test installs them)"),
        },
    }
}

/// Prints an answer of the adapter.
pub fn say(answer: &impl Display) {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{answer}").and_then(|()| out.flush()).expect("the suite reads");
}

impl Suite {
    fn find() -> Option<Suite> {
        let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
        let output = Command::new(format!("{root}/scripts/python")).output().ok()?;
        let python = String::from_utf8(output.stdout).expect("a path").trim().to_owned();
        output.status.success().then_some(Suite { python, root })
    }

    /// Returns the folder of the scenarios.
    pub fn scenarios(&self) -> String {
        format!("{}/tests/conformance/scenarios", self.root)
    }

    /// Plays scenarios, each in a process of its own with servers of its own. Returns the scenarios that failed.
    pub fn failed<'a>(&self, scenarios: &[&'a str], title: &str) -> Vec<&'a str> {
        let left = Mutex::new(scenarios.iter().copied());
        let next = || left.lock().expect("no panic").next();
        let work = || std::iter::from_fn(next).filter(|name| !self.passes(name, title)).collect::<Vec<_>>();
        thread::scope(|scope| {
            let workers: Vec<_> = (0..AT_A_TIME).map(|_| scope.spawn(work)).collect();
            workers.into_iter().flat_map(|worker| worker.join().expect("no panic")).collect()
        })
    }

    /// Plays a scenario, on `dlock serve` if `DLOCK_THROUGH` is `serve`. Returns whether it passed. A scenario that
    /// failed while the machine was late (see [`Stopwatch`]) is repeated, at most twice.
    fn passes(&self, scenario: &str, title: &str) -> bool {
        let options = ["--only", scenario, "--title", title];
        for _ in 0..2 {
            let start = Stopwatch::start();
            if self.passes_once(&options) {
                return true;
            }
            if !start.was_late() {
                return false;
            }
            let late = start.stalled();
            skipped(&format!("conformance: {title} {scenario} failed while the machine was {late:.1?} late"));
        }
        self.passes_once(&options)
    }

    fn passes_once(&self, options: &[&str]) -> bool {
        let mut suite = Command::new(&self.python);
        suite.arg(format!("{}/tests/conformance/run.py", self.root)).args(options);
        if let Some(through) = std::env::var_os("DLOCK_THROUGH").filter(|through| !through.is_empty()) {
            suite.arg("--through").arg(through);
        }
        suite.arg("--").arg(std::env::current_exe().expect("this program")).arg("adapter");
        suite.env("PYTHONDONTWRITEBYTECODE", "1");
        suite.status().expect("the suite starts").success()
    }
}
