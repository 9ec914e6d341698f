//! Any effects in any order, even those that no primary sends, leave a valid lock.

#![allow(clippy::unwrap_used, reason = "a test that panics has failed, which is what it is for")]

use std::collections::BTreeSet;

use dlock_core::{
    Bond, Change, Effect, Expiry, Hold, Lease, Lock, LockMode, Memory, Mode, Owner, Token, UnixMs, decode_lock,
    encode_lock,
};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_lock_has_the_holds_that_its_effects_give(effects in vec(effect(), 1..40)) {
        let (mut lock, mut memory) = (Lock::default(), Memory::new());
        let mut holds = Vec::new();
        for effect in effects {
            let before = visible(&holds);
            let lapsed = follow(&mut holds, &effect);
            let expiry = match &effect.change {
                Change::Put { expiry, .. } => *expiry,
                Change::Remove { .. } => Expiry::Keep,
                Change::Sweep => Expiry::Keep,
            };
            let last_token = match &effect.change {
                Change::Put { hold, .. } => memory.tokens.last().max(hold.token.get()),
                Change::Remove { .. } | Change::Sweep => memory.tokens.last(),
            };
            let applied = lock.apply(effect, &mut memory);
            prop_assert_eq!((applied.lapsed, applied.expiry), (lapsed, expiry));
            prop_assert_eq!(applied.is_visible, lapsed > 0 || before != visible(&holds));
            prop_assert_eq!(memory.tokens.last(), last_token);
            compare(&lock, &holds);
            compare(&reloaded(&lock), &holds);
        }
    }
}

/// Applies an effect to a list of holds. Returns how many holds have lapsed by the clock of the effect.
fn follow(holds: &mut Vec<Hold>, effect: &Effect) -> u64 {
    let before = holds.len();
    holds.retain(|hold| effect.clock < hold.deadline);
    let lapsed = before - holds.len();
    match &effect.change {
        Change::Put { hold, .. } => {
            let stays_beside_new = |old: &Hold| match old.owner == hold.owner {
                true => old.mode != hold.mode,
                false => old.mode == Mode::Shared && hold.mode == Mode::Shared,
            };
            holds.retain(stays_beside_new);
            holds.push(hold.clone());
        }
        Change::Remove { owner, mode } => {
            holds.retain(|hold| hold.owner != *owner || mode.is_some_and(|mode| mode != hold.mode));
        }
        Change::Sweep => {}
    }
    lapsed as u64
}

fn compare(lock: &Lock, holds: &[Hold]) {
    let mut expected: Vec<&Hold> = holds.iter().collect();
    let mut stored: Vec<&Hold> = lock.stored_holds().collect();
    assert!(stored.is_sorted_by_key(|hold| hold.token));
    let key = |hold: &&Hold| (hold.token, hold.owner.clone(), hold.mode);
    expected.sort_by_key(key);
    stored.sort_by_key(key);
    assert_eq!(stored, expected);
    assert_eq!((lock.stored(), lock.is_empty()), (holds.len(), holds.is_empty()));
    assert_eq!(lock.last_deadline(), holds.iter().map(|hold| hold.deadline).max());
    assert_eq!(lock.first_deadline(), holds.iter().map(|hold| hold.deadline).min());
    for now in (0..LAST_MS).step_by(19).map(UnixMs::new) {
        assert_eq!(lock.has_lapsed(now), holds.iter().any(|hold| hold.deadline <= now));
        compare_summary(lock, now, expected.iter().copied().filter(|hold| now < hold.deadline).collect());
    }
}

fn compare_summary(lock: &Lock, now: UnixMs, live: Vec<&Hold>) {
    let summary = lock.summary(now);
    let is_held = |mode| live.iter().any(|hold| hold.mode == mode);
    let mode = match (is_held(Mode::Exclusive), is_held(Mode::Shared)) {
        (true, true) => LockMode::Both,
        (true, false) => LockMode::Exclusive,
        (false, true) => LockMode::Shared,
        (false, false) => LockMode::Free,
    };
    assert_eq!(summary.mode, mode);
    assert_eq!(summary.holders, live.iter().map(|hold| &hold.owner).collect::<BTreeSet<_>>().len() as u64);
    assert_eq!(summary.entries, live.iter().map(|hold| u64::from(hold.count)).sum::<u64>());
    assert_eq!(summary.token, live.iter().map(|hold| hold.token).max());
    assert_eq!(summary.deadline, live.iter().map(|hold| hold.deadline).max());
}

/// Returns the part of a lock whose changes `WATCH` sees: owners, modes and counts.
fn visible(holds: &[Hold]) -> Vec<(Owner, Mode, u32)> {
    let mut visible: Vec<_> = holds.iter().map(|hold| (hold.owner.clone(), hold.mode, hold.count)).collect();
    visible.sort();
    visible
}

fn reloaded(lock: &Lock) -> Lock {
    if lock.is_empty() {
        return Lock::default();
    }
    let mut bytes = Vec::new();
    encode_lock(lock, &mut bytes);
    decode_lock(&bytes).unwrap()
}

fn effect() -> impl Strategy<Value = Effect> {
    let put = (hold(), prop_oneof![Just(Expiry::Anew), Just(Expiry::Keep)]);
    let change = prop_oneof![
        8 => put.prop_map(|(hold, expiry)| Change::Put { hold, expiry }),
        3 => (owner(), option::of(mode())).prop_map(|(owner, mode)| Change::Remove { owner, mode }),
        1 => Just(Change::Sweep),
    ];
    (0..LAST_MS / 2, change).prop_map(|(clock, change)| Effect { clock: UnixMs::new(clock), change })
}

/// Generates holds with few different values of each kind, so that several effects are about the same hold.
fn hold() -> impl Strategy<Value = Hold> {
    let deadline = (0..=LAST_MS).prop_map(UnixMs::new);
    let token = (1..9_u64).prop_map(|n| Token::new(n).unwrap());
    (owner(), mode(), 1..4_u32, deadline, token).prop_map(|(owner, mode, count, deadline, token)| Hold {
        owner,
        mode,
        count,
        lease: Lease::new(10).unwrap(),
        deadline,
        token,
        extras: None,
        bond: Bond::NONE,
    })
}

fn owner() -> impl Strategy<Value = Owner> {
    (0..5_u8).prop_map(|name| Owner::new(&[b'a' + name]).unwrap())
}

fn mode() -> impl Strategy<Value = Mode> {
    prop_oneof![1 => Just(Mode::Exclusive), 3 => Just(Mode::Shared)]
}

const LAST_MS: u64 = 100;
