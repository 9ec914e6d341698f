//! The contract: the testkit's model of it, with commands as they are sent.

use std::num::NonZeroU32;

use dlock_core::{Command, Entries, Lease as LongestLease, Mode, Want};
use dlock_testkit::histories::leave::{Fence, Leave, Renewal};
use dlock_testkit::histories::naive::{self, Naive, Request, Turn};
use dlock_testkit::histories::{Asked, How, KeyNo, Lease, Who};

use super::Op;
use crate::history::Reply;
use crate::words::Words;

/// A server with two locks.
#[derive(Clone, Debug)]
pub struct Model {
    naive: Naive,
    /// The commands that have been answered, as bits.
    answered: u64,
}

/// The state of a [`Model`] as numbers, without its time. Equal states have equal fingerprints.
pub type Fingerprint = Vec<u64>;

impl Default for Model {
    fn default() -> Model {
        Model { naive: Naive::new(0, LongestLease::MAX.get(), None), answered: 0 }
    }
}

impl Model {
    /// The commands that have been answered, as bits. One that waits has been executed and is not answered yet.
    pub fn answered(&self) -> u64 {
        self.answered
    }

    /// Every state in which the server may be after it executed this command and then gave the replies that were seen.
    /// An empty list: it cannot have done so.
    pub fn after_op(&self, ops: &[Op], at: usize) -> Vec<Model> {
        let Some((op, words)) = ops.get(at).and_then(|op| Some((op, Words::of(&op.command)?))) else {
            return Vec::new();
        };
        let keys: Vec<KeyNo> = words.keys().map(key_no).collect();
        let is_look = matches!(words.verb, "CHECK" | "INFO");
        // A new token is the time in µs, unless the last was as high: these times explain the tokens that were seen.
        let waiting = self.naive.waiting.iter().filter_map(|waiter| ops.get(index(waiter.ticket)));
        let tokens: Vec<u64> = waiting.chain([op]).filter_map(|op| token_of(&op.reply)).collect();
        let mut states: Vec<(Fingerprint, Model)> = Vec::new();
        for now_ms in self.naive.now().max(op.from_ms)..=op.until_ms {
            let of_this_ms = tokens.iter().copied().filter(|token| token / 1000 == now_ms);
            for now_us in [now_ms * 1000].into_iter().chain(of_this_ms) {
                let state = if is_look {
                    // The command changes nothing, so it does not serve the queue either.
                    self.at(now_us).run(ops, at, &words)
                } else {
                    let served = self.at(now_us).serve(ops, &keys);
                    served.and_then(|state| state.run(ops, at, &words)).and_then(|state| state.serve(ops, &keys))
                };
                add_new(&mut states, state);
            }
        }
        states.into_iter().map(|(_, state)| state).collect()
    }

    /// Every state in which the server may be after it did something by itself: granted a waiter when a lease had
    /// ended, or sent one away whose time was up.
    pub fn by_itself(&self, ops: &[Op]) -> Vec<Model> {
        let mut states = Vec::new();
        for waiter in &self.naive.waiting {
            let Some(op) = ops.get(index(waiter.ticket)) else { continue };
            let mut served: Vec<(Fingerprint, Model)> = Vec::new();
            for now_us in self.grant_times(op) {
                let state = self.at(now_us).serve(ops, &waiter.keys);
                add_new(&mut served, state.filter(|state| state.answered != self.answered));
            }
            states.extend(served.into_iter().map(|(_, state)| state));
            if op.reply == Reply::Nil {
                let limit = Words::of(&op.command).and_then(|words| words.number("BLOCK")).unwrap_or(0);
                let due = self.naive.now().max(op.from_ms + limit);
                if due <= op.until_ms {
                    states.push(self.at(due * 1000).leave(waiter.ticket));
                }
            }
        }
        states
    }

    /// Returns when this waiter may have been granted, in µs. A new token is that time. More permits keep the token that
    /// the owner had: the grant may then have been in any ms up to the reply.
    fn grant_times(&self, op: &Op) -> Vec<u64> {
        let now = self.naive.now();
        match token_of(&op.reply) {
            Some(token) if token <= self.naive.last_token => (now..=op.until_ms).map(|now_ms| now_ms * 1000).collect(),
            token => token.into_iter().filter(|token| token / 1000 >= now).collect(),
        }
    }

    /// Returns the fingerprint of this state, and its time.
    pub fn key(&self) -> (Fingerprint, u64) {
        (self.fingerprint(), self.naive.now())
    }

