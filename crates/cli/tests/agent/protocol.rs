//! The first commands of clients of Redis, and the places where the agent listens.

use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};

use dlock_testkit::process::free_port;
use dlock_testkit::redis::{Client as Redis, Value, cmd};
use dlock_testkit::{bytes_of, list_of, soon, text_of};

use crate::process::{Agent, command, trio};

#[test]
fn the_first_commands_of_common_clients_are_answered() {
    let (_servers, _agent, mut client) = trio();
    client.ok("CLIENT SETINFO LIB-NAME redis-py");
    client.ok("CLIENT SETINFO LIB-VER 7.0.0");
    client.ok("CLIENT SETNAME me");
    client.ok("CLIENT NO-EVICT on");
    client.ok("CLIENT NO-TOUCH on");
    assert!(client.text("CLIENT INFO").contains("name=me"));
    client.ok("SELECT 0");
    assert!(client.error("SELECT 1").contains("out of range"));
    assert_eq!(client.text("PING"), "PONG");
    assert_eq!(client.text("PING a"), "a");
    assert_eq!(list_of(&client.run("TIME")).len(), 2);
    assert!(client.text("INFO").contains("agent_mode:quorum"));
    assert_eq!(client.int("COMMAND COUNT"), list_of(&client.run("COMMAND")).len() as i64);
    let info = list_of(&client.run("COMMAND INFO DLOCK.ACQUIRE GET"));
    assert_eq!(list_of(&info[0])[1], Value::Int(-3));
    assert_eq!(info[1], Value::Nil);
    assert_eq!(list_of(&client.run("COMMAND DOCS DLOCK.ACQUIRE")).len(), 2);
    assert!(client.error("GET a").contains("unknown command"));
    assert!(client.error("DLOCK.APPLY a b").contains("unknown command"));
    assert!(client.error("CLIENT TRACKING ON").contains("not offered"));
    assert!(client.error("HELLO 4").starts_with("NOPROTO"));
    let hello = client.run("HELLO 3");
    assert!(matches!(&hello, Value::Map(fields) if fields.iter().any(|(name, _)| text_of(name) == "server")));
    assert!(matches!(client.run("DLOCK.INFO k"), Value::Nil));
    client.int("DLOCK.ACQUIRE k a");
    assert!(matches!(client.run("DLOCK.INFO k FULL"), Value::Map(_)));
    assert!(!list_of(&client.run("DLOCK.HELP")).is_empty());
    client.ok("QUIT");
    assert_eq!(client.closes(), []);
}

#[test]
fn requests_may_be_pipelined_and_come_in_pieces() {
    let (_servers, _agent, mut client) = trio();
    let replies = client.pipeline(&["DLOCK.ACQUIRE k a", "DLOCK.ACQUIRE k b", "DLOCK.RELEASE k a", "PING"]);
    assert!(matches!(replies[0], Ok(Value::Int(1..))), "{replies:?}");
    assert_eq!(replies[1..3], [Ok(Value::Nil), Ok(Value::Int(1))]);
    for byte in b"*2\r\n$4\r\nECHO\r\n$2\r\nab\r\nPING\r\n" {
        client.send_raw(&[*byte]);
    }
    assert_eq!(client.read().map(|reply| bytes_of(&reply)), Ok(b"ab".to_vec()));
    assert_eq!(client.read().map(|reply| text_of(&reply)), Ok("PONG".to_owned()));
}

/// As a shell script does: `printf … | nc`.
#[test]
fn a_client_that_closes_its_sending_side_gets_its_replies() {
    let (_servers, agent, mut client) = trio();
    client.int("DLOCK.ACQUIRE k a");
    let mut other = agent.client();
    other.send_raw(b"DLOCK.RELEASE k a\r\n");
    other.hang_up();
    assert_eq!(other.read(), Ok(Value::Int(1)));
}

