//! Sessions that end with more holds than one visit releases: the others count as released until a visit releases them.

use std::num::NonZeroU32;
use std::time::Duration;

use dlock_core::engine::{Answer, Detail, Entered, Fault, Grant, Output, SlotAnswer};
use dlock_core::{
    BindTo, ClientId, Keyspace, Lease, LeaseChoice, Lock, LockMode, Owner, Renew, RenewToken, Request, Token, UnixMs,
    Want,
};
use dlock_testkit::keyspace::KeyName;
use dlock_testkit::thread_time::on_core;

use crate::{Server, is_granted, name, owner};

/// More holds than the 64 that a visit releases.
const MANY: usize = 100;
const SESSION: u64 = 1000;

/// Returns a server with a lock that has [`MANY`] readers of one session.
fn crowd() -> Server {
    let mut server = Server::new();
    (0..MANY).for_each(|reader| assert!(is_granted(&server.acquire_bound("lock", reader, Want::Shared, SESSION))));
    server
}

#[test]
fn a_writer_gets_in_at_once_and_all_ended_holds_are_counted() {
    let mut server = crowd();
    server.disconnect(SESSION);
    server.events();
    assert!(is_granted(&server.acquire("lock", 500, 20, Want::Exclusive)));
    assert!(server.events() > 0, "the release of the ended holds is an event");
    server.tick();
    let stats = server.engine.stats();
    assert_eq!((stats.session_ends, stats.releases, stats.lapses), (100, 100, 0));
    assert_eq!(server.engine.gauges().sessions, 0);
    // The first hold was held for 100 ms, the last for 1.
    let held = [0, 500, 1000].map(|thousandths| server.engine.log().holds.percentile(thousandths));
    assert!((900..=1100).contains(&held[0]), "{held:?}");
    assert!((45_000..=55_000).contains(&held[1]), "{held:?}");
    assert!((99_000..=103_000).contains(&held[2]), "{held:?}");
}

/// The number of a hold that counts as released is given to another hold only after its release.
#[test]
fn the_lowest_numbers_of_ended_sessions_are_given_in_order() {
    let limit = NonZeroU32::new(100).unwrap();
    let slot = |entered: Result<Entered, Fault>| match entered {
        Ok(Entered::Granted(Grant { slot: SlotAnswer::Number(slot), .. })) => slot as usize,
        entered => panic!("{entered:?}"),
    };
    let mut server = Server::new();
    for reader in 0..MANY {
        // Two sessions, in turn.
        let client = SESSION + reader as u64 % 2;
        assert_eq!(slot(server.acquire_bound("lock", reader, Want::Slot { limit }, client)), reader);
    }
    (200..230).for_each(|owner| server.wait("lock", owner, 20, Want::Slot { limit }));
    (0..2).for_each(|client| server.disconnect(SESSION + client));
    server.tick();
    let mut numbers = Vec::new();
    for output in server.engine.take_outputs() {
        if let Output::Answer((), Answer::Granted(Grant { slot: SlotAnswer::Number(slot), .. }, _)) = output {
            numbers.push(slot as usize);
        }
    }
    assert_eq!(numbers, (0..30).collect::<Vec<_>>(), "the numbers of the waiters");
    // Requests that do not wait get the numbers in order, too.
    let mut server = Server::new();
    for reader in 0..MANY {
        server.acquire_bound("lock", reader, Want::Slot { limit }, SESSION + reader as u64 % 2).unwrap();
    }
    (0..2).for_each(|client| server.disconnect(SESSION + client));
    for number in 0..MANY {
        let entered = server.acquire("lock", 300 + number, 20, Want::Slot { limit });
        assert_eq!(slot(entered), number, "all holds count as released");
    }
    server.tick();
    assert_eq!((server.engine.stats().session_ends, server.engine.stats().releases), (100, 100));
    assert_eq!(summary(&mut server, &Detail::Summary), (LockMode::Shared, 100, 100));
}

