//! Bad uses of `SESSION` and `REQUEST`.

use super::cases::{ACQUIRING, Case, Says, case, with_owner};
use super::{holding, refuse, snapshot};
use crate::support::{Client, Setup, req};

fn bad_ids() -> Vec<Case> {
    let mut cases: Vec<Case> = ["REQUEST", "REQUEST id REQUEST id", "request one REQUEST two", "REQUEST id FOO"]
        .into_iter()
        .map(|words| case(words, Says::Syntax))
        .collect();
    for id in [vec![], vec![b'i'; 65], vec![0; 1000]] {
        cases.push((vec![b"REQUEST".to_vec(), id], Says::Names("request")));
    }
    cases
}

fn bad_sessions(now: i64) -> Vec<Case> {
    let mut cases: Vec<Case> = [
        "SESSION SESSION",
        "session PX 5000 SESSION",
        "SESSION 1",
        "SESSION yes",
        &format!("SESSION PXAT {}", now + 60_000),
        &format!("PXAT {} SESSION", now + 60_000),
        &format!("EXAT {} SESSION", now / 1000 + 60),
        &format!("SESSION EXAT {}", now / 1000 + 60),
    ]
    .into_iter()
    .map(|words| case(words, Says::Syntax))
    .collect();
    for lease in ["PX 1", "PX 299"] {
        cases.push(case(&format!("SESSION {lease}"), Says::Names("session")));
        cases.push(case(&format!("{lease} SESSION"), Says::Names("session")));
    }
    cases
}

#[test]
fn bad_sessions_and_requests_change_nothing() {
    let (_server, mut client) = holding(Setup::new());
    let now = client.now();
    for command in ACQUIRING {
        refuse(&mut client, command, &with_owner(bad_ids()));
        refuse(&mut client, command, &with_owner(bad_sessions(now)));
        let of_new_owners: Vec<_> = ["REQUEST id", "PX 5000 REQUEST id", "REQUEST id SESSION", "BLOCK 10 REQUEST id"]
            .into_iter()
            .map(|words| case(&format!("* {words}"), Says::Names("request")))
            .collect();
        refuse(&mut client, command, &of_new_owners);
    }
    refuse(&mut client, "RELEASE", &with_owner(bad_ids()));
    refuse(&mut client, "RENEW", &with_owner(bad_sessions(now)));
    let foreign = |words: [&str; 4]| with_owner(words.into_iter().map(|words| case(words, Says::Syntax)).collect());
    refuse(&mut client, "RELEASE", &foreign(["SESSION", "READ SESSION", "SESSION TOKEN 5", "BLOCK 5"]));
    refuse(&mut client, "RENEW", &foreign(["REQUEST id", "READ REQUEST id", "SESSION REQUEST id", "BLOCK 5"]));
}

/// Fails unless a request is refused because its lease is too short for a session, and changes nothing.
#[track_caller]
fn too_short(client: &mut Client, request: &str) {
    let before = snapshot(client);
    let error = client.error(format!("DLOCK.{request}"));
    assert!(error.starts_with("ERR SESSION ") && error.contains("300"), "{request}: {error}");
    assert_eq!(snapshot(client), before, "{request}");
}

#[test]
fn a_session_needs_a_lease_of_300_ms() {
    let (_server, mut client) = holding(Setup::new());
    // A new hold without PX has the default lease.
    client.ok("CONFIG SET dlock.default-lease 299");
    for request in ["ACQUIRE none a", "RACQUIRE none a", "WLOCK none a", "RLOCK none a", "RLOCK none *"] {
        too_short(&mut client, &format!("{request} SESSION"));
    }
    too_short(&mut client, "ACQUIRE held b SESSION BLOCK 5");
    // A renewal or a re-entry without PX keeps the lease of the hold, here 299 ms.
    client.ok("CONFIG SET dlock.default-lease 600000");
    client.int("DLOCK.RLOCK short a PX 600000");
    client.int("DLOCK.RENEW short a PX 299");
    client.int("DLOCK.RLOCK short b PX 600000");
    client.int("PEXPIRE short 600000");
    client.int("DLOCK.RENEW short a PX 299");
    too_short(&mut client, "RENEW short a SESSION");
    client.int("DLOCK.RENEW short a PX 299");
    too_short(&mut client, "RLOCK short a SESSION");
    // A request with a long enough lease is granted.
    client.int("DLOCK.RENEW short a PX 299");
    client.int("DLOCK.RLOCK short a PX 300 SESSION");
    assert_eq!(client.int("DLOCK.RENEW short a PX 300 SESSION"), 1);
    // An owner with two holds, of which only the exclusive one has a long enough lease.
    client.int("DLOCK.WLOCK held a PX 299");
    client.int("DLOCK.RENEW held a PX 299 READ");
    too_short(&mut client, "RENEW held a SESSION");
    client.int("DLOCK.RENEW held a WRITE SESSION");
}

#[test]
fn requests_have_1_to_64_bytes_and_sessions_300_ms() {
    let (_server, mut client) = holding(Setup::new());
    client.int(req!["DLOCK.RLOCK", "shared", "b", "REQUEST", "i"]);
    client.int(req!["DLOCK.RLOCK", "shared", "b", "REQUEST", [b'i'; 64].as_slice()]);
    client.int("DLOCK.RLOCK shared b PX 300 SESSION");
    assert_eq!(client.int("DLOCK.RENEW shared b SESSION PX 300"), 1);
}
