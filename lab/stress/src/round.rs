//! Plays steps on the server and on the model, and compares both after every step.

use std::collections::BTreeMap;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use dlock_testkit::random::Random;
use dlock_testkit::redis::Value as Answer;
use dlock_testkit::replica::counter;
use dlock_testkit::wait::PATIENCE;
use dlock_testkit::{Client, text_of};

use crate::encode::{Words, request_words, words};
use crate::judge::{Before, accept, highest_token, judge, same};
use crate::model::{self, Ask, Fence, Key, Lease, Model, Renew, Reply, Value};
use crate::step::{CONNECTIONS, Request, Scene, Step, db_of, draw};

/// A connection, and how the server numbers it.
struct Connection {
    client: Client,
    id: model::Client,
}

/// A model, and the connections to the server that it is held against.
pub struct Round {
    port: u16,
    connections: Vec<Connection>,
    looker: Client,
    pub model: Model,
    /// What was sent and done, the last at the end.
    pub story: Vec<String>,
    /// How often what was answered.
    pub reached: BTreeMap<String, u64>,
}

/// Whether what the server shows is right at once, or soon.
#[derive(Clone, Copy, PartialEq)]
enum When {
    Now,
    Soon,
}

impl Round {
    /// A round on a server that has no locks.
    pub fn begin(port: u16, max_waiters: usize) -> Round {
        let mut looker = open(port);
        looker.ok("FLUSHALL");
        looker.ok(format!("CONFIG SET dlock.max-waiters {max_waiters}"));
        let connections = (0..CONNECTIONS).map(|number| connect(port, number)).collect();
        // Tokens of rounds before are lower than this.
        let last = counter(&mut looker, "last_token").unsigned_abs();
        let model = Model::new(max_waiters, [last].into());
        Round { port, connections, looker, model, story: Vec::new(), reached: BTreeMap::new() }
    }

    /// So many steps; an error says what differs.
    pub fn play(&mut self, random: &mut Random, steps: u64, with_time: bool) -> Result<(), String> {
        for _ in 0..steps {
            let is_waiting =
                |number: &usize| self.connections.get(*number).is_some_and(|c| self.model.is_waiting(c.id));
            let (waiting, idle): (Vec<usize>, Vec<usize>) = (0..CONNECTIONS).partition(is_waiting);
            let scene = Scene { model: &self.model, idle: &idle, waiting: &waiting, now: now(), with_time };
            let Some(step) = draw(random, &scene) else { return Err("nothing can be done".to_owned()) };
            let before = self.before();
            let when = self.take(&step, before)?;
            self.hear(before)?;
            self.look(before, when)?;
        }
        Ok(())
    }

    /// All connections end and all keys go: nobody waits, and nothing is bound.
    pub fn end(mut self) -> Result<BTreeMap<String, u64>, String> {
        let before = self.before();
        self.connections.clear();
        self.model = Model::new(0, self.model.seen);
        let deadline = Instant::now() + SOON;
        loop {
            // A waiter whose end the server has not noticed yet may still be granted what another left.
            self.looker.ok("FLUSHALL");
            match judge(&mut self.looker, &mut self.model, before) {
                Ok(()) => return Ok(self.reached),
                Err(difference) if Instant::now() > deadline => return Err(difference),
                Err(_) => std::thread::sleep(Duration::from_millis(1)),
            }
        }
    }

    fn before(&self) -> Before {
        Before { now: now(), token: highest_token(&self.model) }
    }

