//! The table of failures in `docs/choosing.md`, row by row: what becomes of a lock that its lease, the session of a
//! connection or a named session keeps. `sessions_failures` shows how a grace changes it.

use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use crate::support::child::ClientProcess;
use crate::support::cluster::Cluster;
use crate::support::network::Network;
use crate::support::replica::counter;
use crate::support::skip::skipped;
use crate::support::{Client, Server, lock_info, soon};

/// The bond that keeps the hold of `a` on `k`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Lease,
    Session,
    Named,
}

use Kind::{Lease, Named, Session};

const KINDS: [Kind; 3] = [Lease, Session, Named];

/// When another client gets the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Freed {
    AtOnce,
    WithTheLease,
    AfterTheTimeout,
    /// Not while the connection is open.
    Never,
}

/// Enough for a busy machine, and less than the lease and the time in which keepalive notices anything.
const AT_ONCE: Duration = Duration::from_millis(1500);
/// The 600 ms of the named session, the 200 ms in which the server notices its end, and time for a busy machine.
const AFTER_THE_TIMEOUT: Duration = Duration::from_millis(2300);
/// A time in which nobody gets a lock that is kept: longer than the others.
const KEPT: Duration = Duration::from_millis(2500);

impl Kind {
    /// Returns the commands that take the lock before a failure that ends the bond. No lease but that of `Lease` ends
    /// during a test.
    fn short(self) -> &'static [&'static str] {
        match self {
            Lease => &["DLOCK.ACQUIRE k a PX 3000"],
            Session => &["DLOCK.ACQUIRE k a PX 600000 SESSION"],
            Named => &["DLOCK.SESSION s PX 600 NX", "DLOCK.ACQUIRE k a PX 600000 SESSIONID s"],
        }
    }

    /// Takes the lock with a lease of `lease` ms, in a named session that outlives the test. Returns the token.
    fn take(self, client: &mut Client, lease: i64) -> i64 {
        self.open(client);
        client.int(format!("DLOCK.ACQUIRE k a PX {lease}{}", self.binding()))
    }

    fn open(self, client: &mut Client) {
        if self == Named {
            client.int("DLOCK.SESSION s PX 60000 NX");
        }
    }

    fn binding(self) -> &'static str {
        match self {
            Lease => "",
            Session => " SESSION",
            Named => " SESSIONID s",
        }
    }

    /// How many holds are bound to sessions if one of this kind is.
    fn bound(self) -> i64 {
        i64::from(self != Lease)
    }
}

/// A client that waits for the lock.
struct Next {
    waiter: Client,
    client: Client,
    /// When the lease ends, by the server's clock.
    end: i64,
}

impl Next {
    fn of(server: &Server) -> Next {
        let mut client = server.client();
        soon("held", || lock_info(&mut client, "k").is_some());
        // The key itself outlives its lease while a request waits.
        let end = client.end_of("k");
        let waiter = server.waiter("DLOCK.ACQUIRE k b BLOCK 60000");
        Next { waiter, client, end }
    }

    #[track_caller]
    fn gets_it(mut self, kind: Kind, freed: Freed, since: Instant) {
        if freed == Freed::Never {
            assert_eq!(self.waiter.poll(KEPT), None, "{kind:?} is kept");
            return;
        }
        self.waiter.granted();
        let (took, now) = (since.elapsed(), self.client.now());
        match freed {
            Freed::AtOnce => assert!(took < AT_ONCE, "{kind:?}: {took:?}"),
            Freed::AfterTheTimeout => assert!(took < AFTER_THE_TIMEOUT, "{kind:?}: {took:?}"),
            Freed::WithTheLease => assert!(now >= self.end, "{kind:?}: {} ms too early", self.end - now),
            Freed::Never => (),
        }
    }
}

#[track_caller]
fn a_process_ends(end: fn(&ClientProcess), expected: [(Kind, Freed); 3]) {
    for (kind, freed) in expected {
        let server = Server::start();
        let process = ClientProcess::start(&server, kind.short());
        let next = Next::of(&server);
        let since = Instant::now();
        end(&process);
        next.gets_it(kind, freed, since);
    }
}

#[test]
fn the_process_dies() {
    let expected = [(Lease, Freed::WithTheLease), (Session, Freed::AtOnce), (Named, Freed::AfterTheTimeout)];
    a_process_ends(ClientProcess::kill9, expected);
}

#[test]
fn the_process_hangs() {
    let expected = [(Lease, Freed::WithTheLease), (Session, Freed::Never), (Named, Freed::AfterTheTimeout)];
    a_process_ends(ClientProcess::freeze, expected);
}

/// Where the holder connects from.
const HOLDER: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);

/// A network in which packets can be dropped, where that is allowed.
fn own_network() -> Option<Network> {
    let why = |error| skipped(&format!("needs CAP_SYS_ADMIN, CAP_NET_ADMIN and iproute2: {error}"));
    Network::enter().map_err(why).ok()
}

#[test]
fn the_network_is_cut() {
    let Some(network) = own_network() else { return };
    let expected = [(Lease, Freed::WithTheLease), (Session, Freed::Never), (Named, Freed::AfterTheTimeout)];
    for (kind, freed) in expected {
        let server = Server::conf("protected-mode no");
        let mut client = Client::connect_from(HOLDER, server.port()).expect("a connection");
        kind.short().iter().for_each(|request| drop(client.run(*request)));
        let next = Next::of(&server);
        let since = Instant::now();
        network.cut(HOLDER).expect("allowed just now");
        next.gets_it(kind, freed, since);
        network.heal(HOLDER).expect("allowed just now");
    }
}

