//! Plays steps on the server and on the model, and compares both after every step.

use std::collections::BTreeMap;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use dlock_testkit::Client;
use dlock_testkit::histories::leave::Renewal;
use dlock_testkit::histories::naive::Request;
use dlock_testkit::histories::word::{Words, name_of, words};
use dlock_testkit::histories::words::close_words;
use dlock_testkit::histories::{How, KEYS, Lease};
use dlock_testkit::random::Random;
use dlock_testkit::redis::Value as Answer;
use dlock_testkit::replica::counter;
use dlock_testkit::wait::PATIENCE;

use crate::judge::{Before, accept, counts_of, highest_token, judge};
use crate::model::{self, Model, Reply, Settings, db_of};
use crate::step::{CONNECTIONS, Call, Situation, Step, db_of_connection, draw};

/// A connection, and its client id.
pub struct Connection {
    pub client: Client,
    pub id: model::Client,
}

/// A model, and the connections to the server with which it is compared.
pub struct Round {
    pub(super) port: u16,
    pub(super) connections: Vec<Connection>,
    /// The connection that looks at what the server shows.
    pub(super) looker: Client,
    pub model: Model,
    /// Until when the server may be late: after a pause, it takes a moment to look whether it may go on.
    pub(super) catches_up_until: Instant,
    /// Whether the server is `dlock serve`, which has only the commands of locks.
    pub has_locks_only: bool,
    /// The steps so far, the last at the end.
    pub story: Vec<String>,
    /// How often each of the named situations was seen.
    pub reached: BTreeMap<String, u64>,
}

/// Whether what the server shows is right at once, or soon.
#[derive(Clone, Copy, PartialEq)]
pub enum When {
    Now,
    Soon,
}

impl Round {
    /// Begins a round: empties the server and sets its settings.
    pub fn begin(port: u16, settings: Settings) -> Round {
        let mut looker = open(port);
        looker.ok("FLUSHALL");
        looker.ok(format!("CONFIG SET dlock.max-waiters {}", settings.max_waiters.unwrap_or(0)));
        looker.ok(format!("CONFIG SET dlock.session-grace {}", settings.grace.unwrap_or(0)));
        let connections = (0..CONNECTIONS).map(|number| connect(port, number)).collect();
        // The tokens of this round are higher than the last one of the rounds before.
        let last = counter(&mut looker, "last_token").unsigned_abs();
        close_sessions(&mut looker);
        let base = counts_of(&looker.text("INFO dlock"));
        let model = Model::new(&settings, Some(base), [last].into());
        let catches_up_until = Instant::now();
        Round {
            port,
            connections,
            looker,
            model,
            catches_up_until,
            has_locks_only: false,
            story: Vec::new(),
            reached: BTreeMap::new(),
        }
    }

    /// Plays `steps` steps; an error says what differs.
    pub fn play(&mut self, random: &mut Random, steps: u64, with_time: bool) -> Result<(), String> {
        for _ in 0..steps {
            let is_waiting =
                |number: &usize| self.connections.get(*number).is_some_and(|c| self.model.is_waiting(c.id));
            let (waiting, idle): (Vec<usize>, Vec<usize>) = (0..CONNECTIONS).partition(is_waiting);
            let situation = Situation { model: &self.model, idle: &idle, waiting: &waiting, now: now(), with_time };
            let Some(step) = draw(random, &situation) else { return Err("nothing can be done".to_owned()) };
            if !self.has_locks_only || step.is_of_locks() {
                self.step(&step)?;
            }
        }
        Ok(())
    }

    /// Plays a step, and compares what the server shows then with the model.
    pub(super) fn step(&mut self, step: &Step) -> Result<(), String> {
        let before = self.before();
        let when = self.take(step, before)?;
        self.hear(before)?;
        self.look(before, when)
    }

    /// Ends all connections, removes all keys, and checks that nobody waits and nothing is bound. Returns how often
    /// each of the named situations was seen.
    pub fn end(mut self) -> Result<BTreeMap<String, u64>, String> {
        let before = self.before();
        self.connections.clear();
        close_sessions(&mut self.looker);
        // The model begins again, because the last grants depend on which connection left first.
        self.model = Model::new(&Settings { max_waiters: None, grace: None }, None, self.model.seen);
        let deadline = Instant::now() + SOON;
        loop {
            // A waiter whose end the server has not noticed yet may still be granted a lock that another one left.
            self.looker.ok("FLUSHALL");
            match judge(&mut self.looker, &mut self.model, before, true) {
                Ok(()) => return Ok(self.reached),
                Err(difference) if Instant::now() > deadline => return Err(difference),
                Err(_) => std::thread::sleep(Duration::from_millis(1)),
            }
        }
    }

    /// Lets the time of the model go on to now. Returns what the checks after a step compare with.
    fn before(&mut self) -> Before {
        let now = now();
        self.model.naive.advance(now * 1000);
        Before { now, token: highest_token(&self.model) }
    }

