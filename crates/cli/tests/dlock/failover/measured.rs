//! Failovers under load, and their figures: `dlock failover` beside what Sentinel does by itself. `make failovers`
//! prints them; docs/failover.md shows them.

use std::time::Duration;

use super::load::{Figures, Load};
use super::{at, nothing_is_granted_twice, of, promoted, watched};
use crate::process::outcome;
use dlock_testkit::cluster_replicas::ReplicatedCluster;
use dlock_testkit::sentinel::Sentinels;
use dlock_testkit::version::Version;
use dlock_testkit::{Client, Server, eventually};

/// Longer than a Sentinel takes to make the old primary a replica.
const TURN: Duration = Duration::from_secs(90);

/// Measures a procedure on the locks of servers that Sentinels watch.
#[track_caller]
pub fn under_sentinel(replicas: usize, conf: &str, procedure: fn(&[Server], &Sentinels)) -> Figures {
    let (servers, sentinels) = watched(replicas);
    for server in &servers {
        conf.lines().for_each(|setting| server.client().ok(format!("CONFIG SET {setting}")));
    }
    let load = Load::begin(&servers.iter().map(Server::port).collect::<Vec<_>>(), "").through(sentinels.ports()[2]);
    procedure(&servers, &sentinels);
    let mut new = 0;
    eventually(TURN, "the old primary follows the new one", || {
        new = servers.iter().position(Server::is_primary).unwrap_or(0);
        new != 0 && servers[0].is_replica()
    });
    load.goes_on();
    load.end(servers[0].port(), servers[new].port())
}

/// `dlock failover`, which ends when the old primary is a replica of the new one.
#[track_caller]
pub fn dlock(servers: &[Server], sentinels: &Sentinels) {
    let done = outcome(of(sentinels, &["failover"]));
    let new = &servers[promoted(&done, &servers.iter().collect::<Vec<_>>())];
    assert!(servers[0].is_replica() && new.is_primary());
    servers[0].wait_synced(new);
}

#[track_caller]
pub fn without_sentinel() -> Figures {
    let (old, new) = Server::start().with_replica();
    fail_over(&old, &old, &new, "")
}

#[track_caller]
pub fn in_a_cluster() -> Figures {
    let whole = ReplicatedCluster::start(3);
    let home = whole.primaries.home_of("{a}");
    let (one, two) = (&whole.primaries.nodes[home], &whole.replicas[home]);
    // The primary may be named, or the replica.
    let dry = outcome(at(one, &["failover", "--dry-run"]));
    assert!(
        dry.stdout.ends_with(&format!(":{}> CLUSTER FAILOVER\n# wait until the replica is the primary\n", two.port())),
        "{dry:?}"
    );
    fail_over(two, one, two, "{a}")
}

#[track_caller]
fn fail_over(named: &Server, old: &Server, new: &Server, tag: &'static str) -> Figures {
    let load = Load::begin(&[old.port(), new.port()], tag);
    assert_eq!(promoted(&outcome(at(named, &["failover"])), &[old, new]), 1);
    assert!(old.is_replica() && new.is_primary());
    load.goes_on();
    load.end(old.port(), new.port())
}

fn order(sentinels: &Sentinels) {
    let mut sentinel = Client::connect(sentinels.ports()[0]).expect("a sentinel");
    sentinel.ok("SENTINEL FAILOVER locks");
}

/// Pauses writes for a fixed time and orders a failover. The old primary may take until the end of the pause to become a
/// replica, which `TURN` allows for.
fn paused(servers: &[Server], sentinels: &Sentinels) {
    servers[0].client().ok("CLIENT PAUSE 15000 WRITE");
    servers[1..].iter().for_each(|replica| replica.wait_synced(&servers[0]));
    order(sentinels);
}

const HEADING: &str = "
| server | procedure | locks with two owners | lost | old primary grants on for | nobody gets in for | nobody through Sentinel \
for | NOREPLICAS for |
|---|---|--:|--:|--:|--:|--:|--:|";

/// A line of the table, as Markdown.
pub fn print(server: &Server, procedure: &str, figures: &Figures) {
    let server = Version::of(&mut server.client());
    let seconds =
        |time: Duration| if time.is_zero() { "–".to_owned() } else { format!("{:.2} s", time.as_secs_f64()) };
    let refused = figures.refusals.get("NOREPLICAS").copied().unwrap_or_default();
    let times = [figures.old_grants_on_for, figures.nobody_gets_in_for, figures.sentinel_names_nobody_for, refused];
    let times = times.map(seconds).join(" | ");
    println!("| {server:?} | {procedure} | {} of {} | {} | {times} |", figures.twice, figures.locks, figures.lost);
}

type Procedure = fn() -> Figures;

/// `DLOCK_FAILOVERS` says how often each `dlock failover` is made; the other procedures are made once.
#[test]
#[ignore = "five minutes; make failovers"]
fn figures() {
    let rounds = std::env::var("DLOCK_FAILOVERS").map_or(1, |rounds| rounds.parse().expect("a number"));
    let few = "min-replicas-to-write 1\nmin-replicas-max-lag 10";
    let server = Server::start();
    println!("{HEADING}");
    print(&server, "`SENTINEL FAILOVER`", &under_sentinel(1, "", |_, sentinels| order(sentinels)));
    print(&server, "the same, `min-replicas-to-write 1`", &under_sentinel(1, few, |_, sentinels| order(sentinels)));
    print(&server, "the same, two replicas", &under_sentinel(2, few, |_, sentinels| order(sentinels)));
    print(&server, "`CLIENT PAUSE` for 15 s, `SENTINEL FAILOVER`", &under_sentinel(1, "", paused));
    let procedures: [(&str, Procedure); 5] = [
        ("one replica", || under_sentinel(1, "", dlock)),
        ("two replicas", || under_sentinel(2, "", dlock)),
        ("one replica, `min-replicas-to-write 1`", || {
            under_sentinel(1, "min-replicas-to-write 1\nmin-replicas-max-lag 10", dlock)
        }),
        ("no Sentinel", without_sentinel),
        ("cluster", in_a_cluster),
    ];
    for (what, procedure) in procedures {
        for _ in 0..rounds {
            let figures = procedure();
            print(&server, &format!("`dlock failover`, {what}"), &figures);
            nothing_is_granted_twice(&figures);
        }
    }
}
