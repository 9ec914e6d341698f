//! Compares [`Slots`] with a map.

use std::collections::BTreeMap;

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

#[derive(Clone, Debug)]
enum Op {
    /// Gives consecutive numbers to new holds.
    Insert { first: u32, count: u32, end: u64 },
    /// Frees consecutive numbers, by the ids of their holds or by wrong ids, which frees none.
    Remove { first: u32, count: u32, is_theirs: bool },
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn numbers_are_what_a_map_says(ops in vec(op(), 1..40), refused in 0..NUMBERS) {
        let (mut slots, mut plain) = (Slots::default(), BTreeMap::new());
        let mut next = 0;
        for op in ops {
            match op {
                Op::Insert { first, count, end } => {
                    for slot in first..first + count {
                        slots.insert(slot, UnixMs::new(end), next);
                        plain.insert(slot, (end, next));
                        next += 1;
                    }
                }
                Op::Remove { first, count, is_theirs } => {
                    for slot in first..first + count {
                        let id = plain.get(&slot).map_or(0, |(_, id)| if is_theirs { *id } else { id + 1 });
                        slots.remove(slot, id);
                        plain.retain(|other, (_, theirs)| *other != slot || *theirs != id);
                    }
                }
            }
            compare(&slots, &plain, refused);
        }
        let all: Vec<(u32, HoldId)> = plain.iter().map(|(slot, (_, id))| (*slot, *id)).collect();
        all.into_iter().for_each(|(slot, id)| slots.remove(slot, id));
        prop_assert!(slots.is_empty() && slots.chunks.is_empty());
    }
}

fn compare(slots: &Slots, plain: &BTreeMap<u32, (u64, HoldId)>, refused: u32) {
    assert_eq!(slots.is_empty(), plain.is_empty());
    for slot in (0..NUMBERS).chain([u32::MAX - 1]) {
        assert_eq!(slots.get(slot), plain.get(&slot).map(|(_, id)| *id));
    }
    // The hold with the number `refused` is not free even when it has lapsed.
    let kept = plain.get(&refused).map(|(_, id)| *id);
    for now in 0..=LAST_MS {
        let is_free = |slot: &u32| plain.get(slot).is_none_or(|(end, id)| *end <= now && kept != Some(*id));
        assert_eq!(Some(slots.lowest_free(UnixMs::new(now), |id| kept != Some(id))), (0..).find(is_free));
        let mut taken = plain.iter().filter(|(_, (end, _))| now < *end);
        assert_eq!(slots.lowest_taken(UnixMs::new(now)), taken.next().map(|(slot, (_, id))| (*slot, *id)));
    }
}

/// The numbers below take no room.
#[test]
fn a_high_number_takes_no_more_room_than_a_low_one() {
    let mut slots = Slots::default();
    slots.insert(u32::MAX - 1, UnixMs::MAX, 7);
    assert_eq!(slots.lowest_free(UnixMs::ZERO, |_| true), 0);
    assert!(slots.heap_bytes() < 2048, "{}", slots.heap_bytes());
}

fn op() -> impl Strategy<Value = Op> {
    let first = || prop_oneof![4 => 0..8_u32, 8 => 0..NUMBERS - 70, 1 => Just(u32::MAX - 70)];
    let count = || prop_oneof![1..4_u32, 60..=70_u32];
    prop_oneof![
        (first(), count(), 0..=LAST_MS).prop_map(|(first, count, end)| Op::Insert { first, count, end }),
        (first(), count(), any::<bool>()).prop_map(|(first, count, is_theirs)| Op::Remove { first, count, is_theirs }),
    ]
}

const NUMBERS: u32 = 260;
const LAST_MS: u64 = 4;
