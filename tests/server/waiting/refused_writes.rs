//! While the server takes no writes, nobody is granted by a timer; it is made up for afterwards.

use std::fs;

use crate::support::replica::{counter, info_field};
use crate::support::{Client, Server, soon};

/// A lock `k` whose lease is over, and whose line `b, c` has not been served.
#[track_caller]
fn nothing_is_granted(server: &Server, client: &mut Client, end: i64, waiters: &mut [Client]) {
    client.pass(end + 150);
    waiters.iter_mut().for_each(|waiter| waiter.waits());
    assert_eq!(counter(client, "waiters"), waiters.len() as i64);
    client.nil("DLOCK.INFO k");
    assert_eq!(server.waiting(), waiters.len() as i64);
}

#[test]
fn too_few_replicas() {
    let server = Server::start();
    let mut client = server.client();
    client.int("DLOCK.ACQUIRE k a PX 800");
    let end = client.end_of("k");
    let mut waiters = server.waiters(["DLOCK.ACQUIRE k b BLOCK 0 PX 600000", "DLOCK.ACQUIRE k c BLOCK 0"]);
    client.ok("CONFIG SET min-replicas-to-write 1");
    nothing_is_granted(&server, &mut client, end, &mut waiters);
    assert!(client.error("DLOCK.ACQUIRE k d BLOCK 0").starts_with("NOREPLICAS "));
    assert!(client.error("DLOCK.RELEASE k a").starts_with("NOREPLICAS "));
    client.ok("CONFIG SET min-replicas-to-write 0");
    waiters[0].granted();
    assert_eq!(server.line("k"), ["c"]);
    // A client that vanishes does not bring about a grant either.
    client.int("DLOCK.RELEASE k b");
    waiters[1].granted();
    client.int("DLOCK.RLOCK r a");
    let head = server.waiter("DLOCK.WLOCK r w BLOCK 0");
    let mut reader = server.waiter("DLOCK.RLOCK r b BLOCK 0");
    client.ok("CONFIG SET min-replicas-to-write 1");
    drop(head);
    server.left_waiting(1);
    reader.waits();
    client.ok("CONFIG SET min-replicas-to-write 0");
    reader.granted();
}

#[test]
fn a_replica_that_comes_back_makes_up_for_it() {
    let server = Server::conf("min-replicas-max-lag 10");
    let mut client = server.client();
    client.int("DLOCK.ACQUIRE k a PX 800");
    let end = client.end_of("k");
    let mut waiters = server.waiters(["DLOCK.ACQUIRE k b BLOCK 0 PX 600000"]);
    client.ok("CONFIG SET min-replicas-to-write 1");
    nothing_is_granted(&server, &mut client, end, &mut waiters);
    let replica = server.replica();
    waiters[0].granted();
    replica.wait_synced(&server);
    assert_eq!(replica.holders("k"), ["b"]);
}

#[test]
fn a_disk_that_fails() {
    let server = Server::conf("dbfilename dump.rdb\nstop-writes-on-bgsave-error yes");
    let mut client = server.client();
    client.ok(["CONFIG", "SET", "save", "36000 100000"]);
    client.int("DLOCK.ACQUIRE k a PX 2000");
    let end = client.end_of("k");
    let mut waiters = server.waiters(["DLOCK.ACQUIRE k b BLOCK 0 PX 600000"]);
    // The file cannot be put in the place of a directory.
    let in_the_way = server.path("dump.rdb");
    fs::create_dir_all(in_the_way.join("full")).unwrap();
    let saved = |client: &mut Client, wanted: &str| {
        soon("saved, or not", || {
            let _ = client.attempt("BGSAVE");
            info_field(client, "persistence", "rdb_last_bgsave_status").as_deref() == Some(wanted)
        });
    };
    saved(&mut client, "err");
    assert!(client.error("SET x y").starts_with("MISCONF "));
    nothing_is_granted(&server, &mut client, end, &mut waiters);
    fs::remove_dir_all(in_the_way).unwrap();
    saved(&mut client, "ok");
    waiters[0].granted();
}
