//! Plays the scenarios in this directory, and checks their output.
//!
//! A scenario is a text file with comments and steps. A step has one or more commands, a line `----`, and their output.
//! An empty line ends the step:
//!
//! ```text
//! # Bob waits until Alice's lease has run out.
//! at 0
//! acquire alice PX 1000
//! acquire bob PX 1000
//! ----
//! t1
//! nil
//!
//! at 1000
//! acquire bob PX 1000
//! ----
//! t2
//! ```
//!
//! `interpreter/mod.rs` has the list of commands, and what each prints. Times are milliseconds since the scenario
//! began. Tokens are named t1, t2, … in the order in which they were granted.
//!
//! `UPDATE_SCENARIOS=1 cargo test -p dlock-core --test scenarios` rewrites the output; read the difference before you
//! keep it.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a test that panics has failed, which is what it is for"
)]

mod interpreter;
mod options;
mod script;
mod tokens;

use std::path::{Path, PathBuf};
use std::{env, fs};

use interpreter::Interpreter;
use script::Script;

#[test]
fn every_scenario_prints_the_output_in_its_file() {
    let scenarios = scenarios();
    // Without scenarios, the test would pass and check nothing.
    assert!(scenarios.len() >= 30, "only {} scenarios found", scenarios.len());
    let failures: Vec<String> = scenarios.iter().filter_map(|path| check(path).err()).collect();
    assert!(failures.is_empty(), "\n{}", failures.join("\n"));
}

#[test]
fn a_scenario_with_another_output_fails() {
    let script = Script::parse("# Nobody is there.\nacquire alice\nacquire bob\n----\nt1\nt2\n").unwrap();
    let played = script.play(&mut Interpreter::default());
    assert_eq!(played.to_string(), "# Nobody is there.\nacquire alice\nacquire bob\n----\nt1\nnil\n");
    assert_eq!(script.difference(&played).unwrap(), "line 5: t1 | t2\n        is t1 | nil");
}

#[test]
fn a_step_without_a_line_of_dashes_is_an_error() {
    assert_eq!(Script::parse("acquire alice\n\n").unwrap_err(), "line 1: a step without ----");
}

/// Plays the scenario in a file. Returns the first step with another output than the file has; with
/// `UPDATE_SCENARIOS`, writes the output to the file instead.
fn check(path: &Path) -> Result<(), String> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let text = fs::read_to_string(path).map_err(|error| format!("{name}: {error}"))?;
    let script = Script::parse(&text).map_err(|error| format!("{name}, {error}"))?;
    let played = script.play(&mut Interpreter::default());
    if env::var_os("UPDATE_SCENARIOS").is_some() {
        return fs::write(path, played.to_string()).map_err(|error| format!("{name}: {error}"));
    }
    script.difference(&played).map_or(Ok(()), |difference| Err(format!("{name}, {difference}")))
}

fn scenarios() -> Vec<PathBuf> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/scenarios");
    let entries = fs::read_dir(directory).expect("the directory of this file");
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.expect("a readable directory").path()).collect();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "txt"));
    paths.sort();
    paths
}
