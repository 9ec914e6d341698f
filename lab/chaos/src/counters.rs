//! The resources that the locks protect: counters that refuse a lower token than the highest they have seen.
//!
//! Counters live in this process. Workers reach them by TCP, with one line for each request: `R key token` reads,
//! `W key token value` writes. The answer is the value, or `stale`. The token of a read counts as seen, too. So nobody
//! with a lower token writes between the read and the write of an owner, and an update is lost only if two owners have
//! the same token.

use std::collections::BTreeMap;
use std::io::{self, BufRead, BufReader, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use crate::failure::{Failure, Result};

/// All counters of a run.
#[derive(Clone, Default)]
pub struct Counters(Arc<Mutex<BTreeMap<String, Counter>>>);

/// The counter of one key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counter {
    pub value: u64,
    /// The highest token seen.
    pub fence: u64,
    /// All writes, in order: token and value.
    pub writes: Vec<(u64, u64)>,
    /// How many requests were refused.
    pub refused: u64,
}

impl Counters {
    /// Serves the counters on a free port until the process ends. Returns the port.
    pub fn serve(&self) -> Result<u16> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let port = listener.local_addr()?.port();
        let counters = self.clone();
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let counters = counters.clone();
                thread::spawn(move || counters.answer(stream));
            }
        });
        Ok(port)
    }

    /// Returns a copy of all counters.
    pub fn all(&self) -> BTreeMap<String, Counter> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn answer(&self, mut stream: TcpStream) -> io::Result<()> {
        let requests = BufReader::new(stream.try_clone()?);
        for request in requests.lines() {
            let answer = match self.decide(&request?) {
                Some(Some(value)) => format!("{value}\n"),
                Some(None) => "stale\n".to_owned(),
                None => return Ok(()),
            };
            stream.write_all(answer.as_bytes())?;
        }
        Ok(())
    }

    /// Executes a request. Returns the counter's value; `Some(None)`: a stale token; `None`: the line is no request.
    fn decide(&self, request: &str) -> Option<Option<u64>> {
        let mut words = request.split(' ');
        let (what, key, token) = (words.next()?, words.next()?, words.next()?.parse().ok()?);
        let mut counters = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let counter = counters.entry(key.to_owned()).or_default();
        if token < counter.fence {
            counter.refused += 1;
            return Some(None);
        }
        counter.fence = token;
        if what == "W" {
            counter.value = words.next()?.parse().ok()?;
            counter.writes.push((token, counter.value));
        }
        Some(Some(counter.value))
    }
}

/// A worker's connection to the counters.
pub struct CounterClient(BufReader<TcpStream>);

impl CounterClient {
    pub fn open(port: u16) -> Result<CounterClient> {
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
        stream.set_nodelay(true)?;
        Ok(CounterClient(BufReader::new(stream)))
    }

    /// Reads a counter. Returns the value, or `None` if the token is stale.
    pub fn read(&mut self, key: &str, token: u64) -> Result<Option<u64>> {
        self.ask(&format!("R {key} {token}\n"))
    }

    /// Writes a counter. Returns the value written, or `None` if the token is stale.
    pub fn write(&mut self, key: &str, token: u64, value: u64) -> Result<Option<u64>> {
        self.ask(&format!("W {key} {token} {value}\n"))
    }

    fn ask(&mut self, request: &str) -> Result<Option<u64>> {
        self.0.get_mut().write_all(request.as_bytes())?;
        let mut line = String::new();
        self.0.read_line(&mut line)?;
        match line.trim_end() {
            "stale" => Ok(None),
            value => value.parse().map(Some).map_err(|_| Failure(format!("the counters say {value:?}"))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_counter_refuses_tokens_lower_than_any_it_has_seen() {
        let counters = Counters::default();
        assert_eq!(counters.decide("R k 5"), Some(Some(0)));
        assert_eq!(counters.decide("W k 5 1"), Some(Some(1)));
        assert_eq!(counters.decide("R k 7"), Some(Some(1)));
        assert_eq!(counters.decide("W k 5 2"), Some(None), "a token below one that has read was not refused");
        assert_eq!(counters.decide("W k 7 2"), Some(Some(2)));
        let all = counters.all();
        assert_eq!(all["k"], Counter { value: 2, fence: 7, writes: vec![(5, 1), (7, 2)], refused: 1 });
    }
}
