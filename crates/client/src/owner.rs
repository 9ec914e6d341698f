//! Names of owners.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// How the owner of an acquisition is chosen.
#[derive(Clone, Debug, Default)]
pub(crate) enum Naming {
    /// Host, process, number and 16 random hexadecimal digits, at most 64 bytes: `web-1:4711:3:c0ffee…`.
    #[default]
    OfProcess,
    /// A label, a colon, and 16 random hexadecimal digits.
    Labeled(String),
    /// The owner of a hold, for another hold of that owner.
    OfHold(String),
}

impl Naming {
    /// Returns an owner: a new one each time, unless it is the owner of a hold.
    pub fn owner(&self) -> String {
        match self {
            Self::OfProcess => {
                static NUMBER: AtomicU64 = AtomicU64::new(1);
                let number = NUMBER.fetch_add(1, Ordering::Relaxed);
                let end = format!(":{}:{number}:{:016x}", std::process::id(), rand::random::<u64>());
                let room = MAX_OWNER.saturating_sub(end.len());
                host().chars().take(room).chain(end.chars()).collect()
            }
            Self::Labeled(label) => format!("{label}:{:016x}", rand::random::<u64>()),
            Self::OfHold(owner) => owner.clone(),
        }
    }
}

/// Returns the name of this machine, for people to read: letters, digits, dots, hyphens and underscores.
fn host() -> &'static str {
    static HOST: OnceLock<String> = OnceLock::new();
    HOST.get_or_init(|| {
        let told = std::fs::read_to_string("/proc/sys/kernel/hostname").ok();
        let told = told.or_else(|| std::env::var("HOSTNAME").or_else(|_| std::env::var("COMPUTERNAME")).ok());
        let told = told.unwrap_or_default();
        let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
        let shown: String = told.trim().chars().map(|c| if is_plain(c) { c } else { '-' }).collect();
        if shown.is_empty() { "host".to_owned() } else { shown }
    })
}

/// Returns a random UUID (version 4).
pub(crate) fn uuid() -> String {
    let uuid = uuid::Builder::from_random_bytes(rand::random()).into_uuid();
    uuid.hyphenated().encode_lower(&mut uuid::Uuid::encode_buffer()).to_owned()
}

/// The longest owner of [`Naming::OfProcess`], in bytes.
const MAX_OWNER: usize = 64;

#[cfg(test)]
#[allow(
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test that panics has failed, which is what it is for"
)]
mod tests {
    use super::Naming;

    #[test]
    fn an_owner_names_host_process_and_number_in_64_bytes_and_is_new_each_time() {
        let owner = Naming::default().owner();
        let parts: Vec<_> = owner.split(':').collect();
        let [host, process, number, random] = parts[..] else { panic!("{owner}") };
        assert!(!host.is_empty() && owner.is_ascii() && owner.len() <= 64, "{owner}");
        assert_eq!(process, std::process::id().to_string());
        assert!(number.parse::<u64>().is_ok() && random.len() == 16, "{owner}");
        assert_ne!(owner, Naming::default().owner());
    }

    #[test]
    fn a_uuid_has_the_form_of_version_4() {
        let id = super::uuid();
        let lengths: Vec<_> = id.split('-').map(str::len).collect();
        assert_eq!(lengths, [8, 4, 4, 4, 12], "{id}");
        assert!(id[14..].starts_with('4') && "89ab".contains(&id[19..20]), "{id}");
    }

    #[test]
    fn an_owner_with_a_label_is_new_each_time() {
        let naming = Naming::Labeled("host:1".to_owned());
        let owner = naming.owner();
        let random = owner.strip_prefix("host:1:").expect("the label");
        assert!(random.len() == 16 && random.bytes().all(|byte| byte.is_ascii_hexdigit()), "{owner}");
        assert_ne!(owner, naming.owner());
    }
}
