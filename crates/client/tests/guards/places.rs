//! Locks in a cluster, and under Sentinel.

use std::time::Duration;

use dlock_client::Client;

use crate::{client_of, in_queue, in_time, is_held};
use dlock_testkit::cluster::Cluster;
use dlock_testkit::process::free_port;
use dlock_testkit::replica::info_field;
use dlock_testkit::sentinel::{NAME, Sentinels};
use dlock_testkit::{Server, Setup, lock_info, soon};

#[tokio::test(flavor = "multi_thread")]
async fn any_node_of_a_cluster_leads_to_the_lock() {
    let cluster = Cluster::start(3);
    let client = client_of(&cluster.nodes[0]);
    let mut homes = std::collections::BTreeSet::new();
    for name in ["a", "b", "c", "{tag}d"] {
        let guard = in_time(client.acquire(name)).await.expect("a lock");
        let home = cluster.home_of(name);
        homes.insert(home);
        is_held(&cluster.nodes[home], &guard);
        let waiting = in_queue(&cluster.nodes[home], client.acquire(name).session());
        assert!(guard.release().await.is_ok());
        drop(in_time(waiting).await.expect("a task").expect("a lock"));
    }
    assert_eq!(homes.len(), 3, "locks on all nodes");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_guard_follows_its_slot() {
    let (cluster, from, to) = Cluster::of_two("job");
    let client = client_of(&cluster.nodes[0]);
    let guard = in_time(client.acquire("job").lease(Duration::from_secs(20))).await.expect("a lock");
    cluster.begin_move("job", from, to);
    cluster.migrate("job", from, to);
    // The slot is still the old node's, the key is not: ASK.
    assert!(guard.renew().await.is_ok());
    is_held_after_asking(&cluster.nodes[to], guard.token());
    cluster.end_move("job", to);
    assert!(guard.renew().await.is_ok());
    assert!(guard.release().await.is_ok());
    assert!(in_time(client.acquire("job")).await.is_ok());
}

/// Fails unless a node that imports the slot of `job` has the hold: the node answers for the key after `ASKING`.
#[track_caller]
fn is_held_after_asking(node: &Server, token: u64) {
    let mut client = node.client();
    client.ok("ASKING");
    assert_eq!(lock_info(&mut client, "job").expect("a lock").token as u64, token);
}

/// Starts a Sentinel that promotes alone, half a second after the primary fell silent. Waits until the Sentinel knows
/// the replica.
fn sentinel(primary: &Server) -> Sentinels {
    let conf = format!("sentinel down-after-milliseconds {NAME} 500\nsentinel failover-timeout {NAME} 3000");
    let sentinel = Sentinels::one(primary, &conf);
    let mut client = dlock_testkit::Client::connect(sentinel.ports()[0]).expect("a Sentinel");
    soon("Sentinel knows the replica", || {
        info_field(&mut client, "sentinel", "master0").is_some_and(|line| line.contains("slaves=1"))
    });
    sentinel
}

#[tokio::test(flavor = "multi_thread")]
async fn a_guard_lives_through_a_failover_by_sentinel() {
    let (mut primary, replica) = Setup::new().conf("repl-diskless-sync yes").start().with_replica();
    let sentinel = sentinel(&primary);
    // Nobody listens at the first address.
    let url = format!("redis-sentinel://127.0.0.1:{},127.0.0.1:{}/{NAME}", free_port(), sentinel.ports()[0]);
    let client = Client::open(&url).expect("a URL");
    let lease = Duration::from_secs(15);
    let guard = in_time(client.acquire("job").lease(lease)).await.expect("a lock");
    is_held(&primary, &guard);
    replica.wait_synced(&primary);
    let waiting = in_queue(&primary, client.acquire("job"));
    primary.kill9();
    soon("the replica is promoted", || replica.is_primary());
    // The waiter has come to the new primary by itself, and the guard is renewed there.
    replica.left_waiting(1);
    assert!(guard.renew().await.is_ok() || guard.renew().await.is_ok(), "renewed at the new primary");
    is_held(&replica, &guard);
    assert!(guard.release().await.is_ok());
    is_held(&replica, &in_time(waiting).await.expect("a task").expect("a lock"));
}

#[tokio::test(flavor = "multi_thread")]
async fn waits_and_guards_live_through_a_failover_from_a_primary_that_hangs() {
    let (primary, replica) = Setup::new().conf("repl-diskless-sync yes").start().with_replica();
    let [sentinel, hanging] = [sentinel(&primary), sentinel(&primary)];
    let url = format!("redis-sentinel://127.0.0.1:{},127.0.0.1:{}/{NAME}", hanging.ports()[0], sentinel.ports()[0]);
    let client = Client::open(&url).expect("a URL");
    let guard = in_time(client.acquire("job").lease(Duration::from_secs(20))).await.expect("a lock");
    replica.wait_synced(&primary);
    let waits = [
        in_queue(&primary, client.acquire("job").outage(Duration::from_secs(12))),
        in_queue(&primary, client.acquire("job").wait(Duration::from_secs(20))),
    ];
    hanging.freeze();
    primary.freeze();
    // A Sentinel closes all connections to a server that it promotes, so the test asks the Sentinel who the primary is.
    soon("the replica is promoted", || Sentinels::primary(sentinel.ports()[0]) == Some(replica.port()));
    // The connections to the old primary are open, and it is silent.
    replica.left_waiting(2);
    is_held(&replica, &guard);
    assert!(guard.release().await.is_ok());
    // The new primary may get the two waits in either order.
    let served =
        waits.map(|wait| tokio::spawn(async move { wait.await.expect("a task").expect("a lock").release().await }));
    for served in served {
        assert!(in_time(served).await.expect("a task").is_ok());
    }
    primary.thaw();
}

#[tokio::test(flavor = "multi_thread")]
async fn sentinels_have_users_and_passwords_of_their_own() {
    let (primary, _replica) = Setup::new().conf("repl-diskless-sync yes").start().with_replica();
    let sentinel = sentinel(&primary);
    let mut admin = dlock_testkit::Client::connect(sentinel.ports()[0]).expect("a Sentinel");
    admin.ok("ACL SETUSER observer on >secret +@all");
    admin.ok("ACL SETUSER default resetpass >other");
    let url = format!("redis-sentinel://127.0.0.1:{}/{NAME}", sentinel.ports()[0]);
    let open = |login: Option<(Option<&str>, &str)>| {
        let builder = Client::builder(&url);
        let builder = match login {
            Some((user, password)) => builder.sentinel_login(user, password),
            None => builder,
        };
        builder.open().expect("a client").try_acquire("job").outage(std::time::Duration::from_secs(1))
    };
    for login in [Some((Some("observer"), "secret")), Some((None, "other"))] {
        is_held(&primary, &in_time(open(login)).await.expect("a lock"));
        crate::freed(&primary, "job");
    }
    for login in [None, Some((Some("observer"), "wrong"))] {
        let outcome = in_time(open(login)).await;
        assert!(matches!(outcome, Err(dlock_client::Error::Unreachable(_))), "{outcome:?}");
    }
    let wrong = Client::builder("redis://127.0.0.1").sentinel_login(None, "x").open();
    assert!(matches!(wrong, Err(dlock_client::Error::Invalid(_))));
}
