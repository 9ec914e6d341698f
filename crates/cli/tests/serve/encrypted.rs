//! Clients that speak TLS.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use dlock_testkit::certified::Authority;
use dlock_testkit::process::{die_with_the_tests, free_port, signal, spawn};
use dlock_testkit::{Serve, soon};

use crate::process::serve;

const HOST: &str = "127.0.0.1";

/// Starts a server with a certificate. If `asks`, the server asks clients for one, too.
fn encrypted(authority: &Authority, asks: bool) -> Serve {
    let ca = authority.file("ca.pem").display().to_string();
    let options = ["--tls-ca", &ca];
    encrypted_with(authority, if asks { &options } else { &[] })
}

fn encrypted_with(authority: &Authority, options: &[&str]) -> Serve {
    authority.sign(HOST);
    let file = |name: &str| authority.file(name).display().to_string();
    let (cert, key) = (file("127.0.0.1.crt"), file("127.0.0.1.key"));
    serve(&[&["--tls-cert", &cert, "--tls-key", &key], options].concat())
}

/// Runs the command against the server; `own` is the name of a certificate.
fn dlock(server: &Serve, authority: &Authority, own: Option<&str>, words: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_dlock"));
    command.arg("-s").arg(format!("rediss://{HOST}:{}", server.port()));
    command.arg("--cacert").arg(authority.file("ca.pem"));
    if let Some(own) = own {
        authority.sign(own);
        command.arg("--cert").arg(authority.file(&format!("{own}.crt")));
        command.arg("--key").arg(authority.file(&format!("{own}.key")));
    }
    command.args(words).output().expect("it starts")
}

#[track_caller]
fn says(output: &Output, what: &str) {
    let said = [&output.stdout[..], &output.stderr].concat();
    let said = String::from_utf8_lossy(&said);
    assert!(said.contains(what), "{said}");
}

#[test]
fn a_client_locks_over_tls() {
    let authority = Authority::new();
    let server = encrypted(&authority, false);
    says(&dlock(&server, &authority, None, &["run", "job", "--", "echo", "ran"]), "ran\n");
    // Requests and replies take several records of TLS.
    let name = "k".repeat(50_000);
    says(&dlock(&server, &authority, None, &["run", &name, "--", "echo", "ran"]), "ran\n");
    let stranger = Authority::new();
    says(&dlock(&server, &stranger, None, &["info", "job"]), "invalid peer certificate");
}

#[test]
fn a_client_shows_a_certificate_if_it_is_asked_to() {
    let authority = Authority::new();
    let server = encrypted(&authority, true);
    says(&dlock(&server, &authority, Some("worker"), &["run", "job", "--", "echo", "ran"]), "ran\n");
    says(&dlock(&server, &authority, None, &["ls"]), "CertificateRequired");
}

#[test]
fn a_client_without_tls_holds_up_nobody() {
    let authority = Authority::new();
    let server = encrypted(&authority, false);
    let mut silent = TcpStream::connect((HOST, server.port())).unwrap();
    let mut plain = TcpStream::connect((HOST, server.port())).unwrap();
    plain.write_all(b"PING\r\n").unwrap();
    let mut said = Vec::new();
    let _ = plain.read_to_end(&mut said);
    assert!(!said.starts_with(b"+PONG"));
    says(&dlock(&server, &authority, None, &["run", "job", "--", "echo", "ran"]), "ran\n");
    silent.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    silent.read_to_end(&mut said).expect("it is closed");
}

#[test]
fn a_handshake_without_end_is_refused() {
    let authority = Authority::new();
    let server = encrypted(&authority, false);
    let mut greedy = TcpStream::connect((HOST, server.port())).unwrap();
    greedy.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    // A message of the handshake that would have 65,520 bytes.
    let record = [&[22, 3, 1, 0x40, 0][..], &[1, 0, 0xff, 0xf0], &[0; 0x3ffc]].concat();
    let more = [&[22, 3, 1, 0x40, 0][..], &[0; 0x4000]].concat();
    let _ = greedy.write_all(&[record, more.clone(), more].concat());
    let end = greedy.read_to_end(&mut Vec::new());
    assert!(!matches!(end, Err(error) if error.kind() == ErrorKind::WouldBlock), "it is still connected");
}

