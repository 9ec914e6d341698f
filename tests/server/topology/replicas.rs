//! A primary with replicas: a failover that is planned loses nothing; one that is not loses only what no replica had.

use std::sync::Arc;

use redis::Value;

use super::contest::{Contest, assert_told};
use super::player::Guide;
use crate::support::state::{assert_same, state};
use crate::support::{Client, Server, Setup, hold, lock_info, soon};

fn keys() -> Vec<String> {
    (0..3).map(|n| format!("k{n}")).collect()
}

/// Tries one server after the other.
pub fn one_of(ports: Vec<u16>) -> Guide {
    Arc::new(move |tries| Some(ports[tries % ports.len()]))
}

/// Hands over to another server, as planned, and waits until it is done.
#[track_caller]
fn fail_over(from: &Server, to: &Server) {
    soon("it has handed over", || {
        let is_done = to.is_primary() && from.is_replica();
        if !is_done {
            // Refused while one is under way, and before the replica is connected.
            let _ = from.client().attempt(format!("FAILOVER TO 127.0.0.1 {} TIMEOUT 10000", to.port()));
        }
        is_done
    });
}

/// Takes a lock that no other client touches: its owner waits for it, with another one behind, and enters twice.
/// Returns the owner's connection and the token.
#[track_caller]
pub fn keep(server: &Server, key: &str) -> (Client, i64) {
    let mut other = server.client();
    other.int(format!("DLOCK.ACQUIRE {key} other PX 600000"));
    let mut session = server.waiter(format!("DLOCK.RACQUIRE {key} keeper PX 600000 BLOCK 0 SESSION"));
    let _behind = server.waiter(format!("DLOCK.ACQUIRE {key} behind BLOCK 0"));
    assert_eq!(other.int(format!("DLOCK.RELEASE {key} other")), 1);
    let token = session.granted();
    assert_eq!(session.int(format!("DLOCK.RACQUIRE {key} keeper")), token);
    (session, token)
}

/// Checks that the kept lock is there as it was, but for its session.
#[track_caller]
pub fn is_kept(client: &mut Client, key: &str, token: i64) {
    let hold = hold(client, key, "keeper", "exclusive").expect("it is still held");
    assert_eq!((hold.token, hold.count, hold.session), (token, 2, Value::Nil));
    assert!((500_000..=600_000).contains(&hold.ttl), "its deadline moved with it");
}

#[test]
fn a_planned_failover_loses_no_lock_and_lets_in_no_second_owner() {
    let first = Server::start();
    let all = [first.replica(), first.replica()];
    let [one, two] = &all;
    let (_session, kept) = keep(&first, "kept");
    let contest = Contest::begin(one_of([&first, one, two].map(Server::port).to_vec()), &keys(), 0);
    for (from, to) in [(&first, one), (one, &first), (&first, two)] {
        let highest = contest.highest_token();
        fail_over(from, to);
        contest.goes_on();
        is_kept(&mut to.client(), "kept", kept);
        assert!(to.client().int("DLOCK.ACQUIRE new a PX 1") > highest);
    }
    assert_told(&contest.told(), &["UNBLOCKED", "READONLY"], &["closed", "nil"]);
    assert_eq!(contest.end(), 0, "no lock is lost");
    two.keeps_only(1);
    let expected = state(&mut two.client());
    for replica in [&first, one] {
        replica.wait_synced(two);
        assert_same("replica", &expected, &state(&mut replica.client()));
    }
}

#[test]
fn after_an_unplanned_failover_every_grant_that_the_replica_had_stands() {
    let (mut primary, replica) = Setup::new().conf("appendonly yes\nappendfsync no").start().with_replica();
    let (mut session, kept) = keep(&primary, "kept");
    replica.wait_synced(&primary);
    let contest = Contest::begin(one_of(vec![primary.port(), replica.port()]), &keys(), 1);
    // The replica is cut off (nobody listens on that port), and does not get this one.
    replica.client().ok("REPLICAOF 127.0.0.1 1");
    let unseen = session.int("DLOCK.ACQUIRE unseen a PX 600000");
    let highest = contest.highest_token();
    primary.kill9();
    replica.promote();
    contest.demand_copies(0);
    contest.goes_on();
    let mut client = replica.client();
    is_kept(&mut client, "kept", kept);
    assert!(client.int("DLOCK.ACQUIRE unseen b PX 600000") > unseen.max(highest), "tokens increase all the same");
    // The old primary comes back with the locks in its file, which count no more once it follows the new one.
    primary.boot();
    assert!(lock_info(&mut primary.client(), "unseen OWNER a").is_some_and(|info| info.token == unseen));
    primary.follow(&replica);
    assert_told(&contest.told(), &["closed"], &["READONLY", "UNBLOCKED", "nil"]);
    assert_eq!(contest.end(), 0, "no lock is lost that the replica had");
    replica.keeps_only(2);
    primary.wait_synced(&replica);
    assert_same("the primary that came back", &state(&mut client), &state(&mut primary.client()));
}