/// Thousands of sessions are more than one search looks at.
#[test]
fn the_lowest_number_of_thousands_of_ended_sessions_is_given() {
    const SESSIONS: usize = 3000;
    let limit = NonZeroU32::new(3000).unwrap();
    let mut server = Server::new();
    for reader in 0..SESSIONS {
        server.acquire_bound("lock", reader, Want::Slot { limit }, SESSION + reader as u64).unwrap();
    }
    (0..SESSIONS).for_each(|reader| server.disconnect(SESSION + reader as u64));
    for number in 0..100 {
        let entered = server.acquire("lock", 9000 + number, 20, Want::Slot { limit });
        let slot = SlotAnswer::Number(u32::try_from(number).unwrap());
        assert!(matches!(entered, Ok(Entered::Granted(grant)) if grant.slot == slot), "{entered:?}");
    }
}

#[test]
fn holds_that_end_after_a_grace_do_not_count_as_releases() {
    let mut server = crowd();
    server.engine.settings_mut().session_grace = Lease::new(200);
    server.disconnect(SESSION);
    server.pass_ms(300);
    server.events();
    assert!(is_granted(&server.acquire("lock", 500, 20, Want::Exclusive)));
    assert_eq!(server.events(), 0, "no hold was released");
    server.tick();
    assert_eq!((server.engine.stats().session_ends, server.engine.stats().releases), (100, 0));
}

#[test]
fn a_request_for_several_locks_gets_in_at_once() {
    let mut server = crowd();
    server.disconnect(SESSION);
    let ask = Request::new(owner("several"), Want::ExclusiveOnce, LeaseChoice::Own);
    let entered = server.ask_all(&["lock", "other"], 1, &ask, false);
    assert!(is_granted(&entered), "{entered:?}");
    server.tick();
    assert_eq!((server.engine.stats().session_ends, server.engine.stats().releases), (100, 100));
}

#[test]
fn info_does_not_show_holds_of_ended_sessions() {
    let mut server = crowd();
    assert_eq!(summary(&mut server, &Detail::Summary), (LockMode::Shared, 100, 100));
    server.disconnect(SESSION);
    for detail in [Detail::Summary, Detail::Full(1000)] {
        assert_eq!(summary(&mut server, &detail), (LockMode::Free, 0, 0), "{detail:?}");
    }
    // Only the hold that stays is shown, though 36 ended ones are still stored.
    assert!(is_granted(&server.acquire("lock", 500, 20, Want::Shared)));
    assert_eq!(stored(&server), 37);
    for detail in [Detail::Summary, Detail::Full(1000), Detail::Full(1), Detail::Full(0)] {
        assert_eq!(summary(&mut server, &detail), (LockMode::Shared, 1, 1), "{detail:?}");
    }
}

#[test]
fn info_shows_nothing_of_a_key_that_has_expired() {
    let mut server = Server::new();
    assert!(is_granted(&server.acquire("lock", 1, 20, Want::Shared)));
    let (now, lock) = (server.space.now(), server.space.lock(&key()).clone());
    let mut shows = |end: u64| {
        let name = name("lock");
        server.engine.inspect(name, &lock, Some(UnixMs::new(end)), now, &Detail::Summary).is_some()
    };
    assert!(shows(now.ms().get() + 1));
    assert!(!shows(now.ms().get()));
}

#[test]
fn a_session_on_many_locks_ends_for_the_next_command_on_each() {
    let mut server = Server::new();
    for number in 0..MANY {
        assert!(is_granted(&server.acquire_bound(&format!("lock{number}"), number, Want::Exclusive, SESSION)));
    }
    server.disconnect(SESSION);
    // The locks that no timer has visited yet are free, too.
    for number in (0..MANY).rev() {
        assert!(is_granted(&server.acquire_bound(&format!("lock{number}"), 500, Want::Exclusive, 1)), "{number}");
    }
    assert_eq!(server.engine.stats().session_ends, 100);
    server.tick();
    assert_eq!((server.engine.stats().session_ends, server.engine.gauges().sessions), (100, 100));
}

