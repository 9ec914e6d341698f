//! What the server refuses to every command that writes, it refuses to locks.

use crate::support::replica::info_field;
use crate::support::{Client, Server, soon};

/// A write of every kind, to a lock that `a` holds and to a new one.
pub const WRITES: [&str; 8] = [
    "ACQUIRE k a",
    "RACQUIRE k a",
    "RLOCK k a",
    "WLOCK k a",
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
fn too_few_replicas() {
    let server = Server::start();
    let mut client = server.client();
    let token = client.int("DLOCK.ACQUIRE k a");
    client.ok("CONFIG SET min-replicas-to-write 1");
    refuses(&mut client, "NOREPLICAS ");
    assert!(client.int(format!("DLOCK.CHECK k {token}")) > 0);
    assert!(crate::support::lock_info(&mut client, "k").is_some());
}

#[test]
fn data_that_cannot_be_saved() {
    let server = Server::conf("save 3600 1000000");
    let mut client = server.client();
    let token = client.int("DLOCK.ACQUIRE k a");
    // The file cannot take the place of a directory.
    std::fs::create_dir_all(server.path("dump.rdb/in-the-way")).expect("a writable directory");
    client.run("BGSAVE");
    soon("the save fails", || {
        info_field(&mut client, "persistence", "rdb_last_bgsave_status").as_deref() == Some("err")
    });
    refuses(&mut client, "MISCONF ");
    assert!(client.int(format!("DLOCK.CHECK k {token}")) > 0);
}
