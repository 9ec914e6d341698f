//! The replies to a client and the messages of its subscriptions, as bytes.

use dlock_core::reply::Writer;

use crate::resp::{Protocol, Reply};

/// Bytes for a client, in the version of the protocol that the client has chosen.
#[derive(Debug)]
pub(super) struct Out {
    bytes: Vec<u8>,
    /// How many of the bytes were sent.
    sent: usize,
    pub protocol: Protocol,
}

impl Out {
    pub fn new() -> Self {
        Self { bytes: Vec::new(), sent: 0, protocol: Protocol::Resp2 }
    }

    /// Returns the bytes that are not sent yet.
    pub fn rest(&self) -> &[u8] {
        self.bytes.get(self.sent..).unwrap_or_default()
    }

    /// Records that `count` more bytes were sent. Frees them when they are more than half, so that moving is cheap.
    pub fn has_sent(&mut self, count: usize) {
        self.sent += count;
        if self.sent >= self.bytes.len() {
            self.bytes.clear();
            self.bytes.shrink_to(KEPT);
            self.sent = 0;
        } else if self.sent > self.bytes.len() / 2 {
            self.bytes.drain(..self.sent);
            self.sent = 0;
        }
    }

    /// Forgets all bytes.
    pub fn clear(&mut self) {
        (self.bytes, self.sent) = (Vec::new(), 0);
    }

    pub fn reply(&mut self, reply: &Reply) {
        reply.encode(self.protocol, &mut self.bytes);
    }

    pub fn status(&mut self, text: &str) {
        self.text(b'+', text);
    }

    pub fn error(&mut self, text: &str) {
        self.text(b'-', text);
    }

    /// Begins a message that the client has not asked for, with `len` items. In RESP2, the message is an array.
    pub fn push(&mut self, len: usize) {
        self.head(if self.protocol == Protocol::Resp3 { b'>' } else { b'*' }, len as u64);
    }

    /// Writes the kind of a reply, a number, and the line end.
    fn head(&mut self, kind: u8, number: u64) {
        let mut digits = [0; 20];
        let mut rest = number;
        let mut first = digits.len();
        for place in digits.iter_mut().rev() {
            *place = b'0' + u8::try_from(rest % 10).unwrap_or_default();
            (rest, first) = (rest / 10, first - 1);
            if rest == 0 {
                break;
            }
        }
        self.bytes.push(kind);
        self.bytes.extend_from_slice(digits.get(first..).unwrap_or_default());
        self.bytes.extend_from_slice(b"\r\n");
    }

    /// Writes a line. Line ends in the text become blanks, because they would end the reply.
    fn text(&mut self, kind: u8, text: &str) {
        self.bytes.push(kind);
        self.bytes.extend(text.bytes().map(|byte| if matches!(byte, b'\r' | b'\n') { b' ' } else { byte }));
        self.bytes.extend_from_slice(b"\r\n");
    }
}

impl Writer for Out {
    fn integer(&mut self, integer: u64) {
        // The integers of the protocol are signed.
        self.head(b':', integer.min(i64::MAX.cast_unsigned()));
    }

    fn bytes(&mut self, bytes: &[u8]) {
        self.head(b'$', bytes.len() as u64);
        self.bytes.extend_from_slice(bytes);
        self.bytes.extend_from_slice(b"\r\n");
    }

    fn nil(&mut self) {
        self.bytes.extend_from_slice(if self.protocol == Protocol::Resp3 { b"_\r\n" } else { b"$-1\r\n" });
    }

    fn array(&mut self, len: usize) {
        self.head(b'*', len as u64);
    }

    fn map(&mut self, pairs: usize) {
        match self.protocol {
            Protocol::Resp3 => self.head(b'%', pairs as u64),
            Protocol::Resp2 => self.head(b'*', 2 * pairs as u64),
        }
    }
}

/// How many bytes of memory are kept for the next replies when all bytes are sent.
const KEPT: usize = 4096;
