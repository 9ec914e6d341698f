//! A server for stories: the locks, the token clock and the time are real, keys and commands are just enough.
//!
//! | command | says |
//! |---|---|
//! | `at MS` | nothing: it is now so many ms after the story began |
//! | `on KEY` | nothing: the commands that follow are about this key |
//! | `acquire`, `racquire`, `rlock`, `wlock` `OWNER [lease] [REQUEST id]` | the token, or nil and why |
//! | the same with `BLOCK` | that it waits, and as whom: `w1`, `w2`, … |
//! | `serve` | a line a waiter that gets an answer |
//! | `leave w` | that this waiter left the line |
//! | `line` | a line a waiter, the head first |
//! | `blockers w` | the owners whose holds are in the way of this waiter, also by those ahead of it |
//! | `session OWNER READ\|WRITE [grace]` | 1 if the end of its session ended this hold, or nil |
//! | `release OWNER [READ\|WRITE] [ALL] [TOKEN t] [REQUEST id]` | as `DLOCK.RELEASE` |
//! | `renew OWNER [lease] [READ\|WRITE] [TOKEN t\|MINTOKEN t]` | as `DLOCK.RENEW` |
//! | `check t` | as `DLOCK.CHECK` |
//! | `info [OWNER owner\|FULL]` | as `DLOCK.INFO`, then a line a hold |
//! | `stored` | a line a hold, lapsed ones too |
//! | `expire MS`, `persist`, `ttl`, `del` | as `PEXPIRE`, `PERSIST`, `PTTL`, `DEL` |
//! | `sweep` | what the server does about a later `EXPIRE` or a `PERSIST` |
//! | `restart` | all locks saved and loaded by a server that remembers nothing else |
//! | `replicated` | the effects since it was last asked |
//!
//! `lease` is `EX s`, `PX ms`, `EXAT s` or `PXAT ms`; none: 30 s, as the server's default.

use std::collections::BTreeMap;

use dlock_core::{
    Acquire, Acquired, Change, Command, Effect, Entry, Expiry, Hold, Lease, Lock, LockMode, Mode, Owner, Reentry,
    Refusal, Release, Released, Renew, RenewToken, Renewed, Served, Token, TokenClock, UnixMs, Waiters, decode_lock,
    encode_lock,
};

use crate::options::{Options, Patience, Words};
use crate::tokens::TokenNames;
use crate::waiters::Lines;

#[derive(Default)]
pub struct Stage {
    now: u64,
    key: String,
    keys: BTreeMap<String, Key>,
    lines: Lines,
    tokens: TokenClock,
    names: TokenNames,
    replicated: Vec<String>,
}

#[derive(Default)]
struct Key {
    lock: Lock,
    /// When the server deletes the key. `None`: never.
    end: Option<UnixMs>,
}

impl Stage {
    /// Does what a line of a story says; what it says to that.
    pub fn run(&mut self, line: &str) -> Vec<String> {
        let mut words = Words(line.split_whitespace());
        let command = words.word();
        let said = match command {
            "at" => return self.at(words.number()),
            "on" => return self.on(words.word()),
            "acquire" => vec![self.acquire(Command::Acquire, &mut words, Mode::Exclusive, Reentry::Refuse)],
            "racquire" => vec![self.acquire(Command::Racquire, &mut words, Mode::Exclusive, Reentry::Count)],
            "wlock" => vec![self.acquire(Command::Wlock, &mut words, Mode::Exclusive, Reentry::Count)],
            "rlock" => vec![self.acquire(Command::Rlock, &mut words, Mode::Shared, Reentry::Count)],
            "serve" => self.serve(),
            "leave" => vec![self.lines.leave(words.word())],
            "line" => self.line(),
            "blockers" => self.blockers(words.word()),
            "session" => vec![self.end_session(&mut words)],
            "release" => vec![self.release(&mut words)],
            "renew" => vec![self.renew(&mut words)],
            "check" => vec![self.check(words.word())],
            "info" => self.info(&mut words),
            "stored" => self.stored(),
            "expire" => vec![self.expire(words.number())],
            "persist" => vec![self.persist()],
            "ttl" => vec![self.ttl()],
            "del" => vec![self.keys.remove(&self.key).map_or("0", |_| "1").to_owned()],
            "sweep" => {
                vec![self.apply(Effect { clock: self.clock(), change: Change::Sweep, waiters: Waiters::None })]
            }
            "restart" => vec![self.restart()],
            "replicated" => self.replicated(),
            _ => panic!("{command}: no such command"),
        };
        assert_eq!(words.next(), None, "left over in {line}");
        said
    }

