//! The slot of a key in a cluster: CRC-16 (XMODEM) of the name, or of its hash tag, modulo [`SLOTS`].

/// How many slots a cluster has.
pub const SLOTS: u16 = 16_384;

/// Returns the slot of a key. O(n) for n bytes.
pub fn cluster_slot(key: &[u8]) -> u16 {
    crc16(hash_tag(key)) % SLOTS
}

/// Returns the bytes between the first `{` and the next `}`; the whole name if there are none, or no braces.
fn hash_tag(key: &[u8]) -> &[u8] {
    let tag = key.iter().position(|byte| *byte == b'{').and_then(|open| {
        let rest = key.get(open + 1..)?;
        rest.get(..rest.iter().position(|byte| *byte == b'}')?)
    });
    tag.filter(|tag| !tag.is_empty()).unwrap_or(key)
}

/// Returns the CRC-16 with the polynomial 0x1021 and the initial value 0 (XMODEM).
fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |crc, byte| {
        let next = |crc: u16, _| if crc & 0x8000 == 0 { crc << 1 } else { (crc << 1) ^ 0x1021 };
        (0..8).fold(crc ^ (u16::from(*byte) << 8), next)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_those_of_cluster_keyslot() {
        // The slots are answers of the server's `CLUSTER KEYSLOT`.
        for (key, slot) in [("123456789", 12_739), ("foo", 12_182), ("", 0), ("{}foo", 9_500), ("a{foo}b{bar}", 12_182)]
        {
            assert_eq!(cluster_slot(key.as_bytes()), slot, "{key}");
        }
        // The two names of a pair have the same hash tag.
        for (one, other) in [("{user1000}.following", "{user1000}.followers"), ("foo{{bar}}zap", "{bar")] {
            assert_eq!(cluster_slot(one.as_bytes()), cluster_slot(other.as_bytes()), "{one}");
        }
    }
}
