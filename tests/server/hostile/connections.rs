//! Connections: very many, half open ones, and some that stop in the middle of a command.

use crate::support::replica::{counter, info_field};
use crate::support::skip::skipped;
use crate::support::{Client, Server, lock_info, soon};

const CROWD: usize = 10_000;

/// Raises this process's limit of open files, which is for all its tests together, to at least this number.
fn make_room(files: u64) {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: both calls read or write the one structure they are given.
    let done = unsafe {
        libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit);
        limit.rlim_cur = limit.rlim_max;
        libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit)
    };
    assert_eq!(done, 0, "{}", std::io::Error::last_os_error());
    assert!(limit.rlim_max >= files, "{files} open files are needed, ulimit -Hn is {}", limit.rlim_max);
}

#[test]
fn ten_thousand_connections_come_and_go_at_once() {
    make_room(CROWD as u64 + 2_000);
    let (server, mut client) = Server::conf("maxclients 12000").with_client();
    client.int("DLOCK.ACQUIRE k a PX 600000");
    let mut crowd = Vec::with_capacity(CROWD);
    for n in 0..CROWD {
        let mut guest = server.client();
        match n % 3 {
            0 => guest.send(format!("DLOCK.ACQUIRE k o{n} PX 600000 BLOCK 0 SESSION")),
            1 => guest.send(format!("DLOCK.ACQUIRE s{n} o PX 600000 SESSION")),
            // The guest never says the rest.
            _ => guest.send_raw(b"*4\r\n$13\r\nDLOCK.ACQ"),
        }
        crowd.push(guest);
        if n % 100 == 0 {
            // The server keeps up with those who connect.
            client.text("PING");
        }
    }
    let waiting = CROWD.div_ceil(3) as i64;
    server.left_waiting(waiting);
    soon("the others have locks", || counter(&mut client, "sessions") == (CROWD / 3) as i64);
    // Everything goes on.
    assert_eq!(client.int("DLOCK.RELEASE k a"), 1);
    let first = crowd[0].granted();
    assert!(client.int("DLOCK.ACQUIRE other a") > first);
    assert_eq!(client.int("DLOCK.RELEASE other a"), 1);
    assert_eq!(client.int("DLOCK.RELEASE k o0"), 1);
    assert!(crowd[3].granted() > first);
    drop(crowd);
    soon("everybody is gone", || info_field(&mut client, "clients", "connected_clients").as_deref() == Some("1"));
    soon("and has left nothing", || client.int("DBSIZE") == 0);
    assert_eq!(["waiters", "queues", "sessions"].map(|name| counter(&mut client, name)), [0; 3]);
    client.int("DLOCK.ACQUIRE k b");
}

/// Returns a client that holds a lock by its session, one that waits at the head of a queue, and one that waits behind
/// it.
fn three(server: &Server) -> (Client, Client, Client) {
    let mut session = server.client();
    session.int("DLOCK.ACQUIRE held a PX 600000 SESSION");
    server.client().int("DLOCK.RLOCK k a PX 600000");
    let writer = server.waiter("DLOCK.WLOCK k w PX 600000 BLOCK 0");
    let reader = server.waiter("DLOCK.RLOCK k r PX 600000 BLOCK 0");
    (session, writer, reader)
}

#[test]
fn a_machine_that_vanished_is_noticed_by_keepalive() {
    let server = Server::conf("tcp-keepalive 1");
    let (session, writer, mut reader) = three(&server);
    let mut next = server.waiter("DLOCK.ACQUIRE held b BLOCK 0");
    if let Err(error) = writer.vanish() {
        return skipped(&format!("needs CAP_NET_ADMIN: {error}"));
    }
    session.vanish().expect("allowed just now");
    next.granted();
    reader.granted();
    assert_eq!(server.waiting(), 0);
}

#[test]
fn a_connection_that_is_closed_on_one_side_is_over() {
    let server = Server::start();
    let (session, writer, mut reader) = three(&server);
    let mut next = server.waiter("DLOCK.ACQUIRE held b BLOCK 0");
    session.hang_up();
    next.granted();
    writer.hang_up();
    reader.granted();
}

#[test]
fn half_a_command_holds_up_nobody() {
    let (server, mut client) = Server::start().with_client();
    let whole = "*3\r\n$13\r\nDLOCK.ACQUIRE\r\n$1\r\nk\r\n$1\r\na\r\n".as_bytes();
    let mut others: Vec<_> = (1..whole.len()).map(|_| server.client()).collect();
    for (at, other) in others.iter_mut().enumerate() {
        other.send_raw(&whole[..at + 1]);
    }
    client.int("DLOCK.ACQUIRE k first");
    assert_eq!(client.int("DLOCK.RELEASE k first"), 1);
    let mut grants = 0;
    for (at, other) in others.iter_mut().enumerate() {
        other.send_raw(&whole[at + 1..]);
        grants += usize::from(matches!(other.read(), Ok(redis::Value::Int(_))));
    }
    assert_eq!(grants, 1, "one of them gets it");
    assert_eq!(lock_info(&mut client, "k").unwrap().count, 1);
}
