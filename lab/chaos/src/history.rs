//! The history of a worker: every command, when it was sent and when its reply came, as the worker saw it.
//!
//! A worker appends a line for each event to a file of its own: before it sends a command, and after it has received a
//! reply. The file of a killed worker therefore has everything that it sent. Times are µs of the monotonic clock.
//!
//! ```text
//! I time connection command…      the command is about to be sent on this connection
//! O time reply                    the reply to the last command
//! V time                          the last connection was cut off: the server does not learn of its end
//! D time                          the connection is given up, or was found closed
//! C time key token value          the counter of the key (`counters`) took this value under this token
//! ```

use std::fs::File;
use std::io::Write;
use std::path::Path;

use dlock_testkit::redis::Value;
use dlock_testkit::text_of;

use crate::failure;
use crate::failure::{Doing, Failure};
use crate::time::{Micros, now};

/// The history of one worker.
#[derive(Clone, Debug, Default)]
pub struct Life {
    pub worker: String,
    pub calls: Vec<Call>,
    /// When connections were given up, or found closed.
    pub drops: Vec<Micros>,
    pub writes: Vec<Increment>,
    /// How many connections were cut off.
    pub cut_off: usize,
    /// When the worker was killed, if it was. Not in the file.
    pub killed: Option<Micros>,
}

/// A command and what became of it.
#[derive(Clone, Debug)]
pub struct Call {
    pub sent: Micros,
    /// The number of the connection, among those of the worker.
    pub connection: u64,
    pub command: String,
    /// `None`: no reply came.
    pub reply: Option<(Micros, Reply)>,
}

/// A server's reply.
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
    pub fn of(answer: Result<Value, String>) -> Reply {
        match answer {
            Err(text) => Reply::Error(text),
            Ok(Value::Nil) => Reply::Nil,
            Ok(Value::Int(number)) => Reply::Int(number),
            Ok(Value::Array(items)) => Reply::List(items.into_iter().map(|item| Reply::of(Ok(item))).collect()),
            Ok(text) => Reply::Text(text_of(&text)),
        }
    }

    /// Returns whether the reply is an error with this code.
    pub fn is_error(&self, code: &str) -> bool {
        matches!(self, Reply::Error(text) if text.split(' ').next() == Some(code))
    }
}

/// A write that the counter acknowledged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Increment {
    pub key: String,
    pub token: u64,
    pub value: u64,
}

/// Appends to the file of a history.
pub struct Recorder(File);

impl Recorder {
    pub fn create(path: &Path) -> failure::Result<Recorder> {
        Ok(Recorder(File::create_new(path).doing("creating a history")?))
    }

    pub fn sent(&mut self, connection: u64, command: &str) -> failure::Result<()> {
        self.line(&format!("I {} {connection} {command}\n", now()))
    }

    pub fn received(&mut self, reply: &Reply) -> failure::Result<()> {
        let text = match reply {
            Reply::Nil => "nil".to_owned(),
            Reply::Int(number) => format!("int {number}"),
            Reply::Text(text) => format!("text {text}"),
            Reply::Error(text) => format!("error {text}"),
            // The items are not recorded.
            Reply::List(_) => "list".to_owned(),
        };
        self.line(&format!("O {} {text}\n", now()))
    }

    pub fn dropped(&mut self) -> failure::Result<()> {
        self.line(&format!("D {}\n", now()))
    }

    pub fn cut_off(&mut self) -> failure::Result<()> {
        self.line(&format!("V {}\n", now()))
    }

    pub fn written(&mut self, key: &str, token: u64, value: u64) -> failure::Result<()> {
        self.line(&format!("C {} {key} {token} {value}\n", now()))
    }

    /// Appends a line in one write, so that a killed worker leaves at most one line cut short.
    fn line(&mut self, line: &str) -> failure::Result<()> {
        self.0.write_all(line.as_bytes()).doing("writing a history")
    }
}

impl Life {
    /// Reads what a [`Recorder`] wrote. A last line that was cut short is left out.
    pub fn read(worker: &str, path: &Path) -> failure::Result<Life> {
        let text = match std::fs::read_to_string(path) {
            // The worker was killed before it had begun.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
            read => read.doing("reading a history")?,
        };
        Life::parse(worker, &text)
    }

    pub fn parse(worker: &str, text: &str) -> failure::Result<Life> {
        let mut life = Life { worker: worker.to_owned(), ..Life::default() };
        for line in text.split_inclusive('\n').filter_map(|line| line.strip_suffix('\n')) {
            life.add(line).ok_or_else(|| Failure(format!("history of {worker}: {line:?}")))?;
        }
        Ok(life)
    }

    fn add(&mut self, line: &str) -> Option<()> {
        let mut words = line.splitn(3, ' ');
        let (kind, time) = (words.next()?, words.next()?.parse().ok()?);
        let rest = words.next().unwrap_or_default();
        match kind {
            "I" => {
                let (connection, command) = rest.split_once(' ')?;
                let connection = connection.parse().ok()?;
                self.calls.push(Call { sent: time, connection, command: command.to_owned(), reply: None });
            }
            "O" => self.calls.last_mut()?.reply = Some((time, parse_reply(rest)?)),
            "D" => self.drops.push(time),
            "V" => self.cut_off += 1,
            "C" => {
                let mut words = rest.split(' ');
                let key = words.next()?.to_owned();
                let (token, value) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
                self.writes.push(Increment { key, token, value });
            }
            _ => return None,
        }
        Some(())
    }

    /// Returns the last command, if it has no reply.
    pub fn pending(&self) -> Option<&Call> {
        self.calls.last().filter(|call| call.reply.is_none())
    }
}

fn parse_reply(text: &str) -> Option<Reply> {
    let (kind, rest) = text.split_once(' ').unwrap_or((text, ""));
    Some(match kind {
        "nil" => Reply::Nil,
        "int" => Reply::Int(rest.parse().ok()?),
        "text" => Reply::Text(rest.to_owned()),
        "error" => Reply::Error(rest.to_owned()),
        "list" => Reply::List(Vec::new()),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_history_is_read_as_it_was_written_up_to_the_line_cut_short() {
        let text = "I 10 1 DLOCK.ACQUIRE k a PX 5\nO 12 int 77\nC 13 k 77 4\nD 14\nI 15 2 DLOCK.RELEASE k a\nO 1";
        let life = Life::parse("w1", text).unwrap();
        assert_eq!(life.calls[0].reply, Some((12, Reply::Int(77))));
        assert_eq!((life.calls[0].sent, life.calls[0].connection), (10, 1));
        assert_eq!(life.writes, [Increment { key: "k".into(), token: 77, value: 4 }]);
        assert_eq!(life.drops, [14]);
        assert_eq!(life.pending().unwrap().command, "DLOCK.RELEASE k a");
        assert!(Life::parse("w1", "X 1\n").is_err());
    }
}
