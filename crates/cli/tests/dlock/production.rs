//! Plays the files and commands of the production pages on real servers, on machines that have nothing yet.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

use dlock_testkit::process::module_path;
use dlock_testkit::skip::skipped;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Returns the path that `scripts/server` prints for a server: its own, or with the argument `cli` that of its client.
fn program(server: &OsStr, what: &[&str]) -> String {
    let mut script = Command::new(root().join("scripts/server"));
    script.args(what).env("SERVER", server);
    let found = script.output().expect("scripts/server");
    assert!(found.status.success(), "{}", String::from_utf8_lossy(&found.stderr));
    String::from_utf8_lossy(&found.stdout).trim().to_owned()
}

/// Plays a page on the server of the tests, and checks the number of blocks and of hosts.
#[track_caller]
fn play(page: &str, blocks: usize, hosts: usize) {
    play_on(&std::env::var_os("DLOCK_SERVER").unwrap_or_default(), page, blocks, hosts);
}

#[track_caller]
fn play_on(server: &OsStr, page: &str, blocks: usize, hosts: usize) {
    let played = Command::new(root().join("tests/production/play"))
        .arg(root().join("docs").join(page))
        .env("PLAY_SERVER", program(server, &[]))
        .env("PLAY_CLI", program(server, &["cli"]))
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
    play("production-sentinel.md", 7, 3);
}

/// Sentinel of Valkey 9 has the primary hand over, and needs more permissions for that.
#[test]
fn servers_under_a_sentinel_that_coordinates_come_up_and_hand_over() {
    let server = root().join("target/servers/valkey-newest/valkey-server");
    if !server.exists() {
        return skipped("no Valkey 9 here (make servers fetches it)");
    }
    play_on(server.as_os_str(), "production-sentinel.md", 7, 3);
}

#[test]
fn a_cluster_comes_up_and_hands_over() {
    play("production-cluster.md", 7, 6);
}