#[test]
fn a_unix_socket_is_for_its_user_alone_unless_told_and_a_stale_one_is_replaced() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("dlock.sock");
    let place = format!("unix:{}", path.display());
    let mode = || std::fs::metadata(&path).unwrap().permissions().mode() & 0o777;
    let mut agent = Agent::start(&["-s", "redis://127.0.0.1:1", "--listen", &place]);
    soon("there is a socket", || path.exists());
    assert_eq!(mode(), 0o600);
    let mut stream = None;
    soon("it listens", || {
        stream = UnixStream::connect(&path).ok();
        stream.is_some()
    });
    let mut stream = stream.unwrap();
    stream.write_all(b"ECHO a\r\n").unwrap();
    let mut reply = [0; 7];
    stream.read_exact(&mut reply).unwrap();
    assert_eq!(&reply, b"$1\r\na\r\n");
    // A second agent does not take it away.
    let port = free_port();
    let second = command()
        .args(["--listen", &format!("127.0.0.1:{port}"), "--listen", &place, "-s", "redis://127.0.0.1:1"])
        .stderr(Stdio::piped())
        .output()
        .unwrap();
    assert_eq!(second.status.code(), Some(69));
    assert!(String::from_utf8_lossy(&second.stderr).contains("another program listens there"));
    agent.kill9();
    assert!(path.exists());
    let mut agent = Agent::start(&["-s", "redis://127.0.0.1:1", "--listen", &place, "--socket-mode", "660"]);
    soon("it listens again", || UnixStream::connect(&path).is_ok());
    assert_eq!(mode(), 0o660);
    assert_eq!(agent.stop(), Some(0));
    assert!(!path.exists());
}

#[test]
fn other_machines_are_let_in_only_with_a_password() {
    let (port, file) = (free_port(), tempfile::NamedTempFile::new().unwrap());
    let place = format!("0.0.0.0:{port}");
    let everywhere = ["-s", "redis://127.0.0.1:1", "--listen", &place];
    let password = ["--password-file", file.path().to_str().unwrap()];
    let refused = |options: &[&str], code: i32, why: &str| {
        let output = command().args(everywhere).args(options).output().unwrap();
        assert_eq!(output.status.code(), Some(code), "{options:?}: {output:?}");
        assert!(String::from_utf8_lossy(&output.stderr).contains(why), "{options:?}: {output:?}");
    };
    let needs_both = "other machines could connect there: this needs --remote and a password";
    refused(&[], 69, needs_both);
    refused(&["--remote"], 69, needs_both);
    refused(&[&["--remote"], &password[..]].concat(), 64, "the password for clients is empty");
    std::fs::write(file.path(), "s3cret\n").unwrap();
    refused(&password, 69, needs_both);
    let mut open = command();
    open.args(everywhere).arg("--remote").args(password);
    let agent = Agent::run(open, port);
    let mut client = agent.client();
    assert!(client.error("ECHO a").starts_with("NOAUTH"));
    client.ok("AUTH s3cret");
    assert_eq!(client.text("ECHO a"), "a");
}

/// The crate `redis`, whose handshake is that of many programs.
#[test]
fn the_crate_redis_takes_a_lock() {
    let (_servers, agent, _client) = trio();
    for protocol in ["", "?protocol=resp3"] {
        let client = Redis::open(format!("redis://127.0.0.1:{}{protocol}", agent.port)).unwrap();
        let mut connection = client.get_connection().unwrap();
        let token: u64 = cmd("DLOCK.ACQUIRE").arg("k").arg("a").query(&mut connection).unwrap();
        assert!(token > 0);
        let released: i64 = cmd("DLOCK.RELEASE").arg("k").arg("a").query(&mut connection).unwrap();
        assert_eq!(released, 1);
    }
}

#[test]
fn redis_cli_takes_a_lock() {
    let (_servers, agent, _client) = trio();
    let run = |arguments: &[&str]| {
        let output = Command::new("redis-cli").args(["-p", &agent.port.to_string()]).args(arguments).output();
        output.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    let Ok(token) = run(&["DLOCK.ACQUIRE", "k", "a"]) else {
        return dlock_testkit::skip::skipped("there is no redis-cli");
    };
    assert!(token.parse::<u64>().is_ok(), "{token}");
    assert_eq!(run(&["-3", "DLOCK.RELEASE", "k", "a"]).unwrap(), "1");
}
