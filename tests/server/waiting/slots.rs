//! A slot that moves: the waiters for a lock that has left are sent after it, and nothing is granted twice.

use crate::support::cluster::Cluster;
use crate::support::soon;

#[test]
fn a_lock_that_leaves_sends_its_queue_after_it() {
    let (cluster, from, to) = Cluster::of_two("k");
    let (mut here, mut there) = (cluster.client(from), cluster.client(to));
    here.int("DLOCK.ACQUIRE k a PX 600000");
    let requests = ["b", "c"].map(|owner| format!("DLOCK.ACQUIRE k {owner} BLOCK 0 PX 600000"));
    let mut waiters = cluster.nodes[from].waiters(requests);
    cluster.begin_move("k", from, to);
    // The slot is on its way, but the lock is still here, and is handed over here.
    assert_eq!(here.int("DLOCK.RELEASE k a"), 1);
    waiters[0].granted();
    waiters[1].waits();
    cluster.migrate("k", from, to);
    assert!(waiters[1].fails().starts_with("TRYAGAIN "));
    assert_eq!(cluster.nodes[from].waiting(), 0);
    assert_eq!(here.int("DBSIZE"), 0, "nothing is granted here");
    cluster.end_move("k", to);
    let mut waiter = cluster.nodes[to].waiter("DLOCK.ACQUIRE k c BLOCK 0");
    assert_eq!(there.int("DLOCK.RELEASE k b"), 1);
    waiter.granted();
}

#[test]
fn a_slot_without_keys_sends_the_queue_away_as_well() {
    let (cluster, from, to) = Cluster::of_two("k");
    let mut here = cluster.client(from);
    here.int("DLOCK.ACQUIRE k a PX 600000");
    let mut waiter = cluster.nodes[from].waiter("DLOCK.ACQUIRE k b BLOCK 0");
    cluster.begin_move("k", from, to);
    here.int("DEL k");
    let error = waiter.fails();
    assert!(error.starts_with("TRYAGAIN ") || error.starts_with("MOVED "), "{error}");
    assert_eq!(here.int("DBSIZE"), 0);
    cluster.end_move("k", to);
    soon("it is free there", || cluster.client(to).attempt("DLOCK.ACQUIRE k b").is_ok());
}
