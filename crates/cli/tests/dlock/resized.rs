//! `dlock top` on a terminal that changes its size. Without tmux, a key can follow the signal at once.

use std::fs::File;
use std::io::{Read, Write};
use std::process::{Command, Stdio};
use std::time::Instant;

use dlock_testkit::{Server, wait::PATIENCE};
use nix::pty::{Winsize, openpty};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

#[test]
fn top_loses_no_key_right_after_a_change_of_size() {
    const KEYS: usize = 400;
    let server = Server::start();
    let size = Winsize { ws_row: 30, ws_col: 100, ws_xpixel: 0, ws_ypixel: 0 };
    let pty = openpty(Some(&size), None).expect("a terminal");
    let end = || Stdio::from(pty.slave.try_clone().expect("the other end"));
    let url = format!("redis://127.0.0.1:{}", server.port());
    let mut command = Command::new(env!("CARGO_BIN_EXE_dlock"));
    // The interval is long, so that only keys change the screen.
    command.args(["top", "--interval", "1h"]).env("DLOCK_URL", &url);
    command.stdin(end()).stdout(end()).stderr(end());
    let mut top = command.spawn().expect("a process");
    let process = Pid::from_raw(top.id().cast_signed());
    let (mut output, mut keys) = (File::from(pty.master.try_clone().expect("a file")), File::from(pty.master));
    let (screens, screen) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let mut part = [0; 4096];
        while let Ok(read @ 1..) = output.read(&mut part) {
            let _ = screens.send(String::from_utf8_lossy(&part[..read]).into_owned());
        }
    });
    let mut seen = String::new();
    // The key `?` opens and closes the help. The last line of the screen tells which of both is shown.
    let mut shows = |what: &str, text: &str| {
        let until = Instant::now() + PATIENCE;
        while !seen.contains(text) {
            let rest = until.saturating_duration_since(Instant::now());
            seen += &screen.recv_timeout(rest).unwrap_or_else(|_| panic!("{what}: no {text} in {seen}"));
        }
        seen.clear();
    };
    shows("at the start", "sorted by");
    for key in 0..KEYS {
        kill(process, Signal::SIGWINCH).expect("a process of ours");
        keys.write_all(b"?").expect("a terminal");
        shows(&format!("after key {key}"), if key % 2 == 0 { "Esc: back" } else { "sorted by" });
    }
    keys.write_all(b"q").expect("a terminal");
    assert!(top.wait().expect("an end").success());
}
