//! The contract on a whole server: the naive model of the testkit, and beside it what only a client sees.
//!
//! Nothing of the module or of the core's decisions is in here. Leases are long: the model is told of holds that lapse
//! ([`Model::lapse`]). The model makes up the token of a new hold, above [`UNKNOWN`], and the owner that the server
//! generates, until the server shows the real ones.

use std::collections::{BTreeMap, BTreeSet};

use dlock_core::Mode;
use dlock_core::engine::OpenIf;
use dlock_testkit::histories::leave::{Fence, Leave, Renewal};
use dlock_testkit::histories::naive::{self, Counts, Hold, Naive, Request};
use dlock_testkit::histories::{KEYS, KeyNo, LONG_SESSION_MS, SessionNo, Who};

/// The number of a connection, as the server gives it out.
pub type Client = u64;

/// A reply to a client.
#[derive(Clone, Debug, PartialEq)]
pub enum Reply {
    /// The token, or any new one if it is not known.
    Token(u64),
    /// The same, and an owner that the server generates.
    FreshOwner(Who, u64),
    /// A token or an owner with a token, and the number of the hold, or nil.
    Numbered(Box<Reply>, Option<u32>),
    Integer(i64),
    /// A number above zero.
    Positive,
    /// The number or more.
    AtLeast(i64),
    /// 0 or 1.
    Either,
    Nil,
    Ok,
    /// An error that begins with this text.
    Error(&'static str),
    /// The replies of a transaction.
    All(Vec<Reply>),
    /// No reply yet: the client waits.
    Later,
}

/// A server.
#[derive(Clone, Debug)]
pub struct Model {
    /// The ticket of a waiter is its client.
    pub naive: Naive,
    /// The server's counts when the round began. `None`: counts are not compared.
    pub base: Option<Counts>,
    /// `dlock.session-grace`, in ms.
    grace: Option<u64>,
    /// The other clients that are answered, in order.
    pub told: Vec<(Client, Reply)>,
    /// The real tokens of those that were made up, as far as they were seen.
    tokens: BTreeMap<u64, u64>,
    /// Every real token that was seen.
    pub seen: BTreeSet<u64>,
    /// Owners that the server has generated.
    drawn: BTreeMap<Who, Vec<u8>>,
    /// Keys with a TTL that a client made longer, or with none.
    pub late: BTreeSet<KeyNo>,
    /// Keys that are still there without a live hold. Only a late key can be.
    pub remains: BTreeSet<KeyNo>,
    /// Bound holds whose lease the watchdog may have extended behind an earlier expiry of the key, unseen.
    pub hidden: BTreeSet<(KeyNo, Who, Mode)>,
    /// Whether writes are paused (`CLIENT PAUSE WRITE`).
    pub is_paused: bool,
}

impl Model {
    /// A server without locks that has given out these tokens.
    pub fn new(settings: &Settings, base: Option<Counts>, seen: BTreeSet<u64>) -> Model {
        let Settings { max_waiters, grace } = *settings;
        let mut naive = Naive::new(0, DEFAULT_LEASE, max_waiters);
        naive.last_token = UNKNOWN;
        Model {
            naive,
            base,
            grace,
            seen,
            told: Vec::new(),
            tokens: BTreeMap::new(),
            drawn: BTreeMap::new(),
            late: BTreeSet::new(),
            remains: BTreeSet::new(),
            hidden: BTreeSet::new(),
            is_paused: false,
        }
    }

    // Commands of the module.

    /// A request to enter.
    pub fn enter(&mut self, request: &Request) -> Reply {
        self.begin(&request.keys, request.owner);
        let reply = self.naive.acquire(request.clone());
        if let naive::Reply::TakesOver(first) = reply {
            self.told.push((first, Reply::Nil));
        }
        self.entered(request, reply);
        self.serve_keys(&request.keys);
        self.answer_to(request, reply)
    }

