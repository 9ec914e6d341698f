//! The facts about a command that the agent needs to pass it on.

use std::time::{Duration, Instant};

use dlock_core::spec::{self, Keys, Spec};

use crate::resp::Request;

/// A command of a client.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Call {
    /// The first key, which decides on the server of a cluster.
    pub key: Option<Vec<u8>>,
    /// How long the command may wait. Zero: without limit. `None`: not at all.
    pub block: Option<Duration>,
    /// The index of the word with that time; `None` for `WAIT` and `WAITAOF`, whose time is not cut when they are sent
    /// again.
    pub block_at: Option<usize>,
    /// Whether it binds a hold to the connection.
    pub binds: bool,
    /// Whether it may be sent again if nobody knows whether it was carried out. Not if it binds a hold to the
    /// connection: an earlier copy that arrives late would bind the hold to its own, whose end releases it. Nor if it is
    /// a renewal that names a lease or a session: its earlier copy would set those again after a later renewal.
    pub is_repeatable: bool,
    /// The id of the session that a command opens, keeps or ends, and its effect: the time, or `CLOSE`.
    pub session: Option<[Vec<u8>; 2]>,
    /// Whether it is a command that writes.
    pub is_write: bool,
    /// Whether it is for all primaries of a cluster.
    pub is_for_each: bool,
    /// Whether it only opens a session (`NX`), and keeps none that is open.
    pub only_opens: bool,
    /// Whether it is about the writes of the connection that answered last, and so means nothing on another one.
    pub is_about_last: bool,
}

impl Call {
    pub fn of(request: &Request) -> Self {
        let name = request.name();
        if let Some(spec) = spec::find(&name) {
            return Self::of_lock(request, spec);
        }
        let key = request.word(1).map(<[u8]>::to_vec);
        match name.as_str() {
            "EXISTS" | "PEXPIRETIME" | "PTTL" | "TTL" | "TYPE" => Self { key, is_repeatable: true, ..Self::default() },
            "DEL" | "UNLINK" => Self { key, is_write: true, ..Self::default() },
            "INFO" | "PING" | "ROLE" | "TIME" => Self { is_repeatable: true, ..Self::default() },
            "WAIT" => Self { is_about_last: true, block: millis(request, 2), ..Self::default() },
            "WAITAOF" => Self { is_about_last: true, block: millis(request, 3), ..Self::default() },
            "CLIENT" | "COMMAND" => Self::default(),
            _ => Self { key, ..Self::default() },
        }
    }

    /// Returns the facts about a command for locks.
    fn of_lock(request: &Request, spec: &Spec) -> Self {
        let (key_at, keys) = match spec.keys {
            Keys::None if spec.name == spec::SESSIONS.name => return Self::of_session(request),
            Keys::None => return Self::default(),
            Keys::First(_) => (1, 1),
            Keys::Numbered(_) => (2, key_count(request).saturating_add(1)),
        };
        let options = Options::of(request, spec, keys.saturating_add(1));
        let block = options.block_at.and_then(|at| millis(request, at));
        // A repeated acquisition, which takes `BLOCK`, gets the first answer. A repeated full `RELEASE` gets nil.
        let is_request = options.has_request && spec.option(b"BLOCK").is_some();
        Self {
            key: request.word(key_at).map(<[u8]>::to_vec),
            block,
            block_at: block.and(options.block_at),
            binds: options.has_session,
            is_write: spec.flags.split_ascii_whitespace().any(|flag| flag == "write"),
            // A read, and a renewal by the hold's own lease, may be carried out twice.
            is_repeatable: !options.has_session
                && (is_request
                    || spec.flags.contains("readonly")
                    || spec.name == spec::RENEW.name && !options.has_lease && !options.has_named_session),
            ..Self::default()
        }
    }

    fn of_session(request: &Request) -> Self {
        let is_new = request.after(4).any(|word| word.eq_ignore_ascii_case(b"NX"));
        let is_close = request.word(2).is_some_and(|word| word.eq_ignore_ascii_case(b"CLOSE"));
        let session = match [1, 2, 3].map(|at| request.word(at)) {
            [Some(id), ..] if is_close => Some([id.to_vec(), b"CLOSE".to_vec()]),
            [Some(id), Some(option), Some(ms)] if option.eq_ignore_ascii_case(b"PX") => {
                Some([id.to_vec(), ms.to_vec()])
            }
            _ => None,
        };
        let is_repeatable = !is_new && !is_close;
        Self { is_for_each: true, only_opens: is_new, is_repeatable, session, ..Self::default() }
    }

