//! The search for a deadlock takes a bounded number of steps. If it needs more, it finds nothing, and the request
//! waits.

use dlock_core::Want;
use dlock_core::engine::{Entered, Fault};

use crate::Server;

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
    is_deadlock(&server.acquire("written", 1, owner_len, Want::Exclusive))
}

fn is_deadlock(entered: &Result<Entered, Fault>) -> bool {
    match entered {
        Err(Fault::Deadlock(_)) => true,
        Ok(Entered::Waiting(_)) => false,
        other => panic!("{other:?}"),
    }
}
