//! The answers of the servers of a quorum about locks that others hold.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use dlock_client::{Client, Error, Relay};
use dlock_core::{Mode, Token};
use redis::{Cmd, Value, cmd, from_redis_value};
use tokio::sync::{Mutex, Semaphore, mpsc};
use tokio::time::{Instant, timeout_at};

use crate::resp::Reply;

/// Connections to the servers, for questions.
pub(super) struct Members {
    relays: Vec<Arc<Relay>>,
    /// The outcome of the last `PING`, and its time. Locked while the servers are asked: clients that wait meanwhile
    /// get the same answer.
    heard: Mutex<Option<(Instant, Result<(), String>)>>,
    /// Bounds how many `INFO`s run at once: for a lock with thousands of waiters, every server sends a long reply.
    infos: Semaphore,
}

/// A lock as one server knows it.
#[derive(Debug, Default)]
pub(super) struct Seen {
    pub holds: Vec<SeenHold>,
    pub waiters: u64,
    /// As the server shows it.
    pub queue: Vec<Value>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SeenHold {
    pub owner: Vec<u8>,
    pub mode: Mode,
    pub token: u64,
    pub ttl: u64,
    pub held: u64,
}

impl Members {
    pub fn new(members: &[Client]) -> Result<Self, Error> {
        let relay = |member: &Client| Ok(Arc::new(member.relay(Some("dlock-agent"))?));
        let relays = members.iter().map(relay).collect::<Result<_, Error>>()?;
        Ok(Self { relays, heard: Mutex::default(), infos: Semaphore::new(INFOS) })
    }

    pub fn majority(&self) -> usize {
        self.relays.len() / 2 + 1
    }

    /// Asks whether a majority answers, unless that was asked a moment ago.
    ///
    /// # Errors
    ///
    /// The text for the user: too few servers answer, and why.
    pub async fn ping(&self) -> Result<(), String> {
        let mut heard = self.heard.lock().await;
        if let Some((_, found)) = heard.as_ref().filter(|(at, _)| at.elapsed() < FRESH) {
            return found.clone();
        }
        let asked = Instant::now();
        let (answers, faults) = self.ask(cmd("PING")).await;
        let is_majority = answers.len() >= self.majority();
        let found = if is_majority { Ok(()) } else { Err(self.too_few("answer", answers.len(), &faults)) };
        // A failure takes long to find, so it is fresh when it has been found.
        *heard = Some((if is_majority { asked } else { Instant::now() }, found.clone()));
        found
    }

    /// Returns how many milliseconds the hold with this token lasts on a majority. `None`: a majority does not have it.
    ///
    /// # Errors
    ///
    /// The text for the user: no majority agrees on either, and why.
    pub async fn check(&self, key: &[u8], token: Token) -> Result<Option<u64>, String> {
        let mut command = cmd("DLOCK.CHECK");
        command.arg(key).arg(token.get());
        let (answers, faults) = self.ask(command).await;
        let gone = answers.iter().filter(|(_, answer)| *answer == Value::Nil).count();
        let left = |(_, answer)| if let Value::Int(ms) = answer { u64::try_from(ms).ok() } else { None };
        let mut left: Vec<u64> = answers.into_iter().filter_map(left).collect();
        left.sort_unstable_by(|one, other| other.cmp(one));
        match left.get(self.majority() - 1) {
            Some(left) => Ok(Some(*left)),
            None if gone >= self.majority() => Ok(None),
            None if gone + left.len() < self.majority() => Err(self.too_few("answer", gone + left.len(), &faults)),
            None => Err(self.too_few("agree", gone.max(left.len()), &faults)),
        }
    }

    /// Returns what each server knows of a lock, in the order of the servers.
    ///
    /// # Errors
    ///
    /// The text for the user: too few servers answer, and why.
    pub async fn look(&self, key: &[u8]) -> Result<Vec<Seen>, String> {
        let mut command = cmd("DLOCK.INFO");
        command.arg(key).arg("FULL").arg("COUNT").arg(0);
        let _turn = self.infos.acquire().await;
        let (mut answers, faults) = self.ask(command).await;
        if answers.len() < self.majority() {
            return Err(self.too_few("answer", answers.len(), &faults));
        }
        answers.sort_by_key(|(at, _)| *at);
        Ok(answers.into_iter().map(|(_, answer)| seen(answer)).collect())
    }

