//! Compares [`Readers`] with a list of holds.

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::{Bond, Extras, Lease, Mode};

#[derive(Clone, Debug)]
enum Op {
    /// Puts holds of consecutive owners, new ones or not, with deadlines that are `step` apart. Two owners
    /// share each token, which may be `raised`.
    Put { first: u64, count: u64, deadline: u64, step: u64, raised: u64 },
    /// Removes the holds of consecutive owners.
    Remove { first: u64, count: u64 },
    /// Drops lapsed holds. The clock may be set back.
    Drop { now: u64 },
    /// Frees dropped holds, as each change does.
    Free,
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, failure_persistence: None, ..ProptestConfig::default() })]

    /// A dropped hold does not show, freed or not. No change frees more than 64 holds, even if the clock was set back.
    #[test]
    fn readers_are_what_a_list_says(ops in vec(op(), 1..25)) {
        let (mut readers, mut plain) = (Readers::default(), Vec::new());
        for op in ops {
            match op {
                Op::Put { first, count, deadline, step, raised } => {
                    for number in first..first + count {
                        let hold = hold(number, (deadline + (number - first) * step) % LAST_MS);
                        let hold = Hold { token: Token::new(hold.token.get() + raised).unwrap(), ..hold };
                        plain.retain(|old: &Hold| old.owner != hold.owner);
                        plain.push(hold.clone());
                        readers.put(hold);
                    }
                }
                Op::Remove { first, count } => {
                    for owner in (first..first + count).map(owner) {
                        let place = plain.iter().position(|hold| hold.owner == owner);
                        prop_assert_eq!(readers.remove(&owner), place.map(|place| plain.remove(place)));
                    }
                }
                Op::Drop { now } => {
                    let now = UnixMs::new(now);
                    let (stored, before, mut rests) = (readers.stored(), plain.len(), None);
                    plain.retain(|hold| hold.is_live(now));
                    let (lapsed, left) = (before - plain.len(), plain.len());
                    prop_assert_eq!(readers.drop_lapsed(now, &mut rests), lapsed);
                    let wanted = match (lapsed <= PIECE, left <= PIECE) {
                        (true, _) => (stored - lapsed, None),
                        (false, true) => (left, Some(stored)),
                        (false, false) => (stored, None),
                    };
                    prop_assert_eq!((readers.stored(), rests.map(|rests| rests.stored())), wanted);
                }
                Op::Free => {
                    let stored = readers.stored();
                    readers.free_some_dead();
                    prop_assert!((stored.saturating_sub(PIECE)..=stored).contains(&readers.stored()));
                }
            }
            compare(&readers, &plain);
        }
        // Each run of dropped holds takes a step, too.
        (0..readers.stored() / PIECE + 50).for_each(|_| readers.free_some_dead());
        prop_assert_eq!(readers.stored(), plain.len());
        compare(&readers, &plain);
    }
}

