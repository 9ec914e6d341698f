//! Sessions in a cluster: a heartbeat for each node that has locks.

use std::time::Duration;

use dlock_client::{Client, Error, Guard, Session};
use dlock_testkit::cluster::Cluster;
use dlock_testkit::cluster_replicas::ReplicatedCluster;
use dlock_testkit::redis::Value;
use dlock_testkit::replica::info_field;
use dlock_testkit::{Server, Setup, lock_info, soon};

use crate::{client_of, in_time, is_held, lost, not_yet};

const TIMEOUT: Duration = Duration::from_secs(3);
/// Longer than a failover takes.
const LONG: Duration = Duration::from_secs(20);

async fn open(client: &Client, timeout: Duration) -> Session {
    in_time(Session::open(client, timeout)).await.expect("a session")
}

async fn lock(client: &Client, session: &Session, name: &str) -> Guard {
    in_time(client.acquire(name).in_session(session)).await.expect("a lock")
}

/// The named session that the lock is bound to.
fn session_of(node: &Server, name: &str) -> Option<String> {
    let info = lock_info(&mut node.client(), &format!("{name} FULL"))?;
    match info.holds().first().map(|hold| &hold.session) {
        Some(Value::BulkString(id)) => Some(String::from_utf8_lossy(id).into_owned()),
        _ => None,
    }
}

fn is_lost(guard: &Guard) -> bool {
    guard.remaining().is_zero()
}

