//! Work that is too much for one command: the timer does the rest.

use dlock_core::engine::Entered;
use dlock_core::{ClientId, Lease, LeaseChoice, Request, UnixMs, Want};

use crate::{Server, is_granted, owner};

/// A command answers requests in at most this number of places in queues.
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
    // The lease that they ask for has passed: each leaves without the locks.
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
