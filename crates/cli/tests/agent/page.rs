//! docs/agent.md, played as a new user would: from the page to a lock over three servers in Python.

use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;

use dlock_testkit::process::free_port;
use dlock_testkit::skip::skipped;
use dlock_testkit::soon;

use crate::process::{Agent, freed, servers};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The blocks of the page in this language.
fn blocks(language: &str) -> Vec<String> {
    let page = std::fs::read_to_string(root().join("docs/agent.md")).expect("docs/agent.md");
    let fenced = page.split("\n```").skip(1).step_by(2);
    fenced.filter_map(|block| block.strip_prefix(&format!("{language}\n"))).map(str::to_owned).collect()
}

#[test]
fn from_the_page_to_a_lock_over_three_servers_in_python() {
    let servers = servers(3);
    let home = tempfile::tempdir().unwrap();
    let socket = home.path().join("dlock.sock").display().to_string();
    let here = |block: &str| {
        let mut block = block.replace("/run/dlock.sock", &socket);
        for (name, server) in ["a", "b", "c"].iter().zip(&servers) {
            block = block.replace(&format!("redis://{name} "), &format!("redis://127.0.0.1:{} ", server.port()));
        }
        block
    };
    let [start, try_it] = <[String; 2]>::try_from(blocks("sh")).expect("two blocks");
    // The servers are new, and keep their locks on disk.
    let port = free_port();
    let start = format!("exec {} --persistent --listen 127.0.0.1:{port}", here(start.trim()));
    let path = Path::new(env!("CARGO_BIN_EXE_dlock")).parent().expect("a folder").display().to_string();
    let mut command = Command::new("sh");
    command.args(["-c", &start]).env_remove("DLOCK_URL");
    command.env("PATH", format!("{path}:{}", std::env::var("PATH").unwrap_or_default()));
    let _agent = Agent::run(command, port);
    soon("it listens on the socket", || UnixStream::connect(&socket).is_ok());
    match Command::new("sh").args(["-ec", &here(&try_it)]).output() {
        Ok(output) if output.status.code() != Some(127) => {
            let said = String::from_utf8_lossy(&output.stdout);
            let lines: Vec<_> = said.lines().collect();
            assert!(lines[0].parse::<u64>().is_ok() && lines.contains(&"exclusive"), "{said}");
            assert_eq!(lines.last(), Some(&"1"), "{said}");
        }
        _ => skipped("there is no redis-cli"),
    }
    let [program] = <[String; 1]>::try_from(blocks("python")).expect("one block");
    let python = root().join("target/python/bin/python");
    if !python.exists() {
        return skipped("the environment of the Python package is not there (scripts/python make)");
    }
    let output = Command::new(python).args(["-c", &here(&program)]).output().expect("Python");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(said.starts_with("the fencing token is "), "{said}{}", String::from_utf8_lossy(&output.stderr));
    freed(&servers, "job:1");
    freed(&servers, "job:2");
}
