//! Operations as the words of commands, for servers and for people. Some are in lower case, which servers accept.

use std::fmt;

use dlock_core::engine::OpenIf;
use dlock_core::{Command, Entries, Mode};

use super::leave::{Fence, Leave, Renewal};
use super::naive::Request;
use super::ops::{Op, Step};
use crate::histories::values::{KeyNo, SessionNo, Somebody, TokenPick, TokenRule};
use crate::histories::word::{Words, lease_words, name_of, session_words, words};

/// Returns the words of a command that acquires. `block` is the limit of its wait, in ms.
pub fn enter_words(request: &Request, owner: &[u8], block: u64) -> Words {
    request.how.words(&request.keys, if request.is_drawn { b"*" } else { owner }, block)
}

/// Returns the words of a `RELEASE`.
pub fn release_words(key: KeyNo, owner: &[u8], leave: &Leave) -> Words {
    let mut line = words(&format!("DLOCK.RELEASE {}", name_of(key)));
    line.push(owner.to_vec());
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

/// Returns the words of a `RENEW`.
pub fn renew_words(key: KeyNo, owner: &[u8], renewal: &Renewal) -> Words {
    let mut line = words(&format!("DLOCK.RENEW {}", name_of(key)));
    line.push(owner.to_vec());
    line.extend(session_words(renewal.binds, renewal.named));
    line.extend(lease_words(renewal.lease));
    line.extend(mode_words(renewal.mode));
    match renewal.fence {
        Fence::Any => {}
        Fence::Is(token) => line.extend(words(&format!("TOKEN {token}"))),
        Fence::AtLeast(token) => line.extend(words(&format!("MINTOKEN {token}"))),
    }
    line
}

/// Returns the words of a heartbeat.
pub fn beat_words(session: SessionNo, timeout: u64, only: OpenIf) -> Words {
    let only = match only {
        OpenIf::Any => "",
        OpenIf::New => "nx",
        OpenIf::Open => "XX",
    };
    words(&format!("DLOCK.SESSION session-{session} PX {timeout} {only}"))
}

/// Returns the words that close a session.
pub fn close_words(session: SessionNo) -> Words {
    words(&format!("DLOCK.SESSION session-{session} CLOSE"))
}

fn mode_words(mode: Option<Mode>) -> Words {
    match mode {
        None => Words::new(),
        Some(Mode::Exclusive) => words("write"),
        Some(Mode::Shared) => words("READ"),
    }
}

/// Shows a step for people. Tokens and holders, known only when the history is played, are described.
impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.op.fmt(f)?;
        f.write_str(if self.then_tick { "" } else { ", and no timer runs" })
    }
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let somebody = |who: &Somebody| match who {
            Somebody::Holder(at) => format!("holder-{at}"),
            Somebody::Any(who) => format!("owner-{who}"),
        };
        let pick = |token: &TokenPick| match token {
            TokenPick::Mine(mode) => format!("of its {mode:?} hold").to_lowercase(),
            TokenPick::Of(at) => format!("of hold {at}"),
            TokenPick::Never => "that nobody had".to_owned(),
        };
        match self {
            Op::Wait(us) => write!(f, "{} ms pass", us / 1000),
            Op::Enter { client, owner, keys, how } => {
                let owner = owner.as_ref().map_or("*".to_owned(), somebody);
                line(f, &how.words(keys, owner.as_bytes(), 0))?;
                write!(f, "  (client {client})")
            }
            Op::Resend { client, block } => {
                write!(f, "the last request comes again{}  (client {client})", if *block { ", with BLOCK" } else { "" })
            }
            Op::Release { key, who, mode, entries, token, id } => {
                let asked = id.map(|id| (Command::Release, id));
                let leave = Leave { owner: 0, mode: *mode, entries: *entries, token: None, asked };
                line(f, &release_words(*key, somebody(who).as_bytes(), &leave))?;
                token.as_ref().map_or(Ok(()), |token| write!(f, " TOKEN {}", pick(token)))
            }
            Op::Renew { client, key, who, mode, lease, token, binds, named } => {
                let (mode, lease, fence) = (*mode, *lease, Fence::Any);
                let renewal = Renewal { client: 0, owner: 0, mode, lease, fence, binds: *binds, named: *named };
                line(f, &renew_words(*key, somebody(who).as_bytes(), &renewal))?;
                match token {
                    TokenRule::Any => Ok(()),
                    TokenRule::Is(token) => write!(f, " TOKEN {}", pick(token)),
                    TokenRule::AtLeast(token, more) => write!(f, " MINTOKEN {} and {more} more", pick(token)),
                }?;
                write!(f, "  (client {client})")
            }
            Op::Beat { client, session, only, timeout } => {
                line(f, &beat_words(*session, *timeout, *only))?;
                write!(f, "  (client {client})")
            }
            Op::Close(client, session) => {
                line(f, &close_words(*session))?;
                write!(f, "  (client {client})")
            }
            op => write!(f, "{op:?}"),
        }
    }
}

/// Writes a command. Words of letters only, which are case-insensitive, are shown in upper case.
fn line(f: &mut fmt::Formatter<'_>, line: &Words) -> fmt::Result {
    let shown = line.iter().map(|word| {
        let word = word.escape_ascii().to_string();
        if word.bytes().all(|byte| byte.is_ascii_alphabetic()) { word.to_uppercase() } else { word }
    });
    f.write_str(&shown.collect::<Vec<_>>().join(" "))
}
