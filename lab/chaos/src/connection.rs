//! A connection to a server that shows when a command was sent and when its reply came.

use std::io::{self, BufRead, BufReader, Error, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::time::Duration;

/// What a server answers (RESP2).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    Nil,
    Int(i64),
    Text(String),
    /// The whole text, its code first.
    Error(String),
    List(Vec<Reply>),
}

impl Reply {
    /// Whether it is an error with this code.
    pub fn is_error(&self, code: &str) -> bool {
        matches!(self, Reply::Error(text) if text.split(' ').next() == Some(code))
    }
}

pub struct Connection(BufReader<TcpStream>);

impl Connection {
    pub fn open(port: u16) -> io::Result<Connection> {
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
        stream.set_nodelay(true)?;
        Ok(Connection(BufReader::new(stream)))
    }

    /// From now on a reply that takes longer is an error.
    pub fn patient_for(self, patience: Duration) -> io::Result<Connection> {
        self.0.get_ref().set_read_timeout(Some(patience))?;
        Ok(self)
    }

    /// Sends a command, its words separated by blanks.
    pub fn send(&mut self, command: &str) -> io::Result<()> {
        let words: Vec<&str> = command.split_whitespace().collect();
        let mut bytes = format!("*{}\r\n", words.len());
        for word in words {
            bytes.push_str(&format!("${}\r\n{word}\r\n", word.len()));
        }
        self.0.get_mut().write_all(bytes.as_bytes())
    }

    pub fn call(&mut self, command: &str) -> io::Result<Reply> {
        self.send(command)?;
        self.receive()
    }

    pub fn receive(&mut self) -> io::Result<Reply> {
        let line = self.line()?;
        let (kind, rest) = line.split_at_checked(1).ok_or_else(|| strange(&line))?;
        match kind {
            "+" => Ok(Reply::Text(rest.to_owned())),
            "-" => Ok(Reply::Error(rest.to_owned())),
            ":" => rest.parse().map(Reply::Int).map_err(|_| strange(&line)),
            "$" => self.text(rest, &line),
            "*" => match rest.parse::<i64>() {
                Ok(-1) => Ok(Reply::Nil),
                Ok(count) => (0..count).map(|_| self.receive()).collect::<io::Result<_>>().map(Reply::List),
                Err(_) => Err(strange(&line)),
            },
            _ => Err(strange(&line)),
        }
    }

    fn text(&mut self, length: &str, line: &str) -> io::Result<Reply> {
        if length == "-1" {
            return Ok(Reply::Nil);
        }
        let length: usize = length.parse().map_err(|_| strange(line))?;
        let mut bytes = vec![0; length + 2];
        self.0.read_exact(&mut bytes)?;
        bytes.truncate(length);
        Ok(Reply::Text(String::from_utf8_lossy(&bytes).into_owned()))
    }

    fn line(&mut self) -> io::Result<String> {
        let mut line = String::new();
        self.0.read_line(&mut line)?;
        match line.strip_suffix("\r\n") {
            Some(line) => Ok(line.to_owned()),
            None => Err(ErrorKind::UnexpectedEof.into()),
        }
    }
}

fn strange(line: &str) -> Error {
    Error::new(ErrorKind::InvalidData, format!("no reply: {line:?}"))
}