#[test]
fn a_crowd_of_handshakes_holds_up_nobody() {
    let authority = Authority::new();
    let file = |name: &str| authority.file(name).display().to_string();
    authority.sign(HOST);
    let socket = file("dlock.sock");
    let address = format!("{HOST}:{}", free_port());
    let mut command = Command::new(env!("CARGO_BIN_EXE_dlock"));
    command.args(["serve", "--listen", &format!("unix:{socket}"), "--listen", &address]);
    command.args(["--tls-cert", &file("127.0.0.1.crt"), "--tls-key", &file("127.0.0.1.key")]);
    die_with_the_tests(&mut command);
    let mut child = spawn(command);
    soon("it listens", || UnixStream::connect(&socket).is_ok());
    let [mut other, mut watcher] = [(); 2].map(|()| UnixStream::connect(&socket).unwrap());
    let mut are_connected = |count: usize| {
        let said = ask(&mut watcher, "INFO clients\r\n", || {});
        said.contains(&format!("connected_clients:{count}\r\n"))
    };
    // A busy machine may stop the test while the server goes on, so one success of ten is enough.
    let is_served_first = (0..10).any(|_| {
        let mut crowd: Vec<_> = (0..CROWD).map(|_| TcpStream::connect(&address).unwrap()).collect();
        soon("they are connected", || are_connected(CROWD + 2));
        signal(&child, libc::SIGSTOP);
        let state = format!("/proc/{}/stat", child.id());
        soon("it stands still", || std::fs::read_to_string(&state).unwrap().contains(") T "));
        crowd.iter_mut().for_each(|stream| stream.write_all(&hello()).unwrap());
        assert_eq!(ask(&mut other, "PING\r\n", || signal(&child, libc::SIGCONT)), "+PONG\r\n");
        let has_answer = |stream: &TcpStream| {
            stream.set_nonblocking(true).unwrap();
            stream.peek(&mut [0]).is_ok()
        };
        let is_served_first = !crowd.iter().all(has_answer);
        drop(crowd);
        soon("they are gone", || are_connected(2));
        is_served_first
    });
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(is_served_first, "the server agreed on keys with all {CROWD} clients before it served the other");
}

const CROWD: usize = 300;

/// Sends a command, does something else, and returns the reply.
fn ask(client: &mut UnixStream, command: &str, between: impl FnOnce()) -> String {
    client.write_all(command.as_bytes()).unwrap();
    between();
    let mut said = [0; 4096];
    let count = client.read(&mut said).unwrap();
    String::from_utf8_lossy(&said[..count]).into_owned()
}

/// Returns a ClientHello of TLS 1.2.
fn hello() -> Vec<u8> {
    let extensions = [
        &[0, 10, 0, 4, 0, 2, 0, 29][..], // The group x25519.
        &[0, 13, 0, 4, 0, 2, 4, 3],      // Signatures by ECDSA with SHA-256.
    ];
    let extensions = extensions.concat();
    let after = [&[0, 0, 2, 0xc0, 0x2b, 1, 0, 0, extensions.len() as u8][..], &extensions].concat();
    let body = [&[3, 3][..], &[7; 32], &after].concat();
    let message = [&[1, 0, 0, body.len() as u8][..], &body].concat();
    [&[22, 3, 1, 0, message.len() as u8][..], &message].concat()
}

#[test]
fn clients_that_do_not_finish_the_handshake_keep_nobody_out() {
    let authority = Authority::new();
    let server = encrypted_with(&authority, &["--max-clients", "3"]);
    let mut silent: Vec<_> = (0..3).map(|_| TcpStream::connect((HOST, server.port())).unwrap()).collect();
    let began = Instant::now();
    says(&dlock(&server, &authority, None, &["run", "job", "--", "echo", "ran"]), "ran\n");
    silent.remove(0).read_to_end(&mut Vec::new()).expect("the oldest has gone");
    // A handshake may take longer (10 s): the oldest has gone to make room.
    assert!(began.elapsed() < Duration::from_secs(8), "{:?}", began.elapsed());
}

#[test]
fn a_new_certificate_is_taken_without_a_restart() {
    let authority = Authority::new();
    let server = encrypted(&authority, false);
    let new = Authority::new();
    new.sign(HOST);
    for name in ["127.0.0.1.crt", "127.0.0.1.key"] {
        std::fs::copy(new.file(name), authority.file(name)).unwrap();
    }
    soon("it is taken", || dlock(&server, &new, None, &["ls"]).status.success());
    soon("it says so", || server.log().contains("takes the new certificate"));
}

#[test]
fn invalid_certificates_are_refused_with_the_reason() {
    let authority = Authority::new();
    authority.sign(HOST);
    authority.sign("other");
    let file = |name: &str| authority.file(name).display().to_string();
    let (cert, key, other) = (file("127.0.0.1.crt"), file("127.0.0.1.key"), file("other.key"));
    for (options, why) in [
        (vec!["--tls-cert", &cert], "--tls-key"),
        (vec!["--tls-cert", &cert, "--tls-key", "/nowhere"], "/nowhere"),
        (vec!["--tls-cert", &key, "--tls-key", &key], "no certificate"),
        (vec!["--tls-cert", &cert, "--tls-key", &other], "KeyMismatch"),
    ] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_dlock"));
        let output = command.args(["serve", "--port", "0"]).args(&options).output().unwrap();
        assert!(!output.status.success(), "{options:?}");
        says(&output, why);
    }
}
