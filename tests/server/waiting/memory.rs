//! Clients that waited leave nothing behind.

use redis::Value;

use crate::support::queue::all_granted;
use crate::support::replica::info_field;
use crate::support::{Client, Server, soon};

const WAITERS: usize = 1000;
/// The bytes that may be left of all rounds. The server may keep a pool of fifty clients for modules.
const MARGIN: i64 = 1_000_000;

#[track_caller]
fn used(client: &mut Client) -> i64 {
    info_field(client, "memory", "used_memory").expect("a field").parse().expect("a number")
}

/// Lets a thousand clients wait and leave in this way. Returns the server's memory while they wait.
#[track_caller]
fn come_and_go(server: &Server, client: &mut Client, how: &str) -> i64 {
    client.int("DLOCK.ACQUIRE k a PX 600000");
    let mut waiters: Vec<_> = (0..WAITERS).map(|_| server.client()).collect();
    for (n, waiter) in waiters.iter_mut().enumerate() {
        waiter.send(format!("DLOCK.RLOCK k a-waiting-owner-{n} BLOCK {}", if how == "time" { 1500 } else { 0 }));
    }
    server.left_waiting(WAITERS as i64);
    let most = used(client);
    match how {
        "close" => drop(waiters),
        "time" => waiters.iter_mut().for_each(|waiter| waiter.gives_up()),
        "grant" => {
            client.int("DLOCK.RELEASE k a");
            all_granted(&mut waiters);
            let releases = (0..WAITERS).map(|n| format!("DLOCK.RELEASE k a-waiting-owner-{n}"));
            let replies = client.pipeline(&releases.collect::<Vec<_>>());
            assert!(replies.iter().all(|reply| *reply == Ok(Value::Int(1))));
        }
        _ => {
            client.ok("SET k v");
            waiters.iter_mut().for_each(|waiter| drop(waiter.fails()));
        }
    }
    server.left_waiting(0);
    client.int("DEL k");
    most
}

#[test]
fn thousands_who_waited_leave_no_memory_behind() {
    let (server, mut client) = Server::start().with_client();
    // The first time, tables grow and stay.
    come_and_go(&server, &mut client, "close");
    let only_this = |client: &mut Client| info_field(client, "clients", "connected_clients").as_deref() == Some("1");
    soon("closed", || only_this(&mut client));
    let before = used(&mut client);
    let rounds = ["close", "grant", "overwrite", "time", "grant", "close", "overwrite"];
    for how in rounds {
        let most = come_and_go(&server, &mut client, how);
        let each = (most - before) / WAITERS as i64;
        assert!(each < 60_000, "{each} bytes a waiter");
        soon("closed", || only_this(&mut client));
    }
    soon("memory is back", || used(&mut client) - before < MARGIN);
    let left = used(&mut client) - before;
    eprintln!("{left} bytes are left of {} waiters", rounds.len() * WAITERS);
}