    fn fingerprint(&self) -> Fingerprint {
        let mut numbers = vec![self.answered, self.naive.last_token];
        for key in &self.naive.keys {
            let mut holds: Vec<&naive::Hold> = key.holds.iter().collect();
            holds.sort_unstable_by_key(|hold| (hold.token, hold.owner, hold.mode));
            numbers.push(holds.len() as u64);
            for hold in holds {
                let (command, id) = hold.request.map_or((0, 0), |(command, id)| (1 + command as u64, u64::from(id)));
                numbers.extend([hold.owner as u64, hold.mode as u64, hold.count, hold.lease, hold.deadline]);
                numbers.extend([hold.token, command, id]);
            }
        }
        numbers.extend(self.naive.waiting.iter().map(|waiter| waiter.ticket));
        numbers
    }

    fn at(&self, now_us: u64) -> Model {
        let mut state = self.clone();
        state.naive.advance(now_us);
        state
    }

    fn answer(mut self, at: u64) -> Model {
        self.answered |= 1 << at;
        self
    }

    /// The waiter leaves, and is answered.
    fn leave(mut self, ticket: u64) -> Model {
        self.naive.waiting.retain(|waiter| waiter.ticket != ticket);
        self.answer(ticket)
    }

    /// Serves the queues of these locks as far as they go. `None`: a waiter that this serves was told something else.
    fn serve(mut self, ops: &[Op], keys: &[KeyNo]) -> Option<Model> {
        loop {
            let concerned = |waiter: &&Request| waiter.keys.iter().any(|key| keys.contains(key));
            let mut turns = self.naive.waiting.iter().filter(concerned).map(|waiter| (waiter, self.naive.turn(waiter)));
            let Some((waiter, turn)) = turns.find(|(_, turn)| *turn != Turn::NotYet) else { return Some(self) };
            let (waiter, op) = (waiter.clone(), ops.get(index(waiter.ticket))?);
            self = self.leave(waiter.ticket);
            let expected = match turn {
                Turn::Enters(_) => Reply::Int(self.naive.enter(&waiter).cast_signed()),
                Turn::Recorded(token) => Reply::Int(token.cast_signed()),
                Turn::LeasePassed => Reply::Nil,
                Turn::NotYet | Turn::SessionLease | Turn::NoSession => return None,
            };
            if op.reply != expected || self.naive.now() > op.until_ms {
                return None;
            }
        }
    }

    /// The state after the command, if the model gives this reply or has it wait.
    fn run(self, ops: &[Op], at: usize, words: &Words<'_>) -> Option<Model> {
        let reply = &ops.get(at)?.reply;
        let state = match words.verb {
            "RELEASE" => self.release(words, reply),
            "RENEW" => self.renew(words, reply),
            "CHECK" => self.check(words, reply),
            "INFO" => self.info(words, reply),
            _ => return self.acquire(ops, at, words, reply),
        };
        state.map(|state| state.answer(at as u64))
    }

    fn acquire(mut self, ops: &[Op], at: usize, words: &Words<'_>, reply: &Reply) -> Option<Model> {
        let request = Request {
            ticket: at as u64,
            client: 0,
            owner: owner(words)?,
            is_drawn: false,
            keys: words.keys().map(key_no).collect(),
            how: how(words)?,
            since: 0,
            is_upgrade: false,
            session: None,
        };
        let is_right = match self.naive.acquire(request) {
            naive::Reply::Waits => return Some(self),
            // The first request is told nil.
            naive::Reply::TakesOver(first) => {
                return (ops.get(index(first))?.reply == Reply::Nil).then(|| self.answer(first));
            }
            naive::Reply::Granted(token) | naive::Reply::Replayed(token) => token_of(reply) == Some(token),
            naive::Reply::Nil => *reply == Reply::Nil,
            naive::Reply::Deadlock => reply.is_error("DEADLOCK"),
            _ => false,
        };
        is_right.then(|| self.answer(at as u64))
    }

    fn release(mut self, words: &Words<'_>, reply: &Reply) -> Option<Model> {
        let entries = match words.number("PERMITS") {
            _ if words.has("ALL") => Entries::All,
            Some(permits) => Entries::Some(count(permits)?),
            None => Entries::ONE,
        };
        let (token, asked) = (words.number("TOKEN"), asked(words, Command::Release));
        let leave = Leave { owner: owner(words)?, mode: mode(words), entries, token, asked };
        let expected = self.naive.release(key_no(words.key()), leave);
        is_reply(expected, reply).then_some(self)
    }

    fn renew(mut self, words: &Words<'_>, reply: &Reply) -> Option<Model> {
        let (owner, mode, lease) = (owner(words)?, mode(words), lease(words)?);
        let renewal = Renewal { client: 0, owner, mode, lease, fence: Fence::Any, binds: false, named: None };
        let expected = self.naive.renew(key_no(words.key()), renewal);
        is_reply(expected, reply).then_some(self)
    }

