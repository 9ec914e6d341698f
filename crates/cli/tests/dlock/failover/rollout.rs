//! Servers that run already get the module: a replica has it, the primary does not.

use super::{at, of, promoted};
use crate::process::outcome;
use dlock_testkit::sentinel::Sentinels;
use dlock_testkit::{Server, Setup, soon};

/// A primary without the module and two replicas that have it, with a key of another program.
fn without_the_module(conf: &str) -> Vec<Server> {
    let mut servers = vec![Setup::plain().conf(conf).start()];
    servers.extend((0..2).map(|_| Setup::new().conf(conf).replica_of(&servers[0])).collect::<Vec<_>>());
    servers[0].client().ok("SET own kept");
    servers
}

/// Restarts the old primary with the module, as the command says, and takes a lock.
#[track_caller]
fn complete(servers: &mut [Server], new: usize, stderr: &str) {
    let advice = format!("127.0.0.1:{} has no dlock module: restart it with the module before", servers[0].port());
    assert!(stderr.contains(&advice), "{stderr}");
    servers[0].shutdown();
    servers[0].reconfigure(Setup::with_module);
    servers[0].boot();
    soon("it follows the new primary", || servers[0].is_replica());
    assert_eq!(servers[new].client().text("GET own"), "kept");
    servers[new].client().int("DLOCK.ACQUIRE job me PX 600000");
    soon("it has the lock", || servers[0].holders("job") == ["me"]);
}

#[test]
fn a_primary_without_the_module_hands_over_to_a_replica_that_has_it() {
    let mut servers = without_the_module("");
    let done = outcome(at(&servers[0], &["failover"]));
    let new = promoted(&done, &servers.iter().collect::<Vec<_>>());
    assert_ne!(new, 0);
    let port = servers[new].port();
    servers[0].reconfigure(|setup| setup.conf(&format!("replicaof 127.0.0.1 {port}")));
    complete(&mut servers, new, &done.stderr);
}

#[test]
fn under_sentinel_the_module_comes_without_losing_writes() {
    let mut servers = without_the_module("");
    let sentinels = Sentinels::watch(&servers[0], 2);
    for n in 0..1000 {
        servers[0].client().ok(format!("SET key:{n} {n}"));
    }
    let done = outcome(of(&sentinels, &["failover"]));
    let new = promoted(&done, &servers.iter().collect::<Vec<_>>());
    assert_ne!(new, 0);
    assert_eq!(servers[new].client().int("DBSIZE"), 1001);
    let port = servers[new].port();
    servers[0].reconfigure(|setup| setup.conf(&format!("replicaof 127.0.0.1 {port}")));
    complete(&mut servers, new, &done.stderr);
}

#[test]
fn a_primary_without_the_module_does_not_hand_over_to_a_replica_without_it() {
    let primary = Setup::plain().start();
    let replica = Setup::plain().replica_of(&primary);
    let refused = outcome(at(&primary, &["failover"]));
    assert_eq!(refused.code, Some(1), "{refused:?}");
    let why = format!("the replica 127.0.0.1:{} has no dlock module", replica.port());
    assert!(refused.stderr.contains(&why), "{}", refused.stderr);
    assert!(primary.is_primary());
}
