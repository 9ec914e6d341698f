//! A client that makes much work for the timer delays its own locks, not those of others.

use std::time::Duration;

use crate::support::client::Request;
use crate::support::cluster::Cluster;
use crate::support::replica::counter;
use crate::support::skip::skipped;
use crate::support::{Client, Server, soon};

/// The lease of those that are attacked. The promise holds while a `PING` takes less than a ninth of it.
const LEASE: Duration = Duration::from_millis(1800);

/// A machine that is busy with other tests stops the server for longer than a lease now and then: such a run is
/// invalid.
#[track_caller]
fn keeps_sessions(act: impl Fn(&Server) -> Box<dyn std::any::Any>) {
    let run = |_| {
        let server = Server::start();
        let outcome = server.sessions_under(LEASE, || act(&server));
        eprintln!("{outcome:?}");
        (outcome.lost == 0 || outcome.longest_ping < LEASE / 9).then_some(outcome.lost)
    };
    match (0..5).find_map(run) {
        Some(lost) => assert_eq!(lost, 0, "a live session was lost"),
        None => skipped("in no run did the machine let the server answer PING in time"),
    }
}

#[test]
fn clients_that_take_short_sessions_at_full_speed_cost_others_no_session() {
    keeps_sessions(|server| {
        Box::new(server.flood(3, |client, n| format!("DLOCK.ACQUIRE new-{client}-{n} o PX 300 SESSION").packed()))
    });
}

#[test]
fn clients_that_take_long_sessions_at_full_speed_cost_others_no_session() {
    keeps_sessions(|server| {
        Box::new(server.flood(3, |client, n| format!("DLOCK.ACQUIRE new-{client}-{n} o PX 3000 SESSION").packed()))
    });
}

#[test]
fn sessions_that_end_with_many_locks_cost_others_no_session() {
    keeps_sessions(|server| {
        let mut sessions: Vec<Client> = (0..8).map(|_| server.client()).collect();
        for (client, session) in sessions.iter_mut().enumerate() {
            session.pour((0..10_000).map(|n| format!("DLOCK.ACQUIRE many-{client}-{n} o PX 600000 SESSION")));
        }
        let flood = server.flood(2, |client, n| format!("DLOCK.ACQUIRE new-{client}-{n} o PX 300 SESSION").packed());
        drop(sessions);
        Box::new(flood)
    });
}

#[test]
fn flushes_and_swaps_at_full_speed_cost_others_no_session() {
    keeps_sessions(|server| {
        let mut session = server.client();
        session.pour((0..100_000).map(|n| format!("DLOCK.ACQUIRE many-{n} o PX 600000 SESSION")));
        let requests = ["SELECT 9", "FLUSHDB", "SWAPDB 10 11", "DLOCK.ACQUIRE k o SESSION"];
        Box::new((session, server.flood(2, move |_, n| requests[n as usize % requests.len()].packed())))
    });
}

/// The waiter is served when the lease ends, whatever others make due at the same time.
#[test]
fn waiters_are_served_in_time_while_others_take_short_sessions_at_full_speed() {
    // A run in which the machine stops the server is invalid: a PING then takes 200 ms or more.
    match (0..5).find_map(|_| latest_beside_short_sessions()) {
        Some((latest, longest)) => {
            let limit = (3 * longest + Duration::from_millis(30)).as_millis();
            assert!(latest as u128 <= limit, "served {latest} ms late, the longest PING took {longest:?}");
        }
        None => skipped("in no run did the machine let the server answer PING in time"),
    }
}

/// Returns by how many ms the latest of three waiters was served late, and how long a PING took at most. `None`: the
/// server was stopped.
fn latest_beside_short_sessions() -> Option<(i64, Duration)> {
    let server = Server::start();
    let mut latest = 0;
    let longest = server.longest_ping(|| {
        let flood = server.flood(3, |client, n| format!("DLOCK.ACQUIRE new-{client}-{n} o PX 300 SESSION").packed());
        let mut client = server.client();
        for n in 0..3 {
            // A token counts the microseconds. On a busy machine the lease may be over before its end is asked for.
            let end = client.int(format!("DLOCK.ACQUIRE k{n} a PX 1500")) / 1000 + 1500;
            latest = latest.max(server.client().int(format!("DLOCK.ACQUIRE k{n} b BLOCK 0")) / 1000 - end);
        }
        drop(flood);
    });
    (longest < Duration::from_millis(200)).then_some((latest, longest))
}

/// Connections that close together are no more than one piece of work, however many they are.
#[test]
fn thousands_of_sessions_that_end_together_cost_others_no_session() {
    keeps_sessions(|server| {
        let mut dead: Vec<Client> = (0..1500).map(|_| server.client()).collect();
        for (client, session) in dead.iter_mut().enumerate() {
            session.pour((0..64).map(|n| format!("DLOCK.RLOCK crowd-{client} o{n} PX 600000 SESSION")));
        }
        drop(dead);
        Box::new(())
    });
}

/// The head of a queue does not pay for what others left behind on that lock.
#[test]
fn a_waiter_for_a_crowd_that_has_left_keeps_its_own_session() {
    // A run is invalid in which the machine stops the server.
    match (0..5).find_map(|_| while_a_crowd_leaves()) {
        Some(is_lost) => assert!(!is_lost, "a live session was lost"),
        None => skipped("in no run did the machine let the server answer PING in time"),
    }
}

