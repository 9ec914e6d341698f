//! The harness of the conformance suite of all clients (`tests/conformance`), for tests that have no harness of their
//! own: the program starts the suite with itself as the adapter.

use std::fmt::Display;
use std::io::Write;
use std::process::Command;

use super::skip::skipped;
use super::stopwatch::Stopwatch;

/// The suite, and the Python that runs it.
pub struct Suite {
    python: String,
    root: &'static str,
}

/// Runs the program: `adapter` is the adapter, and without arguments `play` plays the suite.
pub fn main(adapter: fn(), play: fn(&Suite)) {
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

    /// Plays the scenarios that these options of the suite choose, on `dlock serve` with DLOCK_THROUGH=serve. Returns whether all passed. After a failure while the
    /// machine was late they are played again, twice at most.
    pub fn passes(&self, options: &[&str]) -> bool {
        for _ in 0..2 {
            let start = Stopwatch::start();
            if self.passes_once(options) {
                return true;
            }
            if !start.was_late() {
                return false;
            }
            skipped(&format!("conformance: {options:?} failed while the machine was {:.1?} late", start.stalled()));
        }
        self.passes_once(options)
    }

    fn passes_once(&self, options: &[&str]) -> bool {
        let mut suite = Command::new(&self.python);
        suite.arg(format!("{}/tests/conformance/run.py", self.root)).args(options);
        if let Some(through) = std::env::var_os("DLOCK_THROUGH").filter(|through| !through.is_empty()) {
            suite.arg("--through").arg(through);
        }
        suite.arg("--").arg(std::env::current_exe().expect("this program")).arg("adapter");
        suite.env("PYTHONDONTWRITEBYTECODE", "1");
        suite.status().expect("it starts").success()
    }
}
