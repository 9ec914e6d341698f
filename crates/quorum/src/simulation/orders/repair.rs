//! A repair: the last server has granted the lock to a newcomer and restarts, and the client repairs its hold there.

use super::{ALL, Action, Bounds, CLIENT, Doing, LAST, NEWCOMER, State, visit};
use crate::Patience;
use crate::simulation::check::Violation;
use crate::terms::Rule;

/// Returns the state from which all orders of messages are tried:
///
/// 1. The client has a hold on servers 0 and 1. The last server refused it because of the hold of a killed client.
/// 2. After half a lease, servers 0 and 1 have renewed the client's hold, but the client has not read the answers. When
///    the client reads them, it will ask the last server to grant its hold, too.
/// 3. A step later, a newcomer that believes server 0 to be down has a hold on the last server. The newcomer is paused,
///    and its request to server 1 is still on its way.
///
/// The clock of server 1 is behind the others by less than a lease. For some steps, that clock has not passed the
/// newcomer's token, so that server 1 still grants this very token.
fn first(without: Option<Rule>) -> State {
    // Less than the lease, 400 ms (LEASE * STEP).
    const AHEAD_US: i64 = 350_000;
    // Six steps, of which three are over when the orders begin.
    let mut state = State::new(without, Bounds { late: 2, pauses: [0, 0], restarts: 1, end: 6 });
    [0, LAST].into_iter().for_each(|server| state.servers[server].clock.set(AHEAD_US));
    state.leave_hold_on_last(1);
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
    // A lower number of states would mean that the instance no longer has these orders.
    assert!(visit(first(None)).unwrap() > 10_000);
}

#[test]
fn two_holds_overlap_if_a_repair_on_a_young_server_counts() {
    assert_eq!(visit(first(Some(Rule::YoungRepairs))), Err(Violation::Overlap));
}
