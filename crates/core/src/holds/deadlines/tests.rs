//! Compares [`Deadlines`] with a sorted map.

use std::collections::BTreeMap;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;

use super::*;

#[derive(Clone, Debug)]
enum Op {
    /// Adds deadlines that are `step` apart, the first at `from`: as many as fill up to three runs.
    Insert {
        from: u64,
        step: u64,
        count: u64,
    },
    /// Takes neighbouring deadlines out.
    Remove {
        from: Index,
        count: usize,
    },
    /// Takes out a deadline that is not there.
    RemoveOther {
        at: u64,
        id: HoldId,
    },
    Drain {
        now: u64,
    },
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    /// The sums and the order are right after any additions and removals, in runs that are split, emptied and cut.
    #[test]
    fn deadlines_are_what_a_sorted_map_says(ops in vec(op(), 1..30)) {
        let (mut deadlines, mut plain) = (Deadlines::default(), Plain::new());
        let mut next: HoldId = 0;
        for op in ops {
            match op {
                Op::Insert { from, step, count } => {
                    for number in 0..count {
                        let at = UnixMs::new((from + number * step) % LAST_MS);
                        let entries = 1 + u32::from(next.is_multiple_of(3));
                        deadlines.insert(at, next, entries, entries == 2);
                        plain.insert((at, next), entries);
                        next += 1;
                    }
                }
                Op::Remove { from, count } => {
                    let from = from.index(plain.len() + 1);
                    let gone: Vec<_> = plain.keys().skip(from).take(count).copied().collect();
                    for (at, id) in gone {
                        deadlines.remove(at, id);
                        plain.remove(&(at, id));
                    }
                }
                Op::RemoveOther { at, id } => {
                    if !plain.contains_key(&(UnixMs::new(at), id)) {
                        deadlines.remove(UnixMs::new(at), id);
                    }
                }
                Op::Drain { now } => {
                    let now = UnixMs::new(now);
                    let left = plain.split_off(&(UnixMs::new(now.get() + 1), 0));
                    let mut runs = deadlines.drain_lapsed(now);
                    let popped = runs.iter_mut().rev().flat_map(|run| std::iter::from_fn(|| run.pop()));
                    let lapsed = std::mem::replace(&mut plain, left);
                    prop_assert!(popped.eq(lapsed.into_keys().rev().map(|(_, id)| id)));
                }
            }
            compare(&deadlines, &plain);
        }
    }
}

type Plain = BTreeMap<(UnixMs, HoldId), u32>;

fn compare(deadlines: &Deadlines, plain: &Plain) {
    let total = sum(plain.values());
    assert_eq!(deadlines.total(), total);
    assert_eq!(deadlines.first(), plain.first_key_value().map(|(key, _)| *key));
    assert_eq!(deadlines.last(), plain.last_key_value().map(|(key, _)| *key));
    assert!(deadlines.iter().eq(plain.keys().map(|(_, id)| *id)));
    for now in (0..=LAST_MS).step_by(25).map(UnixMs::new) {
        let lapsed = sum(plain.range(..=(now, HoldId::MAX)).map(|(_, entries)| entries));
        assert_eq!(deadlines.lapsed(now), lapsed);
        assert_eq!(deadlines.live(now), total.minus(lapsed));
        let with_it = plain.range((now, HoldId::MIN)..=(now, HoldId::MAX)).map(|((_, id), _)| *id);
        assert!(deadlines.at(now).eq(with_it), "at {now:?}");
        let at_cap = plain.range(..=(now, HoldId::MAX)).filter(|(_, entries)| **entries == 2).count();
        assert_eq!(deadlines.lapsed_at_cap(now), at_cap);
    }
    for run in &deadlines.runs {
        assert!((1..=RUN).contains(&run.items.len()), "{} in a run", run.items.len());
        assert!(
            run.items.capacity() <= run.items.len() * 4 + 3,
            "{} places, {} used",
            run.items.capacity(),
            run.items.len()
        );
    }
}

