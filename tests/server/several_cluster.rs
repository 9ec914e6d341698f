//! Several locks at once in a cluster: one slot, and slots that move while requests wait.

use crate::several::owners;
use crate::support::cluster::Cluster;
use crate::support::replica::counter;
use crate::support::skip::skipped;
use crate::support::version::Version;
use crate::support::{Client, soon};

const FOR_EVER: &str = "BLOCK 0 PX 600000";
const KEYS: [&str; 3] = ["{s}x", "{s}y", "{s}z"];

/// A cluster, the node with the keys, the other one, and a client of each.
fn cluster() -> (Cluster, usize, usize, Client, Client) {
    let (cluster, from, to) = Cluster::of_two(KEYS[0]);
    let (here, there) = (cluster.client(from), cluster.client(to));
    (cluster, from, to, here, there)
}

fn nobody_waits(client: &mut Client) {
    soon("nobody waits", || ["waiters", "queues"].map(|name| counter(client, name)) == [0, 0]);
}

#[test]
fn keys_of_different_slots_are_refused_on_every_node() {
    let (cluster, _, _, mut here, mut there) = cluster();
    here.int("DLOCK.MACQUIRE 3 {s}x {s}y {s}z a");
    let moved = there.error("DLOCK.MACQUIRE 2 {s}x {s}y b");
    assert!(moved.starts_with("MOVED "), "{moved}");
    let slots = ["{s}x", "other"].map(|key| here.int(format!("CLUSTER KEYSLOT {key}")));
    assert_ne!(slots[0], slots[1]);
    for client in [&mut here, &mut there] {
        for request in ["2 {s}x other b", "2 other {s}x b", "3 {s}x {s}y other b BLOCK 0"] {
            let error = client.error(format!("DLOCK.MACQUIRE {request}"));
            assert!(error.starts_with("CROSSSLOT "), "{request}: {error}");
        }
        // The server checks the slots only of keys that it can read. The module refuses these numbers of keys, so that
        // no lock is taken on the wrong node.
        for request in ["+1 {s}v b", "01 {s}v b", "+2 {s}v other b", "02 {s}v other b", "3 {s}v {s}w b"] {
            let error = client.error(format!("DLOCK.MACQUIRE {request}"));
            // Redis 8.6 checks the slots of the last request before its number of keys.
            assert!(["ERR ", "CROSSSLOT "].iter().any(|kind| error.starts_with(kind)), "{request}: {error}");
        }
    }
    assert_eq!([here.int("DBSIZE"), there.int("DBSIZE")], [3, 0]);
    drop(cluster);
}

#[test]
fn a_key_that_leaves_sends_the_request_away_from_all_queues() {
    let (cluster, from, to, mut here, mut there) = cluster();
    here.int("DLOCK.ACQUIRE {s}x h PX 600000");
    here.int("DLOCK.ACQUIRE {s}y h PX 600000");
    let node = &cluster.nodes[from];
    let mut several = node.waiter(format!("DLOCK.MACQUIRE 2 {{s}}x {{s}}y a {FOR_EVER}"));
    let mut behind = node.waiter(format!("DLOCK.ACQUIRE {{s}}y b {FOR_EVER}"));
    cluster.begin_move(KEYS[0], from, to);
    cluster.migrate(KEYS[0], from, to);
    assert!(several.fails().starts_with("TRYAGAIN "));
    // The key that is still here is handed over in place, past the request that has left.
    behind.waits();
    assert_eq!(here.int("DLOCK.RELEASE {s}y h"), 1);
    behind.granted();
    assert_eq!(owners(node, "{s}y"), "b");
    // A key here and a key there: the server itself says that it cannot be done now.
    let error = here.error("DLOCK.MACQUIRE 2 {s}x {s}y a");
    assert!(error.starts_with("TRYAGAIN "), "{error}");
    cluster.migrate(KEYS[1], from, to);
    cluster.end_move(KEYS[0], to);
    nobody_waits(&mut here);
    assert_eq!(here.int("DBSIZE"), 0);
    let mut several = cluster.nodes[to].waiter(format!("DLOCK.MACQUIRE 2 {{s}}x {{s}}y a {FOR_EVER}"));
    assert_eq!(there.int("DLOCK.RELEASE {s}x h"), 1);
    assert_eq!(there.int("DLOCK.RELEASE {s}y b"), 1);
    several.granted();
}