fn compare(readers: &Readers, plain: &[Hold]) {
    let sum = |is_it: &dyn Fn(&Hold) -> bool| {
        let holds = plain.iter().filter(|hold| is_it(hold));
        holds.fold(Sum::default(), |sum, hold| sum.plus(Sum { holds: 1, entries: u64::from(hold.count) }))
    };
    assert_eq!(readers.total(), sum(&|_| true));
    for now in (0..=LAST_MS).step_by(10).map(UnixMs::new) {
        assert_eq!(readers.lapsed(now), sum(&|hold| !hold.is_live(now)));
    }
    let all = sorted(plain.iter());
    assert_eq!(sorted(readers.iter()), all);
    assert_eq!(sorted(readers.by_deadline()), all);
    assert_eq!(sorted(readers.by_token()), all);
    assert!(readers.by_deadline().is_sorted_by_key(|hold| hold.deadline));
    assert!(readers.by_token().is_sorted_by_key(|hold| hold.token));
    for now in (0..=LAST_MS).step_by(10).map(UnixMs::new) {
        let live: Vec<&Hold> = readers.by_token().filter(|hold| hold.is_live(now)).collect();
        assert!(readers.live_by_token(now).eq(live.iter().copied()));
        assert!(readers.live_by_token(now).rev().eq(live.iter().rev().copied()));
        assert!(readers.live_tokens(now).eq(live.iter().map(|hold| hold.token)));
    }
    for now in (0..=LAST_MS).step_by(10).map(UnixMs::new) {
        let is_taken = |slot: u32| plain.iter().any(|hold| hold.is_live(now) && hold.slot() == Some(slot));
        assert_eq!(Some(readers.free_slot(now)), (0..).find(|slot| !is_taken(*slot)));
    }
    assert_eq!(readers.first_deadline(), plain.iter().map(|hold| hold.deadline).min());
    assert_eq!(readers.last_deadline(), plain.iter().map(|hold| hold.deadline).max());
    let mut next = all.iter().peekable();
    for owner in (0..OWNERS).map(owner) {
        assert_eq!(readers.get(&owner), next.next_if(|hold| hold.owner == owner).copied());
    }
    for token in (0..OWNERS).step_by(13).map(|number| hold(number, 0).token) {
        let wanted: Vec<&Hold> = all.iter().copied().filter(|hold| hold.token == token).collect();
        assert_eq!(sorted(readers.with_token(token)), wanted);
    }
}

fn sorted<'a>(holds: impl Iterator<Item = &'a Hold>) -> Vec<&'a Hold> {
    let mut holds: Vec<&Hold> = holds.collect();
    holds.sort_by(|a, b| a.owner.cmp(&b.owner));
    holds
}

/// Each row: how many holds have lapsed and are live, and how many are stored after the sweep, here and in `rests`.
#[test]
fn a_sweep_frees_at_most_64_at_once_and_leaves_more_for_later() {
    for (lapsed, left, wanted) in [
        (0, 100, (100, None)),
        (64, 10, (10, None)),
        (64, 65, (65, None)),
        (65, 64, (64, Some(129))),
        (65, 0, (0, Some(65))),
        (65, 65, (130, None)),
        (500, 65, (565, None)),
    ] {
        let (mut readers, mut rests) = (lapsed_and_live(lapsed, left), None);
        assert_eq!(readers.drop_lapsed(NOW, &mut rests) as u64, lapsed);
        assert_eq!((readers.stored(), rests.map(|rests| rests.stored())), wanted, "{lapsed} lapsed, {left} left");
        assert_eq!(readers.total().holds as u64, left);
    }
}

/// Each row: the clock of a second sweep, and how many marks the lock then needs.
#[test]
fn a_sweep_by_a_clock_that_was_set_back_frees_nothing_that_was_dropped_before() {
    let now = NOW.get();
    for (clock, marks) in [(now - 1, 2), (now, 1), (now + 1, 1)] {
        let mut readers = lapsed_and_live(65, 65);
        readers.drop_lapsed(NOW, &mut None);
        (200..265).for_each(|number| readers.put(hold(number, now - 1)));
        assert_eq!(readers.drop_lapsed(UnixMs::new(clock), &mut None), 65);
        assert_eq!((readers.stored(), readers.total().holds), (195, 65), "at {clock}");
        assert_eq!((readers.iter().count(), readers.sweeps.len()), (65, marks), "at {clock}");
        // Dropped by neither sweep: an effect may put a hold that has lapsed already.
        readers.put(hold(300, now - 1));
        assert_eq!((readers.get(&owner(300)), readers.get(&owner(200))), (Some(&hold(300, now - 1)), None));
        (0..6).for_each(|_| readers.free_some_dead());
        assert_eq!((readers.stored(), readers.sweeps.len()), (66, 0), "at {clock}");
    }
}

#[test]
fn each_change_frees_64_dropped_holds() {
    let mut readers = lapsed_and_live(200, 100);
    readers.drop_lapsed(NOW, &mut None);
    let mut stored = || {
        readers.free_some_dead();
        readers.stored()
    };
    assert_eq!([stored(), stored(), stored(), stored(), stored()], [236, 172, 108, 100, 100]);
}

