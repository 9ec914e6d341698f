//! `dlock failover`: a replica takes over, and no lock is granted twice.

mod gate;
mod interrupted;
mod load;
mod measured;
mod permissions;
mod refused;
mod rollout;

use std::process::Command;

use crate::process::{Outcome, With, bare};
use dlock_testkit::Server;
use dlock_testkit::sentinel::Sentinels;
use load::Figures;
use measured::{dlock, in_a_cluster, under_sentinel, without_sentinel};

/// `dlock` with the URL of these Sentinels.
fn of(sentinels: &Sentinels, arguments: &[&str]) -> Command {
    let hosts: Vec<_> = sentinels.ports().iter().map(|port| format!("127.0.0.1:{port}")).collect();
    bare().with(["-s", &format!("redis-sentinel://{}/locks", hosts.join(","))]).with(arguments)
}

/// `dlock` with the URL of this server.
fn at(server: &Server, arguments: &[&str]) -> Command {
    bare().with(["-s", &format!("redis://127.0.0.1:{}", server.port())]).with(arguments)
}

/// A primary, its replicas, and the Sentinels that watch them.
fn watched(replicas: usize) -> (Vec<Server>, Sentinels) {
    let mut servers = vec![Server::start()];
    servers.extend((0..replicas).map(|_| servers[0].replica()).collect::<Vec<_>>());
    let sentinels = Sentinels::watch(&servers[0], replicas);
    (servers, sentinels)
}

/// Returns the server that `dlock failover` says is the primary now.
#[track_caller]
fn promoted(done: &Outcome, servers: &[&Server]) -> usize {
    assert_eq!(done.code, Some(0), "{done:?}");
    let named = |server: &&Server| done.stdout == format!("127.0.0.1:{} is the primary now\n", server.port());
    servers.iter().position(named).unwrap_or_else(|| panic!("{}", done.stdout))
}

#[track_caller]
fn nothing_is_granted_twice(figures: &Figures) {
    assert_eq!((figures.twice, figures.lost), (0, 0), "{figures:?}");
    assert!(figures.locks > 100, "{figures:?}");
    for word in figures.refusals.keys() {
        assert!(["nil", "READONLY", "MOVED", "NOREPLICAS", "closed"].contains(&word.as_str()), "{word}");
    }
}

#[test]
fn under_sentinel_no_lock_is_granted_twice() {
    nothing_is_granted_twice(&under_sentinel(2, "", dlock));
}

#[test]
fn without_sentinel_no_lock_is_granted_twice() {
    nothing_is_granted_twice(&without_sentinel());
}

#[test]
fn in_a_cluster_no_lock_is_granted_twice() {
    nothing_is_granted_twice(&in_a_cluster());
}