    fn at(&mut self, ms: u64) -> Vec<String> {
        self.now = ms;
        let clock = self.clock();
        self.keys.retain(|_, key| key.end.is_none_or(|end| clock < end));
        Vec::new()
    }

    fn on(&mut self, key: &str) -> Vec<String> {
        self.key = key.to_owned();
        Vec::new()
    }

    fn acquire(&mut self, command: Command, words: &mut Words, mode: Mode, reentry: Reentry) -> String {
        let owner = owner(words.word());
        let Options { lease, request, patience, .. } = Options::parse(command, words, &mut self.names);
        let request = Acquire { owner: &owner, mode, reentry, lease, request: request.as_ref() };
        let (lock, now, fresh) = (self.lock(), self.clock(), self.fresh());
        match self.lines.of(&self.key).decide(&lock, now, &request, DEFAULT_LEASE, fresh) {
            Acquired::Granted { token, entry, effect } => self.enter(token, entry, effect),
            Acquired::Replayed(hold) => format!("{} (replayed)", self.names.name(hold.token)),
            Acquired::Refused(Refusal::Held) if patience == Patience::Block => {
                self.lines.wait(&self.key, &lock, now, &request)
            }
            Acquired::Refused(Refusal::Owned) if patience == Patience::Block => "DEADLOCK (owned)".to_owned(),
            Acquired::Refused(refusal) => format!("nil ({})", reason(refusal)),
        }
    }

    fn enter(&mut self, token: Token, entry: Entry, effect: Effect) -> String {
        let name = match entry {
            Entry::First => self.names.give(token),
            Entry::Again => self.names.name(token),
        };
        self.apply(effect);
        name
    }

    /// Serves the line until its head cannot be granted.
    fn serve(&mut self) -> Vec<String> {
        let mut said = Vec::new();
        loop {
            let (lock, now, fresh) = (self.lock(), self.clock(), self.fresh());
            let Some(served) = self.lines.of(&self.key).serve(&lock, now, DEFAULT_LEASE, fresh) else { break };
            let (waiting, answer) = match served {
                Served::Granted { waiting, token, entry, effect } => (waiting, self.enter(token, entry, effect)),
                Served::Replayed(waiting, hold) => (waiting, format!("{} (replayed)", self.names.name(hold.token))),
                Served::Refused(waiting, refusal) => (waiting, format!("nil ({})", reason(refusal))),
            };
            self.lines.forget(waiting.ticket);
            said.push(format!("w{} {}: {answer}", waiting.ticket, text(&waiting.owner)));
        }
        if said.is_empty() { vec!["nobody".to_owned()] } else { said }
    }

    fn line(&mut self) -> Vec<String> {
        let line = self.lines.of(&self.key);
        assert_eq!((line.len(), line.is_empty()), (line.iter().count(), line.iter().next().is_none()));
        let waiting = line.iter().map(|waiting| {
            let (owner, mode, since) = (text(&waiting.owner), name_of(waiting.mode), story_time(waiting.since));
            format!("w{} {owner} {mode} since={since}", waiting.ticket)
        });
        let waiting: Vec<String> = waiting.collect();
        with_list(format!("waiters: {}", waiting.len()), &waiting)
    }

    fn blockers(&mut self, name: &str) -> Vec<String> {
        let mode = self.lines.waits_for(name);
        let owners: Vec<String> = self.lock().owners_in_the_way(mode, self.clock()).map(text).collect();
        with_list(format!("owners: {}", owners.len()), &owners)
    }

    fn end_session(&mut self, words: &mut Words) -> String {
        let owner = owner(words.word());
        let mode = if words.word() == "READ" { Mode::Shared } else { Mode::Exclusive };
        let grace = words.next().and_then(|ms| Lease::new(ms.parse().expect("a grace in ms")));
        let lock = self.lock();
        let bound = lock.live_holds_of(&owner, self.clock()).find(|hold| hold.mode == mode);
        let token = bound.map_or(Token::MAX, |hold| hold.token);
        let effect = lock.end_session(self.clock(), &owner, mode, token, grace);
        let Some(effect) = effect else { return "nil".to_owned() };
        self.apply(effect);
        "1".to_owned()
    }

