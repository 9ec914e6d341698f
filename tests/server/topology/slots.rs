//! Slots that move while the locks in them are contended. Every player follows its redirections; nobody gets in twice.

use super::contest::{Contest, assert_told};
use super::replicas::{is_kept, keep, one_of};
use crate::support::cluster_replicas::ReplicatedCluster;
use crate::support::replica::counter;
use crate::support::skip::skipped;
use crate::support::version::Version;
use crate::support::{Client, bytes_of, list_of, soon};

/// The part of every key that decides about its slot.
const TAG: &str = "{slot}";
const MOVES: usize = 4;

fn keys() -> Vec<String> {
    (0..3).map(|n| format!("{TAG}{n}")).collect()
}

/// Moves the slot key by key, as `redis-cli --cluster reshard` does it.
#[track_caller]
fn key_by_key(whole: &ReplicatedCluster, from: usize, to: usize) {
    let cluster = &whole.primaries;
    let mut client = cluster.client(from);
    let slot = client.int(format!("CLUSTER KEYSLOT {TAG}"));
    cluster.begin_move(TAG, from, to);
    loop {
        let keys = list_of(&client.run(format!("CLUSTER GETKEYSINSLOT {slot} 100")));
        if keys.is_empty() {
            break;
        }
        for key in keys {
            let key = String::from_utf8(bytes_of(&key)).expect("a readable key");
            // OK, or NOKEY if it has just been released.
            client.run(format!("MIGRATE 127.0.0.1 {} {key} 0 10000", cluster.nodes[to].port()));
        }
    }
    cluster.end_move(TAG, to);
}

/// Moves the whole slot at once.
#[track_caller]
fn at_once(whole: &ReplicatedCluster, from: usize, to: usize) {
    let cluster = &whole.primaries;
    let slot = cluster.client(from).int(format!("CLUSTER KEYSLOT {TAG}"));
    let request = format!("CLUSTER MIGRATESLOTS SLOTSRANGE {slot} {slot} NODE {}", cluster.id(to));
    // Refused while the last move is not known everywhere.
    soon("it begins", || cluster.client(from).attempt(&request).is_ok());
    soon("everybody knows", || {
        let owner = |client: &mut Client| client.attempt(format!("DLOCK.INFO {TAG}"));
        let there = format!(":{}", cluster.nodes[to].port());
        (0..cluster.nodes.len()).all(|node| match owner(&mut cluster.client(node)) {
            Ok(_) => node == to,
            Err(error) => error.starts_with("MOVED ") && error.ends_with(&there),
        })
    });
}

/// Moves the slot back and forth while it is contended. The caller checks what the clients were told.
#[track_caller]
fn back_and_forth(whole: &ReplicatedCluster, carry: fn(&ReplicatedCluster, usize, usize)) -> Contest {
    let home = whole.primaries.home_of(TAG);
    let away = (home + 1) % whole.primaries.nodes.len();
    let key = format!("{TAG}kept");
    let (_session, kept) = keep(&whole.primaries.nodes[home], &key);
    let contest = Contest::begin(one_of(whole.ports()), &keys(), 0);
    for (from, to) in [(home, away), (away, home)].into_iter().cycle().take(MOVES) {
        let mut waiter = whole.primaries.nodes[from].waiter(format!("DLOCK.ACQUIRE {key} waiter BLOCK 0"));
        let highest = contest.highest_token();
        carry(whole, from, to);
        let error = waiter.fails();
        assert!(["TRYAGAIN", "MOVED"].contains(&error.split(' ').next().expect("a word")), "{error}");
        contest.goes_on();
        let mut there = whole.primaries.client(to);
        is_kept(&mut there, &key, kept);
        assert!(there.int(format!("DLOCK.ACQUIRE {TAG}new a PX 1")) > highest);
    }
    contest
}

/// Checks that only the kept lock is left, on its node and the replica of that node.
#[track_caller]
fn only_the_kept_one_is_left(whole: &ReplicatedCluster) {
    for (at, node) in whole.primaries.nodes.iter().enumerate() {
        let expected = i64::from(at == whole.primaries.home_of(TAG));
        let mut client = node.client();
        soon("nothing else is left", || client.int("DBSIZE") == expected);
        assert_eq!([counter(&mut client, "waiters"), counter(&mut client, "queues")], [0, 0]);
        whole.replicas[at].wait_synced(node);
        assert_eq!(whole.replicas[at].client().int("DBSIZE"), expected);
    }
}

#[test]
fn a_slot_that_moves_key_by_key_lets_in_no_second_owner() {
    let whole = ReplicatedCluster::start(3);
    let contest = back_and_forth(&whole, key_by_key);
    assert_told(&contest.told(), &["MOVED", "ASK"], &["TRYAGAIN", "nil"]);
    assert_eq!(contest.end(), 0, "no lock is lost");
    only_the_kept_one_is_left(&whole);
}

#[test]
fn a_slot_that_moves_at_once_lets_in_no_second_owner() {
    let whole = ReplicatedCluster::start(3);
    if !Version::of(&mut whole.primaries.client(0)).migrates_slots() {
        return skipped("this server has no CLUSTER MIGRATESLOTS");
    }
    let contest = back_and_forth(&whole, at_once);
    assert_told(&contest.told(), &["MOVED"], &["TRYAGAIN", "nil"]);
    assert_eq!(contest.end(), 0, "no lock is lost");
    only_the_kept_one_is_left(&whole);
}
