//! No client holds the event loop: what it can make large is done in pieces, and a search has a budget.

use std::time::Duration;

use crate::support::crowds::{
    MANY, crossing, join, queue, readers, readers_until, reads_of, session_of_many, several_held, waiters_for_all,
};
use crate::support::replica::counter;
use crate::support::skip::skipped;
use crate::support::turn::least_of_three;
use crate::support::version::Version;
use crate::support::{Server, eventually, lock_info, req, soon};

/// A tick takes 1 ms, and up to 4 ms on a busy server. A `PING` may wait for two ticks, and for the commands and the
/// server's own work between them. The rest is for a machine that is slow while other tests use it.
pub(super) const PIECE: Duration = Duration::from_millis(14);
/// A command that reads takes less than 1 ms. The rest is for a busy machine.
const READ: Duration = Duration::from_millis(3);
/// The aim is 1 ms for a search. The rest is for what the command does beside it, and for a busy machine.
const SEARCH: Duration = Duration::from_millis(3);

#[track_caller]
pub(super) fn within(limit: Duration, found: Duration, what: &str) {
    eprintln!("{what}: {found:?}");
    assert!(found <= limit, "{what}: {found:?}, not {limit:?}");
}

/// The longest turn of the server while this request, whose wait ends after 1 ms, is sent three times.
#[track_caller]
fn search(server: &Server, request: &str) -> Duration {
    let mut client = server.client();
    least_of_three(|| server.longest_turn(|| (0..3).for_each(|_| client.nil(request))))
}

#[test]
fn a_deadlock_search_has_a_budget_whatever_the_sizes() {
    for (waiters, bytes) in [(480, 6), (480, 1000), (700, 1000)] {
        let server = Server::start();
        let _queue = crossing(&server, waiters, bytes);
        let found = search(&server, &format!("DLOCK.WLOCK k0 {:x>bytes$} BLOCK 1", ""));
        within(SEARCH, found, &format!("{waiters} waiters, owners of {bytes} bytes"));
    }
}

#[test]
fn a_deadlock_search_through_a_long_queue_has_a_budget() {
    let server = Server::start();
    server.client().int("DLOCK.ACQUIRE k0 holder PX 600000");
    let _queue = queue(&server, 700, |n| format!("DLOCK.RLOCK k0 {n:01000} BLOCK 0"));
    server.client().int("DLOCK.ACQUIRE other z PX 600000");
    let _elsewhere = server.waiter("DLOCK.ACQUIRE other holder BLOCK 0");
    let found = search(&server, "DLOCK.WLOCK k0 y BLOCK 1");
    within(SEARCH, found, "700 waiters for one lock");
}

/// Each of the readers in the way waits elsewhere, for a lock that the user may read by the last of its patterns.
#[test]
fn a_deadlock_search_pays_for_the_patterns_of_the_user() {
    const READERS: usize = 390;
    let (server, mut client) = Server::start().with_client();
    let patterns: String = (0..11).map(|n| format!(" ~*a*a*a*x{n}")).collect();
    client.ok(format!("ACL SETUSER many on nopass resetkeys +@all{patterns} ~k0 ~*-*"));
    let name = |n: usize| format!("{:a>400}", format!("-{n}"));
    client.pour((0..READERS).map(|n| format!("DLOCK.RLOCK k0 {n} PX 600000")));
    client.pour((0..READERS).map(|n| format!("DLOCK.RLOCK {} other PX 600000", name(n))));
    let _waiting = queue(&server, READERS, |n| format!("DLOCK.WLOCK {} {n} BLOCK 0", name(n)));
    let mut user = server.client();
    user.ok("AUTH many any");
    let found = least_of_three(|| server.longest_turn(|| (0..3).for_each(|_| user.nil("DLOCK.WLOCK k0 x BLOCK 1"))));
    within(SEARCH, found, "13 patterns and 390 locks");
}