    fn release(&mut self, words: &mut Words) -> String {
        let owner = owner(words.word());
        let options = Options::parse(Command::Release, words, &mut self.names);
        let Options { mode, entries, token, request, .. } = options;
        let request = Release { owner: &owner, mode, entries, token, request: request.as_ref() };
        let (reply, effect) = match self.lock().release(self.clock(), &request) {
            Released::Replayed => return "0 (replayed)".to_owned(),
            Released::NotHeld => return "nil".to_owned(),
            Released::Ambiguous => return "AMBIGUOUS".to_owned(),
            Released::Partly(effect) => ("0", effect),
            Released::Fully(effect) => ("1", effect),
        };
        self.apply(effect);
        reply.to_owned()
    }

    fn renew(&mut self, words: &mut Words) -> String {
        let owner = owner(words.word());
        // A renewal has no REQUEST.
        let options = Options::parse(Command::Release, words, &mut self.names);
        let Options { lease, mode, token, min_token, .. } = options;
        let token = match (token, min_token) {
            (Some(token), _) => RenewToken::Is(token),
            (None, Some(floor)) if TokenClock::is_too_far_ahead(floor, self.clock().get() * 1000) => {
                return "ERR more than a day ahead".to_owned();
            }
            (None, Some(floor)) => RenewToken::AtLeast(floor),
            (None, None) => RenewToken::Any,
        };
        let Renewed::Moved(first, second) =
            self.lock().renew(self.clock(), &Renew { owner: &owner, mode, lease, token })
        else {
            return "nil".to_owned();
        };
        min_token.into_iter().for_each(|floor| self.names.lift(floor));
        self.apply(first);
        second.into_iter().for_each(|second| drop(self.apply(second)));
        "1".to_owned()
    }

    fn check(&mut self, name: &str) -> String {
        let token = self.names.resolve(name);
        let deadline = self.lock().deadline_of(token, self.clock());
        deadline.map_or("nil".to_owned(), |deadline| self.left(deadline).to_string())
    }

    fn info(&mut self, words: &mut Words) -> Vec<String> {
        let (lock, now) = (self.lock(), self.clock());
        let Some(summary) = lock.summary(now) else { return vec!["nil".to_owned()] };
        let mode = match summary.mode {
            LockMode::Exclusive => "exclusive",
            LockMode::Shared => "shared",
            LockMode::Both => "both",
        };
        let (holders, count) = (summary.holders, summary.entries);
        let (token, ttl) = (self.names.name(summary.token), self.left(summary.deadline));
        let hold = |hold: &Hold| format!("{} ttl={}", self.describe(hold), self.left(hold.deadline));
        let holds = match words.next() {
            None => Vec::new(),
            Some("OWNER") => lock.live_holds_of(&owner(words.word()), now).map(hold).collect(),
            Some("FULL") => lock.live_holds(now).map(hold).collect(),
            Some(word) => panic!("{word}: no such option"),
        };
        with_list(format!("{mode} holders={holders} count={count} token={token} ttl={ttl}"), &holds)
    }

    fn stored(&self) -> Vec<String> {
        let lapsed = |hold: &Hold| if hold.is_live(self.clock()) { "" } else { " lapsed" };
        let line = |hold: &Hold| format!("{} until={}{}", self.describe(hold), story_time(hold.deadline), lapsed(hold));
        let lines: Vec<String> = self.lock().stored_holds().map(line).collect();
        with_list(format!("stored: {}", lines.len()), &lines)
    }

    fn expire(&mut self, ms: u64) -> String {
        let end = time(self.now + ms);
        self.keys.get_mut(&self.key).map_or("0", |key| key.end.replace(end).map_or("1", |_| "1")).to_owned()
    }

    fn persist(&mut self) -> String {
        self.keys.get_mut(&self.key).and_then(|key| key.end.take()).map_or("0", |_| "1").to_owned()
    }

    fn ttl(&self) -> String {
        match self.keys.get(&self.key).map(|key| key.end) {
            None => "no key".to_owned(),
            Some(None) => "no end".to_owned(),
            Some(Some(end)) => match self.lock().last_deadline() {
                Some(last) if end.since(last) == Waiters::GRACE_MS => format!("{} and the grace", self.left(last)),
                Some(_) | None => end.since(self.clock()).to_string(),
            },
        }
    }

