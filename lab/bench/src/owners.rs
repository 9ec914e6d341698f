//! Keys and owners as real clients use them: 11-byte keys, owners that are version 4 UUIDs of 36 characters.
//!
//! The same ones in every run, so that runs can be compared.

use dlock_testkit::random::Random;

/// Key number `n`.
pub fn key(n: usize) -> Vec<u8> {
    format!("lock:{n:06}").into_bytes()
}

/// Returns the places of keys in a request.
pub fn places_of_keys(request: &[u8]) -> impl Iterator<Item = usize> {
    let is_key = |window: &[u8]| window.strip_prefix(b"lock:").is_some_and(|rest| rest.iter().all(u8::is_ascii_digit));
    request.windows(key(0).len()).enumerate().filter(move |(_, window)| is_key(window)).map(|(place, _)| place)
}

/// Owner number `n`: looks random, is not.
pub fn owner(n: usize) -> Vec<u8> {
    let seed = u64::try_from(n).unwrap_or(u64::MAX);
    let high = mixed(seed);
    let low = mixed(high);
    let version = high & !0xf000 | 0x4000;
    let variant = low & (u64::MAX >> 2) | (1 << 63);
    format!(
        "{:08x}-{:04x}-{:04x}-{:04x}-{:012x}",
        version >> 32,
        version >> 16 & 0xffff,
        version & 0xffff,
        variant >> 48,
        variant & 0xffff_ffff_ffff
    )
    .into_bytes()
}

fn mixed(seed: u64) -> u64 {
    Random::seeded(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15)).number()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn keys_have_11_bytes() {
        assert!([0, 63, 999_999].iter().all(|n| key(*n).len() == 11));
    }

    #[test]
    fn owners_are_distinct_version_4_uuids() {
        let owners: HashSet<Vec<u8>> = (0..20_000).map(owner).collect();
        assert_eq!(owners.len(), 20_000);
        for owner in owners {
            let text = String::from_utf8_lossy(&owner).into_owned();
            let groups: Vec<usize> = text.split('-').map(str::len).collect();
            assert_eq!(groups, [8, 4, 4, 4, 12], "{text}");
            assert_eq!(owner.get(14), Some(&b'4'), "{text}");
            assert!(owner.get(19).is_some_and(|digit| b"89ab".contains(digit)), "{text}");
        }
    }
}
