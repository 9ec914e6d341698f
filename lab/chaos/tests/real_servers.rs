//! The tool on real servers, for a few seconds: `make chaos` is the long one. `DLOCK_SERVER` and `DLOCK_MODULE` name the
//! server and the module, as for the other tests.
#![allow(clippy::expect_used, reason = "a test that panics has failed, which is what it is for")]

use std::process::{Command, Output};

fn chaos(line: &str) -> Output {
    Command::new(env!("CARGO_BIN_EXE_dlock-chaos")).args(line.split(' ')).output().expect("a tool that starts")
}

#[track_caller]
fn is_good(line: &str) -> String {
    let output = chaos(line);
    let [out, err] = [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes).into_owned());
    assert!(output.status.success(), "{line}: {}\n{out}{err}", output.status);
    out
}

#[test]
fn histories_of_two_locks_are_linearizable() {
    let out = is_good("histories --seed 11 --seconds 4");
    let count: usize = out.split_whitespace().nth(1).expect("a number").parse().expect("a number");
    assert!(count > 0, "{out}");
}

#[test]
fn locks_outlive_a_server_that_is_killed() {
    let out = is_good("run --seed 12 --seconds 6 --scenario restart");
    assert!(out.contains("server killed 1") && out.contains("violations 0"), "{out}");
}
