//! Bound holds over random histories, against a list of them.

use dlock_core::Sessions;
use dlock_testkit::histories::bound::{Step, compare, is_over, play};
use proptest::collection::vec;
use proptest::prelude::*;

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn bindings_are_as_a_list_of_them(steps in vec(step(), 1..60)) {
        let (mut sessions, mut list) = (Sessions::default(), Vec::new());
        for step in steps {
            play(&mut sessions, &mut list, &step);
            compare(&sessions, &list);
        }
        for client in 0..3 {
            play(&mut sessions, &mut list, &Step::End(client));
        }
        prop_assert!(is_over(&mut sessions));
    }
}

fn step() -> impl Strategy<Value = Step> {
    let id = || (0..3_u8, 0..2_u8, any::<bool>());
    prop_oneof![
        // Deadlines that differ: which of two equal ones is first does not matter.
        6 => (id(), 0..3_u64, any::<u32>(), 1..50_u64).prop_map(|(id, client, deadline, at)| Step::Bind(id, client, deadline.into(), at)),
        3 => (id(), any::<u32>(), 1..50_u64).prop_map(|(id, deadline, at)| Step::Moved(id, deadline.into(), at)),
        2 => id().prop_map(Step::Unbind),
        1 => (0..3_u8).prop_map(Step::UnbindLock),
        1 => (0..4_u8).prop_map(Step::UnbindFrom),
        1 => (0..3_u64).prop_map(Step::End),
        8 => (0..60_u64, any::<bool>()).prop_map(|(now, is_put_off)| Step::Due(now, is_put_off)),
    ]
}
