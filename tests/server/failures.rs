//! The table of failures in `docs/choosing.md`, a test for each row: what happens to a lock that a lease, the session
//! of a connection or a named session keeps. `sessions_failures` tests the column with a grace.

use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use crate::support::child::ClientProcess;
use crate::support::cluster::Cluster;
use crate::support::network::Network;
use crate::support::replica::counter;
use crate::support::skip::skipped;
use crate::support::{Client, Server, int_of, list_of, lock_info, soon};

/// The bond that keeps the hold of the owner `a` on the lock `k`: its lease, or a session.
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
    /// No other client gets the lock within [`KEPT`], while the connection of the holder is open.
    Never,
}

/// The most that "at once" takes: enough for a busy machine, and less than the lease or the time of a keepalive.
const AT_ONCE: Duration = Duration::from_millis(1500);
/// The most that the end of a named session takes: 3000 ms, 200 ms to notice it, and time for a busy machine.
const AFTER_THE_TIMEOUT: Duration = Duration::from_millis(4700);
/// The heartbeat of a named session, which a process sends every second.
const BEAT: &str = "DLOCK.SESSION s PX 3000 XX";
/// How long a test watches that nobody gets a lock that is kept: longer than the other times.
const KEPT: Duration = Duration::from_millis(5000);

impl Kind {
    /// Returns the commands that take the lock before a process or a network fails. Only the lease of `Lease` ends
    /// during a test; the other leases are long, so that only the session can free the lock.
    fn short(self) -> &'static [&'static str] {
        match self {
            Lease => &["DLOCK.ACQUIRE k a PX 3000"],
            Session => &["DLOCK.ACQUIRE k a PX 600000 SESSION"],
            Named => &["DLOCK.SESSION s PX 3000 NX", "DLOCK.ACQUIRE k a PX 600000 SESSIONID s"],
        }
    }

    /// Takes the lock with a lease of `lease` ms, for `Named` in a session that outlives the test. Returns the token.
    fn take(self, client: &mut Client, lease: i64) -> i64 {
        self.open(client);
        client.int(format!("DLOCK.ACQUIRE k a PX {lease}{}", self.binding()))
    }

    fn open(self, client: &mut Client) {
        if self == Named {
            client.int("DLOCK.SESSION s PX 60000 NX");
        }
    }

    /// Starts a process that takes the lock. For `Named`, waits until a heartbeat has come.
    fn process(self, server: &Server) -> ClientProcess {
        if self != Named {
            return ClientProcess::start(server, self.short());
        }
        let process = ClientProcess::start_beating(server, self.short(), BEAT, 1);
        let mut client = server.client();
        let mut before = Duration::MAX;
        soon("a heartbeat comes", || {
            let left = time_of_the_session(&mut client);
            left.is_some_and(|left| std::mem::replace(&mut before, left) < left)
        });
        process
    }

    /// Returns the options that bind a hold.
    fn binding(self) -> &'static str {
        match self {
            Lease => "",
            Session => " SESSION",
            Named => " SESSIONID s",
        }
    }

    /// Returns how many holds the server counts as bound to a session while it has one hold of this kind.
    fn bound(self) -> i64 {
        i64::from(self != Lease)
    }
}

/// Returns how long the named session stays open without another heartbeat, if there is a session.
fn time_of_the_session(client: &mut Client) -> Option<Duration> {
    let sessions = list_of(&client.run("DLOCK.SESSION LIST"));
    let parts = sessions.first().map(list_of)?;
    Some(Duration::from_millis(int_of(&parts[3]).try_into().expect("a time")))
}

/// A client that waits for the lock.
struct Next {
    waiter: Client,
    client: Client,
    /// When the lease ends, by the server's clock.
    end: i64,
    /// The earliest time at which the named session ends, if there is one.
    session_end: Option<Instant>,
}

impl Next {
    /// Begins to wait once the lock is held.
    fn of(server: &Server) -> Next {
        let mut client = server.client();
        soon("the lock is held", || lock_info(&mut client, "k").is_some());
        // The end is read before a request waits: then the server keeps the key a little longer than the lease.
        let end = client.end_of("k");
        let waiter = server.waiter("DLOCK.ACQUIRE k b BLOCK 60000");
        let now = Instant::now();
        let session_end = time_of_the_session(&mut client).map(|left| now + left);
        Next { waiter, client, end, session_end }
    }

    /// Fails unless the client gets the lock when it should. `since` is the time of the failure.
    #[track_caller]
    fn gets_it(mut self, kind: Kind, freed: Freed, since: Instant) {
        if freed == Freed::Never {
            assert_eq!(self.waiter.poll(KEPT), None, "the waiter has got the lock of {kind:?}");
            return;
        }
        self.waiter.granted();
        let granted = Instant::now();
        let (took, now) = (granted - since, self.client.now());
        match freed {
            Freed::AtOnce => assert!(took < AT_ONCE, "{kind:?}: {took:?}"),
            Freed::AfterTheTimeout => {
                let session_end = self.session_end.expect("a named session");
                assert!(granted >= session_end, "{kind:?}: {:?} too early", session_end - granted);
                assert!(took < AFTER_THE_TIMEOUT, "{kind:?}: {took:?}");
            }
            Freed::WithTheLease => assert!(now >= self.end, "{kind:?}: {} ms too early", self.end - now),
            Freed::Never => (),
        }
    }
}

/// Fails unless the lock of a holder that `end` kills or stops is freed as expected, for each kind.
#[track_caller]
fn a_process_ends(end: fn(&ClientProcess), expected: [(Kind, Freed); 3]) {
    for (kind, freed) in expected {
        let server = Server::start();
        let process = kind.process(&server);
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

/// The address that the holder connects from, whose packets a test drops.
const HOLDER: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);

/// Enters a network of its own, in which a test can drop packets. `None`: this machine does not allow it.
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
        if kind == Named {
            // The kernel drops this heartbeat.
            client.send(BEAT);
        }
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
    // The kernel sends several probes, and closes the connection when none is answered: that takes more than 2 s.
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

/// Fails unless the hold is there for one lease at most, bound to no session, and its owner can renew and bind it.
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
            // The node that the slot has left still has its own session, without holds: CLOSE replies 0.
            assert_eq!(here.int("DLOCK.SESSION s CLOSE"), 0);
        }
    }
}

/// Pauses writes until `after_end` ms after the end of the lease, or before it if that is negative. Fails unless the
/// lock is kept in the second case only. For `Lease`, the holder sends a renewal, which waits for the end of the pause.
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
        Session | Named if is_kept => soon("the server renews the hold", || client.end_of("k") > end),
        Session | Named => (),
    }
    if kind == Named {
        // The named session itself survives the pause.
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
