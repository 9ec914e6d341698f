//! A disk that is full: commands that write are refused, and waiters are granted the lock when there is room again.

use crate::support::{Server, lock_info, soon};

#[test]
fn a_full_disk_stops_locks_and_room_starts_them_again() {
    let (server, mut client) = Server::conf("appendonly yes\nappendfsync everysec").with_client();
    // The limit below is for every file. The filler makes the AOF larger than the log, which must have room.
    client.int("SETRANGE filler 1000000 x");
    let token = client.int("DLOCK.ACQUIRE kept a PX 600000");
    client.int("DLOCK.ACQUIRE k a PX 1500");
    let end = client.end_of("k");
    let mut waiters = server.waiters(["b", "c"].map(|o| format!("DLOCK.ACQUIRE k {o} PX 600000 BLOCK 0")));
    let mut session = server.client();
    session.int("DLOCK.ACQUIRE s a PX 600000 SESSION");
    soon("the AOF has all locks", || server.aof().iter().any(|words| words.get(1).is_some_and(|key| key == b"s")));
    server.limit_files(Some(server.aof_size()));
    soon("the disk is full", || client.attempt("SET x y").is_err_and(|error| error.starts_with("MISCONF ")));
    for request in ["ACQUIRE new a", "RELEASE kept a", "RENEW kept a", "ACQUIRE k d BLOCK 0"] {
        let error = client.error(format!("DLOCK.{request}"));
        assert!(error.starts_with("MISCONF "), "{request}: {error}");
    }
    // The lease of `k` ends, and the timer tries several times to grant the lock.
    client.pass(end + 150);
    waiters.iter_mut().for_each(|waiter| waiter.waits());
    assert!(client.int(format!("DLOCK.CHECK kept {token}")) > 0);
    server.limit_files(None);
    waiters[0].granted();
    waiters[1].waits();
    assert_eq!(client.int("DLOCK.RENEW kept a"), 1);
    assert!(lock_info(&mut client, "s").is_some());
}

#[test]
fn an_aof_that_a_full_disk_cut_short_loads() {
    let (mut server, mut client) = Server::conf("appendonly yes\nappendfsync everysec").with_client();
    client.int("SETRANGE filler 1000000 x");
    let token = client.int("DLOCK.ACQUIRE kept a PX 600000");
    soon("the AOF has the lock", || server.aof().iter().any(|words| words.get(1).is_some_and(|key| key == b"kept")));
    // Room for half an effect.
    server.limit_files(Some(server.aof_size() + 20));
    soon("the disk is full", || client.attempt("DLOCK.RACQUIRE k b").is_err_and(|e| e.starts_with("MISCONF ")));
    server.crash();
    let mut client = server.client();
    assert!(client.int(format!("DLOCK.CHECK kept {token}")) > 0);
    assert!(client.int("DLOCK.ACQUIRE new a") > token);
}
