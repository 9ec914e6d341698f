//! Holds in the grace of their sessions whose leases have run out before a visit settles them, as in a pause: each is
//! held until its grace ends, however many there are and whatever changes the lock first.

use std::num::NonZeroU32;

use dlock_core::engine::{Detail, Left, Permission};
use dlock_core::{
    BindTo, ClientId, Entries, Keyspace, Lease, LeaseChoice, Memory, Renew, RenewToken, Request, UnixMs, Want,
};
use dlock_testkit::keyspace::{KeyName, MemoryKeyspace, RunningRelease};

use crate::{Entered, Fault, Server, is_granted, name, owner};

/// More holds than the 64 that a visit settles.
const MANY: usize = 200;
/// The number of holds of a [`crowd`] of [`MANY`] readers: it has three others.
const ALL: u32 = 203;
const SESSION: u64 = 1000;
const LEASE_MS: u64 = 1000;
const GRACE_MS: u64 = 10_000;
const PAUSE_MS: u64 = 3000;
const LIMIT: NonZeroU32 = NonZeroU32::new(400).unwrap();

/// A change of the lock after the pause, and how many holders it adds.
type Act = (&'static str, fn(&mut Server), i64);

const ACTS: &[Act] = &[
    ("nothing", |_| {}, 0),
    ("the last permit", |server| assert!(!is_granted(&permit(server, ALL))), 0),
    ("a permit", |server| assert!(is_granted(&permit(server, ALL + 1))), 1),
    ("a reader", |server| assert!(is_granted(&server.acquire("lock", 500, 4, Want::Shared))), 1),
    ("a slot", |server| assert!(is_granted(&server.acquire("lock", 500, 4, Want::Slot { limit: LIMIT }))), 1),
    ("a writer", |server| server.wait("lock", 500, 4, Want::Exclusive), 0),
    ("an upgrade", |server| server.wait("lock", 9000, 4, Want::Exclusive), 0),
    ("a release", release, -1),
    ("a renewal", renew, 0),
    ("several locks", several, 0),
    ("a bound reader", |server| assert!(is_granted(&server.acquire_bound("lock", 500, Want::Shared, 7))), 1),
    ("a tick", Server::tick, 0),
    ("a named session that is closed", Server::close_named, -1),
    ("a session that ended later", |server| server.disconnect(8), 0),
];

/// Each change of the lock comes first once. No hold in a grace is lost, and replicas store what the primary does.
#[test]
fn holds_in_a_grace_are_held_until_it_ends_whatever_comes_first() {
    for readers in [1, 10, MANY] {
        for (what, act, more) in ACTS {
            if readers != MANY && what.contains("permit") {
                continue;
            }
            let mut server = crowd(readers);
            let mut replica = (MemoryKeyspace::default(), Memory::new());
            let before = holders(&mut server) as i64;
            assert_eq!(before, readers as i64 + 3, "{what}");
            act(&mut server);
            assert_eq!(holders(&mut server) as i64, before + more, "{readers} readers, {what}");
            for _ in 0..10 {
                server.pass_ms(1);
                server.tick();
                assert_eq!(holders(&mut server) as i64, before + more, "{readers} readers, {what}: after a tick");
                server.engine.audit().unwrap();
            }
            let (now, lock) = (server.space.now().ms(), server.space.lock(&key()).clone());
            let live = lock.stored_holds().filter(|hold| hold.is_live(now)).count() as i64;
            assert_eq!(live, before + more, "{readers} readers, {what}: all are settled");
            server.space.replicate_to(&mut replica.0, &mut replica.1);
            assert_eq!(replica.0.dump(&key()), server.space.dump(&key()), "{readers} readers, {what}: the replica");
            // The grace ends: the holds that stay have leases of a minute.
            server.pass_ms(GRACE_MS);
            (0..10).for_each(|_| server.tick());
            assert!(holders(&mut server) <= 4, "{readers} readers, {what}: after the grace");
        }
    }
}

/// While the server accepts no writes, the timer forgets the bindings of holds that have lapsed, but not of those in a
/// grace.
#[test]
fn holds_in_a_grace_are_held_while_the_server_accepts_no_writes() {
    for readers in [1, MANY] {
        let mut server = crowd(readers);
        server.space.permissions.insert(key(), Permission::ReleaseOnly);
        let before = holders(&mut server);
        for _ in 0..10 {
            server.pass_ms(1);
            server.tick();
            assert_eq!(holders(&mut server), before, "{readers} readers");
        }
    }
}

/// A session with a grace and one without end in a pause, in which the leases of both run out. When the holds in the
/// grace are settled, those of the other session count no more, and change nothing when they are dropped.
#[test]
fn lapsed_holds_count_no_more_once_no_hold_in_a_grace_is_left() {
    let mut server = Server::new();
    server.engine.settings_mut().session_grace = Lease::new(GRACE_MS);
    assert!(is_granted(&server.acquire("lock", 9000, 4, Want::Shared)));
    assert!(is_granted(&server.acquire_bound("lock", 1, Want::Shared, SESSION)));
    let named = server.open_named();
    (0..1000).for_each(|reader| bind(&mut server, &format!("n{reader}"), LEASE_MS + 2000, named));
    server.disconnect(SESSION);
    server.close_named();
    server.pass_ms(PAUSE_MS);
    assert!(!is_granted(&permit(&mut server, 2)), "a reader, and one in a grace");
    let sent = server.space.stream().len();
    assert!(is_granted(&permit(&mut server, 3)));
    (0..100).for_each(|_| server.tick());
    assert!(server.space.stream().len() < sent + 10, "the lapsed holds are dropped together");
    assert_eq!(holders(&mut server), 3);
    server.engine.audit().unwrap();
}

/// The first hold's lease has run out, but no effect has dropped it while holds in a grace are not settled.
#[test]
fn a_second_grant_of_an_owner_whose_lease_ran_out_is_seen_and_the_lapse_counts() {
    let mut server = crowd(MANY);
    let lease = LeaseChoice::For(Lease::new(LEASE_MS).unwrap());
    let grant = |server: &mut Server| {
        let ask = Request::new(owner("short"), Want::Shared, lease);
        assert!(is_granted(&server.ask("lock", ClientId(500), &ask)));
        (server.engine.stats().lapses, std::mem::take(&mut server.space.modified).len())
    };
    let (lapses, _) = grant(&mut server);
    server.pass_ms(LEASE_MS + 1);
    assert_eq!(grant(&mut server), (lapses + 1, 1));
    server.engine.audit().unwrap();
}

/// Returns a server after a pause, with a lock that has this many readers in a grace, each of its own session, whose
/// leases have run out. Beside these it has a reader without a session (9000), one of a session that is open (9001), and
/// one of a named session (9002).
fn crowd(readers: usize) -> Server {
    let mut server = Server::new();
    server.engine.settings_mut().session_grace = Lease::new(GRACE_MS);
    for reader in 0..readers {
        let (lease, client) = (LeaseChoice::For(Lease::new(LEASE_MS).unwrap()), ClientId(SESSION + reader as u64));
        let ask =
            Request { session: BindTo::Connection, ..Request::new(owner(&reader.to_string()), Want::Shared, lease) };
        assert!(is_granted(&server.ask("lock", client, &ask)));
    }
    assert!(is_granted(&server.acquire("lock", 9000, 4, Want::Shared)));
    // The watchdog extends this lease when the pause ends.
    bind(&mut server, "9001", 9000, BindTo::Connection);
    let session = server.open_named();
    bind(&mut server, "9002", 60_000, session);
    server.tick();
    (0..readers).for_each(|reader| server.disconnect(SESSION + reader as u64));
    server.pass_ms(PAUSE_MS);
    server
}

/// Takes a shared hold for client 8, bound to a session.
fn bind(server: &mut Server, name: &str, lease: u64, session: dlock_core::Binding) {
    let lease = LeaseChoice::For(Lease::new(lease).unwrap());
    let ask = Request { session, ..Request::new(owner(name), Want::Shared, lease) };
    assert!(is_granted(&server.ask("lock", ClientId(8), &ask)));
}

/// Asks for a permit, without waiting.
fn permit(server: &mut Server, limit: u32) -> Result<Entered, Fault> {
    let call = server.call("lock", 500);
    let want = Want::Permits { permits: NonZeroU32::MIN, limit: NonZeroU32::new(limit).unwrap() };
    let ask = Request::new(owner("permit"), want, LeaseChoice::Own);
    server.engine.acquire(&mut server.space, call, &ask, None::<fn(_)>)
}

fn release(server: &mut Server) {
    let stays = owner("9000");
    let (mode, entries, token, request) = (None, Entries::ONE, None, None);
    server.space.running = Some(RunningRelease { owner: stays.clone(), mode, entries, token, request });
    assert_eq!(server.release("lock", 9000, &stays), Ok(Left::Fully));
    server.space.running = None;
}

fn renew(server: &mut Server) {
    let stays = owner("9000");
    let renew = Renew { owner: &stays, mode: None, lease: LeaseChoice::Own, token: RenewToken::Any };
    let call = server.call("lock", 500);
    assert!(server.engine.renew(&mut server.space, call, &renew, BindTo::Nothing).unwrap().is_some());
}

fn several(server: &mut Server) {
    let ask = Request::new(owner("several"), Want::ExclusiveOnce, LeaseChoice::Own);
    assert!(!is_granted(&server.ask_all(&["lock", "other"], 500, &ask, false)));
}

/// Returns how many holders `INFO` shows.
fn holders(server: &mut Server) -> u64 {
    let (now, key) = (server.space.now(), key());
    let (lock, end) = (server.space.lock(&key).clone(), server.space.expiry(&key));
    let shown = server.engine.inspect(name("lock"), &lock, end.flatten().map(UnixMs::new), now, &Detail::Summary);
    shown.map_or(0, |shown| shown.summary.holders)
}

fn key() -> KeyName {
    (0, b"lock".to_vec())
}