fn summary(server: &mut Server, detail: &Detail) -> (LockMode, u64, u64) {
    let (now, key) = (server.space.now(), key());
    let lock = server.space.lock(&key).clone();
    let shown = server.engine.inspect(name("lock"), &lock, None, now, detail);
    let Some(shown) = shown else { return (LockMode::Free, 0, 0) };
    if let (Detail::Full(most), Some(holds)) = (detail, shown.holds) {
        assert_eq!(holds.len() as u64, shown.summary.holders.min(*most as u64));
    }
    (shown.summary.mode, shown.summary.holders, shown.summary.entries)
}

fn stored(server: &Server) -> usize {
    Lock::stored(server.space.lock(&key()))
}

fn key() -> KeyName {
    (0, b"lock".to_vec())
}

/// `MACQUIRE` settles no more holds than a command on one lock: the rest count as released.
#[test]
fn several_locks_of_an_ended_session_are_taken_in_a_bounded_time() {
    const LOCKS: usize = 64;
    let mut server = Server::new();
    let keys: Vec<String> = (0..LOCKS).map(|lock| format!("lock{lock}")).collect();
    for key in &keys {
        (0..MANY).for_each(|reader| assert!(is_granted(&server.acquire_bound(key, reader, Want::Shared, SESSION))));
    }
    server.space.take_stream();
    server.disconnect(SESSION);
    let names: Vec<&str> = keys.iter().map(String::as_str).collect();
    let ask = Request::new(owner("writer"), Want::ExclusiveOnce, LeaseChoice::Own);
    assert!(is_granted(&server.ask_all(&names, 7, &ask, false)));
    let effects = server.space.take_stream().len();
    assert!(effects <= 2 * LOCKS, "{effects} effects: {LOCKS} are the grants");
    (0..100).for_each(|_| server.tick());
    assert_eq!(server.engine.stats().session_ends, (LOCKS * MANY) as u64);
    server.engine.audit().unwrap();
}

/// The request waits for several locks, each with more ended holds than one visit settles.
#[test]
fn a_waiter_gets_several_locks_of_an_ended_session_within_ten_ticks() {
    let mut server = Server::new();
    let keys = ["a", "b", "c"];
    for key in keys {
        (0..MANY).for_each(|reader| assert!(is_granted(&server.acquire_bound(key, reader, Want::Shared, SESSION))));
    }
    let ask = Request::new(owner("writer"), Want::ExclusiveOnce, LeaseChoice::Own);
    assert!(matches!(server.ask_all(&keys, 7, &ask, true), Ok(Entered::Waiting(_))));
    server.disconnect(SESSION);
    (0..10).for_each(|_| server.tick());
    assert_eq!(server.answers(), 1);
    server.engine.audit().unwrap();
}

/// `INFO` many times in a row on a lock with one hold that stays among thousands of holds of ended sessions.
#[test]
fn info_on_a_lock_of_ended_sessions_does_not_look_at_each_hold() {
    const READERS: usize = 20_000;
    for sessions in [1, 9, 5_000] {
        let mut server = Server::new();
        for reader in 0..READERS {
            let client = SESSION + (reader % sessions) as u64;
            assert!(is_granted(&server.acquire_bound("lock", reader, Want::Shared, client)));
            if reader == READERS / 2 {
                assert!(is_granted(&server.acquire("lock", 90_000, 5, Want::Shared)));
            }
        }
        (0..sessions).for_each(|client| server.disconnect(SESSION + client as u64));
        let lock = server.space.lock(&key()).clone();
        // Every hold has one entry, so this looks at each.
        let each = least(|| assert_eq!(lock.stored_holds().filter(|hold| hold.count == 1).count(), READERS + 1));
        for detail in [Detail::Summary, Detail::Full(10)] {
            let one = least(|| {
                server.pass_ms(1);
                let now = server.space.now();
                let shown = server.engine.inspect(name("lock"), &lock, None, now, &detail).unwrap();
                assert_eq!((shown.summary.holders, shown.summary.entries), (1, 1), "{sessions}");
                assert!(shown.holds.is_none_or(|holds| holds.len() == 1), "{sessions}");
            });
            // Comparing two lists of all tokens would take a third to a quarter of the time of a look at each hold.
            assert!(one < each / 10, "{sessions} sessions, {detail:?}: {one:?}, a look at each hold {each:?}");
        }
    }
}

