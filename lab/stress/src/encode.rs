//! Steps as the words of a command.

use dlock_core::{Command, Entries, Mode, Want};
use dlock_testkit::histories::KeyNo;
use dlock_testkit::histories::leave::{Fence, Leave, Renewal};
use dlock_testkit::histories::naive::{Lease, Request};

use crate::model::{Model, name_of};
use crate::step::Call;

/// The words of a command.
pub type Words = Vec<Vec<u8>>;

/// Words, separated by blanks.
pub fn words(text: &str) -> Words {
    text.split_whitespace().map(|word| word.as_bytes().to_vec()).collect()
}

/// The keys that a command names.
pub fn keys_of(call: &Call) -> &[KeyNo] {
    match call {
        Call::Enter(_, request, _) => &request.keys,
        Call::Release(key, _)
        | Call::Renew(key, _)
        | Call::Check(key, _)
        | Call::Delete(key)
        | Call::SetTtl(key, _) => std::slice::from_ref(key),
    }
}

/// The words of a command. `block` is in ms.
pub fn call_words(model: &Model, call: &Call, block: u64) -> Words {
    match call {
        Call::Enter(command, request, blocks) => enter_words(model, *command, request, blocks.then_some(block)),
        Call::Release(key, leave) => release_words(model, *key, leave),
        Call::Renew(key, renewal) => renew_words(model, *key, renewal),
        Call::Check(key, token) => words(&format!("DLOCK.CHECK {} {token}", name_of(*key))),
        Call::SetTtl(key, Some(ms)) => words(&format!("PEXPIRE {} {ms}", name_of(*key))),
        Call::SetTtl(key, None) => words(&format!("PERSIST {}", name_of(*key))),
        // Both ways to delete.
        Call::Delete(key) => words(&format!("{} {}", if key % 3 == 1 { "UNLINK" } else { "DEL" }, name_of(*key))),
    }
}

fn enter_words(model: &Model, command: Command, request: &Request, block: Option<u64>) -> Words {
    let Request { owner, is_drawn, keys, want, lease, binds, asked, .. } = request;
    let mut line = words(&format!("DLOCK.{}", name(command)));
    if command == Command::Macquire {
        line.extend(words(&keys.len().to_string()));
    }
    line.extend(keys.iter().map(|key| name_of(*key).as_bytes().to_vec()));
    line.push(if *is_drawn { b"*".to_vec() } else { model.owner(*owner).unwrap_or_default() });
    if let Want::Permits { permits, limit } = want {
        line.extend(words(&limit.to_string()));
        // One is what is left out.
        if permits.get() > 1 {
            line.extend(words(&format!("PERMITS {permits}")));
        }
    }
    line.extend(lease_words(*lease));
    if let Some(ms) = block {
        line.extend(words(&format!("block {ms}")));
    }
    if let Some((_, id)) = asked {
        line.extend(words(&format!("REQUEST id-{id}")));
    }
    if *binds {
        line.extend(words("Session"));
    }
    line
}

fn release_words(model: &Model, key: KeyNo, leave: &Leave) -> Words {
    let mut line = words(&format!("DLOCK.RELEASE {}", name_of(key)));
    line.push(model.owner(leave.owner).unwrap_or_default());
    if let Some((_, id)) = leave.asked {
        line.extend(words(&format!("REQUEST id-{id}")));
    }
    line.extend(mode_words(leave.mode));
    match leave.entries {
        Entries::All => line.extend(words("ALL")),
        Entries::ONE => {}
        Entries::Some(entries) => line.extend(words(&format!("permits {entries}"))),
    }
    if let Some(token) = leave.token {
        line.extend(words(&format!("TOKEN {token}")));
    }
    line
}

fn renew_words(model: &Model, key: KeyNo, renewal: &Renewal) -> Words {
    let mut line = words(&format!("DLOCK.RENEW {}", name_of(key)));
    line.push(model.owner(renewal.owner).unwrap_or_default());
    if renewal.binds {
        line.extend(words("SESSION"));
    }
    line.extend(lease_words(renewal.lease));
    line.extend(mode_words(renewal.mode));
    match renewal.fence {
        Fence::Any => {}
        Fence::Is(token) => line.extend(words(&format!("TOKEN {token}"))),
        Fence::AtLeast(token) => line.extend(words(&format!("MINTOKEN {token}"))),
    }
    line
}

fn name(command: Command) -> &'static str {
    match command {
        Command::Acquire => "ACQUIRE",
        Command::Racquire => "RACQUIRE",
        Command::Rlock => "RLOCK",
        Command::Wlock => "WLOCK",
        Command::Sacquire => "SACQUIRE",
        Command::Macquire => "MACQUIRE",
        Command::Release => "RELEASE",
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
