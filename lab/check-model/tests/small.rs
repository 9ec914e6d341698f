//! Every scope to a smaller depth than `make check-model` goes to.

#![allow(clippy::expect_used, reason = "a test that panics has failed, which is what it is for")]

use dlock_check_model::report::{Explored, explore, head};
use dlock_check_model::{engine, quorum};

#[test]
fn every_property_of_the_engine_holds_in_every_state() {
    println!("{}", head());
    for scope in engine::scopes() {
        let explored = explore::<engine::World>(scope.name, &scope, scope.depth[1]);
        println!("{explored}");
        assert!(explored.broken.is_none(), "{}", explored.story().unwrap_or_default());
        for what in scope.reaches {
            assert!(explored.reached.contains_key(what), "{}: no {what}, only {:?}", scope.name, explored.reached);
        }
    }
}

#[test]
fn every_property_of_the_quorum_holds_in_every_state() {
    println!("{}", head());
    for scope in quorum::scopes() {
        let explored = explore::<quorum::World>(scope.name, &scope, scope.depth[1]);
        println!("{explored}");
        assert!(explored.broken.is_none(), "{}", explored.story().unwrap_or_default());
        assert!(explored.reached.contains_key("grants"), "{}: nobody gets in", scope.name);
    }
}

#[test]
fn without_the_confirmation_tokens_go_back() {
    counter_example(quorum::LeftOut::Confirmation);
}

#[test]
fn without_the_restart_rule_two_hold_the_lock() {
    counter_example(quorum::LeftOut::RestartRule);
}

fn counter_example(left_out: quorum::LeftOut) {
    let counter_examples = quorum::counter_examples();
    let (scope, property) =
        counter_examples.iter().find(|(scope, _)| scope.left_out == Some(left_out)).expect("a scope of that rule");
    let explored: Explored = explore::<quorum::World>(scope.name, scope, scope.depth[1]);
    println!("{explored}");
    assert_eq!(explored.broken.map(|(broken, _)| broken.property), Some(*property));
}
