//! Arguments of a megabyte: the key of a lock may be as long as any key, and each other argument has a limit.

use std::time::Duration;

use super::long_turns::within;
use crate::log::shown::last;
use crate::support::turn::least_of_three;
use crate::support::{Client, Server, lock_info, req};

const MEGABYTE: usize = 1 << 20;
/// Every error is shorter than this, in bytes, whatever it is about.
const LONGEST_ERROR: usize = 4096;

/// Digits: as a number, they are out of range.
fn mega() -> Vec<u8> {
    vec![b'9'; MEGABYTE]
}

#[track_caller]
fn refuses(client: &mut Client, request: redis::Cmd, code: &str) {
    let error = client.error(request);
    assert!(error.starts_with(code), "{code}: {}", &error[..error.len().min(200)]);
    assert!(error.len() < LONGEST_ERROR, "{} bytes of {code}", error.len());
}

#[test]
fn a_megabyte_is_no_owner_request_number_or_option() {
    let (_server, mut client) = Server::start().with_client();
    let token = client.int("DLOCK.ACQUIRE k a PX 600000");
    let no_integer = "ERR value is not an integer";
    for command in ["DLOCK.ACQUIRE", "DLOCK.RACQUIRE", "DLOCK.RLOCK", "DLOCK.WLOCK"] {
        refuses(&mut client, req![command, "k", mega()], "ERR owner must");
        refuses(&mut client, req![command, "k", "b", "REQUEST", mega()], "ERR request id must");
        for unit in ["EX", "PX", "EXAT", "PXAT"] {
            refuses(&mut client, req![command, "k", "b", unit, mega()], no_integer);
        }
        refuses(&mut client, req![command, "k", "b", "BLOCK", mega()], "ERR timeout is not an integer");
        refuses(&mut client, req![command, "k", "b", mega()], "ERR syntax error");
    }
    for command in ["DLOCK.RELEASE", "DLOCK.RENEW"] {
        refuses(&mut client, req![command, "k", mega()], "ERR owner must");
        refuses(&mut client, req![command, "k", "a", "TOKEN", mega()], no_integer);
        refuses(&mut client, req![command, "k", "a", mega()], "ERR syntax error");
    }
    refuses(&mut client, req!["DLOCK.CHECK", "k", mega()], no_integer);
    refuses(&mut client, req!["DLOCK.INFO", "k", "OWNER", mega()], "ERR owner must");
    refuses(&mut client, req!["DLOCK.INFO", "k", "FULL", "COUNT", mega()], no_integer);
    refuses(&mut client, req!["DLOCK.APPLY", "k", mega()], "NOPERM");
    assert!(client.int(format!("DLOCK.CHECK k {token}")) > 0);
    assert_eq!(client.int("DBSIZE"), 1);
}

#[test]
fn a_hundred_thousand_arguments_are_a_syntax_error() {
    let (_server, mut client) = Server::start().with_client();
    for command in ["ACQUIRE", "RELEASE", "RENEW", "INFO"] {
        let mut request = req![format!("DLOCK.{command}"), "k", "a"];
        (0..100_000).for_each(|_| {
            request.arg("READ");
        });
        refuses(&mut client, request, "ERR syntax error");
    }
    // The server itself counts the arguments of a command whose number is fixed.
    assert!(client.error(req!["DLOCK.CHECK", "k", "1", vec!["x"; 100_000]]).starts_with("ERR wrong number"));
}

#[test]
fn a_key_of_a_megabyte_is_a_lock_like_any_other_but_has_no_queue() {
    let (server, replica) = Server::conf("appendonly yes\nappendfsync no").with_replica();
    let mut client = server.client();
    let token = client.int(req!["DLOCK.ACQUIRE", mega(), "a", "PX", 600_000]);
    client.nil(req!["DLOCK.ACQUIRE", mega(), "b"]);
    refuses(&mut client, req!["DLOCK.ACQUIRE", mega(), "b", "BLOCK", 0], "ERR BLOCK needs a key name of");
    assert!(client.int(req!["DLOCK.CHECK", mega(), token]) > 0);
    assert_eq!(client.int(req!["DLOCK.RELEASE", mega(), "a"]), 1);
    let next = client.int(req!["DLOCK.ACQUIRE", mega(), "b", "PX", 600_000, "BLOCK", 0]);
    assert!(next > token);
    replica.wait_synced(&server);
    assert!(replica.client().int(req!["DLOCK.CHECK", mega(), next]) > 0);
}

