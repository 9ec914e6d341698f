//! Every scope to a smaller depth than `make check-model` goes to.

use dlock_check_model::explorer::{explore, head};
use dlock_check_model::instances::scopes;

#[test]
fn in_every_state_the_engine_and_a_replica_are_as_the_model() {
    println!("{}", head());
    for scope in scopes() {
        let explored = explore(&scope, scope.depth[1]);
        println!("{explored}");
        assert!(explored.broken.is_none(), "{}", explored.story().unwrap_or_default());
        for what in scope.reaches {
            assert!(explored.reached.contains(what), "{}: no {what}, only {:?}", scope.name, explored.reached);
        }
    }
}
