//! The ways to wait for a lock: what a client sends, and when.

use std::iter;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use super::client::Client;
use super::round::Round;
use super::way::{Entry, KEY, Way};
use crate::connection::Connection;
use crate::error::Error;
use crate::resp::{Expect, Reply, Request};

impl Way {
    /// Prepares the key before the clients begin.
    pub fn lay_out(self, control: &mut Connection) -> Result<(), Error> {
        control.call(&[b"DEL", KEY])?;
        if self == Self::Element {
            control.exchange(&[&Request::new(&[b"LPUSH", KEY, b"token"], Expect::Integer(1))])?;
        }
        Ok(())
    }

    /// Ends the waits of clients after the round, where no release ends them.
    pub fn let_go(self, clients: usize, control: &mut Connection) -> Result<(), Error> {
        if self == Self::Element {
            let tokens = vec![&b"token"[..]; clients];
            control.call(&[&[&b"RPUSH"[..], KEY], tokens.as_slice()].concat())?;
        }
        Ok(())
    }

    /// Acquires the lock. Returns when the client has it, or when the round is over.
    pub fn enter(self, client: &mut Client, round: &Round) -> Result<Entry, Error> {
        let requests = Arc::clone(&client.requests);
        match self {
            Self::Dlock => client.wait(&requests.acquire, round).map(|()| Entry::Granted),
            Self::Permit => client.wait(&requests.take_permit, round).map(|()| Entry::Granted),
            Self::Element => client.wait(&requests.pop, round).map(|()| Entry::Granted),
            Self::Message => enter_by_message(client, &requests.set, round),
            Self::Poll10 => enter_by_polling(client, &requests.set, round, Duration::from_millis(10)),
            Self::Poll100 => enter_by_polling(client, &requests.set, round, Duration::from_millis(100)),
        }
    }

    pub fn leave(self, client: &mut Client, round: &Round) -> Result<(), Error> {
        let requests = Arc::clone(&client.requests);
        let request = match self {
            Self::Dlock | Self::Permit => &requests.release,
            Self::Element => &requests.push,
            Self::Message => &requests.delete_and_publish,
            Self::Poll10 | Self::Poll100 => &requests.delete,
        };
        let reply = client.ask(request, round)?;
        request.judge(&reply)
    }
}

fn enter_by_polling(client: &mut Client, set: &Request, round: &Round, pause: Duration) -> Result<Entry, Error> {
    // The clients began together, unlike clients in real life, so their first pauses differ.
    let mut pauses = iter::once(pause.mul_f64(client.phase)).chain(iter::repeat(pause));
    loop {
        match attempt(client, set, round)? {
            Some(granted) => return Ok(granted),
            None => client.join(round),
        }
        thread::sleep(pauses.next().unwrap_or(pause));
    }
}

fn enter_by_message(client: &mut Client, set: &Request, round: &Round) -> Result<Entry, Error> {
    if let Some(entry) = attempt(client, set, round)? {
        return Ok(entry);
    }
    client.subscribe(round)?;
    client.join(round);
    // No message tells of a release before the subscription.
    let mut entry = attempt(client, set, round)?;
    while entry.is_none() {
        client.hear(round)?;
        entry = attempt(client, set, round)?;
    }
    client.unsubscribe(round)?;
    Ok(entry.unwrap_or(Entry::Over))
}

/// Tries once to acquire the lock. `None`: another client holds it.
fn attempt(client: &mut Client, set: &Request, round: &Round) -> Result<Option<Entry>, Error> {
    match client.ask(set, round)? {
        Reply::Simple(_) => Ok(Some(Entry::Granted)),
        Reply::Nil if round.is_over() => Ok(Some(Entry::Over)),
        Reply::Nil => Ok(None),
        other => Err(Error::Reply(format!("SET NX got {other:?}"))),
    }
}