    /// Plays a step on the model and on the server, and compares the replies to the connection that plays it.
    fn take(&mut self, step: &Step, before: Before) -> Result<When, String> {
        let played = match step {
            Step::Call(who, call) => {
                let expected = self.expect(*who, call, Place::Connection)?;
                let line = call.words(&self.model, 0);
                (*who, line, expected)
            }
            Step::CallBriefly(who, call) => return self.call_briefly(*who, call, before),
            Step::Transaction(who, calls) => return self.transaction(*who, calls, before),
            Step::Script(who, call) => {
                let expected = self.expect(*who, call, Place::Script)?;
                (*who, script(call, call.words(&self.model, 0)), expected)
            }
            Step::Overwrite(who, key) => {
                (*who, words(&format!("SET {} text", name_of(*key))), self.model.overwrite(*key))
            }
            Step::Rename(who, from, to) => {
                let line = words(&format!("RENAME {} {}", name_of(*from), name_of(*to)));
                (*who, line, self.model.rename(*from, *to))
            }
            Step::Move(who, from, to) => {
                let line = words(&format!("MOVE {} {}", name_of(*from), db_of(*to)));
                (*who, line, self.model.move_to(*from, *to))
            }
            Step::Swap(who) => (*who, words("SWAPDB 0 1"), self.model.swap()),
            Step::Flush(who, db) => {
                (*who, words(if db.is_some() { "FLUSHDB" } else { "FLUSHALL" }), self.model.flush(*db))
            }
            Step::Expire(who, key) => return self.expire(*who, *key, before),
            Step::Lapse(who, key, owner, mode, persists) => {
                return self.lapse(*who, *key, *owner, *mode, *persists, before);
            }
            Step::Watch(who, key, owner) => return self.watch(*who, *key, *owner, before),
            Step::Disconnect(who, by_server) => return self.disconnect(*who, *by_server),
            Step::Unblock(who, with_error) => return self.unblock(*who, *with_error),
            Step::Pause(meanwhile, kept) => return self.pause(meanwhile, kept.as_ref(), before),
        };
        let (who, line, expected) = played;
        self.run(who, &line, expected, before)
    }

    /// Runs a command on the model, and returns its reply.
    pub(super) fn expect(&mut self, who: usize, call: &Call, place: Place) -> Result<Reply, String> {
        let client = self.client(who)?;
        let binds = match call {
            Call::Enter(Request { how: How { binds, named, .. }, .. })
            | Call::Renew(_, Renewal { binds, named, .. }) => *binds && named.is_none(),
            _ => false,
        };
        if binds && place == Place::Script {
            return Ok(Reply::Error("ERR SESSION needs a client connection"));
        }
        Ok(match call {
            Call::Enter(request) => {
                let since = self.model.naive.now_us;
                let mut request = Request { ticket: client, client, since, ..request.clone() };
                request.how.blocks &= place == Place::Connection;
                let is_second = self.model.naive.waiting.iter().any(|waiter| waiter.owner == request.owner);
                let reply = self.model.enter(&request);
                self.reach_if("an owner waits on several connections", is_second && reply == Reply::Later);
                reply
            }
            Call::Release(key, leave) => self.model.release(*key, *leave),
            Call::Renew(key, renewal) => {
                let reply = self.model.renew(*key, Renewal { client, ..*renewal });
                let is_short = matches!(renewal.lease, Lease::For(ms) if ms < 300);
                self.reach_if(
                    "short renewal refused",
                    is_short && matches!(reply, Reply::Error("ERR SESSION needs a lease of at least 300 ms")),
                );
                reply
            }
            Call::Delete(key) => self.model.delete(*key),
            Call::Beat(session, only) => self.model.beat(client, *session, *only),
            Call::Close(session) => self.model.close(client, *session),
            Call::Check(key, token) => self.model.check(*key, *token),
            Call::SetTtl(key, ms) => {
                let reply = self.model.set_ttl(*key, *ms);
                let is_early = self.model.naive.keys.get(*key).is_some_and(|key| key.early.is_some());
                self.reach_if("expiry before the deadline", is_early);
                reply
            }
        })
    }

    /// Sends a command that the model has run to the server, and compares the replies. In the model, the waiters that
    /// the command lets in are served.
    pub(super) fn run(&mut self, who: usize, line: &Words, expected: Reply, before: Before) -> Result<When, String> {
        self.model.serve();
        self.send(who, line)?;
        self.answered(who, &expected, before)
    }

    pub(super) fn answered(&mut self, who: usize, expected: &Reply, before: Before) -> Result<When, String> {
        self.count(expected);
        self.story.push(format!("  should be {expected:?}; told: {:?}", self.model.told));
        if *expected == Reply::Later {
            return Ok(When::Soon);
        }
        let answer = self.connection(who)?.reply();
        accept(&mut self.model, expected, &answer, before.token)?;
        Ok(When::Now)
    }

