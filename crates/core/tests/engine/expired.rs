//! Keys that expire while the engine is at work.

use dlock_core::Want;

use crate::{Server, is_granted};

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
