//! `dlock serve` as a process: its log, its signals, its socket and its options.

use std::path::Path;
use std::process::Command;

use dlock_testkit::{Client, Serve, soon};

/// Starts a server with these options.
#[track_caller]
pub fn serve(options: &[&str]) -> Serve {
    Serve::start(Path::new(env!("CARGO_BIN_EXE_dlock")), options)
}

/// Starts a server without options, and connects clients to it.
#[track_caller]
pub fn with_clients<const N: usize>() -> (Serve, [Client; N]) {
    let server = serve(&[]);
    let clients = std::array::from_fn(|_| server.client());
    (server, clients)
}

/// Waits until exactly this number of requests wait in the queues of the server.
#[track_caller]
pub fn waiting(server: &Serve, count: u64) {
    let (mut client, line) = (server.client(), format!("dlock_waiters:{count}\r\n"));
    soon(&format!("{count} requests wait"), || client.text("INFO dlock").contains(&line));
}

#[test]
fn the_server_says_that_it_is_memory_only() {
    let server = serve(&[]);
    soon("the log says so", || server.log().contains("memory only"));
    assert!(server.client().text("INFO server").contains("dlock_serve:memory only"));
}

#[test]
fn a_signal_ends_the_server() {
    let mut server = serve(&[]);
    assert_eq!(server.stop(), Some(0));
    soon("the log says so", || server.log().contains("has stopped"));
}

#[test]
fn a_unix_socket_answers_and_only_its_user_may_open_it() {
    let home = tempfile::tempdir().unwrap();
    let socket = home.path().join("dlock.sock");
    let mut command = Command::new(env!("CARGO_BIN_EXE_dlock"));
    command.args(["serve", "--listen", &format!("unix:{}", socket.display())]);
    dlock_testkit::process::die_with_the_tests(&mut command);
    let mut child = dlock_testkit::process::spawn(command);
    let mut stream = None;
    soon("the server listens", || {
        stream = std::os::unix::net::UnixStream::connect(&socket).ok();
        stream.is_some()
    });
    let mut stream = stream.unwrap();
    let mut said = [0; 7];
    std::io::Write::write_all(&mut stream, b"PING\r\n").unwrap();
    std::io::Read::read_exact(&mut stream, &mut said).unwrap();
    assert_eq!(&said, b"+PONG\r\n");
    let mode = std::os::unix::fs::PermissionsExt::mode(&std::fs::metadata(&socket).unwrap().permissions());
    assert_eq!(mode & 0o777, 0o600);
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn options_are_checked_at_the_start() {
    for (options, says) in [
        (&["--set", "max-hold"][..], "NAME=VALUE"),
        (&["--set", "max-hold=-1"], "between 0 and"),
        (&["--set", "no-such=1"], "there is no setting"),
        (&["--listen", "0.0.0.0:0"], "other machines"),
        (&["--port", "0", "--listen", "127.0.0.1:0"], "cannot be used with"),
    ] {
        let output = Command::new(env!("CARGO_BIN_EXE_dlock")).arg("serve").args(options).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && said.contains(says), "{options:?}: {said}");
    }
}
