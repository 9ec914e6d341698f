//! The limit on a client's load: a hold is not bound if the watchdog would have to extend too many leases per second.

use dlock_core::engine::{Entered, Fault, Heartbeat, Input, Left, MAX_RECORDED_KEY, MAX_RENEWALS, OpenIf, UserState};
use dlock_core::{BindTo, Keyspace, Lease, LeaseChoice, NamedId, Reach, Renew, RenewToken, Request, SessionId, Want};

use crate::{Server, is_granted, name, owner};

const SESSION: u64 = 1000;
/// A lease of 300 ms is extended ten times a second.
const MOST: u64 = MAX_RENEWALS / 10;

fn bound(lease_ms: u64) -> Request {
    let owner = owner("owner");
    Request {
        session: BindTo::Connection,
        ..Request::new(owner, Want::Exclusive, LeaseChoice::For(Lease::new(lease_ms).unwrap()))
    }
}

/// Asks for a lock without letting time pass, so that no lease ends.
fn acquire(server: &mut Server, key: &str, client: u64, ask: &Request) -> Result<Entered, Fault> {
    let call = server.call(key, client);
    server.engine.acquire(&mut server.space, call, ask, None::<fn(_)>)
}

fn full() -> Server {
    let mut server = Server::new();
    server.pass_ms(1);
    for n in 0..MOST {
        assert!(is_granted(&acquire(&mut server, &format!("k{n}"), SESSION, &bound(300))), "{n}");
    }
    server
}

#[test]
fn one_hold_too_many_is_refused_and_costs_nobody_else_anything() {
    let mut server = full();
    assert_eq!(acquire(&mut server, "more", SESSION, &bound(300)), Err(Fault::SessionLoad));
    assert_eq!(
        acquire(&mut server, "k0", SESSION, &Request { owner: owner("b"), ..bound(300) }),
        Err(Fault::SessionLoad)
    );
    assert!(is_granted(&acquire(&mut server, "more", SESSION + 1, &bound(300))));
    assert!(is_granted(&acquire(&mut server, "unbound", SESSION, &Request { session: BindTo::Nothing, ..bound(300) })));
}

#[test]
fn holds_that_end_count_no_more() {
    let mut server = full();
    server.pass_ms(400);
    // The holds have lapsed, and the timer forgets them.
    server.tick();
    assert!(is_granted(&acquire(&mut server, "more", SESSION, &bound(300))));
    let mut server = full();
    server.disconnect(SESSION);
    server.tick();
    assert!(is_granted(&acquire(&mut server, "more", SESSION, &bound(300))), "another session with this id");
}

fn renew(server: &mut Server, key: &str, client: u64, lease_ms: u64, binds: bool) -> Result<Option<Reach>, Fault> {
    let (call, owner) = (server.call(key, client), owner("owner"));
    let lease = LeaseChoice::For(Lease::new(lease_ms).unwrap());
    let request = Renew { owner: &owner, mode: None, lease, token: RenewToken::Any };
    let session = if binds { BindTo::Connection } else { BindTo::Nothing };
    server.engine.renew(&mut server.space, call, &request, session)
}

#[test]
fn a_renewal_by_any_client_counts_for_the_session_that_has_the_hold() {
    let mut server = full();
    assert_eq!(renew(&mut server, "k0", SESSION + 1, 300, false), Ok(Some(Reach::Asked)), "as it was");
    assert_eq!(renew(&mut server, "k0", SESSION + 1, 600, false), Ok(Some(Reach::Asked)));
    assert!(is_granted(&acquire(&mut server, "more", SESSION, &bound(600))));
    assert_eq!(renew(&mut server, "k0", SESSION + 1, 300, false), Err(Fault::SessionLoad));
    assert_eq!(renew(&mut server, "k0", SESSION + 1, 300, true), Ok(Some(Reach::Asked)), "bound to another");
    assert!(is_granted(&acquire(&mut server, "again", SESSION, &bound(600))));
}