    /// `RELEASE`.
    pub fn release(&mut self, key: KeyNo, leave: Leave) -> Reply {
        self.begin(&[key], leave.owner);
        let reply = self.naive.release(key, leave);
        self.serve_keys(&[key]);
        plain(reply)
    }

    /// `RENEW`.
    pub fn renew(&mut self, key: KeyNo, renewal: Renewal) -> Reply {
        self.begin(&[key], renewal.owner);
        let is_near_cap = self.is_near_cap(key, renewal);
        let reply = self.naive.renew(key, renewal);
        if matches!(reply, naive::Reply::Number(_)) {
            self.late.remove(&key);
            let known = self.naive.keys.get(key).into_iter().flat_map(|key| &key.holds).map(|hold| hold.token);
            self.seen.extend(known.filter(|token| *token < UNKNOWN));
        }
        self.serve_keys(&[key]);
        if is_near_cap && matches!(reply, naive::Reply::Number(_)) { Reply::Either } else { plain(reply) }
    }

    /// Returns whether the cap cuts this renewal if the server's clock is a little ahead of the model, or behind it: a
    /// hold may have been granted or renewed in the same millisecond, or after a pause.
    fn is_near_cap(&self, key: KeyNo, renewal: Renewal) -> bool {
        let Renewal { owner, mode, lease, .. } = renewal;
        let named =
            self.naive.live(key).filter(|hold| hold.owner == owner && mode.is_none_or(|mode| mode == hold.mode));
        let mut ends = named.filter_map(|hold| Some((hold.cap?, lease.resolve(self.naive.now(), hold.lease)?.1)));
        ends.any(|(cap, deadline)| cap.abs_diff(deadline) <= SLACK_MS)
    }

    /// `CHECK`.
    pub fn check(&self, key: KeyNo, token: u64) -> Reply {
        if self.is_other(key) {
            return plain(naive::Reply::WrongType);
        }
        if self.naive.live(key).any(|hold| hold.token == token) { Reply::Positive } else { Reply::Nil }
    }

    /// Runs a heartbeat of a named session.
    pub fn beat(&mut self, client: Client, session: SessionNo, only: OpenIf) -> Reply {
        let reply = self.naive.heartbeat_reply(client, session, only);
        if reply != naive::Reply::Number(1) {
            return plain(reply);
        }
        let holds = self.holds_of(client, session);
        self.naive.heartbeat(client, session, None, LONG_SESSION_MS);
        holds
    }

    /// The end of a named session, by command: requests for a hold in it that wait are sent away.
    pub fn close(&mut self, client: Client, session: SessionNo) -> Reply {
        let holds = self.holds_of(client, session);
        let reply = self.naive.close_session(client, session);
        if reply != naive::Reply::Number(1) {
            return plain(reply);
        }
        if !self.is_paused {
            self.naive.settle_sessions();
        }
        self.send_away();
        self.serve();
        holds
    }

    /// Answers the requests for a session that has ended, in a pause, too.
    fn send_away(&mut self) {
        let is_over = |waiter: &Request| waiter.session.is_some_and(|session| !self.naive.is_open(session));
        let over = self.naive.waiting.iter().filter(|waiter| is_over(waiter));
        let over: Vec<_> = over.map(|waiter| waiter.ticket).collect();
        let served = self.naive.serve(|waiter| over.contains(&waiter.ticket));
        self.tell(served);
    }

    /// Returns how many holds a named session has: what lapsed or was flushed may still count.
    fn holds_of(&self, client: Client, session: SessionNo) -> Reply {
        let number = self.naive.session(client, session).map(|session| session.number);
        let bound = self.holds().filter(|(_, hold)| number.is_some() && hold.session == number).count();
        Reply::AtLeast(i64::try_from(bound).unwrap_or(i64::MAX))
    }

