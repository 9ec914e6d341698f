//! The commands of docs/serve.md, run as a new user would.

use std::path::{Path, PathBuf};
use std::process::Command;

use dlock_testkit::process::free_port;
use dlock_testkit::skip::skipped;
use dlock_testkit::soon;

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

#[test]
fn the_commands_of_the_page_take_and_release_a_lock() {
    let [start, quorum, ..] = &blocks("sh")[..] else { panic!("fewer than two blocks of sh") };
    let port = free_port();
    // The first line starts the server in the background. The others are commands for it.
    let start = start.replace("6380", &port.to_string());
    let (serve, rest) = start.split_once('\n').expect("two lines");
    let mut server =
        dlock_testkit::process::spawn(shell(&format!("exec {} --port {port}", serve.trim_end_matches(" &"))));
    soon("the server listens", || std::net::TcpStream::connect(("127.0.0.1", port)).is_ok());
    match shell(rest).output() {
        // 127: the shell has not found redis-cli.
        Ok(output) if output.status.code() != Some(127) => {
            let said = String::from_utf8_lossy(&output.stdout);
            let lines: Vec<_> = said.lines().collect();
            assert!(lines[0].parse::<u64>().is_ok() && lines.last() == Some(&"1"), "a token first, 1 last: {said}");
        }
        _ => skipped("there is no redis-cli"),
    }
    let _ = server.kill();
    let _ = server.wait();
    assert!(quorum.contains("dlock agent") && quorum.matches("dlock serve").count() == 3, "{quorum}");
}
