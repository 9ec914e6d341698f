//! What the core answers: its lock, its line and its clock of tokens, in the hands of commands as they are sent.

use dlock_core::{
    Acquire, Acquired, Command, Effect, Entries, Entry, Lease, LeaseChoice, Line, Lock, LockMode, Mode, Owner, Place,
    Reentry, Refusal, Release, Released, Renew, RenewToken, Renewed, Request, Served, Token, TokenClock, UnixMs,
    encode_lock,
};

use super::Op;
use crate::history::Reply;

/// A server with one lock.
#[derive(Clone, Debug, Default)]
pub struct Model {
    lock: Lock,
    /// Who waits, by the number of the command.
    line: Line<usize>,
    places: Vec<(usize, Place)>,
    tokens: TokenClock,
    /// Unix ms of the last command.
    now_ms: u64,
    /// The commands that have been answered, as bits.
    answered: u64,
}

/// What tells one state of a [`Model`] from others, beside its time.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Fingerprint {
    lock: Vec<u8>,
    line: Vec<usize>,
    token: u64,
    answered: u64,
}

impl Model {
    /// The commands that have been answered, as bits. One that waits has been executed and is not answered yet.
    pub fn answered(&self) -> u64 {
        self.answered
    }

    /// Every state in which the server may be after it executed this command, and after that gave the replies that
    /// were seen. None: it cannot have.
    pub fn after_op(&self, ops: &[Op], at: usize) -> Vec<Model> {
        let Some(op) = ops.get(at) else { return Vec::new() };
        let words: Vec<&str> = op.command.split_whitespace().collect();
        let is_look = matches!(words.first(), Some(&"DLOCK.CHECK" | &"DLOCK.INFO"));
        let mut states: Vec<Model> = Vec::new();
        for now_ms in self.now_ms.max(op.from_ms)..=op.until_ms {
            let state = if is_look {
                // It changes nothing, so it does not serve the line either.
                self.at(now_ms).run(at, &words, &op.reply)
            } else {
                let served = self.at(now_ms).serve(ops);
                served.and_then(|state| state.run(at, &words, &op.reply)).and_then(|state| state.serve(ops))
            };
            // The same state earlier is as good: whatever follows may come later.
            states.extend(state.filter(|state| states.last().map(Model::fingerprint) != Some(state.fingerprint())));
        }
        states
    }

    /// Every state in which the server may be after it did something by itself: granted a waiter when a lease had
    /// ended, or sent one away whose time was up.
    pub fn by_itself(&self, ops: &[Op]) -> Vec<Model> {
        let mut states = Vec::new();
        let head = self.head(ops).and_then(|op| token_of(&op.reply));
        if let Some(token) = head
            && token.get() / 1000 >= self.now_ms
        {
            let served = self.at(token.get() / 1000).serve(ops);
            states.extend(served.filter(|state| state.answered != self.answered));
        }
        for (at, place) in &self.places {
            let Some(op) = ops.get(*at).filter(|op| op.reply == Reply::Nil) else { continue };
            let limit =
                value(&op.command.split_whitespace().collect::<Vec<_>>(), "BLOCK").and_then(|ms| ms.parse().ok());
            let due = self.now_ms.max(op.from_ms + limit.unwrap_or(0_u64));
            let mut state = self.at(due);
            if due <= op.until_ms && state.line.leave(*place).is_some() {
                states.push(state.answer(*at));
            }
        }
        states
    }

    /// What tells this state from others, and its time.
    pub fn key(&self) -> (Fingerprint, u64) {
        (self.fingerprint(), self.now_ms)
    }

    fn fingerprint(&self) -> Fingerprint {
        let mut lock = Vec::new();
        encode_lock(&self.lock, &mut lock);
        let line = self.line.iter().map(|waiting| waiting.ticket).collect();
        Fingerprint { lock, line, token: self.tokens.last(), answered: self.answered }
    }

    fn at(&self, now_ms: u64) -> Model {
        Model { now_ms, ..self.clone() }
    }

    fn answer(mut self, at: usize) -> Model {
        self.answered |= 1 << at;
        self.places.retain(|(waits, _)| *waits != at);
        self
    }

