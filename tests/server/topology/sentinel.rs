//! Sentinels promote a replica when the primary is gone, and tell clients where it is.

use std::sync::Arc;

use super::contest::{Contest, assert_told};
use super::player::Guide;
use super::replicas::{is_kept, keep};
use crate::support::sentinel::Sentinels;
use crate::support::soon;
use crate::support::state::{assert_same, state};
use crate::support::{Server, Setup};

/// Asks one sentinel after the other.
fn by(sentinels: &Sentinels) -> Guide {
    let ports = sentinels.ports();
    Arc::new(move |tries| Sentinels::primary(ports[tries % ports.len()]))
}

/// Waits until the sentinels agree on another primary than `not`. Returns its number.
#[track_caller]
fn elected(sentinels: &Sentinels, servers: &[Server], not: usize) -> usize {
    let mut elected = None;
    soon("another primary is elected", || {
        let mut ports = sentinels.ports().into_iter().map(Sentinels::primary);
        let first = ports.next().expect("a sentinel");
        elected = servers.iter().position(|server| Some(server.port()) == first);
        elected.is_some_and(|at| at != not) && ports.all(|port| port == first)
    });
    elected.expect("just seen")
}

#[test]
fn clients_find_the_primary_that_the_sentinels_have_elected() {
    let primary = Setup::new().conf("appendonly yes\nappendfsync no").start();
    let mut servers = vec![primary];
    servers.extend([servers[0].replica(), servers[0].replica()]);
    let sentinels = Sentinels::watch(&servers[0], 2);
    let (_session, kept) = keep(&servers[0], "kept");
    servers[1..].iter().for_each(|replica| replica.wait_synced(&servers[0]));
    let contest = Contest::begin(by(&sentinels), &["k0", "k1"].map(str::to_owned), 2);
    let highest = contest.highest_token();
    servers[0].kill9();
    let new = elected(&sentinels, &servers, 0);
    // The other replica follows the new primary after a while.
    contest.demand_copies(1);
    contest.goes_on();
    let mut client = servers[new].client();
    is_kept(&mut client, "kept", kept);
    assert!(client.int("DLOCK.ACQUIRE new a PX 1") > highest);
    // The old one comes back, and the sentinels make it a replica.
    servers[0].boot();
    soon("it follows", || servers[0].is_replica());
    assert_told(&contest.told(), &["closed"], &["READONLY", "UNBLOCKED", "LOADING", "MASTERDOWN", "nil"]);
    assert_eq!(contest.end(), 0, "no lock is lost that all replicas had");
    servers[new].keeps_only(1);
    servers[0].wait_synced(&servers[new]);
    assert_same("the primary that came back", &state(&mut client), &state(&mut servers[0].client()));
}