    fn take(&mut self, step: &Step, before: Before) -> Result<When, String> {
        match step {
            Step::Ask(who, key, request) => {
                let line = request_words(key.1, request, 0);
                let expected = self.expect(before.now, *who, *key, request, Place::Connection)?;
                self.model.serve_all(before.now);
                self.send(*who, &line)?;
                self.answered(*who, &expected, before)
            }
            Step::AskBriefly(who, key, ask) => self.ask_briefly(*who, *key, ask, before),
            Step::Transaction(who, requests) => self.transaction(*who, requests, before),
            Step::Script(who, key, request) => {
                let mut line = words("EVAL");
                line.push(b"return redis.call(unpack(ARGV))".to_vec());
                line.extend(words(&format!("1 {}", key.1)));
                line.extend(request_words(key.1, request, 0));
                let expected = self.expect(before.now, *who, *key, request, Place::Script)?;
                self.run(*who, &line, expected, before)
            }
            Step::Overwrite(who, key) => {
                let expected = self.model.overwrite(*key);
                self.run(*who, &words(&format!("SET {} text", key.1)), expected, before)
            }
            Step::Rename(who, from, to) => {
                let expected = self.model.rename(*from, *to);
                self.run(*who, &words(&format!("RENAME {} {}", from.1, to.1)), expected, before)
            }
            Step::Move(who, key) => {
                let expected = self.model.move_to(*key, 1 - key.0);
                self.run(*who, &words(&format!("MOVE {} {}", key.1, 1 - key.0)), expected, before)
            }
            Step::Swap(who) => {
                let expected = self.model.swap();
                self.run(*who, &words("SWAPDB 0 1"), expected, before)
            }
            Step::Flush(who, db) => {
                let expected = self.model.flush(*db);
                self.run(*who, &words(if db.is_some() { "FLUSHDB" } else { "FLUSHALL" }), expected, before)
            }
            Step::Expire(who, key) => self.expire(*who, *key, before),
            Step::Outlive(who, key, forever) => self.outlive(*who, *key, *forever, before),
            Step::Lapse(who, key, token) => self.lapse(*who, *key, *token, before),
            Step::Disconnect(who, by_server) => self.disconnect(*who, *by_server, before),
            Step::Unblock(who, with_error) => self.unblock(*who, *with_error, before),
        }
    }

    /// What the model says of a request, and does.
    fn expect(&mut self, now: u64, who: usize, key: Key, request: &Request, place: Place) -> Result<Reply, String> {
        let client = self.client(who)?;
        let binds = match request {
            Request::Enter(Ask { binds, .. }) | Request::Renew(Renew { binds, .. }) => *binds,
            Request::Release(_) | Request::Check(_) | Request::Delete => false,
        };
        if binds && place == Place::Script {
            return Ok(Reply::Error("ERR SESSION needs a client connection"));
        }
        Ok(match request {
            Request::Enter(ask) if place == Place::Connection => self.model.enter(now, client, key, ask),
            Request::Enter(ask) => self.model.enter(now, client, key, &Ask { blocks: false, ..ask.clone() }),
            Request::Release(leave) => self.model.release(now, key, leave),
            Request::Renew(renew) => self.model.renew(now, client, key, renew),
            Request::Delete => self.model.delete(key),
            Request::Check(_) if self.model.keys.get(&key) == Some(&Value::Text) => Reply::Error("WRONGTYPE "),
            Request::Check(token) => {
                let is_live = self.model.holds(key).iter().any(|hold| hold.token == *token);
                if is_live { Reply::Positive } else { Reply::Nil }
            }
        })
    }

    /// Sends a command that was played on the model; whoever it let in is served.
    fn run(&mut self, who: usize, line: &Words, expected: Reply, before: Before) -> Result<When, String> {
        self.model.serve_all(before.now);
        self.send(who, line)?;
        self.answered(who, &expected, before)
    }

    fn answered(&mut self, who: usize, expected: &Reply, before: Before) -> Result<When, String> {
        self.count(expected);
        if *expected == Reply::Later {
            return Ok(When::Soon);
        }
        let answer = self.connection(who)?.reply();
        accept(&mut self.model, expected, &answer, before.token)?;
        Ok(When::Now)
    }

