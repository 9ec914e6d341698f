//! The programs in `examples/` do what they say, on a real server.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    missing_docs,
    reason = "a test that panics has failed, which is what it is for"
)]

use std::collections::BTreeSet;
use std::process::Command;

use dlock_testkit::Server;
use dlock_testkit::process::die_with_the_tests;

const EXAMPLES: [(&str, &str); 4] = [
    ("hold_a_lock", "the report is written, with a fencing token: true\nreleased\n"),
    ("without_tokio", "reads\nnobody writes meanwhile\nwrites\n"),
    ("elect_a_leader", "at first: nobody\nafter the election: node-1\nafter the resignation: nobody\n"),
    ("limit_tasks", "never more than two at a time: true\n"),
];

#[test]
fn examples_print_what_they_should() {
    let server = Server::start();
    // `cargo test` puts the examples next to the folder of this program.
    let programs = std::env::current_exe().unwrap().ancestors().nth(2).unwrap().join("examples");
    for (name, expected) in EXAMPLES {
        let mut command = Command::new(programs.join(name));
        command.env("DLOCK_URL", format!("redis://127.0.0.1:{}", server.port()));
        die_with_the_tests(&mut command);
        let output = command.output().unwrap_or_else(|error| panic!("{name}: {error}; run `cargo build --examples`"));
        let told = String::from_utf8_lossy(&output.stderr);
        assert_eq!(String::from_utf8_lossy(&output.stdout), expected, "{name}: {told}");
        assert!(output.status.success(), "{name}: {told}");
    }
}

#[test]
fn every_example_is_run() {
    let folder = std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/examples")).unwrap();
    let files = folder.map(|file| file.unwrap().path().file_stem().unwrap().to_string_lossy().into_owned());
    assert_eq!(files.collect::<BTreeSet<_>>(), EXAMPLES.map(|(name, _)| name.to_owned()).into());
}