    /// Checks that the server answers all the other clients that the model has answered.
    pub(super) fn hear(&mut self, before: Before) -> Result<(), String> {
        for (client, expected) in std::mem::take(&mut self.model.told) {
            // A client whose connection ended in this step reads no answer.
            let Some(connection) = self.connections.iter_mut().find(|connection| connection.id == client) else {
                continue;
            };
            let answer = connection.client.poll(PATIENCE);
            let answer =
                answer.ok_or_else(|| format!("client {client} is told nothing, and should be {expected:?}"))?;
            accept(&mut self.model, &expected, &answer, before.token).map_err(|e| format!("client {client}: {e}"))?;
            self.reach(match expected {
                Reply::Token(_) | Reply::FreshOwner(..) | Reply::Numbered(..) => "granted from the queue",
                Reply::Nil => "sent away with nil",
                _ => "sent away with an error",
            });
        }
        Ok(())
    }

    /// Checks that the server shows what the model has, and that nobody else was answered.
    pub(super) fn look(&mut self, before: Before, when: When) -> Result<(), String> {
        let is_due = (0..KEYS.len()).any(|key| self.model.is_due(key));
        let is_soon = when == When::Soon || is_due || self.catches_up_until > Instant::now();
        let (settled, deadline) = (Instant::now() + SETTLED, Instant::now() + SOON);
        loop {
            let mut model = self.model.clone();
            match judge(&mut self.looker, &mut model, before, Instant::now() > settled) {
                Ok(()) => {
                    self.model = model;
                    self.meet_caps();
                    break;
                }
                Err(_) if is_soon && Instant::now() < deadline => {
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

    pub(super) fn send(&mut self, who: usize, line: &Words) -> Result<(), String> {
        let shown: Vec<String> = line.iter().map(|word| word.escape_ascii().to_string()).collect();
        self.story.push(format!("client {}: {}", self.client(who)?, shown.join(" ")));
        self.connection(who)?.client.send(line);
        Ok(())
    }

    pub(super) fn connection(&mut self, who: usize) -> Result<&mut Connection, String> {
        self.connections.get_mut(who).ok_or_else(|| format!("no connection {who}"))
    }

    pub(super) fn client(&self, who: usize) -> Result<model::Client, String> {
        self.connections.get(who).map(|connection| connection.id).ok_or_else(|| format!("no connection {who}"))
    }

    pub(super) fn count(&mut self, reply: &Reply) {
        self.reach(match reply {
            Reply::Token(_) | Reply::FreshOwner(..) => "granted",
            Reply::Numbered(..) => "granted with a number",
            Reply::Integer(_) | Reply::Positive | Reply::AtLeast(_) | Reply::Either | Reply::Ok => "done",
            Reply::Nil => "nil",
            Reply::Error(begin) => begin,
            Reply::All(_) => "transaction",
            Reply::Later => "waits",
        });
    }

    /// Notes whether there are holds with a cap, and whether one of them has reached its cap.
    fn meet_caps(&mut self) {
        let capped = self.model.holds().filter(|(_, hold)| hold.cap.is_some());
        let at_cap: Vec<bool> = capped.map(|(_, hold)| hold.cap == Some(hold.deadline)).collect();
        self.reach_if("a hold has a cap", !at_cap.is_empty());
        self.reach_if("a hold has reached its cap", at_cap.contains(&true));
    }

    pub(super) fn reach_if(&mut self, what: &str, is_reached: bool) {
        if is_reached {
            self.reach(what);
        }
    }

    pub(super) fn reach(&mut self, what: &str) {
        *self.reached.entry(what.trim().to_owned()).or_default() += 1;
    }
}

/// Where a command comes from.
#[derive(Clone, Copy, PartialEq)]
pub enum Place {
    Connection,
    Transaction,
    Script,
}

/// The words of a script that runs a command.
fn script(call: &Call, line: Words) -> Words {
    let keys = call.keys();
    let mut script = words("EVAL");
    script.push(b"return redis.call(unpack(ARGV))".to_vec());
    script.extend(words(&keys.len().to_string()));
    script.extend(keys.iter().map(|key| name_of(*key).as_bytes().to_vec()));
    script.extend(line);
    script
}

/// Closes the named sessions that a round has left.
fn close_sessions(looker: &mut Client) {
    for session in [0, 1] {
        looker.run(close_words(session));
    }
}

fn open(port: u16) -> Client {
    Client::connect(port).expect("a server that takes connections")
}

pub fn connect(port: u16, number: usize) -> Connection {
    let mut client = open(port);
    client.ok(format!("SELECT {}", db_of_connection(number)));
    let id = client.id().unsigned_abs();
    Connection { client, id }
}

impl Connection {
    /// Returns the next reply, which may be an error.
    pub fn reply(&mut self) -> Answer {
        self.client.poll(PATIENCE).expect("a reply in time")
    }
}

/// Returns the time in ms since the epoch.
pub fn now() -> u64 {
    let past = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |past| past.as_millis());
    u64::try_from(past).unwrap_or(u64::MAX)
}

/// How long the timer of an idle server takes at most to do what is due.
const SETTLED: Duration = Duration::from_millis(500);

/// How long the server may take for what it need not do at once: long, because the machine may be busy.
pub const SOON: Duration = Duration::from_secs(15);
