//! The server as a process.

use std::path::Path;
use std::process::Command;

use dlock_testkit::{Client, Serve, soon};

/// Starts a server with these options.
#[track_caller]
pub fn serve(options: &[&str]) -> Serve {
    Serve::start(Path::new(env!("CARGO_BIN_EXE_dlock")), options)
}

/// A server, and clients of it.
#[track_caller]
pub fn with_clients<const N: usize>() -> (Serve, [Client; N]) {
    let server = serve(&[]);
    let clients = std::array::from_fn(|_| server.client());
    (server, clients)
}

/// Waits until this number of requests wait.
#[track_caller]
pub fn waiting(server: &Serve, count: u64) {
    let mut client = server.client();
    soon("they wait", || client.text("INFO dlock").contains(&format!("dlock_waiters:{count}\r\n")));
}

#[test]
fn the_server_says_that_it_is_memory_only() {
    let server = serve(&[]);
    soon("it says so", || server.log().contains("memory only"));
    assert!(server.client().text("INFO server").contains("dlock_serve:memory only"));
}

#[test]
fn a_signal_ends_the_server() {
    let mut server = serve(&[]);
    assert_eq!(server.stop(), Some(0));
    soon("it says so", || server.log().contains("has stopped"));
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
    soon("it listens", || {
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