    fn restart(&mut self) -> String {
        self.tokens = TokenClock::new();
        for key in self.keys.values_mut() {
            let mut bytes = Vec::new();
            encode_lock(&key.lock, &mut bytes);
            key.lock = decode_lock(&bytes).expect("what was saved");
            self.tokens.observe_all(key.lock.stored_holds());
        }
        "OK".to_owned()
    }

    fn replicated(&mut self) -> Vec<String> {
        let effects = std::mem::take(&mut self.replicated);
        with_list(format!("effects: {}", effects.len()), &effects)
    }

    /// Changes the lock and the end of its key, and replicates. Says how many lapsed holds went.
    fn apply(&mut self, effect: Effect) -> String {
        let waiters = if self.lines.of(&self.key).is_empty() { Waiters::None } else { Waiters::Some };
        let effect = Effect { waiters, ..effect };
        self.replicated.push(self.effect(&effect));
        let key = self.keys.entry(self.key.clone()).or_default();
        let applied = key.lock.apply(effect, &mut self.tokens);
        match key.lock.last_deadline() {
            Some(last) => key.end = Some(applied.expiry.key_deadline(|| key.end, last, applied.waiters)),
            None => drop(self.keys.remove(&self.key)),
        }
        format!("{} lapsed", applied.lapsed)
    }

    fn effect(&self, effect: &Effect) -> String {
        let what = match &effect.change {
            Change::Put { hold, expiry } => {
                let expiry = match expiry {
                    Expiry::Anew => "anew",
                    Expiry::Keep => "kept",
                };
                format!("put {} until={} expiry={expiry}", self.describe(hold), story_time(hold.deadline))
            }
            Change::Remove { owner, mode } => format!("remove {} {}", text(owner), mode.map_or("both", name_of)),
            Change::Sweep => "sweep".to_owned(),
        };
        let waiters = match effect.waiters {
            Waiters::None => "",
            Waiters::Some => " waiters",
        };
        format!("{}: {what}{waiters}", story_time(effect.clock))
    }

    fn describe(&self, hold: &Hold) -> String {
        let (owner, mode, token) = (text(&hold.owner), name_of(hold.mode), self.names.name(hold.token));
        let request = hold.request.as_ref().map_or(String::new(), |request| {
            format!(" request={:?}:{}", request.command(), request.id().escape_ascii()).to_lowercase()
        });
        format!("{owner} {mode} count={} lease={} token={token}{request}", hold.count, hold.lease.get())
    }

    /// What is left until `deadline`, never more than the key has.
    fn left(&self, deadline: UnixMs) -> u64 {
        let end = self.keys.get(&self.key).and_then(|key| key.end);
        end.map_or(deadline, |end| end.min(deadline)).since(self.clock())
    }

    fn lock(&self) -> Lock {
        self.keys.get(&self.key).map_or_else(Lock::default, |key| key.lock.clone())
    }

    fn fresh(&self) -> Option<Token> {
        self.tokens.next(self.clock().get() * 1000)
    }

    fn clock(&self) -> UnixMs {
        time(self.now)
    }
}

/// The time so many ms after a story began.
pub fn time(ms: u64) -> UnixMs {
    UnixMs::new(BEGIN_MS + ms)
}

fn story_time(time: UnixMs) -> u64 {
    time.get() - BEGIN_MS
}

fn owner(word: &str) -> Owner {
    Owner::new(word.as_bytes()).expect("an owner of 1 to 1024 bytes")
}

fn text(owner: &Owner) -> String {
    String::from_utf8_lossy(&owner.text()).into_owned()
}

fn name_of(mode: Mode) -> &'static str {
    match mode {
        Mode::Exclusive => "exclusive",
        Mode::Shared => "shared",
    }
}

fn reason(refusal: Refusal) -> &'static str {
    match refusal {
        Refusal::Held => "held",
        Refusal::Owned => "owned",
        Refusal::LeasePassed => "lease passed",
        Refusal::TooManyEntries => "too many entries",
        Refusal::NoToken => "no token",
    }
}

/// One line, and the list that belongs to it.
fn with_list(line: String, list: &[String]) -> Vec<String> {
    std::iter::once(line).chain(list.iter().map(|item| format!("  {item}"))).collect()
}

const BEGIN_MS: u64 = 1_000_000;
const DEFAULT_LEASE: Lease = Lease::new(30_000).expect("in range");
