//! docs/serve.md, played as a new user would.

use std::path::{Path, PathBuf};
use std::process::Command;

use dlock_testkit::process::free_port;
use dlock_testkit::skip::skipped;
use dlock_testkit::soon;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The blocks of the page in this language.
fn blocks(language: &str) -> Vec<String> {
    let page = std::fs::read_to_string(root().join("docs/serve.md")).expect("docs/serve.md");
    let fenced = page.split("\n```").skip(1).step_by(2);
    fenced.filter_map(|block| block.strip_prefix(&format!("{language}\n"))).map(str::to_owned).collect()
}

/// A shell that has `dlock` on its path.
fn shell(script: &str) -> Command {
    let path = Path::new(env!("CARGO_BIN_EXE_dlock")).parent().expect("a folder").display().to_string();
    let mut command = Command::new("bash");
    command.args(["-euc", script]).env_remove("DLOCK_URL");
    command.env("PATH", format!("{path}:{}", std::env::var("PATH").unwrap_or_default()));
    dlock_testkit::process::die_with_the_tests(&mut command);
    command
}

#[test]
fn from_the_page_to_a_lock() {
    let [start, three, ..] = &blocks("sh")[..] else { panic!("two blocks") };
    let port = free_port();
    // The server runs in the background while the rest is typed.
    let start = start.replace("6380", &port.to_string());
    let (serve, rest) = start.split_once('\n').expect("two lines");
    let mut server =
        dlock_testkit::process::spawn(shell(&format!("exec {} --port {port}", serve.trim_end_matches(" &"))));
    soon("it listens", || std::net::TcpStream::connect(("127.0.0.1", port)).is_ok());
    match shell(rest).output() {
        Ok(output) if output.status.code() != Some(127) => {
            let said = String::from_utf8_lossy(&output.stdout);
            let lines: Vec<_> = said.lines().collect();
            assert!(lines[0].parse::<u64>().is_ok() && lines.last() == Some(&"1"), "{said}");
        }
        _ => skipped("there is no redis-cli"),
    }
    let _ = server.kill();
    let _ = server.wait();
    assert!(three.contains("dlock agent") && three.matches("dlock serve").count() == 3, "{three}");
}
