//! The server refuses writes to locks whenever it refuses every command that writes.

use crate::support::replica::info_field;
use crate::support::{Client, Server, soon};

/// A write of every kind, to a lock that `a` holds and to a new one.
pub const WRITES: [&str; 10] = [
    "ACQUIRE k a",
    "RACQUIRE k a",
    "RLOCK k a",
    "WLOCK k a",
    "SACQUIRE k a 2",
    "MACQUIRE 2 k l a",
    "RELEASE k a",
    "RELEASE k a ALL",
    "RENEW k a",
    "ACQUIRE new a",
];

#[track_caller]
fn refuses(client: &mut Client, code: &str) {
    for request in WRITES {
        let error = client.error(format!("DLOCK.{request}"));
        assert!(error.starts_with(code), "{request}: {error}");
    }
}

#[test]
fn too_few_replicas_refuse_every_write() {
    let (_server, mut client) = Server::start().with_client();
    let token = client.int("DLOCK.ACQUIRE k a");
    client.ok("CONFIG SET min-replicas-to-write 1");
    refuses(&mut client, "NOREPLICAS ");
    assert!(client.int(format!("DLOCK.CHECK k {token}")) > 0);
    assert!(crate::support::lock_info(&mut client, "k").is_some());
}

#[test]
fn a_failed_save_refuses_every_write() {
    let (server, mut client) = Server::conf("save 3600 1000000").with_client();
    let token = client.int("DLOCK.ACQUIRE k a");
    // The server cannot put its file in the place of a directory.
    std::fs::create_dir_all(server.path("dump.rdb/in-the-way")).expect("a writable directory");
    client.run("BGSAVE");
    soon("the save fails", || {
        info_field(&mut client, "persistence", "rdb_last_bgsave_status").as_deref() == Some("err")
    });
    refuses(&mut client, "MISCONF ");
    assert!(client.int(format!("DLOCK.CHECK k {token}")) > 0);
}

/// The order: syntax, ranges, type, session, a deadlock without a search, too many waiters, a deadlock by a cycle.
#[test]
fn of_several_errors_the_first_in_order_is_returned() {
    let (server, mut client) = Server::conf("dlock.max-waiters 1").with_client();
    client.ok("SET text v");
    client.int("DLOCK.ACQUIRE own a PX 600000");
    client.int("DLOCK.ACQUIRE L1 b PX 600000");
    client.int("DLOCK.RLOCK r a PX 600000");
    client.int("DLOCK.RLOCK r b PX 600000");
    // The one waiter that is allowed is an upgrade. A second upgrade, by `a`, is a deadlock.
    let upgrade = server.waiter("DLOCK.WLOCK r b BLOCK 0");
    // The default lease is too short for a session.
    client.ok("CONFIG SET dlock.default-lease 200");
    for (request, error) in [
        ("ACQUIRE text a PX 0 SESSION BLOCK 0", "ERR invalid expire time"),
        ("ACQUIRE text a SESSION BLOCK -1", "ERR timeout is negative"),
        ("ACQUIRE text a SESSION BLOCK 0", "WRONGTYPE "),
        ("ACQUIRE own a SESSION BLOCK 0", "ERR SESSION needs a lease"),
        ("ACQUIRE own c SESSION BLOCK 0", "ERR SESSION needs a lease"),
        ("ACQUIRE own a BLOCK 0", "DEADLOCK "),
        ("WLOCK r a BLOCK 0", "DEADLOCK "),
        ("ACQUIRE own c BLOCK 0", "ERR max number of waiters reached: dlock.max-waiters"),
    ] {
        let found = client.error(format!("DLOCK.{request}"));
        assert!(found.starts_with(error), "{request}: {found}");
    }
    drop(upgrade);
    server.left_waiting(0);
    // Too many waiters come before a cycle.
    let _b = server.waiter("DLOCK.ACQUIRE own b BLOCK 0");
    assert_eq!(client.error("DLOCK.ACQUIRE L1 a BLOCK 0"), "ERR max number of waiters reached: dlock.max-waiters");
    client.ok("CONFIG SET dlock.max-waiters 2");
    assert!(client.error("DLOCK.ACQUIRE L1 a BLOCK 0").starts_with("DEADLOCK "));
    // A token too far ahead is a range error, which comes before the error about the type of the key.
    let beyond = client.now_us() + 2 * 3_600_000_000;
    assert!(client.error(format!("DLOCK.RENEW text a MINTOKEN {beyond}")).starts_with("ERR "));
    let passed = client.now() - 1;
    assert!(client.error(format!("DLOCK.RENEW text a PXAT {passed}")).starts_with("ERR "));
}