/// An effect may put a hold that has lapsed already. A sweep drops only holds that were there before it.
#[test]
fn a_lapsed_hold_that_is_put_after_a_sweep_stays_until_the_next() {
    let mut readers = lapsed_and_live(100, 100);
    readers.drop_lapsed(NOW, &mut None);
    let late = hold(0, 1);
    readers.put(late.clone());
    assert_eq!(readers.get(&late.owner), Some(&late));
    assert_eq!(readers.drop_lapsed(NOW, &mut None), 1);
    assert_eq!(readers.get(&late.owner), None);
}

/// Freeing takes one step for each entry of each of three trees, those of dropped holds too.
#[test]
fn many_readers_are_taken_apart_in_steps() {
    let mut readers = lapsed_and_live(100, 100);
    readers.drop_lapsed(NOW, &mut None);
    let size = |readers: &Readers| readers.holds.len() + readers.by_owner.len() + readers.by_token.iter().count();
    for left in (0..600).rev().step_by(7).skip(1) {
        assert!(readers.take_apart(7), "{left} are left");
        assert_eq!(size(&readers), left + 1);
    }
    assert!(!readers.take_apart(7));
    assert_eq!(size(&readers), 0);
    assert!(!readers.take_apart(7));
    assert!(readers.take_apart(0), "nothing was looked at");
}

fn lapsed_and_live(lapsed: u64, live: u64) -> Readers {
    let mut readers = Readers::default();
    (0..lapsed).for_each(|number| readers.put(hold(number, NOW.get())));
    (lapsed..lapsed + live).for_each(|number| readers.put(hold(number, NOW.get() + 2)));
    readers
}

fn hold(number: u64, deadline: u64) -> Hold {
    Hold {
        owner: owner(number),
        mode: Mode::Shared,
        count: 1 + u32::from(number.is_multiple_of(3)),
        lease: Lease::MAX,
        deadline: UnixMs::new(deadline),
        token: Token::new(number * 7 % OWNERS / 2 + 1).unwrap(),
        extras: Extras::of(None, None, u32::try_from(number).ok()),
        bond: Bond::NONE,
    }
}

/// No two holds have the same number: the later one replaces the other.
#[test]
fn a_hold_with_the_number_of_another_takes_its_place() {
    let mut readers = lapsed_and_live(100, 100);
    readers.drop_lapsed(NOW, &mut None);
    for (number, left) in [(150, 100), (5, 101)] {
        readers.put(Hold { owner: owner(number + 1000), ..hold(number, 90) });
        assert_eq!((readers.total().holds, readers.get(&owner(number))), (left, None));
    }
    assert_eq!(readers.free_slot(UnixMs::new(60)), 0);
    assert_eq!(readers.by_slot.get(150), readers.by_owner.get(&owner(1150)).copied());
}

fn owner(number: u64) -> Owner {
    Owner::from_uuid(u128::from(number).to_be_bytes())
}

fn op() -> impl Strategy<Value = Op> {
    let some = |most: u64| (0..OWNERS).prop_flat_map(move |first| (Just(first), 1..=most.min(OWNERS - first)));
    let put = move |most| {
        let raised = prop_oneof![3 => Just(0), 1 => 1..3_u64];
        (some(most), 0..LAST_MS, 0..3_u64, raised).prop_map(|((first, count), deadline, step, raised)| Op::Put {
            first,
            count,
            deadline,
            step,
            raised,
        })
    };
    prop_oneof![
        4 => put(OWNERS),
        2 => put(3),
        2 => some(90).prop_map(|(first, count)| Op::Remove { first, count }),
        4 => (0..LAST_MS).prop_map(|now| Op::Drop { now }),
        2 => Just(Op::Free),
    ]
}

const NOW: UnixMs = UnixMs::new(50);
const OWNERS: u64 = 400;
const LAST_MS: u64 = 100;
