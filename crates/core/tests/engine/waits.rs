//! A request waits only for keys whose names are not too long: each visit of the lock copies the name.

use std::num::NonZeroU32;

use dlock_core::engine::{Entered, Fault, MAX_RECORDED_KEY};
use dlock_core::{BindTo, LeaseChoice, Request, Want};

use crate::{Server, is_granted, name, owner};

const HOLDER: u64 = 1;
const ASKER: u64 = 2;

/// Every way to ask for one lock.
const WANTS: [Want; 5] = [
    Want::ExclusiveOnce,
    Want::Exclusive,
    Want::Shared,
    Want::Permits { permits: NonZeroU32::MIN, limit: NonZeroU32::MIN },
    Want::Slot { limit: NonZeroU32::MIN },
];

fn request(who: &str, want: Want) -> Request {
    Request::new(owner(who), want, LeaseChoice::Own)
}

/// Asks for a lock, and waits for it if `blocks`.
fn ask(server: &mut Server, key: &str, request: &Request, blocks: bool) -> Result<Entered, Fault> {
    let call = server.call(key, ASKER);
    server.engine.acquire(&mut server.space, call, request, blocks.then_some(|_| ()))
}

#[test]
fn a_request_waits_for_no_key_with_a_longer_name() {
    for want in WANTS {
        let mut server = Server::new();
        let (longest, longer) = ("x".repeat(MAX_RECORDED_KEY), "x".repeat(MAX_RECORDED_KEY + 1));
        for key in [&longest, &longer] {
            assert!(is_granted(&server.acquire(key, 0, 1, Want::Exclusive)));
        }
        assert!(
            matches!(ask(&mut server, &longest, &request("asker", want), true), Ok(Entered::Waiting(_))),
            "{want:?}"
        );
        let before = server.engine.stats();
        for session in [BindTo::Nothing, BindTo::Connection] {
            // The session has a limit of its own, which comes first.
            let fault = if session == BindTo::Nothing { Fault::WaitKey } else { Fault::SessionKey };
            let asked = Request { session, ..request("asker", want) };
            assert_eq!(ask(&mut server, &longer, &asked, true), Err(fault), "{want:?}");
        }
        assert_eq!(server.engine.stats(), before, "{want:?}");
        assert!(!server.engine.remembers(name(&longer)), "{want:?}");
        assert_eq!(server.engine.gauges().waiters, 1, "{want:?}");
        server.engine.audit().unwrap();
    }
}

/// The limit changes no grant, no refusal and no other error that comes at once.
#[test]
fn a_key_with_a_longer_name_is_a_lock_for_whoever_does_not_wait() {
    for want in WANTS {
        let mut server = Server::new();
        let key = "x".repeat(MAX_RECORDED_KEY + 1);
        assert!(is_granted(&ask(&mut server, &key, &request("asker", want), true)), "{want:?}");
        assert_eq!(ask(&mut server, &key, &request("other", Want::Exclusive), false), Ok(Entered::Refused));
        let again = ask(&mut server, &key, &request("asker", Want::ExclusiveOnce), true);
        assert!(matches!(again, Err(Fault::Deadlock(_))), "{want:?}: {again:?}");
        assert_eq!(ask(&mut server, &key, &request("other", Want::Exclusive), true), Err(Fault::WaitKey));
        assert!(server.release(&key, HOLDER, &owner("asker")).is_ok());
        assert!(is_granted(&ask(&mut server, &key, &request("other", Want::Exclusive), true)), "{want:?}");
    }
}

#[test]
fn an_upgrade_of_a_lock_with_a_longer_name_does_not_wait() {
    let mut server = Server::new();
    let key = "x".repeat(MAX_RECORDED_KEY + 1);
    for who in ["a", "b"] {
        assert!(is_granted(&ask(&mut server, &key, &request(who, Want::Shared), true)));
    }
    assert_eq!(ask(&mut server, &key, &request("a", Want::Exclusive), true), Err(Fault::WaitKey));
    assert!(server.release(&key, HOLDER, &owner("b")).is_ok());
    assert!(is_granted(&ask(&mut server, &key, &request("a", Want::Exclusive), true)));
}

/// The request joins no queue, wherever the long name stands, and whichever of the locks is held.
#[test]
fn a_request_for_several_locks_waits_for_no_key_with_a_longer_name() {
    let longer = "x".repeat(MAX_RECORDED_KEY + 1);
    for keys in [[&*longer, "short"], ["short", &*longer]] {
        let mut server = Server::new();
        let both = request("asker", Want::ExclusiveOnce);
        for held in keys {
            let holder = owner("holder");
            assert!(is_granted(&ask(&mut server, held, &request("holder", Want::Exclusive), false)));
            assert_eq!(server.ask_all(&keys, ASKER, &both, true), Err(Fault::WaitKey));
            assert_eq!(server.ask_all(&keys, ASKER, &both, false), Ok(Entered::Refused));
            assert!(!keys.iter().any(|key| server.engine.remembers(name(key))));
            assert!(server.release(held, HOLDER, &holder).is_ok());
        }
        assert!(is_granted(&server.ask_all(&keys, ASKER, &both, true)));
        server.engine.audit().unwrap();
    }
}
