//! Names of owners.

/// How the owner of an acquisition is chosen.
#[derive(Clone, Debug, Default)]
pub(crate) enum Naming {
    /// A UUID.
    #[default]
    Random,
    /// A label, a colon, and 16 random hexadecimal digits.
    Labeled(String),
    /// The owner of a hold, for another hold of that owner.
    OfHold(String),
}

impl Naming {
    /// Returns an owner: another one each time, unless it is that of a hold.
    pub fn owner(&self) -> String {
        match self {
            Self::Random => uuid(),
            Self::Labeled(label) => format!("{label}:{:016x}", rand::random::<u64>()),
            Self::OfHold(owner) => owner.clone(),
        }
    }
}

/// Returns a random UUID (version 4).
pub(crate) fn uuid() -> String {
    let uuid = uuid::Builder::from_random_bytes(rand::random()).into_uuid();
    uuid.hyphenated().encode_lower(&mut uuid::Uuid::encode_buffer()).to_owned()
}

#[cfg(test)]
#[allow(clippy::expect_used, reason = "a test that panics has failed, which is what it is for")]
mod tests {
    use super::Naming;

    #[test]
    fn an_owner_is_a_uuid_of_version_4_and_never_the_same() {
        let owner = Naming::Random.owner();
        let lengths: Vec<_> = owner.split('-').map(str::len).collect();
        assert_eq!(lengths, [8, 4, 4, 4, 12], "{owner}");
        assert!(owner[14..].starts_with('4') && "89ab".contains(&owner[19..20]), "{owner}");
        assert_ne!(owner, Naming::Random.owner());
    }

    #[test]
    fn an_owner_with_a_label_is_never_the_same() {
        let naming = Naming::Labeled("host:1".to_owned());
        let owner = naming.owner();
        let random = owner.strip_prefix("host:1:").expect("the label");
        assert!(random.len() == 16 && random.bytes().all(|byte| byte.is_ascii_hexdigit()), "{owner}");
        assert_ne!(owner, naming.owner());
    }
}