#[test]
fn a_deadlock_search_pays_for_long_owners() {
    let (server, mut client) = Server::start().with_client();
    client.pour((0..20_000).map(|n| format!("DLOCK.RLOCK k0 {n:01000} PX 600000")));
    let found = search(&server, "DLOCK.WLOCK k0 x BLOCK 1");
    within(SEARCH, found, "20,000 readers with owners of 1,000 bytes");
}

#[test]
fn deadlock_searches_of_a_crowd_share_the_budget_of_one() {
    const CLIENTS: usize = 300;
    // Apart from the search, a request that waits takes 20 to 30 µs.
    const JOINS: Duration = Duration::from_millis(80);
    let found = least_of_three(|| {
        let (server, mut client) = Server::start().with_client();
        client.pour((0..8000).map(|n| format!("DLOCK.RLOCK k0 {n} PX 600000")));
        let mut crowd: Vec<_> = (0..CLIENTS).map(|_| server.client()).collect();
        server.takes(|| {
            crowd.iter_mut().enumerate().for_each(|(n, client)| client.send(format!("DLOCK.WLOCK k0 x{n} BLOCK 0")));
            server.left_waiting(CLIENTS as i64);
        })
    });
    within(JOINS, found, "300 writers that wait for 8,000 readers");
}

#[test]
fn a_short_cycle_is_found_however_many_wait_elsewhere() {
    let server = Server::start();
    let _queue = crossing(&server, 480, 1000);
    let mut client = server.client();
    client.int("DLOCK.ACQUIRE L1 b");
    client.int("DLOCK.ACQUIRE L2 a");
    let _b = server.waiter("DLOCK.ACQUIRE L2 b BLOCK 0");
    let error = client.error("DLOCK.ACQUIRE L1 a BLOCK 0");
    assert_eq!(error, "DEADLOCK a waits for L1 held by b, b waits for L2 held by a");
}

#[test]
fn reading_a_crowded_lock_is_quick_while_ended_sessions_wait_out_a_pause() {
    let server = Server::start();
    let (_readers, mut client) = readers(&server, |n| format!("DLOCK.RLOCK k reader-{n} PX 600000"));
    let mut session = server.client();
    assert_eq!(session.int("DLOCK.RENEW k bound SESSION"), 1);
    let token = client.int("DLOCK.RLOCK k last PX 600000");
    client.ok("CLIENT PAUSE 600000 WRITE");
    client.watch_close(session);
    assert_eq!(lock_info(&mut client, "k OWNER bound").unwrap().holds(), [], "its session has ended");
    for request in [format!("DLOCK.CHECK k {token}"), "DLOCK.INFO k".to_owned(), "DLOCK.INFO k FULL".to_owned()] {
        let found = least_of_three(|| server.takes(|| drop(client.run(&request))));
        within(PIECE, found, &request);
    }
    client.ok("CLIENT UNPAUSE");
}

#[test]
fn reading_is_quick_while_a_hundred_thousand_ended_holds_wait_out_a_pause() {
    let server = Server::start();
    let (session, mut client) = readers(&server, |n| format!("DLOCK.RLOCK k reader-{n} PX 600000 SESSION"));
    let token = client.int("DLOCK.RLOCK k last PX 600000");
    client.ok("CLIENT PAUSE 600000 WRITE");
    let found = server.longest_turn(|| client.watch_close(session));
    let info = lock_info(&mut client, "k").unwrap();
    assert_eq!((info.holders, info.count, info.token), (2, 2, token), "those of the session are over");
    for request in [format!("DLOCK.CHECK k {token}"), "DLOCK.INFO k".to_owned(), "DLOCK.INFO k FULL".to_owned()] {
        let found = least_of_three(|| server.takes(|| drop(client.run(&request))));
        within(PIECE, found, &request);
    }
    within(PIECE, found, "the end of the session");
}

