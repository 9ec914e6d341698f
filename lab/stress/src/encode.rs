//! Steps as the words of a command.

use dlock_core::{Entries, Mode};

use crate::model::{Ask, Asked, Fence, Lease, Leave, Renew, What};
use crate::step::Request;

/// The words of a command.
pub type Words = Vec<Vec<u8>>;

/// Words, separated by blanks.
pub fn words(text: &str) -> Words {
    text.split_whitespace().map(|word| word.as_bytes().to_vec()).collect()
}

/// The words of a request about a key. `block` is in ms.
pub fn request_words(name: &str, request: &Request, block: u64) -> Words {
    match request {
        Request::Enter(ask) => ask_words(name, ask, block),
        Request::Release(leave) => release_words(name, leave),
        Request::Renew(renew) => renew_words(name, renew),
        Request::Check(token) => words(&format!("DLOCK.CHECK {name} {token}")),
        Request::Delete => words(&format!("{} {name}", if name == "b" { "UNLINK" } else { "DEL" })),
    }
}

fn ask_words(name: &str, ask: &Ask, block: u64) -> Words {
    let mut line = words(&format!("DLOCK.{} {name}", command(ask.what)));
    line.push(if ask.is_made_up { b"*".to_vec() } else { ask.owner.clone() });
    line.extend(lease_words(ask.lease));
    if ask.blocks {
        line.extend(words(&format!("block {block}")));
    }
    if let Some(id) = ask.request {
        line.extend(words(&format!("REQUEST id-{id}")));
    }
    if ask.binds {
        line.extend(words("Session"));
    }
    line
}

fn release_words(name: &str, leave: &Leave) -> Words {
    let mut line = words(&format!("DLOCK.RELEASE {name}"));
    line.push(leave.owner.clone());
    if let Some(Asked { id, .. }) = leave.request {
        line.extend(words(&format!("REQUEST id-{id}")));
    }
    line.extend(mode_words(leave.mode));
    if leave.entries == Entries::All {
        line.extend(words("ALL"));
    }
    if let Some(token) = leave.token {
        line.extend(words(&format!("TOKEN {token}")));
    }
    line
}

fn renew_words(name: &str, renew: &Renew) -> Words {
    let mut line = words(&format!("DLOCK.RENEW {name}"));
    line.push(renew.owner.clone());
    if renew.binds {
        line.extend(words("SESSION"));
    }
    line.extend(lease_words(renew.lease));
    line.extend(mode_words(renew.mode));
    match renew.fence {
        Fence::Any => {}
        Fence::Is(token) => line.extend(words(&format!("TOKEN {token}"))),
        Fence::AtLeast(token) => line.extend(words(&format!("MINTOKEN {token}"))),
    }
    line
}

fn command(what: What) -> &'static str {
    match what {
        What::Acquire => "ACQUIRE",
        What::Racquire => "RACQUIRE",
        What::Rlock => "RLOCK",
        What::Wlock => "WLOCK",
        What::Release => "RELEASE",
    }
}

fn mode_words(mode: Option<Mode>) -> Words {
    match mode {
        None => Words::new(),
        Some(Mode::Exclusive) => words("write"),
        Some(Mode::Shared) => words("READ"),
    }
}

fn lease_words(lease: Lease) -> Words {
    match lease {
        Lease::Own => Words::new(),
        Lease::For(ms) if ms % 120_000 == 0 => words(&format!("ex {}", ms / 1000)),
        Lease::For(ms) => words(&format!("PX {ms}")),
        Lease::Until(ms) if ms % 2000 == 0 => words(&format!("EXAT {}", ms / 1000)),
        Lease::Until(ms) => words(&format!("PXAT {ms}")),
    }
}
