//! The bytes of locks and effects in each version of the format. Decoding any bytes gives a valid value or an error.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a test that panics has failed, which is what it is for"
)]

mod damage;
mod errors;
mod golden;
mod orders;
mod values;

use dlock_core::{
    Change, Command, DecodeError, Effect, Expiry, Extras, Hold, Lock, Mode, Owner, RequestId, UnixMs, decode_effect,
    decode_lock, encode_effect, encode_lock, with_encoded_effect,
};
use proptest::prelude::*;

fn lock_bytes(lock: &Lock) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode_lock(lock, &mut bytes);
    bytes
}

fn effect_bytes(effect: &Effect) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode_effect(effect, &mut bytes);
    bytes
}

/// Returns the holds of the lock with these bytes, lowest token first.
fn lock_holds(bytes: &[u8]) -> Result<Vec<Hold>, DecodeError> {
    decode_lock(bytes).map(|lock| lock.stored_holds().cloned().collect())
}

fn effect_of(bytes: &[u8]) -> Result<Effect, DecodeError> {
    decode_effect(bytes)
}

/// Returns the bytes of a number (LEB128): seven bits in each, the lowest first.
fn number_bytes(mut number: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    while number >= 0x80 {
        bytes.push((number & 0x7f) as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number.to_le_bytes()[0]);
    bytes
}

#[test]
fn a_time_of_any_length_has_the_bytes_of_a_number() {
    let around = |bit: u32| [(1_u64 << bit) - 1, 1 << bit, (1 << bit) + 1];
    let last = UnixMs::MAX.get();
    for time in (0..63).flat_map(around).chain([last - 1, last]).filter(|time| *time <= last) {
        let bytes = effect_bytes(&Effect { clock: UnixMs::new(time), change: Change::Sweep });
        assert_eq!(bytes[1..], number_bytes(time), "{time}");
    }
}

#[test]
fn an_effect_of_any_length_has_the_same_bytes_on_the_stack() {
    for owner in (1..=Owner::MAX_LEN).map(|len| vec![b'o'; len]).chain([values::UUID.into()]) {
        for request in [None, Some(1), Some(30), Some(RequestId::MAX_LEN)] {
            let request = request.and_then(|len| RequestId::new(Command::Sacquire, &vec![b'r'; len]));
            let hold = values::hold(&owner, Mode::Shared, u32::MAX, 1000, 1 << 40, 1 << 50);
            let hold = Hold { extras: Extras::of(request, Some(UnixMs::new(1 << 41)), Some(7)), ..hold };
            let owner = hold.owner.clone();
            for change in [Change::Put { hold, expiry: Expiry::Leave }, Change::Remove { owner, mode: None }] {
                is_the_same_on_the_stack(&Effect { clock: UnixMs::new(1 << 41), change });
            }
        }
    }
}

fn is_the_same_on_the_stack(effect: &Effect) {
    let (bytes, mut runs) = (effect_bytes(effect), 0);
    with_encoded_effect(effect, |short| {
        runs += 1;
        assert_eq!(short, bytes);
    });
    assert_eq!(runs, 1);
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_effect_has_the_same_bytes_on_the_stack(effect in values::any_effect()) {
        is_the_same_on_the_stack(&effect);
    }
}