/// The worst order: the ended holds have later deadlines and higher tokens than the one that is left.
#[test]
fn info_is_quick_where_the_ended_holds_come_after_the_one_that_is_left() {
    let (server, mut client) = Server::start().with_client();
    let token = client.int("DLOCK.RLOCK k early PX 300000");
    let mut session = server.client();
    session.pour((0..MANY).map(|n| format!("DLOCK.RLOCK k reader-{n} PX 600000 SESSION")));
    assert_eq!(lock_info(&mut client, "k").unwrap().holders, MANY as i64 + 1);
    client.ok("CLIENT PAUSE 600000 WRITE");
    client.watch_close(session);
    let info = lock_info(&mut client, "k").unwrap();
    assert_eq!((info.holders, info.count, info.token), (1, 1, token), "those of the session are over");
    let found = least_of_three(|| server.takes(|| drop(client.run("DLOCK.INFO k"))));
    within(PIECE, found, "DLOCK.INFO k");
}

/// Reading beside holds in a grace, which `INFO` shows until the grace ends, although no visit has settled them.
#[test]
fn reading_is_quick_while_a_hundred_thousand_ended_holds_are_in_a_grace() {
    let server = Server::start();
    let (session, mut client) = readers(&server, |n| format!("DLOCK.RLOCK k reader-{n} PX 600000 SESSION"));
    client.ok("CONFIG SET dlock.session-grace 300000");
    client.ok("CLIENT PAUSE 600000 WRITE");
    client.watch_close(session);
    let info = lock_info(&mut client, "k FULL").unwrap();
    assert_eq!((info.holders, info.holds().len()), (MANY as i64 + 1, 10));
    assert!(info.ttl > 300_000, "the hold without a session has the longer lease");
    assert!(info.holds().iter().all(|hold| hold.ttl <= 300_000), "the grace is shorter");
    let reads = reads_of(&mut client);
    if !reads.contains(&"MEMORY USAGE k") {
        skipped("MEMORY USAGE of a module's value crashes this server");
    }
    for &request in reads {
        within(READ, least_of_three(|| server.takes(|| drop(client.run(request)))), request);
    }
}

#[test]
fn all_that_info_shows_of_a_hundred_thousand_holds_is_a_thousand() {
    let server = Server::start();
    let (_readers, mut client) = readers(&server, |n| format!("DLOCK.RLOCK k reader-{n} PX 600000"));
    for count in [0, 1_000_000] {
        let request = format!("DLOCK.INFO k FULL COUNT {count}");
        let info = lock_info(&mut client, &format!("k FULL COUNT {count}")).unwrap();
        assert_eq!((info.holds().len(), info.holders), (1000, MANY as i64 + 1));
        assert!(info.holds().is_sorted_by_key(|hold| hold.token));
        let found = least_of_three(|| server.takes(|| drop(client.run(&request))));
        within(PIECE, found, &request);
    }
}

#[test]
fn a_hundred_thousand_ended_holds_are_released_in_pieces_after_a_pause() {
    let found = least_of_three(|| {
        let server = Server::start();
        let (session, mut client) = readers(&server, |n| format!("DLOCK.RLOCK k reader-{n} PX 600000 SESSION"));
        client.int("DLOCK.RLOCK k last PX 600000");
        client.ok("CLIENT PAUSE 600000 WRITE");
        client.watch_close(session);
        let found = server.longest_turn(|| {
            client.ok("CLIENT UNPAUSE");
            soon("all are released", || counter(&mut client, "session_ends") == MANY as i64);
        });
        assert_eq!(lock_info(&mut client, "k").unwrap().holders, 2);
        found
    });
    within(PIECE, found, "the releases after the pause");
}

#[test]
fn a_session_of_a_hundred_thousand_locks_ends_in_pieces() {
    let found = least_of_three(|| {
        let server = Server::start();
        let (session, mut client) = (session_of_many(&server), server.client());
        assert_eq!(counter(&mut client, "sessions"), MANY as i64);
        server.longest_turn(|| {
            drop(session);
            soon("all are released", || client.int("DBSIZE") == 0);
        })
    });
    within(PIECE, found, "100,000 locks");
}

