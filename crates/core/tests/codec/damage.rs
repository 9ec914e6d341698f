//! Decoding any bytes gives a valid value or an error.

use dlock_core::DecodeError;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;

use crate::values::{any_effect, any_lock};
use crate::{effect_bytes, effect_of, lock_bytes, lock_holds};

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_lock_is_read_as_it_was_written(lock in any_lock()) {
        let holds: Vec<_> = lock.stored_holds().cloned().collect();
        prop_assert_eq!(lock_holds(&lock_bytes(&lock)), Ok(holds));
    }

    #[test]
    fn an_effect_is_read_as_it_was_written(effect in any_effect()) {
        prop_assert_eq!(effect_of(&effect_bytes(&effect)), Ok(effect));
    }

    #[test]
    fn a_cut_lock_is_an_error(lock in any_lock(), at in any::<Index>()) {
        let bytes = lock_bytes(&lock);
        prop_assert_eq!(lock_holds(&bytes[..at.index(bytes.len())]), Err(DecodeError::Truncated));
    }

    #[test]
    fn a_cut_effect_is_an_error(effect in any_effect(), at in any::<Index>()) {
        let bytes = effect_bytes(&effect);
        prop_assert_eq!(effect_of(&bytes[..at.index(bytes.len())]), Err(DecodeError::Truncated));
    }

    #[test]
    fn bytes_after_a_value_are_an_error(lock in any_lock(), effect in any_effect(), more in vec(any::<u8>(), 1..9)) {
        let lock = [lock_bytes(&lock), more.clone()].concat();
        let effect = [effect_bytes(&effect), more].concat();
        prop_assert_eq!(lock_holds(&lock), Err(DecodeError::TrailingBytes));
        prop_assert_eq!(effect_of(&effect), Err(DecodeError::TrailingBytes));
    }

    #[test]
    fn random_bytes_do_no_harm(bytes in vec(any::<u8>(), 0..200)) {
        read(&bytes);
    }

    #[test]
    fn damaged_locks_do_no_harm(lock in any_lock(), damage in vec(damage(), 1..5)) {
        let mut bytes = lock_bytes(&lock);
        damage.iter().for_each(|damage| damage.strike(&mut bytes));
        read(&bytes);
    }

    #[test]
    fn damaged_effects_do_no_harm(effect in any_effect(), damage in vec(damage(), 1..5)) {
        let mut bytes = effect_bytes(&effect);
        damage.iter().for_each(|damage| damage.strike(&mut bytes));
        read(&bytes);
    }
}

/// Tries every byte value in every place of a lock.
#[test]
fn a_small_lock_with_any_wrong_byte_does_no_harm() {
    let lock = crate::values::lock([
        crate::values::hold(b"ab", dlock_core::Mode::Exclusive, 1, 200, 100_000, 5),
        crate::values::hold(b"ab", dlock_core::Mode::Shared, 2, 300, 200_000, 600),
    ]);
    let bytes = lock_bytes(&lock);
    for at in 0..bytes.len() {
        for byte in 0..=u8::MAX {
            let mut damaged = bytes.clone();
            damaged[at] = byte;
            read(&damaged);
        }
    }
}

/// Decodes the bytes as a lock and as an effect. If that succeeds, the value is the same after encoding and decoding.
fn read(bytes: &[u8]) {
    if let Ok(lock) = dlock_core::decode_lock(bytes) {
        let holds: Vec<_> = lock.stored_holds().cloned().collect();
        assert!(!holds.is_empty(), "a lock without holds is no valid value");
        assert_eq!(lock_holds(&lock_bytes(&lock)), Ok(holds));
    }
    if let Ok(effect) = effect_of(bytes) {
        assert_eq!(effect_of(&effect_bytes(&effect)), Ok(effect));
    }
}

#[derive(Clone, Debug)]
enum Damage {
    Set(Index, u8),
    Flip(Index, u8),
    Insert(Index, u8),
    Cut(Index),
    Drop(Index),
}

impl Damage {
    fn strike(&self, bytes: &mut Vec<u8>) {
        if bytes.is_empty() {
            return;
        }
        let len = bytes.len();
        match self {
            Damage::Set(at, byte) => bytes[at.index(len)] = *byte,
            Damage::Flip(at, bit) => bytes[at.index(len)] ^= 1 << bit,
            Damage::Insert(at, byte) => bytes.insert(at.index(len), *byte),
            Damage::Cut(at) => bytes.truncate(at.index(len)),
            Damage::Drop(at) => drop(bytes.remove(at.index(len))),
        }
    }
}

fn damage() -> impl Strategy<Value = Damage> {
    prop_oneof![
        (any::<Index>(), any::<u8>()).prop_map(|(at, byte)| Damage::Set(at, byte)),
        (any::<Index>(), 0..8_u8).prop_map(|(at, bit)| Damage::Flip(at, bit)),
        (any::<Index>(), any::<u8>()).prop_map(|(at, byte)| Damage::Insert(at, byte)),
        any::<Index>().prop_map(Damage::Cut),
        any::<Index>().prop_map(Damage::Drop),
    ]
}
