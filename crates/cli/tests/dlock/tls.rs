//! `dlock run` and `dlock info` over TLS. Exit codes: 69 if the server is unavailable, 64 for a wrong command line.

use std::process::Command;

use crate::process::{Notes, Running, With, bare, outcome};
use dlock_testkit::certified::{ANYBODY, Authority};
use dlock_testkit::sentinel::Sentinels;
use dlock_testkit::{Client, soon};

const HOST: &str = "127.0.0.1";

/// Returns a command for the server at this port, over TLS.
fn dlock(port: u16) -> Command {
    let mut command = bare();
    command.env("DLOCK_URL", format!("rediss://{HOST}:{port}"));
    command
}

#[test]
fn a_command_waits_and_runs_under_a_lock_over_tls() {
    let authority = Authority::new();
    let Some((server, port)) = authority.server(HOST, ANYBODY) else { return };
    let mut holder = server.client();
    holder.int("DLOCK.ACQUIRE job holder PX 600000");
    let notes = Notes::new();
    let mut command = dlock(port);
    let script = notes.script(&format!("echo $DLOCK_OWNER > {}; read x", notes.path("owner").display()));
    command.arg("--cacert").arg(authority.file("ca.pem")).args(["run", "job", "--"]).args(script);
    command.stdin(std::process::Stdio::piped());
    let mut running = Running::start(command);
    server.left_waiting(1);
    assert_eq!(holder.int("DLOCK.RELEASE job holder"), 1);
    let owner = notes.line("owner");
    assert_eq!(server.holders("job"), [owner]);
    drop(running.child().stdin.take());
    assert_eq!(running.outcome().code, Some(1), "the exit code of `read`, which ends with its input");
    soon("the lock is free", || server.holders("job").is_empty());
}

#[test]
fn the_environment_names_certificates_too() {
    let authority = Authority::new();
    let Some((_server, port)) = authority.server(HOST, "tls-auth-clients yes") else { return };
    authority.sign("worker");
    let mut command = dlock(port);
    for (variable, file) in [("DLOCK_CACERT", "ca.pem"), ("DLOCK_CERT", "worker.crt"), ("DLOCK_KEY", "worker.key")] {
        command.env(variable, authority.file(file));
    }
    command.args(["run", "job", "--", "echo", "ran"]);
    let known = outcome(command);
    assert_eq!((known.code, known.stdout.as_str()), (Some(0), "ran\n"), "{}", known.stderr);
    let unknown = outcome(
        dlock(port).with(["--cacert"]).with([authority.file("ca.pem")]).with(["run", "job", "--", "echo", "ran"]),
    );
    assert_eq!((unknown.code, unknown.stdout.as_str()), (Some(69), ""));
    assert!(unknown.stderr.contains("CertificateRequired"), "{}", unknown.stderr);
}

#[test]
fn a_server_that_is_not_trusted_is_unavailable() {
    let authority = Authority::new();
    let Some((_server, port)) = authority.server(HOST, ANYBODY) else { return };
    for command in [["run", "job", "--", "echo", "ran"].as_slice(), &["info", "job"]] {
        let refused = outcome(dlock(port).with(command));
        assert_eq!((refused.code, refused.stdout.as_str()), (Some(69), ""));
        assert!(refused.stderr.contains("invalid peer certificate: UnknownIssuer"), "{}", refused.stderr);
    }
}

#[test]
fn unusable_certificates_are_an_error_of_the_command_line() {
    let (authority, notes) = (Authority::new(), Notes::new());
    let [missing, empty] = ["missing", "empty"].map(|name| notes.path(name));
    std::fs::write(&empty, "").expect("a writable directory");
    let ca = authority.file("ca.pem");
    let cases = [
        ("rediss://localhost", "--cacert", &missing, "missing: No such file"),
        ("rediss://localhost", "--cacert", &empty, "no certificate"),
        ("rediss://localhost", "--cert", &ca, "--key"),
        // The option needs TLS, but the URL does not ask for it.
        ("redis://localhost", "--cacert", &ca, "rediss://"),
    ];
    for (url, option, file, why) in cases {
        let outcome = outcome(bare().with(["-s", url, option]).with([file]).with(["run", "job", "--", "echo", "ran"]));
        assert_eq!((outcome.code, outcome.stdout.as_str()), (Some(64), ""), "{url} {option}");
        assert!(outcome.stderr.contains(why), "{}", outcome.stderr);
    }
}

#[test]
fn sentinels_have_a_login_and_tls_of_their_own() {
    let authority = Authority::new();
    let Some((primary, _)) = authority.server(HOST, ANYBODY) else { return };
    let (port, conf) = authority.conf(HOST);
    let sentinels = Sentinels::one(&primary, &format!("{conf}\n{ANYBODY}"));
    let mut admin = Client::connect(sentinels.ports()[0]).expect("a Sentinel");
    admin.ok("ACL SETUSER observer on >secret +@all");
    admin.ok("ACL SETUSER default resetpass >other");
    // `ca`: whether the command knows the authority that signed the certificate of the Sentinel.
    let run = |password: &str, ca: bool| {
        let mut command = bare();
        command.env("DLOCK_URL", format!("redis-sentinel://{HOST}:{port}/locks"));
        command.args(["--sentinel-user", "observer", "--sentinel-password", password]);
        if ca {
            command.arg("--sentinel-cacert").arg(authority.file("ca.pem"));
        }
        command.args(["run", "--wait", "0", "job", "--", "echo", "ran"]);
        outcome(command)
    };
    let known = run("secret", true);
    assert_eq!((known.code, known.stdout.as_str()), (Some(0), "ran\n"), "{}", known.stderr);
    for refused in [run("wrong", true), run("secret", false)] {
        assert_eq!((refused.code, refused.stdout.as_str()), (Some(69), ""), "{}", refused.stderr);
    }
}
