//! The commands of docs/serve.md, run as a new user would.

use std::path::{Path, PathBuf};
use std::process::{Child, Command};

use dlock_testkit::process::free_port;
use dlock_testkit::redis::Value;
use dlock_testkit::skip::skipped;
use dlock_testkit::{Client, soon};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Returns the code blocks of the page that are in this language.
fn blocks(language: &str) -> Vec<String> {
    let page = std::fs::read_to_string(root().join("docs/serve.md")).expect("docs/serve.md");
    let fenced = page.split("\n```").skip(1).step_by(2);
    fenced.filter_map(|block| block.strip_prefix(&format!("{language}\n"))).map(str::to_owned).collect()
}

/// Returns a shell that runs a script with `dlock` on its path, and ends at the first command that fails.
fn shell(script: &str) -> Command {
    let path = Path::new(env!("CARGO_BIN_EXE_dlock")).parent().expect("a folder").display().to_string();
    let mut command = Command::new("bash");
    command.args(["-euc", script]).env_remove("DLOCK_URL");
    command.env("PATH", format!("{path}:{}", std::env::var("PATH").unwrap_or_default()));
    dlock_testkit::process::die_with_the_tests(&mut command);
    command
}

/// A program of the page that runs on. Killed when this is dropped.
struct Running(Child);

impl Running {
    fn start(line: &str) -> Running {
        Running(dlock_testkit::process::spawn(shell(&format!("exec {line}"))))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn listens(port: u16) {
    soon("the server listens", || std::net::TcpStream::connect(("127.0.0.1", port)).is_ok());
}

#[test]
fn the_commands_of_the_page_take_and_release_a_lock() {
    if Command::new("redis-cli").arg("--version").output().is_err() {
        return skipped("there is no redis-cli");
    }
    let start = blocks("sh").into_iter().next().expect("a block of sh");
    let port = free_port();
    // The first line starts the server in the background. The others are commands for it.
    let start = start.replace("6380", &port.to_string());
    let (serve, rest) = start.split_once('\n').expect("two lines");
    let _server = Running::start(&format!("{} --port {port}", serve.trim_end_matches(" &")));
    listens(port);
    let output = shell(rest).output().expect("bash");
    assert!(output.status.success(), "{output:?}");
    let said = String::from_utf8_lossy(&output.stdout);
    let lines: Vec<_> = said.lines().collect();
    assert!(lines[0].parse::<u64>().is_ok() && lines.last() == Some(&"1"), "a token first, 1 last: {said}");
}

#[test]
fn the_three_servers_of_the_page_and_their_agent_grant_a_lock() {
    let home = tempfile::tempdir().expect("a folder");
    let password = home.path().join("password");
    std::fs::write(&password, "secret\n").expect("a file");
    let agent = free_port();
    let mut quorum = blocks("sh").into_iter().nth(1).expect("a second block of sh");
    let mut replace = |from: &str, to: &str| {
        assert!(quorum.contains(from), "no {from}: {quorum}");
        quorum = quorum.replace(from, to);
    };
    replace("\\\n", "");
    replace("/etc/dlock/password", password.to_str().expect("UTF-8"));
    // The login of the agent, as the page says below the block.
    replace("redis://", "redis://default:secret@");
    replace("unix:/run/dlock.sock", &format!("127.0.0.1:{agent}"));
    // The servers count when they have run for the longest lease.
    replace("60s", "2s");
    for machine in ["10.0.0.1:6380", "10.0.0.2:6380", "10.0.0.3:6380"] {
        replace(machine, &format!("127.0.0.1:{}", free_port()));
    }
    let lines: Vec<_> = quorum.lines().collect();
    assert_eq!(lines.len(), 4, "three servers and an agent: {quorum}");
    let mut running: Vec<_> = lines.into_iter().map(Running::start).collect();
    listens(agent);
    let mut client = Client::connect(agent).expect("a connection");
    let mut granted = || client.attempt("DLOCK.ACQUIRE job:1 alice PX 1000").is_ok_and(|reply| reply != Value::Nil);
    soon("the quorum grants a lock", &mut granted);
    // The lock survives the end of one server.
    drop(running.remove(0));
    soon("the other two grant a lock", &mut granted);
    // A server alone is no majority of three.
    drop(running.remove(0));
    let error = client.error("DLOCK.ACQUIRE job:2 alice PX 1000");
    assert!(error.contains("too few servers answer"), "{error}");
}
