//! The production pages are played on real servers, from machines without anything: their files and their commands.

use std::path::{Path, PathBuf};
use std::process::Command;

use dlock_testkit::process::module_path;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// A program as `scripts/server` finds it.
fn program(what: &[&str]) -> String {
    let mut script = Command::new(root().join("scripts/server"));
    script.args(what).env("SERVER", std::env::var_os("DLOCK_SERVER").unwrap_or_default());
    let found = script.output().expect("scripts/server");
    assert!(found.status.success(), "{}", String::from_utf8_lossy(&found.stderr));
    String::from_utf8_lossy(&found.stdout).trim().to_owned()
}

/// Plays a page, and checks the number of blocks and of hosts.
#[track_caller]
fn play(page: &str, blocks: usize, hosts: usize) {
    let played = Command::new(root().join("tests/production/play"))
        .arg(root().join("docs").join(page))
        .env("PLAY_SERVER", program(&[]))
        .env("PLAY_CLI", program(&["cli"]))
        .env("PLAY_MODULE", module_path())
        .env("PLAY_DLOCK", env!("CARGO_BIN_EXE_dlock"))
        .output()
        .expect("tests/production/play");
    let said = String::from_utf8_lossy(&played.stdout);
    assert!(played.status.success(), "{said}{}", String::from_utf8_lossy(&played.stderr));
    assert!(said.contains(&format!(": {blocks} blocks played on {hosts} hosts")), "{said}");
}

#[test]
fn one_server_comes_up_keeps_its_locks_and_is_rid_of_the_module() {
    play("production-single.md", 5, 1);
}

#[test]
fn servers_under_sentinel_come_up_and_hand_over() {
    play("production-sentinel.md", 6, 3);
}

#[test]
fn a_cluster_comes_up_and_hands_over() {
    play("production-cluster.md", 7, 6);
}