#[test]
fn a_session_of_a_hundred_thousand_holds_of_one_lock_ends_in_pieces() {
    let found = least_of_three(|| {
        let server = Server::start();
        let (session, mut client) = readers(&server, |n| format!("DLOCK.RLOCK k reader-{n} PX 600000 SESSION"));
        let mut writer = server.waiter("DLOCK.WLOCK k bound BLOCK 0");
        let turn = server.longest_turn(|| {
            drop(session);
            writer.granted();
            soon("all are released", || counter(&mut client, "session_ends") == MANY as i64);
        });
        let info = lock_info(&mut client, "k").unwrap();
        assert_eq!((info.mode.as_str(), info.holders, info.count), ("both", 1, 2));
        turn
    });
    within(PIECE, found, "100,000 holds of one lock");
}

#[test]
fn four_thousand_readers_get_in_by_pieces() {
    let found = least_of_three(|| {
        let (server, mut client) = Server::start().with_client();
        client.int("DLOCK.WLOCK k writer PX 600000");
        let mut waiting = queue(&server, 4_000, |n| format!("DLOCK.RLOCK k reader-{n} PX 600000 BLOCK 0"));
        let turn = server.longest_turn(|| {
            client.int("DLOCK.RELEASE k writer");
            server.left_waiting(0);
        });
        assert!(waiting.iter_mut().all(|reader| reader.granted() > 0));
        turn
    });
    within(PIECE, found, "4,000 readers");
}

#[test]
fn a_thousand_requests_for_64_locks_are_sent_away_in_pieces() {
    let found = least_of_three(|| {
        let server = Server::start();
        let (mut client, mut waiters) = (several_held(&server), waiters_for_all(&server));
        join(&server, &mut waiters);
        server.longest_turn(|| {
            client.ok("SET k0 over");
            server.left_waiting(0);
        })
    });
    within(PIECE, found, "1,000 requests for 64 locks");
}

#[test]
fn requests_for_several_locks_that_end_with_a_release_are_answered_in_pieces() {
    let found = least_of_three(|| {
        let (server, mut client) = Server::start().with_client();
        client.int("DLOCK.ACQUIRE k holder PX 600000");
        let waiters: usize = 3_000;
        let _waiting = queue(&server, waiters, |n| format!("DLOCK.MACQUIRE 2 k x{n} w{n} BLOCK 0"));
        client.pour((0..waiters).map(|n| format!("SET x{n} no-lock")));
        server.longest_turn(|| {
            client.int("DLOCK.RELEASE k holder");
            server.left_waiting(0);
        })
    });
    within(PIECE, found, "3,000 requests for 2 locks");
}

#[test]
fn leases_of_a_session_that_are_all_due_after_a_pause_are_extended_in_pieces() {
    let found = least_of_three(|| {
        let server = Server::start();
        let (mut session, mut client) = (server.client(), server.client());
        let locks = MANY / 3;
        session.pour((0..locks).map(|n| format!("DLOCK.ACQUIRE k{n} a PX 18000 SESSION")));
        // The holds are due for renewal 6 s after they were granted, and less than 11 s are left when the pause ends.
        client.ok("CLIENT PAUSE 7000 WRITE");
        let sample: Vec<_> = (0..locks).step_by(1000).map(|n| format!("PTTL k{n}")).collect();
        server.longest_turn(|| {
            client.pass_ms(7000);
            soon("all are extended", || sample.iter().all(|request| client.int(&**request) > 11_500));
        })
    });
    within(PIECE, found, "33,333 renewals");
}

#[test]
fn sessions_of_a_swapped_database_are_looked_at_in_pieces() {
    let found = least_of_three(|| {
        let server = Server::start();
        let (_session, mut client) = (session_of_many(&server), server.client());
        server.longest_turn(|| {
            client.ok("SWAPDB 0 1");
            soon("no hold is bound", || counter(&mut client, "sessions") == 0);
        })
    });
    within(PIECE, found, "SWAPDB");
}

