//! The rules of the first commands of a client, the same for the agent and for `dlock serve`.

use std::time::Duration;

use crate::resp::Protocol;

/// The commands that a client may send before it has logged in.
pub(crate) const BEFORE_LOGIN: [&str; 4] = ["AUTH", "HELLO", "QUIT", "RESET"];
/// How long a client has to log in, however often it tries.
pub(crate) const LOGIN: Duration = Duration::from_secs(10);
/// The delay of the answer to a wrong password, so that a client that guesses has to wait.
pub(crate) const GUESS: Duration = Duration::from_millis(200);

/// The words of `HELLO`.
#[derive(Debug)]
pub(crate) struct Hello<'a> {
    pub protocol: Option<Protocol>,
    pub login: Option<(&'a [u8], &'a [u8])>,
    pub name: Option<&'a [u8]>,
}

impl<'a> Hello<'a> {
    /// The error for a `HELLO` without `AUTH` from a client that has to log in first. The text is that of Redis.
    pub const NO_LOGIN: &'static str = "NOAUTH HELLO must be called with the client already authenticated, otherwise \
        the HELLO <proto> AUTH <user> <pass> option can be used to authenticate the client and select the RESP \
        protocol version at the same time";

    /// Reads the words after the command's name, or returns the text of the error.
    pub fn parse(words: &'a [Vec<u8>]) -> Result<Self, &'static str> {
        let wrong = "ERR syntax error in HELLO";
        let mut words = words.iter().map(Vec::as_slice);
        let protocol = match words.next() {
            None => None,
            Some(b"2") => Some(Protocol::Resp2),
            Some(b"3") => Some(Protocol::Resp3),
            Some(_) => return Err("NOPROTO unsupported protocol version"),
        };
        let mut hello = Self { protocol, login: None, name: None };
        while let Some(option) = words.next() {
            if option.eq_ignore_ascii_case(b"AUTH") {
                hello.login = Some(words.next().zip(words.next()).ok_or(wrong)?);
            } else if option.eq_ignore_ascii_case(b"SETNAME") {
                hello.name = Some(words.next().ok_or(wrong)?);
            } else {
                return Err(wrong);
            }
        }
        Ok(hello)
    }
}

/// Returns the name that a client gives itself (up to 256 bytes, printable, no spaces), or the text of the error.
pub(crate) fn client_name(name: &[u8]) -> Result<String, &'static str> {
    match String::from_utf8(name.to_vec()) {
        Ok(name) if name.len() <= 256 && name.bytes().all(|byte| byte.is_ascii_graphic()) => Ok(name),
        _ => Err("ERR Client names cannot contain spaces, newlines or special characters."),
    }
}

/// Returns a word of a client for the text of an error: cut after 32 characters, then escaped.
pub(crate) fn shown(word: &str) -> String {
    word.chars().take(32).collect::<String>().escape_default().to_string()
}
