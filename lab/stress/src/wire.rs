//! A connection: requests out, replies in, one by one, or a look whether there is one.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

/// A reply of RESP2.
#[derive(Clone, Debug, PartialEq)]
pub enum Answer {
    Status(String),
    Error(String),
    Integer(i64),
    Bytes(Vec<u8>),
    Nil,
    List(Vec<Answer>),
}

impl Answer {
    /// The text of a string.
    pub fn text(&self) -> Result<&[u8], String> {
        match self {
            Answer::Bytes(bytes) => Ok(bytes),
            Answer::Status(text) => Ok(text.as_bytes()),
            other => Err(format!("{other:?} is no text")),
        }
    }

    pub fn integer(&self) -> Result<u64, String> {
        match self {
            Answer::Integer(number) => u64::try_from(*number).map_err(|_| format!("{number} is negative")),
            other => Err(format!("{other:?} is no integer")),
        }
    }

    pub fn list(&self) -> Result<&[Answer], String> {
        match self {
            Answer::List(items) => Ok(items),
            other => Err(format!("{other:?} is no list")),
        }
    }

    /// The value of a field of a flat map.
    pub fn field(&self, name: &str) -> Result<&Answer, String> {
        let pairs = self.list()?.chunks_exact(2);
        let found = pairs.filter_map(|pair| Some((pair.first()?, pair.get(1)?)));
        let found = found.filter(|(key, _)| key.text() == Ok(name.as_bytes())).map(|(_, value)| value).next();
        found.ok_or_else(|| format!("no {name} in {self:?}"))
    }
}

/// A connection to the server.
pub struct Connection {
    stream: TcpStream,
    buffer: Vec<u8>,
    /// How the server numbers it.
    pub id: u64,
}

impl Connection {
    pub fn open(port: u16) -> Result<Connection, String> {
        let stream = TcpStream::connect(("127.0.0.1", port)).map_err(|e| format!("connecting: {e}"))?;
        stream.set_nodelay(true).map_err(|e| e.to_string())?;
        let mut connection = Connection { stream, buffer: Vec::new(), id: 0 };
        connection.id = connection.call(&[b"CLIENT", b"ID"])?.integer()?;
        Ok(connection)
    }

    pub fn send(&mut self, words: &[&[u8]]) -> Result<(), String> {
        let mut bytes = Vec::new();
        write_request(&mut bytes, words);
        self.send_bytes(&bytes)
    }

    pub fn send_bytes(&mut self, bytes: &[u8]) -> Result<(), String> {
        self.stream.write_all(bytes).map_err(|e| format!("sending: {e}"))
    }

    pub fn call(&mut self, words: &[&[u8]]) -> Result<Answer, String> {
        self.send(words)?;
        self.read()
    }

    /// The next reply.
    pub fn read(&mut self) -> Result<Answer, String> {
        self.read_within(PATIENCE)?.ok_or_else(|| format!("no reply within {PATIENCE:?}"))
    }

    /// Whether there is a reply already, and which.
    pub fn look(&mut self) -> Result<Option<Answer>, String> {
        self.read_within(Duration::ZERO)
    }

    fn read_within(&mut self, time: Duration) -> Result<Option<Answer>, String> {
        let deadline = Instant::now() + time;
        loop {
            let mut rest = self.buffer.as_slice();
            if let Some(answer) = parse(&mut rest)? {
                let parsed = self.buffer.len() - rest.len();
                self.buffer.drain(..parsed);
                return Ok(Some(answer));
            }
            if !self.fill(deadline)? {
                return Ok(None);
            }
        }
    }

    /// Reads what has come; `false` if nothing did in time.
    fn fill(&mut self, deadline: Instant) -> Result<bool, String> {
        let left = deadline.saturating_duration_since(Instant::now());
        let set = if left.is_zero() {
            self.stream.set_nonblocking(true)
        } else {
            self.stream.set_nonblocking(false).and_then(|()| self.stream.set_read_timeout(Some(left)))
        };
        set.map_err(|e| e.to_string())?;
        let mut chunk = [0; 65536];
        let read = self.stream.read(&mut chunk);
        self.stream.set_nonblocking(false).map_err(|e| e.to_string())?;
        match read {
            Ok(0) => Err("the server closed the connection".to_owned()),
            Ok(count) => {
                self.buffer.extend_from_slice(chunk.get(..count).unwrap_or_default());
                Ok(true)
            }
            Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => Ok(false),
            Err(e) => Err(format!("reading: {e}")),
        }
    }
}

/// Appends a request.
pub fn write_request(bytes: &mut Vec<u8>, words: &[&[u8]]) {
    bytes.extend_from_slice(format!("*{}\r\n", words.len()).as_bytes());
    for word in words {
        bytes.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
        bytes.extend_from_slice(word);
        bytes.extend_from_slice(b"\r\n");
    }
}

/// A whole reply at the beginning, which is taken off; `None` if it is not all there.
fn parse(rest: &mut &[u8]) -> Result<Option<Answer>, String> {
    let Some(end) = rest.windows(2).position(|pair| pair == b"\r\n") else { return Ok(None) };
    let (line, after) = rest.split_at(end);
    let mut after = after.get(2..).unwrap_or_default();
    let line = String::from_utf8_lossy(line).into_owned();
    let (kind, text) = line.split_at_checked(1).ok_or("an empty line")?;
    let number = || text.parse::<i64>().map_err(|_| format!("no reply: {line:?}"));
    let answer = match kind {
        "+" => Answer::Status(text.to_owned()),
        "-" => Answer::Error(text.to_owned()),
        ":" => Answer::Integer(number()?),
        "$" | "*" if text == "-1" => Answer::Nil,
        "$" => {
            let len = usize::try_from(number()?).map_err(|_| format!("no reply: {line:?}"))?;
            let Some((bytes, left)) = after.split_at_checked(len + 2) else { return Ok(None) };
            after = left;
            Answer::Bytes(bytes.get(..len).unwrap_or_default().to_vec())
        }
        "*" => {
            let mut items = Vec::new();
            for _ in 0..number()? {
                let Some(item) = parse(&mut after)? else { return Ok(None) };
                items.push(item);
            }
            Answer::List(items)
        }
        _ => return Err(format!("no reply: {line:?}")),
    };
    *rest = after;
    Ok(Some(answer))
}

/// How long a reply may take on a busy machine, or under valgrind.
const PATIENCE: Duration = Duration::from_secs(60);