    fn check(self, words: &Words<'_>, reply: &Reply) -> Option<Model> {
        let (token, now) = (words.third.parse().ok()?, self.naive.now());
        let of_it = self.naive.live(key_no(words.key())).filter(|hold| hold.token == token);
        let expected = of_it.map(|hold| hold.deadline).max().map_or(Reply::Nil, |end| number(end - now));
        (*reply == expected).then_some(self)
    }

    fn info(self, words: &Words<'_>, reply: &Reply) -> Option<Model> {
        let key = key_no(words.key());
        let holds: Vec<&naive::Hold> = self.naive.live(key).collect();
        let waiters = self.naive.queue(key).len();
        if holds.is_empty() && waiters == 0 {
            return (*reply == Reply::Nil).then_some(self);
        }
        let has = |mode| holds.iter().any(|hold| hold.mode == mode);
        let mode = match (has(Mode::Exclusive), has(Mode::Shared)) {
            (true, true) => "both",
            (true, false) => "exclusive",
            (false, true) => "shared",
            (false, false) => "free",
        };
        let holders = if mode == "both" { 1 } else { holds.len() as u64 };
        let end = holds.iter().map(|hold| hold.deadline).max();
        let fields = [
            ("mode", text(mode)),
            ("holders", number(holders)),
            ("count", number(holds.iter().map(|hold| hold.count).sum())),
            ("token", holds.iter().map(|hold| hold.token).max().map_or(Reply::Nil, number)),
            ("ttl", number(end.map_or(0, |end| end - self.naive.now()))),
            ("waiters", number(waiters as u64)),
        ];
        let expected = fields.into_iter().flat_map(|(name, value)| [text(name), value]).collect();
        (*reply == Reply::List(expected)).then_some(self)
    }
}

/// Adds a state, unless it is known. The same state earlier is as good: whatever follows may come later.
fn add_new(states: &mut Vec<(Fingerprint, Model)>, state: Option<Model>) {
    let Some(state) = state else { return };
    let fingerprint = state.fingerprint();
    if states.iter().all(|(known, _)| *known != fingerprint) {
        states.push((fingerprint, state));
    }
}

/// Returns the request of an acquiring command.
fn how(words: &Words<'_>) -> Option<How> {
    let how = How::new(Command::acquiring(words.verb)?);
    let want = if words.verb == "SACQUIRE" {
        let limit = count(words.limit()?)?;
        Want::Permits { permits: count(words.number("PERMITS").unwrap_or(1))?, limit }
    } else {
        how.want
    };
    let id = asked(words, how.command).map(|(_, id)| id);
    Some(How { want, lease: lease(words)?, blocks: words.has("BLOCK"), id, ..how })
}

/// Returns the owner as a number: its bytes, of which there are at most eight.
fn owner(words: &Words<'_>) -> Option<Who> {
    let number = words.third.bytes().try_fold(0_u64, |number, byte| Some(number.checked_mul(256)? + u64::from(byte)));
    usize::try_from(number?).ok()
}

fn lease(words: &Words<'_>) -> Option<Lease> {
    words.number("PX").map(Lease::For)
}

/// Returns the request that this command repeats or records. The last byte of its id is its number.
fn asked(words: &Words<'_>, command: Command) -> Option<Asked> {
    Some((command, words.value("REQUEST")?.bytes().last()?))
}

fn mode(words: &Words<'_>) -> Option<Mode> {
    match (words.has("READ"), words.has("WRITE")) {
        (true, _) => Some(Mode::Shared),
        (false, true) => Some(Mode::Exclusive),
        (false, false) => None,
    }
}

/// The second lock of a history ends with a plus.
fn key_no(key: &str) -> KeyNo {
    usize::from(key.ends_with('+'))
}

fn count(number: u64) -> Option<NonZeroU32> {
    NonZeroU32::new(number.try_into().ok()?)
}

fn is_reply(expected: naive::Reply, reply: &Reply) -> bool {
    match expected {
        naive::Reply::Number(is) => *reply == number(u64::from(is)),
        naive::Reply::Nil => *reply == Reply::Nil,
        naive::Reply::Ambiguous => reply.is_error("AMBIGUOUS"),
        _ => false,
    }
}

fn token_of(reply: &Reply) -> Option<u64> {
    match reply {
        Reply::Int(token) => Some(token.unsigned_abs()),
        _ => None,
    }
}

fn text(text: &str) -> Reply {
    Reply::Text(text.to_owned())
}

fn number(number: u64) -> Reply {
    Reply::Int(number.cast_signed())
}

/// Returns the place of a command among the operations. The ticket of its request is that number.
fn index(ticket: u64) -> usize {
    usize::try_from(ticket).unwrap_or(usize::MAX)
}