#[tokio::test(flavor = "multi_thread")]
async fn one_heartbeat_for_each_node_keeps_all_locks() {
    let cluster = Cluster::start(3);
    let client = client_of(&cluster.nodes[0]);
    let session = open(&client, TIMEOUT).await;
    let names: Vec<String> = (0..30).map(|number| format!("job:{number}")).collect();
    let mut guards = Vec::new();
    for name in &names {
        guards.push(lock(&client, &session, name).await);
    }
    let both = in_time(client.acquire_all(["{b}1", "{b}2"]).in_session(&session)).await.expect("the locks");
    let mut clients: Vec<_> = cluster.nodes.iter().map(Server::client).collect();
    clients.iter_mut().for_each(|client| client.ok("CONFIG RESETSTAT"));
    let began = clients[0].now();
    soon("each node has heard heartbeats", || clients.iter_mut().all(|client| client.calls("dlock.session") >= 3));
    let most = (clients[0].now() - began) / 1000 + 2;
    for client in &mut clients {
        let (beats, renewals) = (client.calls("dlock.session"), client.calls("dlock.renew"));
        assert!(beats <= most && renewals == 0, "{beats} heartbeats, {renewals} renewals");
    }
    for (name, guard) in names.iter().zip(&guards) {
        is_held(&cluster.nodes[cluster.home_of(name)], guard);
        assert!(!is_lost(guard) && guard.remaining() <= TIMEOUT);
    }
    assert!(both.release().await.is_ok() && guards.pop().expect("a guard").release().await.is_ok());
    assert!(session.close().await.is_ok());
    for name in &names {
        assert_eq!(clients[cluster.home_of(name)].run(format!("DLOCK.INFO {name}")), Value::Nil, "{name}");
    }
    for guard in guards {
        in_time(guard.lost()).await;
        lost(guard.release().await);
    }
    let outcome = in_time(client.acquire("job").in_session(&session)).await;
    assert!(matches!(outcome, Err(Error::SessionEnded(_))), "{outcome:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_whose_slot_moves_is_bound_on_the_other_node() {
    let (cluster, from, to) = Cluster::of_two("job");
    let client = client_of(&cluster.nodes[from]);
    let session = open(&client, TIMEOUT).await;
    let guard = lock(&client, &session, "job").await;
    let first = session_of(&cluster.nodes[from], "job").expect("a session");
    cluster.begin_move("job", from, to);
    cluster.migrate("job", from, to);
    cluster.end_move("job", to);
    soon("it is bound there", || session_of(&cluster.nodes[to], "job").is_some_and(|id| id != first));
    let mut watch = cluster.client(to);
    let end = watch.end_of("job");
    soon("the server renews it there", || watch.end_of("job") > end);
    not_yet(guard.lost()).await;
    is_held(&cluster.nodes[to], &guard);
    // A new request does not know yet that the slot of this name has moved, too.
    let other = lock(&client, &session, "{job}:2").await;
    is_held(&cluster.nodes[to], &other);
    assert!(guard.release().await.is_ok() && session.close().await.is_ok());
    assert_eq!(watch.int("DBSIZE"), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_begins_on_the_next_primary() {
    let cluster = ReplicatedCluster::start(3);
    let client = client_of(&cluster.primaries.nodes[0]);
    let session = open(&client, LONG).await;
    let name = (0..).map(|number| format!("job:{number}")).find(|name| cluster.primaries.home_of(name) == 2).unwrap();
    // The client learns before the failover which node is the primary.
    in_time(client.try_acquire(&name)).await.unwrap().release().await.unwrap();
    let is_slave =
        |server: &Server| info_field(&mut server.client(), "replication", "role").as_deref() == Some("slave");
    soon("the former primary is a replica", || {
        // A takeover with an epoch that is taken already is undone by the cluster.
        if is_slave(&cluster.replicas[2]) {
            cluster.replicas[2].client().ok("CLUSTER FAILOVER TAKEOVER");
        }
        is_slave(&cluster.primaries.nodes[2])
    });
    let guard = in_time(client.try_acquire(&name).in_session(&session)).await.expect("a lock");
    assert!(session_of(&cluster.replicas[2], &name).is_some());
    guard.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn after_a_failover_the_locks_are_bound_on_the_next_primary() {
    let mut cluster = ReplicatedCluster::start(3);
    let home = cluster.primaries.home_of("job:0");
    let client = client_of(&cluster.primaries.nodes[(home + 1) % 3]);
    let session = open(&client, LONG).await;
    let names: Vec<String> = (0..20).map(|number| format!("job:{number}")).collect();
    let mut guards = Vec::new();
    for name in &names {
        guards.push(lock(&client, &session, name).await);
    }
    cluster.replicas[home].wait_synced(&cluster.primaries.nodes[home]);
    let homes: Vec<usize> = names.iter().map(|name| cluster.primaries.home_of(name)).collect();
    cluster.primaries.nodes[home].kill9();
    let replica = &cluster.replicas[home];
    replica.client().ok("CLUSTER FAILOVER TAKEOVER");
    for ((name, guard), at) in names.iter().zip(&guards).zip(homes) {
        if at == home {
            soon("it is bound there", || session_of(replica, name).is_some());
        }
        is_held(if at == home { replica } else { &cluster.primaries.nodes[at] }, guard);
        assert!(!is_lost(guard), "{name}");
    }
    let mut watch = replica.client();
    let before = watch.calls("dlock.session");
    soon("it gets heartbeats", || watch.calls("dlock.session") > before + 1);
    for guard in guards {
        assert!(!is_lost(&guard) && guard.release().await.is_ok());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_fails_for_good_costs_its_own_locks_only() {
    for hangs in [false, true] {
        // The others are the majority.
        let mut cluster = Cluster::start(3);
        let client = client_of(&cluster.nodes[0]);
        let session = open(&client, TIMEOUT).await;
        let names = [0, 1].map(|node| {
            (0..).map(|number| format!("job:{number}")).find(|name| cluster.home_of(name) == node).expect("a name")
        });
        let kept = lock(&client, &session, &names[0]).await;
        let gone = lock(&client, &session, &names[1]).await;
        if hangs {
            cluster.nodes[1].freeze();
        } else {
            cluster.nodes[1].kill9();
        }
        in_time(gone.lost()).await;
        assert!(is_lost(&gone) && !is_lost(&kept) && session.is_open());
        let mut watch = cluster.client(0);
        let before = watch.calls("dlock.session");
        soon("the other node gets heartbeats", || watch.calls("dlock.session") > before + 2);
        not_yet(kept.lost()).await;
        is_held(&cluster.nodes[0], &kept);
        if hangs {
            cluster.nodes[1].thaw();
            soon("it frees the lock", || lock_info(&mut cluster.client(1), &names[1]).is_none());
        } else {
            cluster.nodes[1].boot();
        }
        // The session goes on there, with another id.
        let again = lock(&client, &session, &names[1]).await;
        soon("it is bound", || session_of(&cluster.nodes[1], &names[1]).is_some());
        assert!(again.release().await.is_ok() && kept.release().await.is_ok());
        lost(gone.release().await);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_ends_on_all_nodes_with_its_last_clone_and_guard() {
    let cluster = Cluster::start(2);
    let client = client_of(&cluster.nodes[0]);
    let session = open(&client, TIMEOUT).await;
    let mut guards = Vec::new();
    for number in 0..10 {
        guards.push(lock(&client, &session, &format!("job:{number}")).await);
    }
    drop(session);
    let sessions = || -> i64 {
        let open = |node: &Server| dlock_testkit::replica::counter(&mut node.client(), "named_sessions");
        cluster.nodes.iter().map(open).sum()
    };
    assert_eq!(sessions(), 2);
    drop(guards);
    soon("all are closed", || sessions() == 0);
    assert!(cluster.nodes.iter().all(|node| node.client().int("DBSIZE") == 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_without_slots_has_no_session() {
    let node = Setup::new().conf("cluster-enabled yes").start();
    let outcome = in_time(Session::open(&client_of(&node), TIMEOUT)).await;
    assert!(matches!(&outcome, Err(Error::Unreachable(cause)) if cause.message().contains("slots")), "{outcome:?}");
}
