//! `redis-cli` as a person uses it: commands are typed in, and what it prints is read.

use std::io::{Read, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::time::Instant;

use super::page::root;
use crate::support::wait::PATIENCE;

/// A program that reads what is typed. The program is killed when the value is dropped.
pub struct Terminal {
    child: Child,
    input: ChildStdin,
    chunks: Receiver<Vec<u8>>,
    /// Printed, and not taken yet.
    printed: Vec<u8>,
}

impl Terminal {
    /// `redis-cli` without a prompt.
    pub fn cli(port: u16, options: &[String]) -> Self {
        let mut command = Command::new(cli_path());
        command.args(["-p", &port.to_string(), "--no-raw", "--show-pushes", "yes"]).args(options);
        Self::start(command)
    }

    /// `redis-cli` with a prompt and hints, on a terminal that is wide enough for them.
    pub fn interactive_cli(port: u16) -> Self {
        let cli = cli_path().display().to_string();
        let mut command = Command::new("script");
        command.args(["-qec", &format!("stty cols 200 rows 24 && exec '{cli}' -p {port}"), "/dev/null"]);
        command.env("TERM", "xterm");
        Self::start(command)
    }

    fn start(mut command: Command) -> Self {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().unwrap_or_else(|e| panic!("cannot start {:?}: {e}", command.get_program()));
        let input = child.stdin.take().expect("a pipe");
        let mut output = child.stdout.take().expect("a pipe");
        let (sender, chunks) = mpsc::channel();
        std::thread::spawn(move || {
            let mut chunk = [0; 4096];
            while let Ok(count @ 1..) = output.read(&mut chunk) {
                if sender.send(chunk[..count].to_vec()).is_err() {
                    return;
                }
            }
        });
        Self { child, input, chunks, printed: Vec::new() }
    }

    pub fn type_in(&mut self, text: &str) {
        self.input.write_all(text.as_bytes()).and_then(|()| self.input.flush()).expect("a program that reads");
    }

    /// Types a command, and then something that `redis-cli` itself objects to as soon as it has the reply.
    pub fn enter(&mut self, command: &str) {
        self.type_in(&format!("{command}\n\"\n"));
    }

    /// The reply to the last command.
    #[track_caller]
    pub fn reply(&mut self) -> String {
        self.until("Invalid argument(s)\n")
    }

    /// Returns what the terminal prints until `end` appears.
    #[track_caller]
    pub fn until(&mut self, end: &str) -> String {
        let start = Instant::now();
        loop {
            let found = self.printed.windows(end.len()).position(|window| window == end.as_bytes());
            if let Some(at) = found {
                let rest = self.printed.split_off(at + end.len());
                let mut text = std::mem::replace(&mut self.printed, rest);
                text.truncate(at);
                return String::from_utf8_lossy(&text).into_owned();
            }
            match self.chunks.recv_timeout(PATIENCE.saturating_sub(start.elapsed())) {
                Ok(chunk) => self.printed.extend(chunk),
                Err(why) => panic!("no {end:?}, {why}, in:\n{}", String::from_utf8_lossy(&self.printed)),
            }
        }
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A script of `scripts/`, for the server under test.
pub fn script(name: &str) -> Command {
    let mut command = Command::new(root().join("scripts").join(name));
    command.env("SERVER", std::env::var_os("DLOCK_SERVER").unwrap_or_default());
    command
}

/// The `redis-cli` that belongs to the server under test.
fn cli_path() -> PathBuf {
    let found = script("server").arg("cli").output().expect("scripts/server");
    assert!(found.status.success(), "{}", String::from_utf8_lossy(&found.stderr));
    PathBuf::from(String::from_utf8_lossy(&found.stdout).trim())
}
