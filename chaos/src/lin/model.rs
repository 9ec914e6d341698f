//! What the core answers: its lock and its clock of tokens, in the hands of commands as they are sent.

use dlock_core::{
    Acquire, Acquired, Command, Effect, Entries, Entry, Lease, LeaseChoice, Lock, LockMode, Mode, Owner, Reentry,
    Release, Released, Renew, RenewToken, Renewed, Request, Token, TokenClock, UnixMs, encode_lock,
};

use super::Op;
use crate::connection::Reply;

/// A server with one lock.
#[derive(Clone, Debug, Default)]
pub struct Model {
    lock: Lock,
    tokens: TokenClock,
    /// Unix ms of the last command.
    now_ms: u64,
}

impl Model {
    /// A server that has given `token`, and whose lock is free.
    pub fn after(token: u64) -> Model {
        let mut tokens = TokenClock::new();
        if let Some(token) = Token::new(token) {
            tokens.observe(token);
        }
        Model { tokens, ..Model::default() }
    }

    /// Every state in which the server may be after it gave this reply to this command. None: it cannot have.
    pub fn after_op(&self, op: &Op) -> Vec<Model> {
        let words: Vec<&str> = op.command.split_whitespace().collect();
        let times = self.now_ms.max(op.from_ms)..=op.until_ms;
        let mut states: Vec<Model> = Vec::new();
        for now_ms in times {
            let Some(state) = self.at(now_ms).run(&words, &op.reply) else { continue };
            // The same lock earlier is as good: whatever follows may come later.
            if states.last().is_none_or(|last| last.key().0 != state.key().0) {
                states.push(state);
            }
        }
        states
    }

    /// What tells this state from others.
    pub fn key(&self) -> (Vec<u8>, u64, u64) {
        let mut bytes = Vec::new();
        encode_lock(&self.lock, &mut bytes);
        (bytes, self.tokens.last(), self.now_ms)
    }

    fn at(&self, now_ms: u64) -> Model {
        Model { now_ms, ..self.clone() }
    }

    /// The state after the command, if the core gives this reply.
    fn run(self, words: &[&str], reply: &Reply) -> Option<Model> {
        let (verb, rest) = words.split_first()?;
        let (_, rest) = rest.split_first()?;
        match *verb {
            "DLOCK.ACQUIRE" => self.acquire(Command::Acquire, rest, reply),
            "DLOCK.RACQUIRE" => self.acquire(Command::Racquire, rest, reply),
            "DLOCK.RLOCK" => self.acquire(Command::Rlock, rest, reply),
            "DLOCK.WLOCK" => self.acquire(Command::Wlock, rest, reply),
            "DLOCK.RELEASE" => self.release(rest, reply),
            "DLOCK.RENEW" => self.renew(rest, reply),
            "DLOCK.CHECK" => self.check(rest, reply),
            "DLOCK.INFO" => self.info(reply),
            _ => None,
        }
    }

    fn acquire(self, command: Command, words: &[&str], reply: &Reply) -> Option<Model> {
        let (owner, options) = (owner(words)?, words);
        let (mode, reentry) = match command {
            Command::Acquire => (Mode::Exclusive, Reentry::Refuse),
            Command::Racquire | Command::Wlock => (Mode::Exclusive, Reentry::Count),
            Command::Rlock => (Mode::Shared, Reentry::Count),
            Command::Release => return None,
        };
        let request = request(command, options);
        let lease = LeaseChoice::For(lease(options)?);
        let asked = Acquire { owner: &owner, mode, reentry, lease, request: request.as_ref() };
        let answered = match reply {
            Reply::Int(token) => Token::new(token.unsigned_abs()),
            _ => None,
        };
        let fresh = answered.or_else(|| self.tokens.next(self.now_ms * 1000));
        match self.lock.acquire(self.now(), &asked, Lease::MAX, fresh) {
            Acquired::Granted { token, entry, effect } => {
                let is_right = Some(token) == answered && (entry == Entry::Again || self.may_be_next(token));
                is_right.then(|| self.apply(effect))
            }
            Acquired::Replayed(hold) => (Some(hold.token) == answered).then_some(self),
            Acquired::Refused(_) => (*reply == Reply::Nil).then_some(self),
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
            ("waiters", 0),
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
