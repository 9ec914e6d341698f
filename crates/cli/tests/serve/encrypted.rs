//! Clients that speak TLS.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::{Command, Output};
use std::time::Duration;

use dlock_testkit::certified::Authority;
use dlock_testkit::{Serve, soon};

use crate::process::serve;

const HOST: &str = "127.0.0.1";

/// Starts a server with a certificate, which asks clients for one if it is to.
fn encrypted(authority: &Authority, asks: bool) -> Serve {
    authority.sign(HOST);
    let file = |name: &str| authority.file(name).display().to_string();
    let (cert, key, ca) = (file("127.0.0.1.crt"), file("127.0.0.1.key"), file("ca.pem"));
    let mut options = vec!["--tls-cert", &cert, "--tls-key", &key];
    if asks {
        options.extend(["--tls-ca", &ca]);
    }
    serve(&options)
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
    // Replies of more than one message of TLS, and requests of several.
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
fn certificates_that_make_no_sense_are_said() {
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
