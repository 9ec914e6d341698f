//! A key whose value is removed or replaced without an event, as by a slot that leaves and comes back.

use std::num::NonZeroU32;

use dlock_core::engine::{Detail, Input, ShownSession};
use dlock_core::{ClientId, Keyspace, LeaseChoice, Request, Want};
use dlock_testkit::keyspace::KeyName;

use crate::{Server, is_granted, name, owner};

const SESSION: u64 = 1000;
const HOLDS: usize = 100;

/// How the key is replaced.
#[derive(Clone, Copy, Debug)]
enum By {
    /// The same holds come back.
    TheSame,
    /// A hold of another owner takes their place.
    Another,
    /// The key is gone.
    Nothing,
}

fn key() -> KeyName {
    (0, b"lock".to_vec())
}

/// Returns a server where a lock with many readers of one session was replaced without an event.
fn replaced(by: By) -> Server {
    let mut server = Server::new();
    for reader in 0..HOLDS {
        let want = Want::Permits { permits: NonZeroU32::MIN, limit: NonZeroU32::new(1000).unwrap() };
        assert!(is_granted(&server.acquire_bound("lock", reader, want, SESSION)));
    }
    let same = server.space.dump(&key()).unwrap();
    server.space.vanish(&key());
    match by {
        By::TheSame => drop(server.space.restore(&key(), &same, None)),
        By::Another => {
            let mut elsewhere = Server::new();
            elsewhere.pass_ms(1000);
            assert!(is_granted(&elsewhere.acquire("lock", 500, 4, Want::Shared)));
            let bytes = elsewhere.space.dump(&key()).unwrap();
            server.space.restore(&key(), &bytes, None);
        }
        By::Nothing => {}
    }
    server
}

fn info(server: &mut Server, detail: &Detail) -> Option<dlock_core::engine::Inspection> {
    let (lock, now) = (server.space.lock(&key()).clone(), server.space.now());
    server.engine.inspect(name("lock"), &lock, None, now, detail)
}

#[test]
fn the_end_of_a_session_does_not_release_holds_that_came_from_elsewhere() {
    for (by, left) in [(By::TheSame, HOLDS), (By::Another, 1)] {
        // A command, the timer or `INFO` is the first to find the new value.
        for first in ["writer", "permit", "timer", "info", "several"] {
            let mut server = replaced(by);
            server.disconnect(SESSION);
            match first {
                "writer" => assert!(!is_granted(&server.acquire("lock", 600, 4, Want::Exclusive)), "{by:?}"),
                "permit" => {
                    let limit = NonZeroU32::new(u32::try_from(left).unwrap()).unwrap();
                    let want = Want::Permits { permits: NonZeroU32::MIN, limit };
                    assert!(!is_granted(&server.acquire("lock", 600, 4, want)), "{by:?}");
                }
                "timer" => server.tick(),
                "several" => {
                    let ask = Request::new(owner("several"), Want::ExclusiveOnce, LeaseChoice::Own);
                    assert!(!is_granted(&server.ask_all(&["lock", "other"], 7, &ask, true)), "{by:?}");
                }
                // The look below is the first.
                _ => {}
            }
            let shown = info(&mut server, &Detail::Full(1000)).unwrap();
            assert_eq!(shown.summary.holders, left as u64, "{by:?}, {first}");
            assert!(shown.holds.unwrap().iter().all(|hold| hold.session.is_none()), "{by:?}, {first}");
            (0..10).for_each(|_| server.tick());
            assert_eq!(server.space.lock(&key()).live_holds(server.space.now().ms()).count(), left, "{by:?}, {first}");
            assert_eq!(server.engine.gauges().sessions, 0, "{by:?}, {first}");
            server.engine.audit().unwrap();
        }
    }
}

#[test]
fn a_hold_that_is_bound_after_the_replacement_stays_bound() {
    for by in [By::TheSame, By::Another, By::Nothing] {
        let mut server = replaced(by);
        assert!(is_granted(&server.acquire_bound("lock", 700, Want::Shared, 7)), "{by:?}");
        assert_eq!(server.engine.gauges().sessions, 1, "{by:?}");
        server.disconnect(SESSION);
        let shown = info(&mut server, &Detail::OfOwner(owner("700"))).unwrap();
        assert_eq!(shown.holds.unwrap()[0].session, Some(ShownSession::Connection(ClientId(7))), "{by:?}");
        let before = shown.summary.holders;
        server.disconnect(7);
        server.tick();
        let after = info(&mut server, &Detail::Summary).map_or(0, |shown| shown.summary.holders);
        assert_eq!(after, before - 1, "{by:?}");
    }
}

#[test]
fn a_command_that_opens_a_key_that_is_gone_forgets_its_bindings() {
    let mut server = replaced(By::Nothing);
    assert!(is_granted(&server.acquire("lock", 600, 4, Want::Shared)));
    assert_eq!(server.engine.gauges().sessions, 0);
    server.disconnect(SESSION);
    assert!(!is_granted(&server.acquire("lock", 601, 4, Want::Exclusive)), "the owner 600 holds the lock");
}

#[test]
fn a_slot_that_moves_voids_the_bindings_of_its_keys_only() {
    let mut server = Server::new();
    // By CLUSTER KEYSLOT: 12182, 5061, 12182.
    for key in ["foo", "bar", "{foo}2"] {
        assert!(is_granted(&server.acquire_bound(key, 1, Want::Exclusive, SESSION)));
    }
    let now = server.space.now();
    server.engine.input(Input::SlotsMoved(&[(1, 5), (12_100, 12_200)]), now);
    server.tick();
    assert_eq!(server.engine.gauges().sessions, 1);
    server.disconnect(SESSION);
    server.tick();
    let lives = |key: &str| server.space.lock(&(0, key.as_bytes().to_vec())).live_holds(now.ms()).count() == 1;
    assert_eq!(["foo", "bar", "{foo}2"].map(lives), [true, false, true]);
}
