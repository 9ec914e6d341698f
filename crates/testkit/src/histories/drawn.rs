//! Draws keys and leases.

use super::values::{KEYS, KeyNo, Lease};
use crate::bytes::Bytes;

pub(super) fn key(bytes: &mut Bytes) -> KeyNo {
    // The first keys are drawn more often, so that requests meet.
    bytes.pick(&[0, 0, 0, 1, 1, 2, 3]) % KEYS.len()
}

pub(super) fn lease(bytes: &mut Bytes) -> Lease {
    match bytes.byte() {
        0..=60 => Lease::Own,
        ms @ 61..=160 => Lease::For(u64::from(ms) - 60),
        ms @ 161..=220 => Lease::For(u64::from(ms - 161) * 10 + 300),
        ms => Lease::Until(u64::from(ms - 220) * 4),
    }
}