fn sum<'a>(entries: impl Iterator<Item = &'a u32>) -> Sum {
    entries.fold(Sum::default(), |sum, entries| sum.plus(Sum { holds: 1, entries: u64::from(*entries) }))
}

/// A hold is found by its deadline and its id, not by the id alone.
#[test]
fn a_hold_with_another_deadline_is_not_taken_out() {
    let mut deadlines = Deadlines::default();
    deadlines.insert(UnixMs::new(5), 1, 1, false);
    deadlines.remove(UnixMs::new(3), 1);
    assert_eq!(deadlines.total(), Sum { holds: 1, entries: 1 });
    deadlines.remove(UnixMs::new(5), 1);
    assert_eq!(deadlines.total(), Sum::default());
}

/// A split moves deadlines, so a run that is not full stays whole.
#[test]
fn a_run_is_split_when_it_is_full_and_not_before() {
    let mut deadlines = filled(RUN);
    assert_eq!(lengths(&deadlines), [RUN]);
    deadlines.insert(UnixMs::new(5), HoldId::MAX, 1, false);
    assert_eq!(lengths(&deadlines), [RUN / 2, RUN / 2 + 1]);
}

/// After a run has given places back, half of its places are free: the next additions and removals allocate nothing.
#[test]
fn a_run_gives_places_back_when_fewer_than_a_quarter_are_used() {
    let mut deadlines = filled(RUN);
    let before = deadlines.heap_bytes();
    (RUN / 4..RUN).for_each(|number| take_out(&mut deadlines, number));
    assert_eq!((lengths(&deadlines), deadlines.heap_bytes()), (vec![RUN / 4], before));
    take_out(&mut deadlines, 0);
    let (left, given_back) = (RUN / 4 - 1, before - deadlines.heap_bytes());
    assert_eq!((lengths(&deadlines), given_back), (vec![left], (RUN - left * 2) * size_of::<Item>()));
}

#[test]
fn runs_give_places_back_when_fewer_than_a_quarter_are_used() {
    let mut deadlines = filled(RUN * 9);
    let places = deadlines.runs.capacity();
    let mut next = 0..RUN * 9;
    let mut leave = |runs: usize| {
        while deadlines.runs.len() > runs {
            take_out(&mut deadlines, next.next().unwrap());
        }
        deadlines.runs.capacity()
    };
    assert!(places >= 16);
    assert_eq!(leave(places / 4), places);
    assert_eq!(leave(places / 4 - 1), (places / 4 - 1) * 2);
    assert_eq!(leave(0), 0);
    assert_eq!(deadlines.heap_bytes(), 0);
}

fn filled(count: usize) -> Deadlines {
    let mut deadlines = Deadlines::default();
    (0..count as u64).for_each(|number| deadlines.insert(UnixMs::new(number), number, 1, false));
    deadlines
}

fn take_out(deadlines: &mut Deadlines, number: usize) {
    deadlines.remove(UnixMs::new(number as u64), number as u64);
}

fn lengths(deadlines: &Deadlines) -> Vec<usize> {
    deadlines.runs.iter().map(|run| run.items.len()).collect()
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        4 => (0..LAST_MS, 0..5_u64, 1..1500_u64).prop_map(|(from, step, count)| Op::Insert { from, step, count }),
        2 => (0..LAST_MS, Just(1), 1..5_u64).prop_map(|(from, step, count)| Op::Insert { from, step, count }),
        4 => (any::<Index>(), 1..1500_usize).prop_map(|(from, count)| Op::Remove { from, count }),
        1 => (0..LAST_MS, 0..3000_u64).prop_map(|(at, id)| Op::RemoveOther { at, id }),
        2 => (0..LAST_MS).prop_map(|now| Op::Drain { now }),
    ]
}

const LAST_MS: u64 = 1000;
