//! Compares [`Holds`] with a list, from no hold to hundreds.

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

use super::*;
use crate::Lease;

#[derive(Clone, Debug)]
enum Op {
    /// Puts holds of consecutive owners, with deadlines that are `step` apart.
    Put {
        first: u64,
        count: u64,
        mode: Mode,
        deadline: u64,
        step: u64,
    },
    /// Removes the holds of consecutive owners; `None`: in both modes.
    Remove {
        first: u64,
        count: u64,
        mode: Option<Mode>,
    },
    Drop {
        now: u64,
    },
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn holds_are_what_a_list_says(ops in vec(op(), 1..25)) {
        let (mut holds, mut plain, mut trash) = (Holds::default(), Vec::new(), Trash::new());
        for op in ops {
            match op {
                Op::Put { first, count, mode, deadline, step } => {
                    for number in first..first + count {
                        let hold = hold(number, mode, (deadline + (number - first) * step) % LAST_MS);
                        let before = plain.iter().find(|old| is_of(old, &hold.owner, mode)).map(|old| old.count);
                        plain.retain(|old: &Hold| !excludes(old, &hold) && !is_of(old, &hold.owner, mode));
                        plain.push(hold.clone());
                        prop_assert_eq!(holds.put(hold, &mut trash), before);
                    }
                }
                Op::Remove { first, count, mode } => {
                    for (number, gone) in (first..first + count).flat_map(|number| BOTH.map(|mode| (number, mode))) {
                        if mode.is_none_or(|mode| mode == gone) {
                            let place = plain.iter().position(|hold| is_of(hold, &owner(number), gone));
                            prop_assert_eq!(holds.remove(&owner(number), gone, &mut trash), place.is_some());
                            place.map(|place| plain.remove(place));
                        }
                    }
                }
                Op::Drop { now } => {
                    let before = plain.len();
                    plain.retain(|hold| hold.is_live(UnixMs::new(now)));
                    let dropped = holds.drop_lapsed(UnixMs::new(now), &mut trash);
                    prop_assert_eq!(dropped, (before - plain.len()) as u64);
                }
            }
            compare(&holds, &plain);
        }
        (0..10_000).for_each(|_| trash.free_some(7));
        prop_assert!(trash.is_empty());
    }
}

fn compare(holds: &Holds, plain: &[Hold]) {
    assert_eq!(holds.len(), plain.len());
    assert_eq!(holds.exclusive(), plain.iter().find(|hold| hold.mode == Mode::Exclusive));
    assert_eq!(holds.single(), plain.first().filter(|_| plain.len() == 1), "the small form, if there is one");
    assert_eq!(holds.heap_bytes() > 0, plain.len() > 1);
    for owner in (0..OWNERS).map(owner) {
        let [exclusive, shared] = BOTH.map(|mode| plain.iter().find(|hold| is_of(hold, &owner, mode)));
        assert_eq!(holds.of(&owner), (exclusive, shared));
        assert_eq!(BOTH.map(|mode| holds.get(&owner, mode)), [exclusive, shared]);
    }
    assert_eq!(holds.first_deadline(), plain.iter().map(|hold| hold.deadline).min());
    assert_eq!(holds.last_deadline(), plain.iter().map(|hold| hold.deadline).max());
    for now in (0..=LAST_MS).step_by(10).map(UnixMs::new) {
        assert_eq!(holds.lapsed(now), sum(plain, |hold| !hold.is_live(now)));
        assert_eq!(holds.live_shared(now), sum(plain, |hold| hold.mode == Mode::Shared && hold.is_live(now)));
    }
    let all = sorted(plain.iter());
    assert_eq!(sorted(holds.iter()), all);
    assert_eq!(sorted(holds.by_deadline()), all);
    assert_eq!(sorted(holds.by_token()), all);
    assert!(holds.by_deadline().rev().is_sorted_by_key(|hold| hold.deadline));
    assert!(holds.by_token().is_sorted_by_key(|hold| hold.token));
    for token in plain.iter().map(|hold| hold.token).take(5).chain([Token::MAX]) {
        let wanted: Vec<&Hold> = all.iter().copied().filter(|hold| hold.token == token).collect();
        assert_eq!(sorted(holds.with_token(token)), wanted);
    }
}

fn sum(holds: &[Hold], is_it: impl Fn(&Hold) -> bool) -> Sum {
    let holds = holds.iter().filter(|hold| is_it(hold));
    holds.fold(Sum::default(), |sum, hold| sum.plus(Sum { holds: 1, entries: u64::from(hold.count) }))
}

