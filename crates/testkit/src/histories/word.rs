//! The words of options and keys.

use super::values::{KEYS, KeyNo, Lease, SessionNo};

/// The words of a command.
pub type Words = Vec<Vec<u8>>;

/// Returns the name of a key, without its database.
pub fn name_of(key: KeyNo) -> &'static str {
    KEYS.get(key).map_or("", |key| key.1)
}

/// Splits a text at blanks.
pub fn words(text: &str) -> Words {
    text.split_whitespace().map(|word| word.as_bytes().to_vec()).collect()
}

pub(super) fn session_words(binds: bool, named: Option<SessionNo>) -> Words {
    match named {
        Some(id) => words(&format!("SESSIONID session-{id}")),
        None if binds => words("Session"),
        None => Words::new(),
    }
}

pub(super) fn lease_words(lease: Lease) -> Words {
    match lease {
        Lease::Own => Words::new(),
        Lease::For(ms) if ms % 120_000 == 0 => words(&format!("ex {}", ms / 1000)),
        Lease::For(ms) => words(&format!("PX {ms}")),
        Lease::Until(ms) if ms % 2000 == 0 => words(&format!("EXAT {}", ms / 1000)),
        Lease::Until(ms) => words(&format!("PXAT {ms}")),
    }
}