    /// The command whose turn is next.
    fn head<'a>(&self, ops: &'a [Op]) -> Option<&'a Op> {
        let head = self.line.iter().next()?.ticket;
        ops.get(head)
    }

    /// Serves the line as far as it goes. `None`: those who are served were told something else.
    fn serve(mut self, ops: &[Op]) -> Option<Model> {
        while let Some(op) = self.head(ops) {
            let seen = token_of(&op.reply);
            let fresh = seen.or_else(|| self.tokens.next(self.now_ms * 1000));
            let Some(served) = self.line.serve(&self.lock, self.now(), Lease::MAX, fresh) else { break };
            let (at, is_right, effect) = match served {
                Served::Granted { waiting, token, entry, effect } => {
                    let is_right = Some(token) == seen && (entry == Entry::Again || self.may_be_next(token));
                    (waiting.ticket, is_right, Some(effect))
                }
                Served::Replayed(waiting, hold) => (waiting.ticket, Some(hold.token) == seen, None),
                Served::Refused(waiting, _) => (waiting.ticket, op.reply == Reply::Nil, None),
            };
            if !is_right || self.now_ms > op.until_ms {
                return None;
            }
            self = self.answer(at);
            self = match effect {
                Some(effect) => self.apply(effect),
                None => self,
            };
        }
        Some(self)
    }

    /// The state after the command, if the core gives this reply or has it wait.
    fn run(self, at: usize, words: &[&str], reply: &Reply) -> Option<Model> {
        let (verb, rest) = words.split_first()?;
        let (_, rest) = rest.split_first()?;
        let command = match *verb {
            "DLOCK.ACQUIRE" => Command::Acquire,
            "DLOCK.RACQUIRE" => Command::Racquire,
            "DLOCK.RLOCK" => Command::Rlock,
            "DLOCK.WLOCK" => Command::Wlock,
            "DLOCK.RELEASE" => return self.release(rest, reply).map(|state| state.answer(at)),
            "DLOCK.RENEW" => return self.renew(rest, reply).map(|state| state.answer(at)),
            "DLOCK.CHECK" => return self.check(rest, reply).map(|state| state.answer(at)),
            "DLOCK.INFO" => return self.info(reply).map(|state| state.answer(at)),
            _ => return None,
        };
        self.acquire(at, command, rest, reply)
    }

    fn acquire(mut self, at: usize, command: Command, words: &[&str], reply: &Reply) -> Option<Model> {
        let (mode, reentry) = match command {
            Command::Acquire => (Mode::Exclusive, Reentry::Refuse),
            Command::Racquire | Command::Wlock => (Mode::Exclusive, Reentry::Count),
            Command::Rlock => (Mode::Shared, Reentry::Count),
            Command::Release => return None,
        };
        let (owner, request) = (owner(words)?, request(command, words));
        let lease = LeaseChoice::For(lease(words)?);
        let asked = Acquire { owner: &owner, mode, reentry, lease, request: request.as_ref() };
        let (seen, waits) = (token_of(reply), words.contains(&"BLOCK"));
        let fresh = seen.or_else(|| self.tokens.next(self.now_ms * 1000));
        match self.line.decide(&self.lock, self.now(), &asked, Lease::MAX, fresh) {
            Acquired::Granted { token, entry, effect } => {
                let is_right = Some(token) == seen && (entry == Entry::Again || self.may_be_next(token));
                is_right.then(|| self.apply(effect).answer(at))
            }
            Acquired::Replayed(hold) => (Some(hold.token) == seen).then(|| self.answer(at)),
            Acquired::Refused(Refusal::Held) if waits => match self.line.join(&self.lock, self.now(), &asked, at) {
                Ok(place) => {
                    self.places.push((at, place));
                    Some(self)
                }
                Err(_) => reply.is_error("DEADLOCK").then(|| self.answer(at)),
            },
            Acquired::Refused(_) if waits => reply.is_error("DEADLOCK").then(|| self.answer(at)),
            Acquired::Refused(_) => (*reply == Reply::Nil).then(|| self.answer(at)),
        }
    }

    /// Whether a new hold may have this token: one more than the last, or the time in µs if that is more.
    fn may_be_next(&self, token: Token) -> bool {
        let (token, last) = (token.get(), self.tokens.last());
        token > last && (token / 1000 == self.now_ms || (token == last + 1 && self.now_ms <= token / 1000))
    }

    fn release(self, words: &[&str], reply: &Reply) -> Option<Model> {
        let (owner, request) = (owner(words)?, request(Command::Release, words));
        let entries = if words.contains(&"ALL") { Entries::All } else { Entries::One };
        let token = value(words, "TOKEN").and_then(|token| Token::new(token.parse().ok()?));
        let asked = Release { owner: &owner, mode: mode(words), entries, token, request: request.as_ref() };
        match (self.lock.release(self.now(), &asked), reply) {
            (Released::NotHeld, Reply::Nil) | (Released::Replayed, Reply::Int(0)) => Some(self),
            (Released::Ambiguous, reply) if reply.is_error("AMBIGUOUS") => Some(self),
            (Released::Partly(effect), Reply::Int(0)) | (Released::Fully(effect), Reply::Int(1)) => {
                Some(self.apply(effect))
            }
            _ => None,
        }
    }

    fn renew(self, words: &[&str], reply: &Reply) -> Option<Model> {
        let owner = owner(words)?;
        let lease = LeaseChoice::For(lease(words)?);
        let asked = Renew { owner: &owner, mode: mode(words), lease, token: RenewToken::Any };
        match (self.lock.renew(self.now(), &asked), reply) {
            (Renewed::NotHeld, Reply::Nil) => Some(self),
            (Renewed::Moved(first, second), Reply::Int(1)) => {
                let moved = self.apply(first);
                Some(match second {
                    Some(second) => moved.apply(second),
                    None => moved,
                })
            }
            _ => None,
        }
    }

    fn check(self, words: &[&str], reply: &Reply) -> Option<Model> {
        let token = Token::new(words.first()?.parse().ok()?)?;
        let left = self.lock.deadline_of(token, self.now()).map(|deadline| deadline.since(self.now()));
        let is_right = match (left, reply) {
            (None, Reply::Nil) => true,
            (Some(left), Reply::Int(answer)) => left == answer.unsigned_abs(),
            _ => false,
        };
        is_right.then_some(self)
    }

    fn info(self, reply: &Reply) -> Option<Model> {
        let Some(summary) = self.lock.summary(self.now()) else { return (*reply == Reply::Nil).then_some(self) };
        let mode = match summary.mode {
            LockMode::Exclusive => "exclusive",
            LockMode::Shared => "shared",
            LockMode::Both => "both",
        };
        let numbers = [
            ("holders", summary.holders),
            ("count", summary.entries),
            ("token", summary.token.get()),
            ("ttl", summary.deadline.since(self.now())),
            ("waiters", self.line.len() as u64),
        ];
        let pairs = numbers.map(|(name, number)| [text(name), Reply::Int(number.cast_signed())]);
        let expected = [[text("mode"), text(mode)]].into_iter().chain(pairs).flatten().collect();
        (*reply == Reply::List(expected)).then_some(self)
    }

    fn apply(mut self, effect: Effect) -> Model {
        self.lock.apply(effect, &mut self.tokens);
        self
    }

    fn now(&self) -> UnixMs {
        UnixMs::new(self.now_ms)
    }
}

fn token_of(reply: &Reply) -> Option<Token> {
    match reply {
        Reply::Int(token) => Token::new(token.unsigned_abs()),
        _ => None,
    }
}

fn text(text: &str) -> Reply {
    Reply::Text(text.to_owned())
}

fn owner(words: &[&str]) -> Option<Owner> {
    Owner::new(words.first()?.as_bytes())
}

fn value<'a>(words: &[&'a str], option: &str) -> Option<&'a str> {
    words.iter().skip_while(|word| **word != option).nth(1).copied()
}

fn lease(words: &[&str]) -> Option<Lease> {
    Lease::new(value(words, "PX")?.parse().ok()?)
}

fn request(command: Command, words: &[&str]) -> Option<Request> {
    Request::new(command, value(words, "REQUEST")?.as_bytes())
}

fn mode(words: &[&str]) -> Option<Mode> {
    match (words.contains(&"READ"), words.contains(&"WRITE")) {
        (true, _) => Some(Mode::Shared),
        (false, true) => Some(Mode::Exclusive),
        (false, false) => None,
    }
}
