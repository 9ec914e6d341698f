//! Bytes of a lock and of an effect: read to an error, or to a value that stays the same if it is written and read.

use std::num::NonZeroU32;

use dlock_core::{
    Acquired, Change, DecodeError, Effect, Hold, Lease, LeaseChoice, Lock, Memory, Mode, Owner, Request, Terms, Token,
    UnixMs, Want, decode_effect, decode_lock, encode_effect, encode_lock,
};

/// Reads the bytes as a lock and as an effect.
pub fn codec(bytes: &[u8]) {
    lock(bytes);
    effect(bytes);
}

fn lock(bytes: &[u8]) {
    let lock = match decode_lock(bytes) {
        Ok(lock) => lock,
        Err(error) => return explained(error),
    };
    let holds: Vec<Hold> = lock.stored_holds().cloned().collect();
    assert!(!holds.is_empty() && holds.len() == lock.stored());
    keeps_the_rules(&holds);
    assert_eq!(holds_of(&written(&lock)), holds, "what was written is read again");
    let mut truncated = written(&lock);
    truncated.pop();
    assert_eq!(decode_lock(&truncated).err(), Some(DecodeError::Truncated));
    can_be_used(lock, &holds);
}

fn effect(bytes: &[u8]) {
    let effect = match decode_effect(bytes) {
        Ok(effect) => effect,
        Err(error) => return explained(error),
    };
    let mut written = Vec::new();
    encode_effect(&effect, &mut written);
    assert_eq!(decode_effect(&written).as_ref(), Ok(&effect), "what was written is read again");
    assert!(written.len() <= bytes.len(), "{written:?} is the short form of {bytes:?}");
    if let Change::Put { hold, .. } = &effect.change {
        keeps_the_rules(std::slice::from_ref(hold));
    }
    let (mut lock, mut memory) = (Lock::default(), Memory::new());
    lock.apply(effect.clone(), &mut memory);
    let once: Vec<Hold> = lock.stored_holds().cloned().collect();
    // A hold that had lapsed by the effect's own clock is put, and dropped by the next effect.
    let lapsed = once.iter().filter(|hold| !hold.is_live(effect.clock)).count() as u64;
    assert_eq!(lock.apply(effect, &mut memory).lapsed, lapsed);
    assert_eq!(lock.stored_holds().cloned().collect::<Vec<_>>(), once, "twice is the same as once");
}

/// Checks the promises of the types about a hold, and about a lock of its holds.
fn keeps_the_rules(holds: &[Hold]) {
    for hold in holds {
        assert!(hold.count >= 1 && (1..=1024).contains(&hold.owner.text().len()));
        assert!(hold.deadline <= UnixMs::MAX && (1..=31_536_000_000).contains(&hold.lease.get()));
        assert!((1..=Token::MAX.get()).contains(&hold.token.get()));
        assert!(hold.request().is_none_or(|request| (1..=64).contains(&request.id().len())));
        assert!(hold.cap().is_none_or(|cap| (hold.deadline..=UnixMs::MAX).contains(&cap)));
        assert!(hold.slot().is_none_or(|slot| slot < u32::MAX && hold.mode == Mode::Shared));
    }
    assert!(holds.is_sorted_by_key(|hold| hold.token));
    for (at, hold) in holds.iter().enumerate() {
        for other in &holds[at + 1..] {
            assert!(hold.owner != other.owner || hold.mode != other.mode, "one hold of an owner in a mode");
            let excludes = hold.mode == Mode::Exclusive || other.mode == Mode::Exclusive;
            assert!(hold.owner == other.owner || !excludes, "{hold:?} and {other:?} on one lock");
            assert!(hold.slot().is_none() || hold.slot() != other.slot(), "{hold:?} and {other:?} have one number");
        }
    }
}

/// A lock that was read answers every question, and its holds go one after the other.
fn can_be_used(mut lock: Lock, holds: &[Hold]) {
    let last = holds.iter().map(|hold| hold.deadline).max();
    assert_eq!(lock.last_deadline(), last);
    assert_eq!(lock.first_deadline(), holds.iter().map(|hold| hold.deadline).min());
    let summary = lock.summary(UnixMs::ZERO);
    let live: Vec<&Hold> = holds.iter().filter(|hold| hold.is_live(UnixMs::ZERO)).collect();
    assert_eq!(summary.entries, live.iter().map(|hold| u64::from(hold.count)).sum::<u64>());
    assert_eq!(summary.token, live.iter().map(|hold| hold.token).max());
    for hold in holds {
        assert!(
            lock.deadline_of(hold.token, UnixMs::ZERO) >= Some(hold.deadline).filter(|_| hold.is_live(UnixMs::ZERO))
        );
    }
    let _ = lock.heap_bytes();
    numbers_are_given_in_order(&lock, holds);
    let mut memory = Memory::new();
    for hold in holds {
        let change = Change::Remove { owner: hold.owner.clone(), mode: Some(hold.mode) };
        lock.apply(Effect { clock: UnixMs::ZERO, change }, &mut memory);
    }
    assert!(lock.is_empty());
}

/// A request gets the lowest number that no live hold has.
fn numbers_are_given_in_order(lock: &Lock, holds: &[Hold]) {
    let (now, owner) = (UnixMs::ZERO, Owner::new(b"somebody who holds nothing").unwrap());
    let request = Request::new(owner, Want::Slot { limit: NonZeroU32::MAX }, LeaseChoice::Own);
    let decision = lock.acquire(now, &request, Terms { default: Lease::MAX, fresh: Some(Token::MAX) });
    if let Acquired::Granted(hold, _) = decision {
        let is_free = |slot: &u32| !holds.iter().any(|hold| hold.is_live(now) && hold.slot() == Some(*slot));
        assert_eq!(hold.slot(), (0..).find(is_free));
    }
}

fn written(lock: &Lock) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode_lock(lock, &mut bytes);
    bytes
}

fn holds_of(bytes: &[u8]) -> Vec<Hold> {
    decode_lock(bytes).expect("what was written").stored_holds().cloned().collect()
}

fn explained(error: DecodeError) {
    let (text, begins) = (error.to_string(), ["the data ", "format version ", "invalid "]);
    assert!(begins.iter().any(|begin| text.starts_with(begin)), "{text}");
}
