//! Clients that do not read, or that send more than the server will keep: they are cut off, and leave nothing.

use crate::support::{Client, Server, lock_info, soon};

const READERS: usize = 2_000;

/// Takes 2,000 holds of a lock, which `DLOCK.INFO` shows in more than 100 kB. Returns the client.
#[track_caller]
fn crowded(server: &Server) -> Client {
    let mut client = server.client();
    client.pipeline(&(0..READERS).map(|n| format!("DLOCK.RLOCK crowded reader-{n} PX 600000")).collect::<Vec<_>>());
    client
}

#[test]
fn a_client_that_does_not_read_is_cut_off_and_its_lock_is_free() {
    let server = Server::start();
    let mut client = crowded(&server);
    client.ok(["CONFIG", "SET", "client-output-buffer-limit", "normal 2000000 0 0"]);
    let mut greedy = server.client();
    greedy.int("DLOCK.ACQUIRE k a PX 600000 SESSION");
    let mut next = server.waiter("DLOCK.ACQUIRE k b PX 600000 BLOCK 0");
    let wish = vec!["DLOCK.INFO crowded FULL COUNT 0".to_owned(); 100];
    greedy.send_all(&wish);
    next.granted();
    assert_eq!(lock_info(&mut client, "crowded").unwrap().count, READERS as i64);
}

#[test]
fn a_waiter_that_sends_more_than_the_server_keeps_leaves_the_queue() {
    let (server, mut client) = Server::conf("maxmemory-clients 8mb").with_client();
    client.int("DLOCK.RLOCK k a PX 600000");
    let mut greedy = server.waiter("DLOCK.WLOCK k w BLOCK 0");
    let mut reader = server.waiter("DLOCK.RLOCK k r BLOCK 0");
    reader.waits();
    // The server keeps the commands that a waiting client sends until its wait is over.
    greedy.send_all(&vec![format!("ECHO {}", "x".repeat(1_000_000)); 20]);
    reader.granted();
    soon("it has left", || server.waiting() == 0);
}
