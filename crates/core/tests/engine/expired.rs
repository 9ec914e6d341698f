//! Keys that expire while the engine is at work.

use dlock_core::engine::{Answer, Entered, Fault, Output};
use dlock_core::{ClientId, LeaseChoice, Request, Want};

use crate::{Server, is_granted, owner};

#[test]
fn a_key_that_expires_between_the_decision_to_wait_and_the_next_look_lets_the_waiter_in() {
    let mut server = Server::new();
    assert!(is_granted(&server.acquire("lock", 1, 20, Want::Exclusive)));
    let soon = server.now_us / 1000 + 2;
    server.space.set_expiry(&(0, b"lock".to_vec()), Some(soon));
    // The key exists when the request is refused, and has expired when its queue is looked at.
    server.space.us_per_open = 1000;
    server.wait("lock", 2, 20, Want::Exclusive);
    assert!(!server.space.exists(&(0, b"lock".to_vec())), "the key has not expired");
    server.space.us_per_open = 0;
    server.engine.take_outputs();
    let now = server.space.ms();
    assert!(server.engine.wake_at().is_some_and(|at| at.get() <= now), "nobody looks at the queue");
    server.tick();
    assert_eq!(server.answers(), 1, "the waiter is lost");
}

/// The look at the second lock removes its expired key, and a callback of another module then gives the first one another
/// type.
#[test]
fn several_locks_are_looked_at_again_if_a_look_has_removed_an_expired_key() {
    for meddles in [false, true] {
        let mut server = Server::new();
        assert!(is_granted(&server.acquire("second", 1, 20, Want::Exclusive)));
        expire_second(&mut server, meddles);
        let entered = server.ask_all(&["first", "second"], 2, &exclusive("owner"), false);
        match entered {
            Err(Fault::WrongType) => assert!(meddles),
            other => assert!(is_granted(&other) && !meddles, "{other:?}"),
        }
    }
}

#[test]
fn the_locks_of_a_request_that_waits_are_looked_at_again_if_a_look_has_removed_an_expired_key() {
    for meddles in [false, true] {
        let mut server = Server::new();
        let holder = owner("holder");
        for key in ["first", "second"] {
            assert!(is_granted(&server.ask(key, ClientId(1), &exclusive("holder"))));
        }
        let entered = server.ask_all(&["first", "second"], 2, &exclusive("owner"), true);
        assert!(matches!(entered, Ok(Entered::Waiting(_))), "{entered:?}");
        expire_second(&mut server, meddles);
        server.engine.take_outputs();
        assert!(server.release("first", 1, &holder).is_ok());
        let outputs = server.engine.take_outputs();
        let mut answers = outputs.iter().filter_map(|output| match output {
            Output::Answer(_, answer) => Some(answer),
            _ => None,
        });
        match answers.next() {
            Some(Answer::Fault(Fault::WrongType)) => assert!(meddles),
            other => assert!(matches!(other, Some(Answer::Granted(..))) && !meddles, "{other:?}"),
        }
    }
}

/// Lets the key of the second lock expire. If `meddles`, the first one gets another type when a look removes the key.
fn expire_second(server: &mut Server, meddles: bool) {
    let now = server.now_us / 1000;
    server.space.set_expiry(&(0, b"second".to_vec()), Some(now + 1));
    server.space.meddles_with = meddles.then(|| (0, b"first".to_vec()));
    server.pass_ms(2);
}

fn exclusive(name: &str) -> Request {
    Request::new(owner(name), Want::ExclusiveOnce, LeaseChoice::Own)
}
