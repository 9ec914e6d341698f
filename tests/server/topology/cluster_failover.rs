//! A node of a cluster gives way to its replica, as planned or not.

use std::time::{Duration, Instant};

use super::contest::{Contest, assert_told};
use super::replicas::{is_kept, keep, one_of};
use crate::support::cluster_replicas::ReplicatedCluster;
use crate::support::state::{assert_same, state};
use crate::support::{Server, soon};

/// Keys of one slot.
fn keys() -> Vec<String> {
    (0..3).map(|n| format!("{{a}}{n}")).collect()
}

const KEPT: &str = "{a}kept";

/// An attempt is over by then, whatever has become of it: the server gives it 5 seconds.
const ATTEMPT: Duration = Duration::from_secs(7);

/// Hands over to the replica, as planned, and waits until it is done.
#[track_caller]
fn fail_over(from: &Server, to: &Server) {
    let mut last: Option<Instant> = None;
    soon("it has handed over", || {
        let is_done = to.is_primary() && from.is_replica();
        // A second attempt while one is under way would begin again, and pause the primary for longer.
        if !is_done && last.is_none_or(|last| last.elapsed() > ATTEMPT) {
            last = to.client().attempt("CLUSTER FAILOVER").is_ok().then(Instant::now);
        }
        is_done
    });
}

#[test]
fn a_planned_cluster_failover_loses_no_lock_and_lets_in_no_second_owner() {
    let whole = ReplicatedCluster::start(3);
    let home = whole.primaries.home_of(KEPT);
    let (first, second) = (&whole.primaries.nodes[home], &whole.replicas[home]);
    let (_session, kept) = keep(first, KEPT);
    let contest = Contest::begin(one_of(whole.ports()), &keys(), 0);
    for (from, to) in [(first, second), (second, first)] {
        let mut waiter = from.waiter(format!("DLOCK.ACQUIRE {KEPT} waiter BLOCK 0"));
        let highest = contest.highest_token();
        fail_over(from, to);
        let error = waiter.fails();
        assert!(["UNBLOCKED", "MOVED"].contains(&error.split(' ').next().expect("a word")), "{error}");
        contest.goes_on();
        is_kept(&mut to.client(), KEPT, kept);
        assert!(to.client().int("DLOCK.ACQUIRE {a}new a PX 1") > highest);
    }
    assert_told(&contest.told(), &["MOVED"], &["UNBLOCKED", "closed", "nil"]);
    assert_eq!(contest.end(), 0, "no lock is lost");
    first.keeps_only(1);
    second.wait_synced(first);
    assert_same("replica", &state(&mut first.client()), &state(&mut second.client()));
}

#[test]
fn after_a_node_has_died_every_grant_that_its_replica_had_stands() {
    let mut whole = ReplicatedCluster::start(3);
    let home = whole.primaries.home_of(KEPT);
    let (_session, kept) = keep(&whole.primaries.nodes[home], KEPT);
    whole.replicas[home].wait_synced(&whole.primaries.nodes[home]);
    let contest = Contest::begin(one_of(whole.ports()), &keys(), 1);
    let highest = contest.highest_token();
    whole.primaries.nodes[home].kill9();
    soon("its replica takes over", || whole.replicas[home].is_primary());
    contest.demand_copies(0);
    contest.goes_on();
    let mut client = whole.replicas[home].client();
    is_kept(&mut client, KEPT, kept);
    assert!(client.int("DLOCK.ACQUIRE {a}new a PX 1") > highest);
    // The node comes back as a replica.
    whole.primaries.nodes[home].boot();
    let old = &whole.primaries.nodes[home];
    soon("it follows", || old.is_replica());
    contest.demand_copies(1);
    contest.goes_on();
    assert_told(&contest.told(), &["MOVED", "closed"], &["CLUSTERDOWN", "UNBLOCKED", "READONLY", "nil"]);
    assert_eq!(contest.end(), 0, "no lock is lost that the replica had");
    whole.replicas[home].keeps_only(1);
    old.wait_synced(&whole.replicas[home]);
    assert_same("the node that came back", &state(&mut client), &state(&mut old.client()));
}