    /// Serves the requests for these keys whose turn has come, before a command looks at the keys.
    fn begin(&mut self, keys: &[KeyNo], owner: Who) {
        self.naive.begin_command(keys, owner);
        self.serve_keys(keys);
    }

    fn entered(&mut self, request: &Request, reply: naive::Reply) {
        if matches!(reply, naive::Reply::Granted(_)) {
            for key in &request.keys {
                self.late.remove(key);
                self.remains.remove(key);
            }
        }
    }

    /// Translates the naive model's answer to a request into a client's reply.
    fn answer_to(&self, request: &Request, reply: naive::Reply) -> Reply {
        let is_granted = matches!(reply, naive::Reply::Granted(_) | naive::Reply::Replayed(_));
        let slot = self.naive.slot_answer(request).filter(|_| is_granted);
        let reply = told(request, reply);
        match slot {
            Some(slot) => Reply::Numbered(Box::new(reply), slot),
            None => reply,
        }
    }

    // Changes without a command.

    /// Answers everybody whose turn has come, unless writes are paused.
    pub fn serve(&mut self) {
        if !self.is_paused {
            let served = self.naive.serve(|_| true);
            self.tell(served);
        }
    }

    fn serve_keys(&mut self, keys: &[KeyNo]) {
        let mut served = self.naive.serve(|waiter| waiter.keys.iter().any(|key| keys.contains(key)));
        // An owner that got several locks may wait for one of them once more: it enters in the same step.
        let more: Vec<KeyNo> = served.iter().flat_map(|(request, _)| request.keys.clone()).collect();
        served.extend(self.naive.serve(|waiter| matches!(waiter.keys[..], [key] if more.contains(&key))));
        self.tell(served);
    }

    fn tell(&mut self, served: Vec<(Request, naive::Reply)>) {
        for (waiter, reply) in served {
            self.entered(&waiter, reply);
            let reply = self.answer_to(&waiter, reply);
            self.told.push((waiter.ticket, reply));
        }
    }

    /// A client leaves its queues, with this answer.
    pub fn give_up(&mut self, client: Client, reply: Reply) {
        self.told.push((client, reply));
        self.naive.waiting.retain(|waiter| waiter.ticket != client);
        self.serve();
    }

    /// A connection is gone: it leaves its queues, and its holds end, at once or after the grace.
    pub fn disconnect(&mut self, client: Client) {
        self.naive.waiting.retain(|waiter| waiter.ticket != client);
        self.naive.end_session(client, self.grace);
        if !self.is_paused {
            self.naive.settle_sessions();
        }
        self.serve();
    }

    /// The pause of writes ends, and the server catches up.
    pub fn resume(&mut self) {
        self.is_paused = false;
        self.naive.settle_sessions();
        self.serve();
    }

    /// The lease of a hold has run out.
    pub fn lapse(&mut self, key: KeyNo, owner: Who, mode: Mode) {
        if let Some(found) = self.naive.keys.get_mut(key) {
            found.holds.retain(|hold| hold.owner != owner || hold.mode != mode);
        }
        self.naive.keep_early(key);
        self.serve();
    }

    // Commands of the server.

    /// `DEL`, or the end of a TTL.
    pub fn delete(&mut self, key: KeyNo) -> Reply {
        let existed = self.exists(key);
        self.forget(key);
        self.naive.clear(key);
        Reply::Integer(i64::from(existed))
    }

    /// `SET key text`.
    pub fn overwrite(&mut self, key: KeyNo) -> Reply {
        self.forget(key);
        self.naive.overwrite(key);
        Reply::Ok
    }

    /// `RENAME`, of two different keys.
    pub fn rename(&mut self, from: KeyNo, to: KeyNo) -> Reply {
        if !self.exists(from) {
            return Reply::Error("ERR no such key");
        }
        self.forget(to);
        for keys in [&mut self.late, &mut self.remains] {
            if keys.remove(&from) {
                keys.insert(to);
            }
        }
        self.naive.rename(from, to);
        Reply::Ok
    }