fn sorted<'a>(holds: impl Iterator<Item = &'a Hold>) -> Vec<&'a Hold> {
    let mut holds: Vec<&Hold> = holds.collect();
    holds.sort_by(|a, b| (&a.owner, a.mode).cmp(&(&b.owner, b.mode)));
    holds
}

fn is_of(hold: &Hold, owner: &Owner, mode: Mode) -> bool {
    hold.owner == *owner && hold.mode == mode
}

/// More than 64 readers that are dropped at once are freed later, in steps. Each of them is in three trees.
#[test]
fn many_readers_that_are_dropped_at_once_are_freed_in_steps() {
    type Change = fn(&mut Holds, &mut Trash);
    let changes: [(&str, Change, usize); 3] = [
        ("a writer comes", |holds, trash| _ = holds.put(hold(1000, Mode::Exclusive, 50), trash), 1),
        ("one of them becomes the writer", |holds, trash| _ = holds.put(hold(0, Mode::Exclusive, 50), trash), 2),
        ("all lapse", |holds, trash| assert!(holds.drop_lapsed(UnixMs::new(50), trash) >= 64), 0),
    ];
    for (what, change, left) in changes {
        // The reader that becomes the writer keeps its shared hold.
        let kept = left / 2;
        for readers in [64, 65, 200] {
            let (mut holds, mut trash) = (Holds::default(), Trash::new());
            (0..readers + kept as u64).for_each(|number| _ = holds.put(hold(number, Mode::Shared, 50), &mut trash));
            change(&mut holds, &mut trash);
            assert_eq!(holds.len(), left, "{what}");
            let mut steps = 0;
            while !trash.is_empty() && steps < 100 {
                trash.free_some(50);
                steps += 1;
            }
            let wanted = if readers > 64 { (readers * 3) / 50 + 1 } else { 0 };
            assert_eq!(steps, wanted, "{what} of {readers}");
        }
    }
}

/// Dropped holds that are not freed yet go to the trash when a lock returns to the form for one hold.
#[test]
fn dropped_holds_are_in_the_trash_when_one_hold_is_left() {
    let (mut holds, mut trash) = (Holds::default(), Trash::new());
    (0..300)
        .for_each(|number| _ = holds.put(hold(number, Mode::Shared, if number < 200 { 50 } else { 60 }), &mut trash));
    assert_eq!(holds.drop_lapsed(UnixMs::new(50), &mut trash), 200);
    (201..300).for_each(|number| assert!(holds.remove(&owner(number), Mode::Shared, &mut trash)));
    assert_eq!((holds.single(), trash.is_empty()), (Some(&hold(200, Mode::Shared, 60)), false));
}

fn hold(number: u64, mode: Mode, deadline: u64) -> Hold {
    Hold {
        owner: owner(number),
        mode,
        count: 1 + u32::from(number.is_multiple_of(3)),
        lease: Lease::MAX,
        deadline: UnixMs::new(deadline),
        // The order of tokens is not that of owners, and two holds may have the same token.
        token: Token::new(number * 7 % OWNERS / 2 + 1 + u64::from(mode == Mode::Exclusive)).unwrap(),
        extras: None,
        bond: Bond::NONE,
    }
}

fn owner(number: u64) -> Owner {
    Owner::from_uuid(u128::from(number).to_be_bytes())
}

fn op() -> impl Strategy<Value = Op> {
    let some = |most: u64| (0..OWNERS).prop_flat_map(move |first| (Just(first), 1..=most.min(OWNERS - first)));
    let put = move |most, mode| {
        (some(most), 0..LAST_MS, 0..3_u64).prop_map(move |((first, count), deadline, step)| Op::Put {
            first,
            count,
            mode,
            deadline,
            step,
        })
    };
    let mode = prop_oneof![Just(Mode::Exclusive), Just(Mode::Shared)];
    prop_oneof![
        3 => put(OWNERS, Mode::Shared),
        // Few owners, so that one has both modes.
        3 => (put(2, Mode::Shared), 0..3_u64).prop_map(with_first),
        3 => (put(1, Mode::Exclusive), 0..3_u64).prop_map(with_first),
        2 => (some(OWNERS), option::of(mode))
            .prop_map(|((first, count), mode)| Op::Remove { first, count, mode }),
        3 => (0..LAST_MS).prop_map(|now| Op::Drop { now }),
    ]
}

fn with_first((op, number): (Op, u64)) -> Op {
    match op {
        Op::Put { count, mode, deadline, step, .. } => Op::Put { first: number, count, mode, deadline, step },
        other => other,
    }
}

const BOTH: [Mode; 2] = [Mode::Exclusive, Mode::Shared];
const OWNERS: u64 = 200;
const LAST_MS: u64 = 100;