#[test]
fn a_missing_key_of_a_slot_that_leaves_is_never_granted() {
    // By a command on the other key, by the end of a lease, and by the end of a session.
    for way in ["release", "lease", "session"] {
        let (cluster, from, to, mut here, _there) = cluster();
        let mut session = cluster.client(from);
        let lease = if way == "lease" { "PX 2500" } else { "PX 600000" };
        let bind = if way == "session" { "SESSION" } else { "" };
        session.int(format!("DLOCK.ACQUIRE {{s}}x h {lease} {bind}"));
        here.int("DLOCK.ACQUIRE {s}z k PX 600000");
        let node = &cluster.nodes[from];
        let mut several = node.waiter(format!("DLOCK.MACQUIRE 2 {{s}}x {{s}}y a {FOR_EVER}"));
        let mut behind = node.waiter(format!("DLOCK.MACQUIRE 2 {{s}}y {{s}}z b {FOR_EVER}"));
        cluster.begin_move(KEYS[0], from, to);
        match way {
            "release" => assert_eq!(session.int("DLOCK.RELEASE {s}x h"), 1),
            "lease" => {}
            _ => drop(session),
        }
        let error = several.fails();
        assert!(error.starts_with("TRYAGAIN ") || error.starts_with("MOVED "), "{way}: {error}");
        let _ = here.attempt("DLOCK.RELEASE {s}z k");
        let error = behind.fails();
        assert!(error.starts_with("TRYAGAIN ") || error.starts_with("MOVED "), "{way}: {error}");
        nobody_waits(&mut here);
        soon("nothing is granted here", || here.int("DBSIZE") == 0);
    }
}

#[test]
fn a_lock_that_is_still_here_is_handed_over_in_place() {
    let (cluster, from, to, mut here, _there) = cluster();
    here.int("DLOCK.ACQUIRE {s}x h PX 600000");
    here.int("DLOCK.RLOCK {s}y h PX 600000");
    let node = &cluster.nodes[from];
    let mut waiter = node.waiter(format!("DLOCK.SACQUIRE {{s}}x a 1 {FOR_EVER}"));
    cluster.begin_move(KEYS[0], from, to);
    assert_eq!(here.int("DLOCK.RELEASE {s}x h"), 1);
    waiter.granted();
    assert_eq!(owners(node, "{s}x {s}y"), "a h");
}

#[test]
fn an_atomic_slot_migration_sends_requests_after_it() {
    let (cluster, from, to, mut here, mut there) = cluster();
    if !Version::of(&mut here).migrates_slots() {
        return skipped("this server has no CLUSTER MIGRATESLOTS");
    }
    let token = here.int("DLOCK.MACQUIRE 2 {s}x {s}y h PX 600000");
    here.int("DLOCK.SACQUIRE {s}p h 2 PERMITS 2 PX 600000");
    let mut waiters = cluster.nodes[from].waiters(
        ["MACQUIRE 2 {s}y {s}z a", "MACQUIRE 2 {s}z {s}x b", "SACQUIRE {s}p c 2"]
            .map(|words| format!("DLOCK.{words} {FOR_EVER}")),
    );
    let slot = here.int("CLUSTER KEYSLOT {s}x");
    here.ok(format!("CLUSTER MIGRATESLOTS SLOTSRANGE {slot} {slot} NODE {}", cluster.id(to)));
    for waiter in &mut waiters {
        let error = waiter.fails();
        assert!(error.starts_with("MOVED ") || error.starts_with("TRYAGAIN "), "{error}");
    }
    nobody_waits(&mut here);
    assert_eq!(here.int("DBSIZE"), 0);
    soon("it is there", || there.attempt("DLOCK.INFO {s}x").is_ok());
    assert_eq!(owners(&cluster.nodes[to], "{s}x {s}y {s}z {s}p"), "h h - h");
    for key in ["{s}x", "{s}y"] {
        assert!(there.int(format!("DLOCK.CHECK {key} {token}")) > 0);
    }
    let mut waiter = cluster.nodes[to].waiter(format!("DLOCK.MACQUIRE 2 {{s}}x {{s}}y a {FOR_EVER}"));
    assert_eq!(there.int("DLOCK.RELEASE {s}x h"), 1);
    assert_eq!(there.int("DLOCK.RELEASE {s}y h"), 1);
    assert!(waiter.granted() > token);
}
