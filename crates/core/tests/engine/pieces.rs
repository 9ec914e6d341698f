//! Work that is too much for one command: the timer does the rest.

use std::collections::BTreeSet;

use dlock_core::engine::{Entered, Input};
use dlock_core::{ClientId, Keyspace, Lease, LeaseChoice, Request, UnixMs, Want};

use crate::{Server, is_granted, name, owner};

/// A command answers requests that take at most this number of places in queues.
const PLACES: usize = 64;

#[test]
fn a_command_answers_some_of_the_requests_for_several_locks_and_the_timer_the_others() {
    const MANY: usize = 1000;
    let mut server = Server::new();
    let holder = owner("holder");
    let ask = Request::new(holder.clone(), Want::ExclusiveOnce, LeaseChoice::For(Lease::new(600_000).unwrap()));
    assert!(is_granted(&server.ask("lock", ClientId(1), &ask)));
    let end = UnixMs::new(server.now_us / 1000 + 10_000);
    for waiter in 0..MANY {
        let other = format!("other-{waiter}");
        let ask = Request::new(owner(&waiter.to_string()), Want::ExclusiveOnce, LeaseChoice::Until(end));
        server.pass_ms(1);
        let entered = server.ask_all(&["lock", &other], 2, &ask, true);
        assert!(matches!(entered, Ok(Entered::Waiting(_))), "{entered:?}");
    }
    // The lease that the requests ask for has passed, so each leaves without the locks.
    server.pass_ms(20_000);
    server.answers();
    assert!(server.release("lock", 1, &holder).is_ok());
    assert_eq!(server.answers(), PLACES / 2);
    let mut left = MANY - PLACES / 2;
    while left > 0 {
        server.pass_ms(1);
        server.tick();
        let answered = server.answers();
        assert!((1..=PLACES + 1).contains(&answered), "{answered} answers, {left} left");
        left -= answered;
    }
    assert_eq!(server.engine.gauges().waiters, 0);
}

/// Two ticks may come between a request and its reply, so each works for a millisecond, whatever kind of work it does.
#[test]
fn a_tick_works_for_a_millisecond() {
    const US_PER_LOCK: u64 = 20;
    const AT_ONCE: usize = (1000 / US_PER_LOCK) as usize + 1;
    let end = |server: &mut Server| server.disconnect(SESSION);
    let let_pass = |server: &mut Server| server.pass_ms(50_000);
    let free = |server: &mut Server| {
        let now = server.space.now();
        for key in keys() {
            server.space.delete(&(0, key.clone().into()));
            server.engine.input(Input::Removed(name(&key)), now);
        }
    };
    let work: [(&str, Act<'_>); 3] = [("ends of holds", &end), ("renewals", &let_pass), ("queues that move", &free)];
    for (what, act) in work {
        let mut server = Server::new();
        for (number, key) in keys().enumerate() {
            assert!(is_granted(&server.acquire_bound(&key, number, Want::Exclusive, SESSION)));
            server.wait(&key, LOCKS + number, 1, Want::Exclusive);
        }
        server.tick();
        act(&mut server);
        server.space.us_per_open = US_PER_LOCK;
        server.space.take_stream();
        server.tick();
        let changed: BTreeSet<_> = server.space.take_stream().into_iter().map(|(key, _)| key).collect();
        assert!((1..=AT_ONCE).contains(&changed.len()), "{} locks in one tick: {what}", changed.len());
    }
}

/// A server that is late because it worked gives a tick a fifth of that time. One that was late because the machine ran
/// other programs has let no command pass by: its tick works for a millisecond.
#[test]
fn a_tick_gets_a_share_of_the_servers_work_and_not_of_the_time_that_other_programs_took() {
    for (others_us, at_most) in [(0, 4000), (28_000, 1000)] {
        let mut server = Server::new();
        for (number, key) in keys().enumerate() {
            assert!(is_granted(&server.acquire_bound(&key, number, Want::Exclusive, SESSION)));
        }
        server.disconnect(SESSION);
        server.space.us_per_open = 20;
        let took = |server: &mut Server| {
            let start = server.space.now();
            server.tick();
            server.space.now().us() - start.us()
        };
        assert!(took(&mut server) <= 1020);
        server.pass_ms(30);
        server.space.others_us += others_us;
        let took = took(&mut server);
        assert!((at_most - 20..=at_most + 20).contains(&took), "{took} us after {others_us} us of other programs");
    }
}

/// Commands on many connections may come between two ticks: a list with a place for each `RESTORE` would grow faster
/// than the timer works it off.
#[test]
fn a_key_that_is_restored_again_and_again_waits_for_one_check() {
    let mut server = Server::new();
    let keys = ["first", "second", "third"];
    let restore = |server: &mut Server, key| server.engine.input(Input::Restored(name(key)), server.space.now());
    let checks = |server: &mut Server| {
        server.space.us_per_open = 1;
        let before = server.space.now().us();
        server.tick();
        server.space.now().us() - before
    };
    for _ in 0..2 {
        (0..100).for_each(|_| keys.iter().for_each(|key| restore(&mut server, key)));
        assert_eq!([checks(&mut server), checks(&mut server)], [3, 0]);
    }
}

type Act<'a> = &'a dyn Fn(&mut Server);

fn keys() -> impl Iterator<Item = String> {
    (0..LOCKS).map(|number| format!("lock{number}"))
}

const LOCKS: usize = 500;
const SESSION: u64 = 999_999;