#[test]
fn several_locks_count_together() {
    let mut server = full();
    for n in 0..2 {
        assert_eq!(renew(&mut server, &format!("k{n}"), SESSION, 3000, false), Ok(Some(Reach::Asked)));
    }
    let ask = Request { want: Want::ExclusiveOnce, ..bound(300) };
    let mut all = |keys: &[&str]| server.ask_all(keys, SESSION, &ask, false);
    assert_eq!(all(&["x", "y"]), Err(Fault::SessionLoad));
    assert!(is_granted(&all(&["x"])));
}

#[test]
fn long_names_weigh_more_and_the_longest_are_refused() {
    let mut server = Server::new();
    server.pass_ms(1);
    let name = |n: u64, len: usize| format!("{n:08}{}", "x".repeat(len - 8));
    // A renewal counts once, and once more for each 128 bytes of the name.
    let granted = (0..MOST).take_while(|n| is_granted(&acquire(&mut server, &name(*n, 6400), SESSION, &bound(300))));
    assert_eq!(granted.count() as u64, MOST / 51);
    for may_bind in [false, true] {
        let session = if may_bind { BindTo::Connection } else { BindTo::Nothing };
        let ask = Request { session, ..bound(3_000_000) };
        let entered = acquire(&mut server, &name(0, MAX_RECORDED_KEY + 1), SESSION + 1, &ask);
        assert_eq!(entered.is_err(), may_bind);
        assert!(is_granted(&acquire(&mut server, &name(u64::from(may_bind), MAX_RECORDED_KEY), SESSION + 1, &ask)));
    }
    assert_eq!(
        renew(&mut server, &name(0, MAX_RECORDED_KEY + 1), SESSION + 1, 3_000_000, true),
        Err(Fault::SessionKey)
    );
}

fn open(server: &mut Server, id: &str, user: &[u8]) -> NamedId {
    let (id, timeout) = (SessionId::new(id.as_bytes()).unwrap(), Lease::new(60_000).unwrap());
    let beat = Heartbeat { id: &id, user, timeout, only: OpenIf::New };
    let times = (server.space.uptime(), server.space.now());
    assert_eq!(server.engine.keep_session(beat, times, || UserState::Enabled), Ok(Some(0)));
    server.engine.look_up_session(&id, Some(user)).unwrap()
}

/// A client may open any number of sessions: with a limit for each, it could have any number of renewals.
#[test]
fn the_named_sessions_of_a_user_count_together() {
    let mut server = Server::new();
    server.pass_ms(1);
    let (first, second) = (open(&mut server, "first", b"user"), open(&mut server, "second", b"user"));
    let of_another = open(&mut server, "third", b"another");
    let ask = |named| Request { session: BindTo::Named(Ok(named)), ..bound(300) };
    for n in 0..MOST {
        let named = if n % 2 == 0 { first } else { second };
        assert!(is_granted(&acquire(&mut server, &format!("k{n}"), SESSION, &ask(named))), "{n}");
    }
    assert_eq!(acquire(&mut server, "more", SESSION, &ask(first)), Err(Fault::SessionLoad));
    assert_eq!(acquire(&mut server, "more", SESSION + 1, &ask(second)), Err(Fault::SessionLoad));
    assert!(is_granted(&acquire(&mut server, "another's", SESSION, &ask(of_another))));
    assert!(is_granted(&acquire(&mut server, "connection's", SESSION, &bound(300))));
    let (call, owner) = (server.call("k0", SESSION), owner("owner"));
    let lease = LeaseChoice::For(Lease::new(300).unwrap());
    let request = Renew { owner: &owner, mode: None, lease, token: RenewToken::Any };
    let moved = server.engine.renew(&mut server.space, call, &request, BindTo::Named(Ok(second)));
    assert_eq!(moved, Ok(Some(Reach::Asked)), "it counts as before");
    let (id, now) = (SessionId::new(b"first").unwrap(), server.space.now());
    assert!(server.engine.close_session(&id, b"user", now).is_some());
    assert!(is_granted(&acquire(&mut server, "more", SESSION, &ask(second))));
    server.engine.audit().unwrap();
}