/// With `MINTOKEN`, several holds of an ended session have each token. Other readers have lower ones, and many deadlines.
#[test]
fn info_does_not_look_at_each_of_many_ended_holds_that_share_tokens() {
    const READERS: usize = 20_000;
    const OTHERS: usize = 100;
    for sharing in [READERS, 1000, 2] {
        let mut server = Server::new();
        for other in 0..OTHERS {
            assert!(is_granted(&server.acquire("lock", 90_000 + other, 5, Want::Shared)));
        }
        (0..READERS).for_each(|reader| drop(server.acquire_bound("lock", reader, Want::Shared, SESSION)));
        let first = server.now_us + 1_000_000;
        (0..READERS)
            .for_each(|reader| lift(&mut server, reader, Token::new(first + (reader / sharing) as u64).unwrap()));
        server.disconnect(SESSION);
        let lock = server.space.lock(&key()).clone();
        let each = least(|| assert_eq!(lock.stored_holds().filter(|hold| hold.count == 1).count(), READERS + OTHERS));
        // More holds than there are with lower tokens.
        let all = Detail::Full(2 * OTHERS);
        let one = least(|| {
            server.pass_ms(1);
            let now = server.space.now();
            let shown = server.engine.inspect(name("lock"), &lock, None, now, &all).unwrap();
            assert_eq!((shown.summary.holders, shown.holds.unwrap().len()), (OTHERS as u64, OTHERS), "{sharing}");
        });
        assert!(one < 8 * each, "{sharing}: {one:?}, a look at each hold {each:?}");
    }
}

/// More holds of an ended session than `INFO` looks at have the token of the holds that are left: readers without a
/// session, or one in the grace of another session.
#[test]
fn info_shows_a_lock_as_held_whatever_the_tokens_of_ended_holds() {
    const READERS: usize = 3000;
    const GRACED: u64 = 7;
    for has_grace in [false, true] {
        let mut server = Server::new();
        let ended = server.open_named();
        // Holds in the middle are left, whichever end a look begins with.
        let is_left = |reader| if has_grace { reader == 1500 } else { (1400..1600).contains(&reader) };
        for reader in 0..READERS {
            let session = match is_left(reader) {
                false => ended,
                true if has_grace => BindTo::Connection,
                true => BindTo::Nothing,
            };
            let owner = Owner::new(reader.to_string().as_bytes()).unwrap();
            let ask = Request { session, ..Request::new(owner, Want::Shared, LeaseChoice::Own) };
            assert!(is_granted(&server.ask("lock", ClientId(GRACED), &ask)));
        }
        let least_token = Token::new(server.now_us + 1_000_000).unwrap();
        (0..READERS).for_each(|reader| lift(&mut server, reader, least_token));
        server.engine.settings_mut().session_grace = Lease::new(60_000);
        server.disconnect(GRACED);
        server.close_named();
        let left = (0..READERS).filter(|reader| is_left(*reader)).count() as u64;
        assert_eq!(summary(&mut server, &Detail::Summary), (LockMode::Shared, left, left));
    }
}

/// Renews the hold of an owner with `MINTOKEN`.
fn lift(server: &mut Server, owner: usize, least_token: Token) {
    let owner = Owner::new(owner.to_string().as_bytes()).unwrap();
    let renew = Renew { owner: &owner, mode: None, lease: LeaseChoice::Own, token: RenewToken::AtLeast(least_token) };
    let call = server.call("lock", SESSION);
    assert!(server.engine.renew(&mut server.space, call, &renew, BindTo::Nothing).unwrap().is_some());
}

/// Returns the shortest time of some runs: other processes of the machine only make a run longer.
fn least(mut act: impl FnMut()) -> Duration {
    (0..100).map(|_| on_core(&mut act)).min().unwrap()
}
