//! The slot of a key in a cluster: the CRC-16 (XMODEM) of the key's hash tag, or of the whole key, modulo 16384.

/// Returns the slot that a key belongs to.
pub(crate) fn slot(key: &[u8]) -> u16 {
    crc16(hash_tag(key)) % SLOTS
}

/// Returns the bytes between the first `{` and the next `}`, or the whole key if there are none.
fn hash_tag(key: &[u8]) -> &[u8] {
    let tag = || {
        let (_, rest) = key.split_at_checked(key.iter().position(|byte| *byte == b'{')? + 1)?;
        let (tag, _) = rest.split_at_checked(rest.iter().position(|byte| *byte == b'}')?)?;
        Some(tag).filter(|tag| !tag.is_empty())
    };
    tag().unwrap_or(key)
}

fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |crc, byte| {
        (0..8).fold(crc ^ (u16::from(*byte) << 8), |crc, _| (crc << 1) ^ if crc & 0x8000 == 0 { 0 } else { 0x1021 })
    })
}

const SLOTS: u16 = 16384;

#[cfg(test)]
mod tests {
    use super::slot;

    #[test]
    fn slots_are_those_of_the_cluster_specification() {
        // The check value of CRC-16 (XMODEM), which is below 16384.
        assert_eq!(slot(b"123456789"), 0x31c3);
        assert_eq!(slot(b"{user1000}.following"), slot(b"user1000"));
        assert_eq!(slot(b"foo{{bar}}zap"), slot(b"{bar"));
        assert_ne!(slot(b"foo{}{bar}"), slot(b"bar"));
    }
}
