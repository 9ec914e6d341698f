//! The bytes of locks and effects: what they are in version 1, and that any bytes are read without harm.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a test that panics has failed, which is what it is for"
)]

mod damage;
mod errors;
mod golden;
mod values;

use dlock_core::{DecodeError, Effect, Hold, Lock, decode_effect, decode_lock, encode_effect, encode_lock};

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

/// The holds that the bytes have, lowest token first.
fn lock_holds(bytes: &[u8]) -> Result<Vec<Hold>, DecodeError> {
    decode_lock(bytes).map(|lock| lock.stored_holds().cloned().collect())
}

fn effect_of(bytes: &[u8]) -> Result<Effect, DecodeError> {
    decode_effect(bytes)
}
