//! A repair: the last server restarts after it has granted the lock to a newcomer, and the client repairs its hold there.

use super::{ALL, Action, Bounds, CLIENT, Doing, LAST, NEWCOMER, State, visit};
use crate::Patience;
use crate::simulation::check::Violation;
use crate::terms::Rule;

/// The client holds the lock on the first two servers and has renewed it there half a lease ago. It has not read the
/// answers yet, which will make it ask the last server, where a leftover was in the way, to grant it. The newcomer
/// believes that the first server is down, and has been granted the lock by the last one. It is paused, and its request
/// to the second server is on its way. The clock of that one is behind by less than a lease, so that it grants the same
/// token some steps later.
fn first(without: Option<Rule>) -> State {
    const AHEAD_US: i64 = 350_000;
    let mut state = State::new(without, Bounds { late: 2, pauses: [0, 0], restarts: 1, end: 6 });
    [0, LAST].into_iter().for_each(|server| state.servers[server].clock.set(AHEAD_US));
    state.leave_on_the_last(1);
    state.begin(CLIENT, Patience::None, &[]);
    state.deliver(ALL);
    assert!(matches!(state.clients[CLIENT].doing, Doing::Holding(_)), "{:?}", state.clients[CLIENT]);
    state.pass();
    state.pass();
    state.act(Action::Look(CLIENT));
    state.clients[CLIENT].is_paused = true;
    state.deliver(ALL);
    state.pass();
    state.begin(NEWCOMER, Patience::None, &[0]);
    state.clients[NEWCOMER].is_paused = true;
    state.deliver(&[0, LAST]);
    state.clients[CLIENT].is_paused = false;
    state
}

#[test]
fn no_order_of_messages_breaks_a_repair() {
    assert!(visit(first(None)).unwrap() > 10_000);
}

#[test]
fn if_a_young_server_counts_for_a_repair_two_hold_the_lock() {
    assert_eq!(visit(first(Some(Rule::YoungRepairs))), Err(Violation::Overlap));
}