    fn transaction(&mut self, who: usize, requests: &[(Key, Request)], before: Before) -> Result<When, String> {
        self.send(who, &words("MULTI"))?;
        same("the reply", self.connection(who)?.reply(), Answer::Okay)?;
        let mut expected = Vec::new();
        for (key, request) in requests {
            expected.push(self.expect(before.now, who, *key, request, Place::Transaction)?);
            self.send(who, &request_words(key.1, request, 0))?;
            same("the reply", text_of(&self.connection(who)?.reply()).as_str(), "QUEUED")?;
        }
        expected.iter().for_each(|reply| self.count(reply));
        self.run(who, &words("EXEC"), Reply::All(expected), before)
    }

    fn ask_briefly(&mut self, who: usize, key: Key, ask: &Ask, before: Before) -> Result<When, String> {
        let request = Request::Enter(ask.clone());
        let expected = self.expect(before.now, who, key, &request, Place::Connection)?;
        self.send(who, &request_words(key.1, &request, MOMENT_MS))?;
        if expected != Reply::Later {
            return self.answered(who, &expected, before);
        }
        let client = self.client(who)?;
        self.model.give_up(before.now, client, Reply::Nil);
        self.reach("wait that timed out");
        Ok(When::Soon)
    }

    fn expire(&mut self, who: usize, key: Key, before: Before) -> Result<When, String> {
        let expected = self.model.delete(key);
        self.send(who, &words(&format!("PEXPIRE {} {MOMENT_MS}", key.1)))?;
        self.answered(who, &expected, before)?;
        self.model.serve_all(before.now);
        Ok(When::Soon)
    }

    fn outlive(&mut self, who: usize, key: Key, forever: bool, before: Before) -> Result<When, String> {
        let command = match self.model.keys.get(&key) {
            Some(Value::Lock(_)) if forever => format!("PERSIST {}", key.1),
            Some(Value::Lock(_)) => format!("PEXPIRE {} 9000000000", key.1),
            Some(Value::Text) | None => format!("EXISTS {}", key.1),
        };
        let expected = Reply::Integer(i64::from(self.model.keys.contains_key(&key)));
        self.run(who, &words(&command), expected, before)
    }

    fn lapse(&mut self, who: usize, key: Key, token: u64, before: Before) -> Result<When, String> {
        let Some(hold) = self.model.holds(key).iter().find(|hold| hold.token == token).cloned() else {
            return Ok(When::Now);
        };
        let renew = Renew {
            owner: hold.owner,
            mode: Some(hold.mode),
            lease: Lease::For(MOMENT_MS),
            fence: Fence::Any,
            binds: false,
        };
        let request = Request::Renew(renew);
        let expected = self.expect(before.now, who, key, &request, Place::Connection)?;
        self.run(who, &request_words(key.1, &request, 0), expected, before)?;
        self.model.lapse(before.now, key, token);
        self.reach("lapsed");
        Ok(When::Soon)
    }

    fn disconnect(&mut self, who: usize, by_server: bool, before: Before) -> Result<When, String> {
        let client = self.client(who)?;
        let bound = self.model.all_holds().any(|(_, hold)| hold.session == Some(client));
        self.reach(match (self.model.is_waiting(client), bound) {
            (true, _) => "a waiter's connection ended",
            (false, true) => "a session ended",
            (false, false) => "a connection ended",
        });
        if by_server {
            self.looker.run(format!("CLIENT KILL ID {client}"));
        }
        let new = connect(self.port, who);
        self.story.push(format!("client {client} is gone, client {} comes", new.id));
        if let Some(place) = self.connections.get_mut(who) {
            // The old one is closed here.
            *place = new;
        }
        self.model.disconnect(before.now, client);
        Ok(When::Soon)
    }

    fn unblock(&mut self, who: usize, with_error: bool, before: Before) -> Result<When, String> {
        let client = self.client(who)?;
        let command = format!("CLIENT UNBLOCK {client} {}", if with_error { "ERROR" } else { "TIMEOUT" });
        self.story.push(command.clone());
        same("the reply", self.looker.int(command), 1)?;
        self.model.give_up(before.now, client, if with_error { Reply::Error("UNBLOCKED ") } else { Reply::Nil });
        Ok(When::Soon)
    }