/// Each client has more locks than the server looks at in one go (64).
#[test]
fn many_large_sessions_that_end_together_end_in_pieces() {
    const CLIENTS: usize = 500;
    let found = least_of_three(|| {
        let server = Server::start();
        let mut sessions: Vec<_> = (0..CLIENTS).map(|_| server.client()).collect();
        for (n, session) in sessions.iter_mut().enumerate() {
            session.pour((0..65).map(|k| format!("DLOCK.ACQUIRE k{n}-{k} a PX 600000 SESSION")));
        }
        let mut client = server.client();
        server.longest_turn(|| {
            drop(sessions);
            soon("all are released", || client.int("DBSIZE") == 0);
        })
    });
    // The server frees 500 connections in that turn.
    within(4 * PIECE, found, "500 sessions of 65 locks");
}

#[test]
fn a_role_change_unbinds_a_hundred_thousand_holds_in_pieces() {
    let found = least_of_three(|| {
        let server = Server::start();
        let (_session, mut client) = (session_of_many(&server), server.client());
        let turn = server.longest_turn(|| {
            client.ok("REPLICAOF 127.0.0.1 1");
            soon("no hold is bound", || counter(&mut client, "sessions") == 0);
        });
        client.ok("REPLICAOF NO ONE");
        turn
    });
    within(PIECE, found, "REPLICAOF");
}

#[test]
fn a_hundred_thousand_lapsed_holds_are_dropped_in_pieces() {
    let server = Server::start();
    let (mut client, end) = readers_until(&server);
    let (dump, last) = (client.bytes("DUMP k"), client.end_of("k"));
    client.pass(end);
    let mut at = 0;
    let found = least_of_three(|| {
        at += 1;
        let key = format!("copy{at}");
        client.ok(req!["RESTORE", &key, last, &dump, "ABSTTL"]);
        let turn = server.longest_turn(|| {
            assert!(client.int(format!("DLOCK.RLOCK {key} new PX 600000")) > 0);
        });
        let info = lock_info(&mut client, &key).unwrap();
        assert_eq!((info.holders, info.count), (2, 2), "what has lapsed does not count");
        turn
    });
    within(PIECE, found, "an RLOCK beside 100,000 lapsed holds");
    // Lapsed holds that are still stored count for nobody.
    client.int("DLOCK.RLOCK k new PX 600000");
    client.int("DLOCK.RELEASE k bound");
    client.int("DLOCK.WLOCK k new");
}

#[test]
fn a_lock_that_a_crowd_has_left_gives_its_memory_back() {
    const LEFT: i64 = 10_000;
    for way in ["release", "lapse"] {
        let server = Server::start();
        if !Version::measures_module_values(&mut server.client()) {
            return skipped("MEMORY USAGE of a module's value crashes this server");
        }
        let (mut client, end) = if way == "lapse" {
            readers_until(&server)
        } else {
            (readers(&server, |n| format!("DLOCK.RLOCK k reader-{n} PX 600000")).0, 0)
        };
        let most = client.int("MEMORY USAGE k SAMPLES 0");
        assert!(most > 40 * MANY as i64, "{most} bytes with all of them");
        client.int("DLOCK.RLOCK k other PX 600000");
        client.pass(end);
        if way == "release" {
            client.pour((0..MANY).map(|n| format!("DLOCK.RELEASE k reader-{n}")));
        }
        eventually(Duration::from_secs(5), &format!("less than {LEFT} bytes are left after {way}"), || {
            // Commands drop what has lapsed, a piece at a time.
            client.int("DLOCK.RLOCK k other PX 600000");
            client.int("MEMORY USAGE k SAMPLES 0") < LEFT
        });
        assert_eq!(lock_info(&mut client, "k").unwrap().holders, 2, "{way}");
    }
}