/// Returns whether a waiter for a crowd loses its own session while the crowd leaves. `None`: the server was stopped.
fn while_a_crowd_leaves() -> Option<bool> {
    let server = Server::start();
    let [mut client, mut other, mut crowd] = [server.client(), server.client(), server.client()];
    other.int("DLOCK.ACQUIRE elsewhere x PX 600000");
    crowd.pour((0..200_000).map(|n| format!("DLOCK.RLOCK crowd o{n} PX 18000000 SESSION")));
    let mut waiter = server.client();
    let token = waiter.int(format!("DLOCK.ACQUIRE mine w PX {} SESSION", LEASE.as_millis()));
    server.enters_queue(&mut waiter, "DLOCK.MACQUIRE 2 crowd elsewhere w2 BLOCK 0");
    drop(crowd);
    let mut is_lost = false;
    let longest = server.longest_ping(|| {
        soon("the crowd has left", || {
            is_lost = client.run(format!("DLOCK.CHECK mine {token}")) == redis::Value::Nil;
            is_lost || counter(&mut client, "sessions") == 1
        });
    });
    let limit = if is_lost { LEASE / 9 } else { Duration::from_secs(1) };
    (longest < limit).then_some(is_lost)
}

/// In a cluster, the module asks the server about each key of a request that waits. The server removes a key that has
/// expired, and tells nobody.
#[test]
fn a_key_that_expires_under_a_question_costs_others_no_session() {
    let cluster = Cluster::start(1);
    let [mut client, mut session, mut victim] = [cluster.client(0), cluster.client(0), cluster.client(0)];
    client.ok("DEBUG SET-ACTIVE-EXPIRE 0");
    let begin = client.now();
    let token = victim.int("DLOCK.ACQUIRE {s}victim v PX 2000 SESSION");
    session.int("DLOCK.ACQUIRE {s}early o PX 6000 SESSION");
    client.int("DLOCK.ACQUIRE {s}first a PX 600000");
    client.int("DLOCK.ACQUIRE {s}last a PX 600000");
    let waiter = cluster.nodes[0].waiter("DLOCK.MACQUIRE 3 {s}first {s}early {s}last w BLOCK 0");
    // No timer runs in between.
    let turn = client.pipeline(&["PEXPIRE {s}early 1", "DEBUG SLEEP 0.01", "DLOCK.RELEASE {s}first a"]);
    assert!(turn.iter().all(Result::is_ok), "{turn:?}");
    // Between 2 and 6 seconds, the watchdog would come back to the lock that is gone.
    soon("the victim's lease is extended beyond the time of the lock that is gone", || {
        let is_held = client.run(format!("DLOCK.CHECK {{s}}victim {token}")) != redis::Value::Nil;
        assert!(is_held, "a live session was lost");
        client.end_of("{s}victim") > begin + 6500
    });
    drop((waiter, session));
}

/// The timer looks at the locks in the order in which they went: those that were due to be extended next come last.
#[test]
fn locks_that_are_removed_from_the_last_to_the_first_cost_others_no_session() {
    const LOCKS: usize = 20_000;
    let (server, [mut client, mut session, mut victim, mut marker]) = Server::start().with_clients();
    marker.int("DLOCK.ACQUIRE marker m PX 600000 SESSION");
    session.pour((0..LOCKS).map(|n| format!("DLOCK.ACQUIRE k{n} o PX 3000 SESSION")));
    victim.int("DLOCK.ACQUIRE victim v PX 6000 SESSION");
    let end = client.end_of("victim");
    let names: Vec<String> = (0..LOCKS).rev().map(|n| format!("k{n}")).collect();
    let mut requests: Vec<String> = names.chunks(1000).map(|names| format!("UNLINK {}", names.join(" "))).collect();
    // Between the two halves, another session ends.
    requests.insert(requests.len() / 2, format!("CLIENT KILL ID {}", marker.id()));
    requests.insert(0, "MULTI".to_owned());
    // By then, all renewals are due.
    requests.extend(["DEBUG SLEEP 2.1".to_owned(), "EXEC".to_owned()]);
    let replies = client.pipeline(&requests);
    assert!(replies.iter().all(Result::is_ok), "{replies:?}");
    let mut extended = 0;
    soon("the other session's hold is released", || {
        extended = client.end_of("victim");
        client.int("EXISTS marker") == 0
    });
    // The victim is extended before the marker is released: half of the removed locks are still to be looked at then.
    assert!(extended > end, "the victim waits until the timer has looked at every removed lock");
    drop(server);
}

/// Every renewal replicates the name of its key: a session must not keep the server busy forever.
#[test]
fn renewals_of_an_idle_session_have_a_limit() {
    let (server, [mut client, mut other]) = Server::start().with_clients();
    // Holds that end while a busy machine stops the server make room for others.
    let mut refused_of = |round| {
        let many: Vec<_> = (0..10_500).map(|n| format!("DLOCK.ACQUIRE k{round}-{n} o PX 1500 SESSION")).collect();
        client.pipeline(&many).into_iter().filter_map(Result::err).collect::<Vec<_>>()
    };
    let refused = (0..20).map(&mut refused_of).find(|refused| !refused.is_empty()).expect("refusals");
    let error = "ERR SESSION needs a longer lease or fewer holds: the renewals for one connection, or for the named sessions of a user, may not exceed 20000 a second";
    assert!(refused.iter().all(|refused| refused == error), "{refused:?}");
    assert!(other.int("DLOCK.ACQUIRE mine o PX 300 SESSION") > 0);
    let long = "x".repeat(65_537);
    let error = client.error(format!("DLOCK.ACQUIRE {long} o SESSION"));
    assert_eq!(error, "ERR SESSION needs a key name of at most 65536 bytes");
    assert!(client.int(format!("DLOCK.ACQUIRE {long} o")) > 0);
    assert_eq!(client.error(format!("DLOCK.RENEW {long} o SESSION")), error);
    drop(server);
}