#[test]
fn the_network_is_cut_and_keepalive_notices() {
    let Some(network) = own_network() else { return };
    let server = Server::conf("protected-mode no\ntcp-keepalive 1");
    let mut client = Client::connect_from(HOLDER, server.port()).expect("a connection");
    Session.take(&mut client, 600_000);
    let mut next = Next::of(&server);
    let since = Instant::now();
    network.cut(HOLDER).expect("allowed just now");
    next.waiter.granted();
    // The kernel gives up when its probes get no answer at all.
    assert!(since.elapsed() > Duration::from_secs(2), "{:?}", since.elapsed());
}

#[test]
fn the_connection_closes() {
    for (kind, is_kept) in [(Lease, true), (Session, false), (Named, true)] {
        let (_server, [mut holder, mut client]) = Server::start().with_clients();
        let token = kind.take(&mut holder, 60_000);
        client.watch_close(holder);
        let kept = lock_info(&mut client, "k").map(|info| info.token);
        assert_eq!(kept, is_kept.then_some(token), "{kind:?}");
    }
}

/// The hold is there, bound to nothing, for at most a lease, and its owner goes on with it.
#[track_caller]
fn is_kept_unbound(kind: Kind, client: &mut Client, token: i64, lease: i64) {
    assert!(client.end_of("k") <= client.now() + lease, "{kind:?}");
    assert_eq!(counter(client, "sessions"), 0, "{kind:?}");
    assert_eq!(lock_info(client, "k").expect("a lock").token, token, "{kind:?}");
    if kind == Named {
        let beat = client.error("DLOCK.SESSION s PX 60000 XX");
        assert!(beat.starts_with("NOSESSION"), "{beat}");
    }
    kind.open(client);
    assert_eq!(client.int(format!("DLOCK.RENEW k a PX {lease} TOKEN {token}{}", kind.binding())), 1, "{kind:?}");
    assert_eq!(counter(client, "sessions"), kind.bound(), "{kind:?}");
}

#[test]
fn the_server_dies_and_restarts() {
    for kind in KINDS {
        let (mut server, mut client) = Server::conf("appendonly yes\nappendfsync always").with_client();
        let token = kind.take(&mut client, 60_000);
        server.kill9();
        server.boot();
        is_kept_unbound(kind, &mut server.client(), token, 60_000);
    }
}

#[test]
fn a_replica_takes_over() {
    for kind in KINDS {
        let (primary, replica) = Server::start().with_replica();
        let mut client = primary.client();
        let token = kind.take(&mut client, 60_000);
        replica.wait_synced(&primary);
        drop(primary);
        replica.promote();
        is_kept_unbound(kind, &mut replica.client(), token, 60_000);
    }
}

#[test]
fn the_slot_moves() {
    let (cluster, mut from, mut to) = Cluster::of_two("k");
    for kind in KINDS {
        let mut here = cluster.client(from);
        let token = kind.take(&mut here, 60_000);
        cluster.begin_move("k", from, to);
        cluster.migrate("k", from, to);
        cluster.end_move("k", to);
        let mut there = cluster.client(to);
        is_kept_unbound(kind, &mut there, token, 60_000);
        assert_eq!(there.int("DLOCK.RELEASE k a ALL"), 1);
        (from, to) = (to, from);
        if kind == Named {
            // The node that the slot left still has its own session, now without holds.
            assert_eq!(here.int("DLOCK.SESSION s CLOSE"), 0);
        }
    }
}

/// Pauses writes until `after_end` ms after the end of the lease; below 0, before it. A renewal by the client waits
/// meanwhile.
#[track_caller]
fn is_paused(kind: Kind, lease: i64, after_end: i64) {
    let (_server, [mut holder, mut client]) = Server::start().with_clients();
    let token = kind.take(&mut holder, lease);
    client.ok("CLIENT PAUSE 60000 WRITE");
    let end = client.end_of("k");
    if kind == Lease {
        holder.send(format!("DLOCK.RENEW k a TOKEN {token}"));
    }
    client.pass(end + after_end);
    client.ok("CLIENT UNPAUSE");
    let is_kept = after_end < 0;
    match kind {
        Lease => assert_eq!(holder.read().expect("a reply") == redis::Value::Int(1), is_kept),
        Session | Named if is_kept => soon("renewed", || client.end_of("k") > end),
        Session | Named => (),
    }
    if kind == Named {
        // The session itself does not end.
        holder.int("DLOCK.SESSION s PX 60000 XX");
    }
    client.pass(end);
    let kept = lock_info(&mut client, "k").map(|info| info.token);
    assert_eq!(kept, is_kept.then_some(token), "{kind:?}");
}

#[test]
fn the_server_is_paused() {
    for kind in KINDS {
        is_paused(kind, 4000, -2000);
        is_paused(kind, 600, 1);
    }
}

#[test]
fn the_lock_is_renamed() {
    for kind in KINDS {
        let (_server, mut client) = Server::start().with_client();
        let token = kind.take(&mut client, 60_000);
        let end = client.end_of("k");
        client.ok("RENAME k l");
        assert_eq!((client.end_of("l"), counter(&mut client, "sessions")), (end, 0), "{kind:?}");
        assert_eq!(client.int(format!("DLOCK.RENEW l a TOKEN {token}{}", kind.binding())), 1, "{kind:?}");
        assert_eq!(counter(&mut client, "sessions"), kind.bound(), "{kind:?}");
    }
}