    /// Asks all servers. Returns when all have answered, or a moment after a majority has, or when the time for answers
    /// is over.
    async fn ask(&self, command: Cmd) -> (Vec<(usize, Value)>, Vec<String>) {
        let (to, mut from) = mpsc::unbounded_channel();
        let command = Arc::new(command);
        for (at, member) in self.relays.iter().enumerate() {
            let (member, command, to) = (member.clone(), command.clone(), to.clone());
            tokio::spawn(async move {
                let answer = member.ask(b"", &command, Some(PATIENCE)).await;
                let _ = to.send((at, answer.map(|(reply, _)| reply)));
            });
        }
        drop(to);
        let (mut answers, mut faults) = (Vec::new(), Vec::new());
        let mut end = Instant::now() + PATIENCE;
        while let Ok(Some((at, answer))) = timeout_at(end, from.recv()).await {
            match answer {
                Ok(reply) => answers.push((at, reply)),
                Err(fault) => faults.push(fault.cause().message().to_owned()),
            }
            if answers.len() == self.majority() {
                end = end.min(Instant::now() + MOMENT);
            }
        }
        (answers, faults)
    }

    /// Returns the error that too few servers do this. `count`: how many do.
    fn too_few(&self, does: &str, count: usize, faults: &[String]) -> String {
        let (members, majority) = (self.relays.len(), self.majority());
        let faults = if faults.is_empty() { String::new() } else { format!(": {}", faults.join("; ")) };
        format!("LOADING too few servers {does}: {count} of {members}, a majority is {majority}{faults}")
    }
}

fn seen(answer: Value) -> Seen {
    let Ok(Some(mut fields)) = from_redis_value::<Option<HashMap<String, Value>>>(answer) else {
        return Seen::default();
    };
    let mut field = |name: &str| fields.remove(name).unwrap_or(Value::Nil);
    let list = |value: Value| if let Value::Array(items) = value { items } else { Vec::new() };
    let holds = list(field("holds")).into_iter().filter_map(seen_hold).collect();
    Seen { holds, waiters: number(field("waiters")), queue: list(field("queue")) }
}

fn seen_hold(hold: Value) -> Option<SeenHold> {
    let mut fields: HashMap<String, Value> = from_redis_value(hold).ok()?;
    let mut field = |name: &str| fields.remove(name).unwrap_or(Value::Nil);
    let owner = from_redis_value(field("owner")).ok()?;
    let mode: String = from_redis_value(field("mode")).ok()?;
    let mode = if mode == "shared" { Mode::Shared } else { Mode::Exclusive };
    Some(SeenHold {
        owner,
        mode,
        token: number(field("token")),
        ttl: number(field("ttl")),
        held: number(field("held")),
    })
}

fn number(value: Value) -> u64 {
    from_redis_value(value).unwrap_or(0)
}

/// Returns the holds that a majority has: each with the time and the token that it has on a majority.
pub(super) fn held(seen: &[Seen], majority: usize) -> Vec<SeenHold> {
    let mut by_owner: HashMap<(&[u8], bool), Vec<&SeenHold>> = HashMap::new();
    for hold in seen.iter().flat_map(|seen| &seen.holds) {
        by_owner.entry((&hold.owner, hold.mode == Mode::Shared)).or_default().push(hold);
    }
    let mut held: Vec<_> = by_owner
        .into_values()
        .filter_map(|mut holds| {
            holds.sort_by_key(|hold| std::cmp::Reverse(hold.ttl));
            let ttl = holds.get(majority - 1)?.ttl;
            // A server that was not needed for the grant may have granted a token of its own.
            let count = |token: u64| holds.iter().filter(|hold| hold.token == token).count();
            let most = holds.iter().max_by_key(|hold| (count(hold.token), hold.token))?;
            Some(SeenHold { ttl, ..(*most).clone() })
        })
        .collect();
    held.sort_by_key(|hold| hold.token);
    held
}

/// Returns the length and the queue of the first server that has a queue, in which new requests wait.
pub(super) fn queue(seen: &mut [Seen]) -> (u64, Vec<Reply>) {
    let first = seen.iter_mut().find(|seen| seen.waiters > 0);
    first.map_or((0, Vec::new()), |seen| (seen.waiters, seen.queue.drain(..).map(Reply::from).collect()))
}

/// How long a server has to answer a question. Clients allow one second for a try: the error comes within that second.
const PATIENCE: Duration = Duration::from_millis(850);

/// How many `INFO`s run at once.
const INFOS: usize = 4;

/// How long the outcome of a `PING` is good for other clients, too.
const FRESH: Duration = Duration::from_millis(250);

/// How long the other servers have to answer when a majority has answered.
const MOMENT: Duration = Duration::from_millis(20);

#[cfg(test)]
mod tests {
    use super::*;

    fn hold(owner: &str, token: u64, ttl: u64) -> SeenHold {
        SeenHold { owner: owner.into(), mode: Mode::Exclusive, token, ttl, held: 1 }
    }

    #[test]
    fn a_hold_counts_if_a_majority_has_it_and_for_as_long_as_a_majority_has_it() {
        let seen = |hold: SeenHold| Seen { holds: vec![hold], ..Seen::default() };
        let servers = [seen(hold("a", 7, 300)), seen(hold("a", 7, 100)), seen(hold("a", 9, 900))];
        assert_eq!(held(&servers, 2), [hold("a", 7, 300)]);
        assert_eq!(held(&servers[..1], 2), []);
    }
}
