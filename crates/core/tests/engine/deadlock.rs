//! The search for a deadlock takes a bounded number of steps. If it needs more, it finds nothing, and the request
//! waits.

use dlock_core::engine::{Entered, Fault};
use dlock_core::{ClientId, Keyspace, LeaseChoice, Owner, Request, Want};

use crate::Server;

/// How long it takes until the steps of a large search have come back, in ms.
const REFILL_MS: u64 = 5;

/// A search has 8,000 steps. Each key but the request's own costs 17 and one for each 200 bytes of its name, a look at
/// a queue three. A writer ahead and a holder cost one, and one for each 128 bytes of the owner.
#[test]
fn a_cycle_is_found_over_some_300_keys() {
    assert!(closes_a_cycle(350, 10));
    assert!(!closes_a_cycle(370, 10));
}

#[test]
fn long_names_of_keys_cost_more() {
    assert!(closes_a_cycle(240, 2000));
    assert!(!closes_a_cycle(260, 2000));
}

#[test]
fn every_holder_costs_a_step() {
    assert!(closes_behind_readers(7900, 20));
    assert!(!closes_behind_readers(8100, 20));
}

#[test]
fn long_names_of_owners_cost_more() {
    assert!(closes_behind_readers(870, 1024));
    assert!(!closes_behind_readers(900, 1024));
}

/// Each owner holds a key and waits for the key of the previous owner. The first owner then asks for the last key.
/// Returns whether the reply is `DEADLOCK`.
fn closes_a_cycle(keys: usize, name_len: usize) -> bool {
    let mut server = Server::new();
    let key = |number: usize| format!("{number:0name_len$}");
    for number in 0..keys {
        assert!(matches!(server.acquire(&key(number), number, 20, Want::ExclusiveOnce), Ok(Entered::Granted(_))));
    }
    for number in (1..keys).rev() {
        server.wait(&key(number - 1), number, 20, Want::ExclusiveOnce);
    }
    is_deadlock(&server.acquire(&key(keys - 1), 0, 20, Want::ExclusiveOnce))
}

/// Many readers hold a key that a writer waits for. The reader that the search reaches last asks for a key that the
/// writer holds. Returns whether the reply is `DEADLOCK`.
fn closes_behind_readers(readers: usize, owner_len: usize) -> bool {
    let mut server = Server::new();
    for number in 1..=readers {
        assert!(matches!(server.acquire("read", number, owner_len, Want::Shared), Ok(Entered::Granted(_))));
    }
    assert!(matches!(server.acquire("written", 0, 20, Want::Exclusive), Ok(Entered::Granted(_))));
    server.wait("read", 0, 20, Want::Exclusive);
    server.pass_ms(REFILL_MS);
    is_deadlock(&server.acquire("written", 1, owner_len, Want::Exclusive))
}

/// Thousands of requests that arrive together would otherwise hold the server up for a millisecond each.
#[test]
fn large_searches_that_come_together_share_the_steps_of_one() {
    let mut server = behind_readers(4000);
    let found = (1..3000).filter(|reader| is_deadlock(&at_once(&mut server, "written", *reader))).count();
    assert_eq!(found, 1, "4,000 steps were left after the search of the writer");
    server.pass_ms(REFILL_MS);
    assert!(is_deadlock(&at_once(&mut server, "written", 4000)));
    server.engine.audit().unwrap();
}

#[test]
fn the_steps_come_back_with_the_time() {
    let mut server = behind_readers(7900);
    for ms in [REFILL_MS, REFILL_MS - 1, 1, 30_000, 0] {
        server.pass_ms(ms);
        // A search that finds nothing takes all steps that are there. The request waits, and leaves.
        let is_found = is_deadlock(&at_once(&mut server, "written", 1));
        leave(&mut server, 1);
        assert_eq!(is_found, ms >= REFILL_MS, "{ms} ms later");
    }
}

/// The server's clock may be set back.
#[test]
fn the_steps_come_back_after_the_clock_was_set_back() {
    let mut server = behind_readers(7900);
    server.now_us /= 2;
    server.pass_ms(0);
    assert!(!is_deadlock(&at_once(&mut server, "written", 1)));
    leave(&mut server, 1);
    server.pass_ms(REFILL_MS);
    assert!(is_deadlock(&at_once(&mut server, "written", 1)));
}

/// A client that makes large searches does not hide a small cycle of others.
#[test]
fn a_small_cycle_is_found_while_large_searches_have_taken_all_steps() {
    let mut server = behind_readers(8000);
    for (key, owner) in [("left", 9001), ("right", 9002)] {
        assert!(matches!(at_once(&mut server, key, owner), Ok(Entered::Granted(_))));
    }
    for reader in 1..100 {
        assert!(!is_deadlock(&at_once(&mut server, "written", reader)), "{reader}");
        assert!(!is_deadlock(&at_once(&mut server, "read", 10_000 + reader)), "{reader}");
    }
    assert!(matches!(at_once(&mut server, "right", 9001), Ok(Entered::Waiting(_))));
    assert!(is_deadlock(&at_once(&mut server, "left", 9002)));
    // Each of the locks of a request has steps of its own.
    let names: Vec<String> = (0..62).map(|n| format!("free-{n}")).collect();
    let keys: Vec<&str> = names.iter().map(String::as_str).chain(["left"]).collect();
    for key in &keys[..62] {
        assert!(matches!(at_once(&mut server, key, 9003), Ok(Entered::Granted(_))));
    }
    assert!(is_deadlock(&server.ask_all(&keys, 9002, &exclusive_once(9002), true)));
}

/// Returns a server on which this many readers hold a key that a writer waits for: owner 0, which holds `written`.
fn behind_readers(readers: usize) -> Server {
    let mut server = Server::new();
    for number in 1..=readers {
        assert!(matches!(server.acquire("read", number, 20, Want::Shared), Ok(Entered::Granted(_))));
    }
    assert!(matches!(server.acquire("written", 0, 20, Want::Exclusive), Ok(Entered::Granted(_))));
    server.wait("read", 0, 20, Want::Exclusive);
    server
}

/// Ends the wait of an owner.
fn leave(server: &mut Server, owner: u64) {
    let now = server.space.now();
    server.engine.lose_client(ClientId(owner), now);
}

/// Asks for a lock without letting time pass.
fn at_once(server: &mut Server, key: &str, owner: usize) -> Result<Entered, Fault> {
    let call = server.call(key, owner as u64);
    server.engine.acquire(&mut server.space, call, &exclusive_once(owner), Some(|_| ()))
}

fn exclusive_once(owner: usize) -> Request {
    let owner = Owner::new(format!("{owner:020}").as_bytes()).unwrap();
    Request::new(owner, Want::ExclusiveOnce, LeaseChoice::Own)
}

fn is_deadlock(entered: &Result<Entered, Fault>) -> bool {
    match entered {
        Err(Fault::Deadlock(_)) => true,
        Ok(Entered::Waiting(_)) => false,
        other => panic!("{other:?}"),
    }
}