/// A client sends its name once. Each entry of the log has the first 128 bytes of it, and copies no more.
#[test]
fn an_entry_of_the_log_takes_no_time_for_a_long_name_of_a_client() {
    const NAME: usize = 64 << 20;
    let (server, mut client) = Server::start().with_client();
    client.ok(req!["CLIENT", "SETNAME", "n".repeat(NAME)]);
    client.int("DLOCK.ACQUIRE k a PX 600000");
    let requests = ["DLOCK.ACQUIRE k a BLOCK 0"; 100];
    let found = least_of_three(|| {
        server.takes(|| assert!(client.pipeline(&requests).iter().all(|reply| reply.is_err()), "DEADLOCK"))
    });
    // A copy of the name takes 10 ms or more.
    within(Duration::from_millis(100), found, "100 entries");
    assert_eq!(last(&mut client, "deadlock").text("name"), "n".repeat(128));
}

#[test]
fn info_takes_no_time_for_long_names_of_clients_that_wait() {
    const NAME: usize = 16 << 20;
    const WAITERS: usize = 8;
    let (server, mut client) = Server::start().with_client();
    client.int("DLOCK.ACQUIRE k a PX 600000");
    let waiters: Vec<Client> = (0..WAITERS)
        .map(|n| {
            let mut waiter = server.client();
            waiter.ok(req!["CLIENT", "SETNAME", "n".repeat(NAME)]);
            server.enters_queue(&mut waiter, format!("DLOCK.ACQUIRE k {n} BLOCK 0"));
            waiter
        })
        .collect();
    let found = least_of_three(|| server.takes(|| drop(client.run("DLOCK.INFO k FULL"))));
    // A copy of a name takes 2 ms or more.
    within(Duration::from_millis(8), found, "8 waiters");
    let queue = lock_info(&mut client, "k FULL").unwrap().queue.unwrap();
    assert!(queue.len() == WAITERS && queue.iter().all(|waiter| waiter.name.as_deref() == Some(&*"n".repeat(128))));
    drop(waiters);
}

#[test]
fn an_error_about_long_names_is_short() {
    let (server, mut client) = Server::start().with_client();
    let (a, b) = (vec![0xff_u8; 1024], vec![0xfe_u8; 1024]);
    // Names of 32 kB: the search for a deadlock ends after a millisecond, in which a slow machine reads no megabyte.
    let long = |last: u8| [vec![b'k'; 1 << 15], vec![last]].concat();
    client.int(req!["DLOCK.ACQUIRE", long(1), &a, "PX", 600_000]);
    client.int(req!["DLOCK.ACQUIRE", long(2), &b, "PX", 600_000]);
    let _waiter = server.waiter(req!["DLOCK.ACQUIRE", long(2), &a, "BLOCK", 0]);
    refuses(&mut client, req!["DLOCK.ACQUIRE", long(1), &b, "BLOCK", 0], "DEADLOCK ");
}

#[test]
fn an_error_about_many_owners_is_short() {
    // The search for a deadlock asks for each key whether the user may read it, and ends after a millisecond.
    const CIRCLE: usize = 100;
    let (server, mut client) = Server::start().with_client();
    for n in 0..CIRCLE {
        client.int(format!("DLOCK.ACQUIRE k{n} owner-{n} PX 600000"));
    }
    let waiting: Vec<_> =
        (0..CIRCLE - 1).map(|n| server.waiter(format!("DLOCK.ACQUIRE k{} owner-{n} BLOCK 0", n + 1))).collect();
    let last = CIRCLE - 1;
    refuses(&mut client, req!["DLOCK.ACQUIRE", "k0", format!("owner-{last}"), "BLOCK", 0], "DEADLOCK ");
    drop(waiting);
    server.left_waiting(0);
    assert!(lock_info(&mut client, "k0").is_some());
}
