//! An acquisition: the last server has a hold of a killed client, a message is late, and the client is paused.

use super::{ALL, Action, Bounds, CLIENT, State, visit};
use crate::Patience;
use crate::simulation::check::Violation;
use crate::terms::Rule;

/// Returns the state from which all orders are tried. The client has asked for the lock, and server 0 has answered in
/// time. The last server has a hold of a killed client, and the clock of server 0 is ahead, so that tokens must be raised.
fn first(without: Option<Rule>) -> State {
    const AHEAD_US: i64 = 15_000;
    let mut state = State::new(without, Bounds { late: 1, pauses: [1, 0], restarts: 0, end: 4 });
    state.servers[0].clock.set(AHEAD_US);
    state.leave_hold_on_last(3);
    state.begin(CLIENT, Patience::Endless, &[]);
    state.act(Action::Arrive(0));
    state.clients[CLIENT].is_paused = true;
    state.deliver(ALL);
    state.pass();
    state.clients[CLIENT].is_paused = false;
    state
}

#[test]
fn no_order_of_messages_breaks_an_acquisition() {
    assert!(visit(first(None)).unwrap() > 10_000);
}

#[test]
fn with_the_token_of_one_majority_and_the_time_of_another_tokens_go_back() {
    assert_eq!(visit(first(Some(Rule::SameMajority))), Err(Violation::TokenOrder));
}
