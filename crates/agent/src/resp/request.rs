//! Requests: an array of bulk strings, or a line of words.

use std::fmt;

/// A request that a client sent: the name of a command and its arguments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Request(Vec<Vec<u8>>);

/// How large a request may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bounds {
    /// Bytes of a request, as it is sent.
    pub request: usize,
    /// Words of a request, with the name of the command.
    pub words: usize,
    /// Bytes of a word.
    pub word: usize,
}

/// Why the bytes are no request. The connection is closed: after most errors, nobody knows where the next one begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ProtocolError {
    NotABulk,
    Length,
    TooManyWords,
    WordTooLong,
    TooLong,
    /// A line with quotes, which only an array can carry.
    Quotes,
    /// An HTTP request, which a web page may make a browser send here.
    Http,
}

impl Default for Bounds {
    /// Names, owners and ids of locks are short; `MACQUIRE` names up to 64 locks.
    fn default() -> Self {
        Self { request: 64 << 10, words: 256, word: 32 << 10 }
    }
}

impl Bounds {
    /// Returns the bounds of a client that has not logged in yet.
    pub fn of_strangers() -> Self {
        Self { request: 4 << 10, words: 16, word: 2 << 10 }
    }
}

impl Request {
    /// Returns the first request in these bytes and its length. `None`: it is not complete. `*0` and an empty line are
    /// requests without words, which callers skip without a reply, as Redis does.
    pub fn parse(bytes: &[u8], bounds: Bounds) -> Result<Option<(Self, usize)>, ProtocolError> {
        let parsed = match bytes.first() {
            None => return Ok(None),
            Some(b'*') => array(bytes, bounds)?,
            Some(_) => inline(bytes, bounds)?,
        };
        // A request that exceeds the bound is refused as soon as that many bytes have arrived.
        match parsed {
            Some((_, length)) if length > bounds.request => Err(ProtocolError::TooLong),
            None if bytes.len() >= bounds.request => Err(ProtocolError::TooLong),
            parsed => Ok(parsed),
        }
    }

    /// Returns the words, the first of which names the command.
    pub fn words(&self) -> &[Vec<u8>] {
        &self.0
    }

    /// Returns the name of the command in upper case.
    pub fn name(&self) -> String {
        self.0.first().map(|word| String::from_utf8_lossy(word).to_ascii_uppercase()).unwrap_or_default()
    }

    /// Returns the word at this place.
    pub fn word(&self, at: usize) -> Option<&[u8]> {
        self.0.get(at).map(Vec::as_slice)
    }

    /// Returns the words from this place on.
    pub fn after(&self, at: usize) -> impl Iterator<Item = &[u8]> {
        self.0.iter().skip(at).map(Vec::as_slice)
    }
}

fn array(bytes: &[u8], bounds: Bounds) -> Result<Option<(Request, usize)>, ProtocolError> {
    let mut cursor = Cursor { bytes, at: 1 };
    let Some(count) = cursor.length()? else { return Ok(None) };
    if count > bounds.words {
        return Err(ProtocolError::TooManyWords);
    }
    let mut words = Vec::with_capacity(count);
    for _ in 0..count {
        match cursor.byte() {
            None => return Ok(None),
            Some(b'$') => {}
            Some(_) => return Err(ProtocolError::NotABulk),
        }
        let Some(length) = cursor.length()? else { return Ok(None) };
        if length > bounds.word {
            return Err(ProtocolError::WordTooLong);
        }
        let Some(word) = cursor.word(length)? else { return Ok(None) };
        words.push(word.to_vec());
    }
    Ok(Some((Request(words), cursor.at)))
}

fn inline(bytes: &[u8], bounds: Bounds) -> Result<Option<(Request, usize)>, ProtocolError> {
    let Some(end) = bytes.iter().position(|byte| *byte == b'\n') else { return Ok(None) };
    let line = bytes.get(..end).unwrap_or_default();
    if line.iter().any(|byte| matches!(byte, b'"' | b'\'')) {
        return Err(ProtocolError::Quotes);
    }
    let words = line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty()).map(<[u8]>::to_vec);
    let words: Vec<_> = words.take(bounds.words + 1).collect();
    if words.len() > bounds.words {
        return Err(ProtocolError::TooManyWords);
    }
    let is_http = |first: &Vec<u8>| first.eq_ignore_ascii_case(b"POST") || first.eq_ignore_ascii_case(b"Host:");
    if words.first().is_some_and(is_http) {
        return Err(ProtocolError::Http);
    }
    Ok(Some((Request(words), end + 1)))
}

struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Cursor<'a> {
    fn byte(&mut self) -> Option<u8> {
        let byte = *self.bytes.get(self.at)?;
        self.at += 1;
        Some(byte)
    }

    /// Reads a length and the end of its line. `None`: the line has not ended.
    fn length(&mut self) -> Result<Option<usize>, ProtocolError> {
        let rest = self.bytes.get(self.at..).unwrap_or_default();
        let Some(end) = rest.iter().take(MAX_DIGITS + 1).position(|byte| *byte == b'\r') else {
            return if rest.len() > MAX_DIGITS { Err(ProtocolError::Length) } else { Ok(None) };
        };
        let digits = rest.get(..end).unwrap_or_default();
        if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
            return Err(ProtocolError::Length);
        }
        match rest.get(end + 1) {
            None => return Ok(None),
            Some(b'\n') => {}
            Some(_) => return Err(ProtocolError::Length),
        }
        self.at += end + 2;
        // Ten digits (`MAX_DIGITS`) fit in a `usize` of 64 bits.
        Ok(Some(digits.iter().fold(0, |number, digit| number * 10 + usize::from(digit - b'0'))))
    }

    fn word(&mut self, length: usize) -> Result<Option<&'a [u8]>, ProtocolError> {
        let end = self.at + length;
        match self.bytes.get(end..end + 2) {
            None => Ok(None),
            Some(b"\r\n") => {
                let word = self.bytes.get(self.at..end);
                self.at = end + 2;
                Ok(word)
            }
            Some(_) => Err(ProtocolError::Length),
        }
    }
}

/// The most digits that a length may have. Every larger number exceeds the bounds.
const MAX_DIGITS: usize = 10;

impl fmt::Display for ProtocolError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotABulk => "ERR Protocol error: a request is an array of bulk strings",
            Self::Length => "ERR Protocol error: invalid length",
            Self::TooManyWords => "ERR Protocol error: the request has too many words",
            Self::WordTooLong => "ERR Protocol error: a word of the request is too long",
            Self::TooLong => "ERR Protocol error: the request is too long",
            Self::Quotes => "ERR Protocol error: a line has no quotes, send an array of bulk strings",
            Self::Http => "ERR Protocol error: this is not a web server",
        })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that panics has failed, which is what it is for")]
mod tests {
    use super::*;

    fn parsed(bytes: &[u8]) -> Result<Option<(Vec<String>, usize)>, ProtocolError> {
        let text = |(request, length): (Request, usize)| {
            let words = request.0.iter().map(|word| String::from_utf8_lossy(word).into_owned());
            (words.collect(), length)
        };
        Ok(Request::parse(bytes, Bounds::default())?.map(text))
    }

    #[test]
    fn requests_are_arrays_of_bulk_strings_or_lines() {
        let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
        assert_eq!(parsed(b"*2\r\n$4\r\nECHO\r\n$3\r\na\r\n\r\nrest"), Ok(Some((words(&["ECHO", "a\r\n"]), 23))));
        assert_eq!(parsed(b"*1\r\n$0\r\n\r\n"), Ok(Some((words(&[""]), 10))));
        assert_eq!(parsed(b" ping  a\r\nPING"), Ok(Some((words(&["ping", "a"]), 10))));
        assert_eq!(parsed(b"*0\r\n"), Ok(Some((words(&[]), 4))));
        assert_eq!(parsed(b"\r\n"), Ok(Some((words(&[]), 2))));
    }

    #[test]
    fn an_incomplete_request_is_none() {
        let whole = b"*2\r\n$4\r\nECHO\r\n$3\r\nabc\r\n";
        for end in 0..whole.len() {
            assert_eq!(parsed(&whole[..end]), Ok(None), "{end}");
        }
        assert!(parsed(whole).unwrap().is_some());
    }

    #[test]
    fn a_malformed_or_too_large_request_is_refused_before_all_of_it_has_come() {
        for (bytes, error) in [
            (&b"*257\r\n"[..], ProtocolError::TooManyWords),
            (b"*2147483647\r\n", ProtocolError::TooManyWords),
            (b"*1\r\n$1073741824\r\n", ProtocolError::WordTooLong),
            (b"*1\r\n$99999999999", ProtocolError::Length),
            (b"*-1\r\n", ProtocolError::Length),
            (b"*1\r\n$-1\r\n", ProtocolError::Length),
            (b"*+1\r\n", ProtocolError::Length),
            (b"*1\r\n*1\r\n", ProtocolError::NotABulk),
            (b"*1\r\n:1\r\n", ProtocolError::NotABulk),
            (b"*1\r\n$1\r\nabc", ProtocolError::Length),
            (b"POST / HTTP/1.1\r\n", ProtocolError::Http),
            (b"SET a \"b c\"\r\n", ProtocolError::Quotes),
        ] {
            assert_eq!(parsed(bytes), Err(error), "{}", bytes.escape_ascii());
        }
        assert_eq!(parsed(&[b'a'; 64 << 10]), Err(ProtocolError::TooLong));
        let words = |count: usize| [format!("*{count}\r\n").into_bytes(), b"$300\r\n".to_vec()].concat();
        let mut endless = words(256);
        while endless.len() < 64 << 10 {
            endless.extend([b"x".repeat(300).as_slice(), b"\r\n$300\r\n"].concat());
        }
        assert_eq!(parsed(&endless), Err(ProtocolError::TooLong));
    }
}