/// The length of a reply has a limit.
#[test]
fn a_list_of_holds_on_long_names_is_cut() {
    let mut server = Server::new();
    server.pass_ms(1);
    let named = open(&mut server, "s", b"user");
    for n in 0..100 {
        let name = format!("{n:03}{}", "x".repeat(60_000));
        let ask = Request { session: BindTo::Named(Ok(named)), ..bound(3_000_000) };
        assert!(is_granted(&acquire(&mut server, &name, SESSION, &ask)));
    }
    let (id, now) = (SessionId::new(b"s").unwrap(), server.space.now());
    let listed = server.engine.list_session(&id, b"user", 10_000, now).unwrap();
    assert!((17..=18).contains(&listed.len()), "{}", listed.len());
}

/// A large lock is freed a piece at a time. Its holds count until they are freed, and are subtracted once.
#[test]
fn bindings_that_are_freed_later_are_subtracted_once() {
    let mut server = Server::new();
    server.pass_ms(1);
    for n in 0..1000_u64 {
        let owner = owner(&n.to_string());
        assert!(is_granted(&acquire(
            &mut server,
            "crowd",
            SESSION,
            &Request { owner, want: Want::Shared, ..bound(300) }
        )));
    }
    let name = name("crowd");
    server.space.delete(&(0, b"crowd".to_vec()));
    let now = server.space.now();
    server.engine.input(Input::Removed(name), now);
    // The session's last hold is released, and the load of the deleted holds still counts.
    assert!(is_granted(&acquire(&mut server, "long", SESSION, &bound(30_000))));
    assert_eq!(server.release("long", SESSION, &owner("owner")), Ok(Left::Fully));
    for n in 0..MOST - 1000 {
        assert!(is_granted(&acquire(&mut server, &format!("k{n}"), SESSION, &bound(300))), "{n}");
    }
    assert_eq!(acquire(&mut server, "more", SESSION, &bound(300)), Err(Fault::SessionLoad));
    server.tick();
    for n in MOST - 1000..MOST {
        assert!(is_granted(&acquire(&mut server, &format!("k{n}"), SESSION, &bound(300))), "{n}");
    }
    assert_eq!(acquire(&mut server, "more", SESSION, &bound(300)), Err(Fault::SessionLoad));
}

/// Each request is checked when it begins to wait. At that time, none of the others is granted, so it is checked again.
#[test]
fn requests_that_waited_to_be_bound_to_one_session_keep_its_limit() {
    let mut server = Server::new();
    server.pass_ms(1);
    let named = open(&mut server, "s", b"user");
    let ask = |want| Request { session: BindTo::Named(Ok(named)), want, ..bound(300) };
    let boss = owner("boss");
    for n in 0..MOST + 10 {
        let (key, free) = (format!("k{n}"), format!("free{n}"));
        let holder = Request::new(boss.clone(), Want::Exclusive, LeaseChoice::Own);
        assert!(is_granted(&acquire(&mut server, &key, SESSION, &holder)));
        let entered = if n % 2 == 0 {
            let call = server.call(&key, n + 1);
            server.engine.acquire(&mut server.space, call, &ask(Want::Exclusive), Some(|_| ()))
        } else {
            server.ask_all(&[&key, &free], n + 1, &ask(Want::ExclusiveOnce), true)
        };
        assert!(matches!(entered, Ok(Entered::Waiting(_))), "{n}");
    }
    for n in 0..MOST + 10 {
        assert_eq!(server.release(&format!("k{n}"), SESSION, &boss), Ok(Left::Fully));
    }
    server.tick();
    let (id, now) = (SessionId::new(b"s").unwrap(), server.space.now());
    assert_eq!(server.engine.close_session(&id, b"user", now), Some(2000));
}
