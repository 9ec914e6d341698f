//! RESP2: encodes a request once, so that it can be sent many times, reads replies and checks them.

use std::io::{self, BufRead, Read};

use crate::error::Error;

/// Returns a command in wire form.
pub fn request(args: &[&[u8]]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", args.len()).into_bytes();
    for arg in args {
        bytes.extend_from_slice(format!("${}\r\n", arg.len()).as_bytes());
        bytes.extend_from_slice(arg);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes
}

#[derive(Debug, Clone, PartialEq)]
pub enum Reply {
    Simple(String),
    Error(String),
    Integer(i64),
    Bulk(Vec<u8>),
    Nil,
    Array(Vec<Reply>),
}

/// The reply that a measured request must get. Without this check, a command that fails would look fast.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Expect {
    Ok,
    Integer(i64),
    /// A token or a time to live.
    Positive,
    Nil,
    /// Any bulk string.
    Bulk,
    /// An array with this number of elements.
    Array(usize),
}

impl Expect {
    pub fn accepts(self, reply: &Reply) -> bool {
        match (self, reply) {
            (Self::Ok, Reply::Simple(text)) => text == "OK",
            (Self::Integer(expected), Reply::Integer(got)) => expected == *got,
            (Self::Positive, Reply::Integer(got)) => *got > 0,
            (Self::Nil, Reply::Nil) | (Self::Bulk, Reply::Bulk(_)) => true,
            (Self::Array(len), Reply::Array(items)) => items.len() == len,
            (
                Self::Ok | Self::Integer(_) | Self::Positive | Self::Nil | Self::Bulk | Self::Array(_),
                Reply::Simple(_) | Reply::Error(_) | Reply::Integer(_) | Reply::Bulk(_) | Reply::Nil | Reply::Array(_),
            ) => false,
        }
    }
}

/// A command, and the reply that it has to get.
#[derive(Clone)]
pub struct Request {
    /// The command in wire form.
    pub bytes: Vec<u8>,
    expect: Expect,
}

impl Request {
    pub fn new(args: &[&[u8]], expect: Expect) -> Self {
        Self { bytes: request(args), expect }
    }

    /// Fails if this is not the reply that the request must get.
    pub fn judge(&self, reply: &Reply) -> Result<(), Error> {
        if self.expect.accepts(reply) {
            return Ok(());
        }
        let request = String::from_utf8_lossy(&self.bytes).replace("\r\n", " ");
        Err(Error::Reply(format!("expected {:?}, got {reply:?} to {request}", self.expect)))
    }
}

/// Reads one reply, and nothing after it.
pub fn read_reply(from: &mut impl BufRead) -> io::Result<Reply> {
    let line = read_line(from)?;
    let (kind, rest) = line.split_at_checked(1).ok_or_else(|| malformed(&line))?;
    match kind {
        "+" => Ok(Reply::Simple(rest.to_owned())),
        "-" => Ok(Reply::Error(rest.to_owned())),
        ":" => Ok(Reply::Integer(number(rest, &line)?)),
        "$" => match number(rest, &line)? {
            -1 => Ok(Reply::Nil),
            len => read_bulk(from, len, &line),
        },
        "*" => match number(rest, &line)? {
            -1 => Ok(Reply::Nil),
            len if len < 0 => Err(malformed(&line)),
            len => (0..len).map(|_| read_reply(from)).collect::<io::Result<_>>().map(Reply::Array),
        },
        _ => Err(malformed(&line)),
    }
}

fn read_line(from: &mut impl BufRead) -> io::Result<String> {
    let mut line = String::new();
    from.read_line(&mut line)?;
    match line.strip_suffix("\r\n") {
        Some(line) => Ok(line.to_owned()),
        None => Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the server closed the connection")),
    }
}

fn read_bulk(from: &mut impl Read, len: i64, line: &str) -> io::Result<Reply> {
    let len = usize::try_from(len).map_err(|_| malformed(line))?;
    let mut bytes = vec![0; len];
    from.read_exact(&mut bytes)?;
    let mut end = [0; 2];
    from.read_exact(&mut end)?;
    if &end == b"\r\n" { Ok(Reply::Bulk(bytes)) } else { Err(malformed(line)) }
}

fn number(text: &str, line: &str) -> io::Result<i64> {
    text.parse().map_err(|_| malformed(line))
}

fn malformed(line: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("not a RESP2 reply: {line:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_an_array_of_bulk_strings() {
        assert_eq!(request(&[b"GET", b"k\r\n"]), b"*2\r\n$3\r\nGET\r\n$3\r\nk\r\n\r\n");
    }

    #[test]
    fn each_kind_of_reply_is_read_to_its_end() {
        let mut wire: &[u8] = b"+OK\r\n-ERR no\r\n:-7\r\n$2\r\n\r\n\r\n$-1\r\n*2\r\n:1\r\n*0\r\n";
        let expected = [
            Reply::Simple("OK".into()),
            Reply::Error("ERR no".into()),
            Reply::Integer(-7),
            Reply::Bulk(b"\r\n".to_vec()),
            Reply::Nil,
            Reply::Array(vec![Reply::Integer(1), Reply::Array(Vec::new())]),
        ];
        for reply in expected {
            assert_eq!(read_reply(&mut wire).ok(), Some(reply));
        }
        assert!(wire.is_empty());
    }

    #[test]
    fn a_cut_or_malformed_reply_is_an_error() {
        for wire in ["", "+OK", ":1\n", "$4\r\nab\r\n", "$2\r\nab", "*2\r\n:1\r\n"] {
            let error = read_reply(&mut wire.as_bytes()).expect_err(wire);
            assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof, "{wire:?}");
        }
        for wire in ["$2\r\nabcd", "$-2\r\n", "*-2\r\n", "*x\r\n", "hello\r\n", ":x\r\n", "\r\n"] {
            let error = read_reply(&mut wire.as_bytes()).expect_err(wire);
            assert_eq!(error.kind(), io::ErrorKind::InvalidData, "{wire:?}");
        }
    }

    #[test]
    fn no_expectation_accepts_an_error() {
        let error = Reply::Error("ERR unknown command".into());
        let all = [Expect::Ok, Expect::Integer(1), Expect::Positive, Expect::Nil, Expect::Bulk, Expect::Array(12)];
        for expect in all {
            assert!(!expect.accepts(&error), "{expect:?}");
        }
    }

    #[test]
    fn an_expectation_refuses_other_kinds_and_other_values() {
        let ok = |text: &str| Expect::Ok.accepts(&Reply::Simple(text.to_owned()));
        assert!(ok("OK") && !ok("QUEUED"));
        assert!(Expect::Positive.accepts(&Reply::Integer(1)));
        assert!(!Expect::Positive.accepts(&Reply::Integer(0)));
        assert!(Expect::Integer(1).accepts(&Reply::Integer(1)));
        assert!(!Expect::Integer(1).accepts(&Reply::Integer(0)));
        assert!(!Expect::Integer(1).accepts(&Reply::Nil));
        assert!(Expect::Nil.accepts(&Reply::Nil));
        assert!(!Expect::Nil.accepts(&Reply::Integer(1)));
        assert!(Expect::Bulk.accepts(&Reply::Bulk(Vec::new())));
        assert!(!Expect::Bulk.accepts(&Reply::Nil));
        assert!(Expect::Array(1).accepts(&Reply::Array(vec![Reply::Nil])));
        assert!(!Expect::Array(1).accepts(&Reply::Array(Vec::new())));
    }
}
