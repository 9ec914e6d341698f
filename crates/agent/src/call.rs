//! The facts about a command that the agent needs to pass it on.

use std::time::{Duration, Instant};

use crate::resp::Request;

/// A command of a client.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Call {
    /// The key, which decides on the server of a cluster.
    pub key: Option<Vec<u8>>,
    /// How long the command may wait. Zero: without limit. `None`: not at all.
    pub block: Option<Duration>,
    /// The index of the word with that time.
    pub block_at: Option<usize>,
    /// Whether it binds a hold to the connection.
    pub binds: bool,
    /// Whether it may be sent again if nobody knows whether it was carried out.
    pub is_repeatable: bool,
    /// Whether it is for all servers of a cluster.
    pub is_for_each: bool,
    /// Whether it is about the writes of the connection that answered last, and so means nothing on another one.
    pub is_about_last: bool,
}

impl Call {
    pub fn of(request: &Request) -> Self {
        let name = request.name();
        let key = |at: usize| request.word(at).map(<[u8]>::to_vec);
        let acquires = |options: usize, key_at: usize| {
            let (given, block_at) = options_of(request, options);
            let wait = block_at.and_then(|at| millis(request, at));
            Self {
                key: key(key_at),
                block: wait,
                block_at: wait.and(block_at),
                binds: given.contains(&"SESSION"),
                is_repeatable: given.contains(&"REQUEST"),
                ..Self::default()
            }
        };
        match name.as_str() {
            "DLOCK.ACQUIRE" | "DLOCK.RACQUIRE" | "DLOCK.RLOCK" | "DLOCK.WLOCK" => acquires(3, 1),
            "DLOCK.SACQUIRE" => acquires(4, 1),
            "DLOCK.MACQUIRE" => {
                let count = request.word(1).and_then(|word| std::str::from_utf8(word).ok()?.parse::<usize>().ok());
                acquires(count.unwrap_or(0).saturating_add(3), 2)
            }
            "DLOCK.RENEW" => Self { is_repeatable: true, block: None, block_at: None, ..acquires(3, 1) },
            "DLOCK.SESSION" => {
                let is_new = request.after(4).any(|word| word.eq_ignore_ascii_case(b"NX"));
                let is_close = request.word(2).is_some_and(|word| word.eq_ignore_ascii_case(b"CLOSE"));
                Self { is_for_each: true, is_repeatable: !is_new && !is_close, ..Self::default() }
            }
            "DLOCK.CHECK" | "DLOCK.INFO" | "EXISTS" | "PEXPIRETIME" | "PTTL" | "TTL" | "TYPE" => {
                Self { key: key(1), is_repeatable: true, ..Self::default() }
            }
            "INFO" | "PING" | "ROLE" | "TIME" => Self { is_repeatable: true, ..Self::default() },
            "WAIT" => Self { is_about_last: true, block: millis(request, 2), ..Self::default() },
            "WAITAOF" => Self { is_about_last: true, block: millis(request, 3), ..Self::default() },
            "DLOCK.LOG" | "CLIENT" | "COMMAND" => Self::default(),
            _ => Self { key: key(1), ..Self::default() },
        }
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

/// Returns which of some options are given, and where the value of `BLOCK` is. Options begin at this word.
fn options_of(request: &Request, begin: usize) -> (Vec<&'static str>, Option<usize>) {
    let (mut given, mut block_at) = (Vec::new(), None);
    let mut at = begin;
    while let Some(word) = request.word(at) {
        let is = |option: &&&str| word.eq_ignore_ascii_case(option.as_bytes());
        if let Some(option) = WITH_VALUE.iter().find(is) {
            if *option == "BLOCK" {
                block_at = Some(at + 1);
            }
            given.push(*option);
            at += 1;
        } else if let Some(option) = ALONE.iter().find(is) {
            given.push(*option);
        }
        at += 1;
    }
    (given, block_at)
}

/// Options that a value follows, which may look like an option.
const WITH_VALUE: [&str; 11] =
    ["EX", "PX", "EXAT", "PXAT", "BLOCK", "SESSIONID", "MAXHOLD", "MINTOKEN", "REQUEST", "PERMITS", "TOKEN"];

const ALONE: [&str; 1] = ["SESSION"];

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
    fn a_value_that_looks_like_an_option_is_none() {
        let found = call("dlock.acquire k o request block BLOCK 100 sessionid session");
        assert_eq!((found.block, found.block_at), (Some(Duration::from_millis(100)), Some(6)));
        assert!(found.is_repeatable && !found.binds);
        assert_eq!(call("DLOCK.ACQUIRE BLOCK 5 PX 9").block, None);
    }

    #[test]
    fn keys_and_options_of_each_command() {
        assert_eq!(call("DLOCK.MACQUIRE 2 a b o BLOCK 0 SESSION").key, Some(b"a".to_vec()));
        assert_eq!(call("DLOCK.MACQUIRE 2 a b o BLOCK 0 SESSION").block, Some(Duration::ZERO));
        assert!(call("DLOCK.MACQUIRE 2 a b o BLOCK 0 SESSION").binds);
        assert_eq!(call("DLOCK.SACQUIRE k o 3 BLOCK 7").block_at, Some(5));
        assert!(call("DLOCK.RENEW k o SESSION").binds);
        assert!(!call("DLOCK.RELEASE k o").is_repeatable);
        assert!(call("DLOCK.SESSION s PX 900 XX").is_repeatable);
        assert!(!call("DLOCK.SESSION s PX 900 NX").is_repeatable);
        assert!(!call("DLOCK.ACQUIRE k o").is_repeatable);
        assert_eq!(call("WAIT 1 8000").block, Some(Duration::from_secs(8)));
        assert_eq!(call("WAITAOF 1 1 0").block, Some(Duration::ZERO));
    }
}