    /// `MOVE`.
    pub fn move_to(&mut self, from: KeyNo, to: KeyNo) -> Reply {
        if self.exists(to) || !self.exists(from) {
            return Reply::Integer(0);
        }
        self.rename(from, to);
        Reply::Integer(1)
    }

    /// `SWAPDB 0 1`: the locks change places, the queues do not.
    pub fn swap(&mut self) -> Reply {
        for keys in [&mut self.late, &mut self.remains] {
            *keys = keys.iter().map(|key| (key + KEYS.len() / 2) % KEYS.len()).collect();
        }
        self.naive.swap();
        Reply::Ok
    }

    /// `FLUSHALL`, or `FLUSHDB` of one database.
    pub fn flush(&mut self, db: Option<i32>) -> Reply {
        for key in (0..KEYS.len()).filter(|key| db.is_none_or(|db| db == db_of(*key))) {
            self.forget(key);
        }
        self.naive.flush(db);
        Reply::Ok
    }

    /// `PEXPIRE` in ms, or `PERSIST`.
    pub fn set_ttl(&mut self, key: KeyNo, ms: Option<u64>) -> Reply {
        if !self.exists(key) {
            return Reply::Integer(0);
        }
        let at = ms.map(|ms| self.naive.now() + ms);
        if let Some(found) = self.naive.keys.get_mut(key).filter(|found| !found.is_other) {
            let last = found.holds.iter().map(|hold| hold.deadline).max();
            found.early = at.filter(|at| last.is_some_and(|last| *at < last));
            if found.early.is_some() {
                self.late.remove(&key)
            } else {
                self.late.insert(key)
            };
        }
        // PERSIST says whether there was a TTL.
        if ms.is_some() { Reply::Integer(1) } else { Reply::Either }
    }

    /// Returns whether the timer may be about to remove a key that has outlived its holds: a request waits for the
    /// lock.
    pub fn is_due(&self, key: KeyNo) -> bool {
        let is_waited_for = !self.naive.queue(key).is_empty();
        let is_late = self.late.contains(&key) && !self.remains.contains(&key);
        !self.is_paused && is_late && is_waited_for && self.naive.live(key).next().is_none()
    }

    fn forget(&mut self, key: KeyNo) {
        self.late.remove(&key);
        self.remains.remove(&key);
    }

    // Lookups.

    /// Returns whether there is a key.
    pub fn exists(&self, key: KeyNo) -> bool {
        let is_held = self.naive.keys.get(key).is_some_and(|key| !key.holds.is_empty());
        is_held || self.is_other(key) || self.remains.contains(&key)
    }

    /// Returns whether a key has another type.
    pub fn is_other(&self, key: KeyNo) -> bool {
        self.naive.keys.get(key).is_some_and(|key| key.is_other)
    }

    /// Every live hold.
    pub fn holds(&self) -> impl Iterator<Item = (KeyNo, &Hold)> {
        (0..KEYS.len()).flat_map(|key| self.naive.live(key).map(move |hold| (key, hold)))
    }

    /// Counts the queues that requests wait in.
    pub fn queues(&self) -> usize {
        (0..KEYS.len()).filter(|key| !self.naive.queue(*key).is_empty()).count()
    }

    /// Returns whether a client waits.
    pub fn is_waiting(&self, client: Client) -> bool {
        self.naive.waiting.iter().any(|waiter| waiter.ticket == client)
    }

    /// An owner as the server knows it, once it is known.
    pub fn owner(&self, who: Who) -> Option<Vec<u8>> {
        match who {
            0 => Some(b"0f8fad5b-d9cb-469f-a165-70867728950e".to_vec()),
            1 => Some(b"\0\r\n\xff".to_vec()),
            2..OWNERS => Some(format!("owner-{who}").into_bytes()),
            _ => self.drawn.get(&who).cloned(),
        }
    }

