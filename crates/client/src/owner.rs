//! Who asks for a lock.

/// A new owner: a random UUID (version 4).
pub(crate) fn new_owner() -> String {
    let random: u128 = rand::random();
    let uuid = random & !(0xf << 76) & !(0x3 << 62) | 0x4 << 76 | 0x2 << 62;
    let hex = format!("{uuid:032x}");
    let [a, b, c, d, e] = [0..8, 8..12, 12..16, 16..20, 20..32].map(|part| hex.get(part).unwrap_or_default());
    format!("{a}-{b}-{c}-{d}-{e}")
}

#[cfg(test)]
mod tests {
    #[test]
    fn an_owner_is_a_uuid_of_version_4_and_never_the_same() {
        let owner = super::new_owner();
        let lengths: Vec<_> = owner.split('-').map(str::len).collect();
        assert_eq!(lengths, [8, 4, 4, 4, 12], "{owner}");
        assert!(owner[14..].starts_with('4') && "89ab".contains(&owner[19..20]), "{owner}");
        assert_ne!(owner, super::new_owner());
    }
}