    /// Returns what is left of the time that it may wait. `None`: it does not wait, or without limit.
    pub fn left(&self, began: Instant) -> Option<Duration> {
        self.block.filter(|block| !block.is_zero()).map(|block| block.saturating_sub(began.elapsed()))
    }
}

/// Returns the time that the word at this place names.
fn millis(request: &Request, at: usize) -> Option<Duration> {
    let ms = std::str::from_utf8(request.word(at)?).ok()?.parse().ok()?;
    Some(Duration::from_millis(ms))
}

/// Returns `numkeys`, the number of keys that follow it; 0 if it is no number.
fn key_count(request: &Request) -> usize {
    request.word(1).and_then(|word| std::str::from_utf8(word).ok()?.parse().ok()).unwrap_or(0)
}

/// The options of a command for locks that concern the agent.
#[derive(Default)]
struct Options {
    has_session: bool,
    has_named_session: bool,
    has_request: bool,
    has_lease: bool,
    /// The index of the value of `BLOCK`.
    block_at: Option<usize>,
}

impl Options {
    /// Reads the words from this index on. A value is skipped, even if it looks like an option.
    fn of(request: &Request, spec: &Spec, begin: usize) -> Self {
        let mut options = Self::default();
        // The owner, and the limit of a semaphore.
        let values = spec.arguments.iter().take_while(|argument| argument.is_bare()).count();
        let mut at = begin.saturating_add(values);
        while let Some(word) = request.word(at) {
            let (option, has_value) = spec.option(word).unwrap_or_default();
            match option {
                "BLOCK" => options.block_at = Some(at + 1),
                "EX" | "PX" | "EXAT" | "PXAT" => options.has_lease = true,
                "REQUEST" => options.has_request = true,
                "SESSION" => options.has_session = true,
                "SESSIONID" => options.has_named_session = true,
                _ => {}
            }
            at += if has_value { 2 } else { 1 };
        }
        options
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that panics has failed, which is what it is for")]
mod tests {
    use super::*;
    use crate::resp::Bounds;

    fn call(line: &str) -> Call {
        let line = format!("{line}\r\n");
        Call::of(&Request::parse(line.as_bytes(), Bounds::default()).unwrap().unwrap().0)
    }

    #[test]
    fn a_value_that_looks_like_an_option_is_not_read_as_one() {
        let found = call("dlock.acquire k o request block BLOCK 100 sessionid session");
        assert_eq!((found.block, found.block_at), (Some(Duration::from_millis(100)), Some(6)));
        assert!(found.is_repeatable && !found.binds);
        assert_eq!(call("DLOCK.ACQUIRE BLOCK 5 PX 9").block, None);
    }

    #[test]
    fn the_key_and_the_options_of_a_command_are_found() {
        assert_eq!(call("DLOCK.MACQUIRE 2 a b o BLOCK 0 SESSION").key, Some(b"a".to_vec()));
        assert_eq!(call("DLOCK.MACQUIRE 2 a b o BLOCK 0 SESSION").block, Some(Duration::ZERO));
        assert!(call("DLOCK.MACQUIRE 2 a b o BLOCK 0 SESSION").binds);
        assert_eq!(call("DLOCK.SACQUIRE k o 3 BLOCK 7").block_at, Some(5));
        assert!(call("DLOCK.RENEW k o SESSION").binds);
        assert!(!call("DLOCK.RELEASE k o").is_repeatable);
        assert!(call("DLOCK.ACQUIRE k o REQUEST 1 SESSIONID s").is_repeatable);
        assert!(!call("DLOCK.ACQUIRE k o REQUEST 1 SESSION").is_repeatable);
        assert!(call("DLOCK.RENEW k o").is_repeatable && !call("DLOCK.RENEW k o SESSION").is_repeatable);
        assert!(call("DLOCK.RENEW k sessionid TOKEN 7").is_repeatable);
        assert!(!call("DLOCK.RENEW k o TOKEN 7 SESSIONID px").is_repeatable);
        for lease in ["EX 9", "PX 9000", "exat 1795212000", "PXAT 1795212000000"] {
            assert!(!call(&format!("DLOCK.RENEW k o {lease} TOKEN 7")).is_repeatable, "{lease}");
        }
        assert!(call("DLOCK.SESSION s PX 900 XX").is_repeatable);
        assert!(!call("DLOCK.SESSION s PX 900 NX").is_repeatable);
        assert!(!call("DLOCK.ACQUIRE k o").is_repeatable);
        assert!(call("DLOCK.ACQUIRE k o").is_write && call("DEL k").is_write && !call("DLOCK.CHECK k 7").is_write);
        assert_eq!(call("WAIT 1 8000").block, Some(Duration::from_secs(8)));
        assert_eq!(call("WAITAOF 1 1 0").block, Some(Duration::ZERO));
    }
}