    /// Returns whether this is the owner, as far as that is known: one that the server has generated is learned.
    pub fn is_owner(&mut self, who: Who, shown: &[u8]) -> bool {
        let is_known = |owner: Who| self.owner(owner).is_some_and(|owner| owner == shown);
        if self.owner(who).is_some() {
            return is_known(who);
        }
        let is_new = shown.len() == 36 && !self.drawn.keys().copied().chain(0..OWNERS).any(is_known);
        if is_new {
            self.drawn.insert(who, shown.to_vec());
        }
        is_new
    }

    /// Learns the real token of one that was made up: a new one, above `floor`.
    pub fn learn(&mut self, made_up: u64, token: u64, floor: u64) -> Result<(), String> {
        self.seen.insert(token);
        let holds = self.naive.keys.iter_mut().flat_map(|key| &mut key.holds);
        holds.filter(|hold| hold.token == made_up).for_each(|hold| hold.token = token);
        match self.tokens.insert(made_up, token) {
            None if token > floor => Ok(()),
            None => Err(format!("a new token, {token}, is not above {floor}")),
            Some(old) if old == token => Ok(()),
            Some(old) => Err(format!("the token is {token}, and was {old}")),
        }
    }

    /// Returns whether this renewal, whose lease is short, would renew a hold. `MINTOKEN` is left out.
    pub fn would_shorten(&self, key: KeyNo, renewal: Renewal) -> bool {
        let plain = Renewal {
            fence: if let Fence::Is(token) = renewal.fence { Fence::Is(token) } else { Fence::Any },
            ..renewal
        };
        matches!(self.naive.clone().renew(key, plain), naive::Reply::Number(_))
    }
}

/// Translates a reply to a request, without the number of its hold.
fn told(request: &Request, reply: naive::Reply) -> Reply {
    match reply {
        naive::Reply::Granted(token) | naive::Reply::Replayed(token) if request.is_drawn => {
            Reply::FreshOwner(request.owner, token)
        }
        reply => plain(reply),
    }
}

fn plain(reply: naive::Reply) -> Reply {
    match reply {
        naive::Reply::Granted(token) | naive::Reply::Replayed(token) => Reply::Token(token),
        naive::Reply::Waits | naive::Reply::TakesOver(_) => Reply::Later,
        naive::Reply::Nil => Reply::Nil,
        naive::Reply::Number(number) => Reply::Integer(i64::from(number)),
        naive::Reply::Deadlock => Reply::Error("DEADLOCK "),
        naive::Reply::SessionLease => Reply::Error("ERR SESSION needs a lease of at least 300 ms"),
        naive::Reply::NoSession => Reply::Error("NOSESSION "),
        naive::Reply::SessionAbsolute => Reply::Error("ERR a hold bound to a session cannot have an absolute lease"),
        naive::Reply::TooManyWaiters => Reply::Error("ERR max number of waiters reached: dlock.max-waiters"),
        naive::Reply::WrongType => Reply::Error("WRONGTYPE "),
        naive::Reply::Ambiguous => Reply::Error("AMBIGUOUS "),
    }
}

/// The operator's settings.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// `dlock.max-waiters`.
    pub max_waiters: Option<usize>,
    /// `dlock.session-grace`, in ms.
    pub grace: Option<u64>,
}

/// Returns the database of a key.
pub fn db_of(key: KeyNo) -> i32 {
    KEYS.get(key).map_or(0, |key| key.0)
}

/// How many owners there are, beside those that the server generates.
pub const OWNERS: Who = 7;
/// Tokens above this are made up: the server's count microseconds.
pub const UNKNOWN: u64 = 1 << 62;
/// The server's `dlock.default-lease`, in ms.
pub const DEFAULT_LEASE: u64 = 900_000;

/// How far the server's reading of the clock may be from ours, on a busy machine.
pub const SLACK_MS: u64 = 20_000;