    /// Who else is answered by the model is answered by the server.
    fn hear(&mut self, before: Before) -> Result<(), String> {
        for (client, expected) in std::mem::take(&mut self.model.told) {
            // Whoever is told and gone at once has heard nothing.
            let Some(connection) = self.connections.iter_mut().find(|connection| connection.id == client) else {
                continue;
            };
            let answer = connection.client.poll(PATIENCE);
            let answer =
                answer.ok_or_else(|| format!("client {client} is told nothing, and should be {expected:?}"))?;
            accept(&mut self.model, &expected, &answer, before.token).map_err(|e| format!("client {client}: {e}"))?;
            self.reach(match expected {
                Reply::Token(_) => "granted from the line",
                Reply::Nil => "sent away with nil",
                _ => "sent away with an error",
            });
        }
        Ok(())
    }

    /// The server shows what the model has, and nobody else is answered.
    fn look(&mut self, before: Before, when: When) -> Result<(), String> {
        let deadline = Instant::now() + SOON;
        loop {
            let mut model = self.model.clone();
            match judge(&mut self.looker, &mut model, before) {
                Ok(()) => {
                    self.model = model;
                    break;
                }
                Err(_) if when == When::Soon && Instant::now() < deadline => {
                    std::thread::sleep(Duration::from_millis(1));
                }
                Err(difference) => return Err(difference),
            }
        }
        for connection in &mut self.connections {
            if let Some(answer) = connection.client.poll(Duration::ZERO) {
                return Err(format!("client {} is told {answer:?}, the model says nothing", connection.id));
            }
        }
        Ok(())
    }

    fn send(&mut self, who: usize, line: &Words) -> Result<(), String> {
        let shown: Vec<String> = line.iter().map(|word| word.escape_ascii().to_string()).collect();
        self.story.push(format!("client {}: {}", self.client(who)?, shown.join(" ")));
        self.connection(who)?.client.send(line);
        Ok(())
    }

    fn connection(&mut self, who: usize) -> Result<&mut Connection, String> {
        self.connections.get_mut(who).ok_or_else(|| format!("no connection {who}"))
    }

    fn client(&self, who: usize) -> Result<model::Client, String> {
        self.connections.get(who).map(|connection| connection.id).ok_or_else(|| format!("no connection {who}"))
    }

    fn count(&mut self, reply: &Reply) {
        self.reach(match reply {
            Reply::Token(_) | Reply::FreshOwner(_) => "granted",
            Reply::Integer(_) | Reply::Positive | Reply::Ok => "done",
            Reply::Nil => "nil",
            Reply::Error(begin) => begin,
            Reply::All(_) => "transaction",
            Reply::Later => "waits",
        });
    }

    fn reach(&mut self, what: &str) {
        *self.reached.entry(what.trim().to_owned()).or_default() += 1;
    }
}

/// Where a command comes from.
#[derive(Clone, Copy, PartialEq)]
enum Place {
    Connection,
    Transaction,
    Script,
}

fn open(port: u16) -> Client {
    Client::connect(port).expect("a server that takes connections")
}

fn connect(port: u16, number: usize) -> Connection {
    let mut client = open(port);
    client.ok(format!("SELECT {}", db_of(number)));
    let id = client.id().unsigned_abs();
    Connection { client, id }
}

impl Connection {
    /// The next reply, which may be an error.
    fn reply(&mut self) -> Answer {
        self.client.poll(PATIENCE).expect("a reply in time")
    }
}

/// Unix ms.
pub fn now() -> u64 {
    let past = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |past| past.as_millis());
    u64::try_from(past).unwrap_or(u64::MAX)
}

/// How long a moment is that is waited for.
const MOMENT_MS: u64 = 25;
/// How long the server may take for what need not be done at once. A busy machine is slow.
const SOON: Duration = Duration::from_secs(30);
