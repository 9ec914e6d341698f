//! Clients that vanish while they wait: the queue closes up behind them.

use crate::support::replica::counter;
use crate::support::{Client, Server, soon};

/// Ways for a client to go.
const WAYS: [&str; 3] = ["close", "CLIENT KILL", "close after more requests"];

fn vanish(client: &mut Client, mut waiter: Client, id: i64, way: &str) {
    match way {
        "CLIENT KILL" => assert_eq!(client.int(format!("CLIENT KILL ID {id}")), 1),
        "close" => {}
        _ => (0..10).for_each(|_| waiter.send("DLOCK.ACQUIRE other x")),
    }
    drop(waiter);
}

#[test]
fn head_middle_and_tail_leave_the_queue_intact() {
    let (server, mut client) = Server::start().with_client();
    for way in WAYS {
        for gone in [vec![0], vec![2], vec![4], vec![0, 1], vec![1, 3], vec![3, 4], vec![0, 2, 4], vec![0, 1, 2, 3]] {
            client.ok("FLUSHALL");
            client.int("DLOCK.ACQUIRE k a");
            let mut waiters: Vec<_> = (0..5)
                .map(|n| {
                    let mut waiter = server.client();
                    let id = waiter.id();
                    server.enters_queue(&mut waiter, format!("DLOCK.ACQUIRE k w{n} BLOCK 0"));
                    Some((waiter, id))
                })
                .collect();
            for at in &gone {
                let (waiter, id) = waiters[*at].take().unwrap();
                vanish(&mut client, waiter, id, way);
            }
            server.left_waiting(5 - gone.len() as i64);
            let stay: Vec<_> = (0..5).filter(|n| !gone.contains(n)).map(|n| format!("w{n}")).collect();
            assert_eq!(server.queue("k"), stay, "{way} {gone:?}");
            let mut holder = "a".to_owned();
            for (n, waiter) in waiters.iter_mut().enumerate() {
                let Some((waiter, _)) = waiter else { continue };
                assert_eq!(client.int(format!("DLOCK.RELEASE k {holder}")), 1);
                waiter.granted();
                holder = format!("w{n}");
            }
            assert_eq!(client.int(format!("DLOCK.RELEASE k {holder}")), 1);
            assert_eq!((client.int("EXISTS k"), server.waiting()), (0, 0), "{way} {gone:?}");
            assert_eq!(client.int("EXISTS other"), 0, "{way}: a request behind the wait was executed");
        }
    }
}

#[test]
fn a_client_that_is_gone_keeps_nobody_from_the_lock() {
    let (server, mut client) = Server::start().with_client();
    for round in 0..50 {
        client.int("DLOCK.ACQUIRE k a");
        let waiter = server.waiter("DLOCK.ACQUIRE k gone BLOCK 0 PX 600000");
        let mut next = server.waiter("DLOCK.ACQUIRE k next BLOCK 0 PX 600000");
        drop(waiter);
        if round % 2 == 0 {
            soon("it has left", || server.queue("k") == ["next"]);
            client.int("DLOCK.RELEASE k a");
            next.granted();
        } else {
            // The waiter may have been granted just before the server noticed: then the lock is its own until it is
            // released.
            client.int("DLOCK.RELEASE k a");
            client.run("DLOCK.RELEASE k gone");
            next.granted();
        }
        assert_eq!(client.int("DLOCK.RELEASE k next"), 1);
    }
    assert_eq!(counter(&mut client, "waiters"), 0);
}

#[test]
fn a_dying_client_is_not_granted_its_own_lock() {
    let (server, mut client) = Server::start().with_client();
    let mut both = server.client();
    // A connection that holds as `a`, bound to itself, and waits as `b`.
    both.int("DLOCK.ACQUIRE k a SESSION");
    server.enters_queue(&mut both, "DLOCK.ACQUIRE k b BLOCK 0");
    drop(both);
    server.left_waiting(0);
    soon("the lock is free", || client.int("EXISTS k") == 0);
    assert_eq!(counter(&mut client, "grants"), 1);
}

#[test]
fn a_lock_survives_all_of_its_waiters() {
    let (server, mut client) = Server::start().with_client();
    client.int("DLOCK.ACQUIRE k a PX 600000");
    let waiters = server.waiters((0..30).map(|n| format!("DLOCK.ACQUIRE k w{n} BLOCK 0")));
    drop(waiters);
    server.left_waiting(0);
    assert_eq!(counter(&mut client, "queues"), 0);
    assert_eq!(server.holders("k"), ["a"]);
    assert_eq!(client.int("DLOCK.RELEASE k a"), 1);
    assert_eq!(client.int("EXISTS k"), 0);
    client.int("DLOCK.ACQUIRE k b");
}
