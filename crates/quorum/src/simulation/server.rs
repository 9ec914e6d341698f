//! A server with one lock: the module's engine over keys in memory.

use std::time::Duration;

use dlock_core::engine::{Answer as Waited, Call as Command, Entered, Left, Output, Role, Settings, WaiterId};
use dlock_core::{
    BindTo, ClientId, Command as Kind, Engine, Entries, Lease, LeaseChoice, Mode, Owner, Reach, Release, Renew,
    RenewToken, Request, RequestId, Token, TokenClock, Want,
};
use dlock_testkit::keyspace::{KeyName, MemoryKeyspace, name};

use super::clock::{Real, Wall};
use crate::{Answer, Ask, Call, Entry};

/// A call and its sender, which gets the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Origin {
    pub client: usize,
    /// The client's process, counted from 0.
    pub process: u32,
    /// The number of the client's acquisition.
    pub acquisition: u32,
    pub call: Call,
    pub mode: Mode,
    pub lease_ms: u64,
    /// Whether the server was too young to count when the call was sent.
    pub is_reserved: bool,
    /// When the server got the call.
    pub arrived: Real,
}

impl Origin {
    pub fn owner(&self) -> Owner {
        let mut bytes = [0; 16];
        let numbers = [self.client as u32, self.process, self.acquisition, self.call.attempt];
        for (place, number) in bytes.chunks_mut(4).zip(numbers) {
            place.copy_from_slice(&number.to_be_bytes());
        }
        Owner::from_uuid(bytes)
    }
}

pub type Answers = Vec<(Origin, Answer)>;

/// The state that a server loses when its process ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loss {
    Nothing,
    /// The token clock, but not the tokens of the stored holds. An AOF that was rewritten on Redis 7.0 loses that.
    TokenClock,
    All,
}

#[derive(Clone)]
pub struct Server {
    pub clock: Wall,
    pub is_up: bool,
    /// The number of times that the server has crashed. A crash ends the server's process, and a start begins the next.
    pub process: u32,
    /// The process does nothing before this time.
    pub stopped_until: Real,
    /// The state that a crash loses.
    pub loses: Loss,
    /// When the process was started, in unix seconds by the server's clock.
    started: u64,
    engine: Engine<Origin>,
    space: MemoryKeyspace,
    key: KeyName,
    waiting: Vec<(WaiterId, Origin)>,
}

const SETTINGS: Settings = Settings::new(Lease::MAX);

impl Server {
    pub fn new(clock: Wall, loses: Loss) -> Server {
        Server {
            clock,
            is_up: true,
            process: 0,
            stopped_until: 0,
            loses,
            // The first processes are older than the longest lease.
            started: 0,
            engine: Engine::new(0, SETTINGS),
            space: MemoryKeyspace::default(),
            key: (0, b"lock".to_vec()),
            waiting: Vec::new(),
        }
    }

    /// Ends the process, with the waits and what the server loses.
    pub fn crash(&mut self) {
        self.is_up = false;
        self.process += 1;
        self.waiting.clear();
        let mut tokens = self.engine.memory_mut().tokens;
        self.engine = Engine::new(0, SETTINGS);
        match self.loses {
            Loss::Nothing => self.space.reload(),
            Loss::TokenClock => {
                tokens = TokenClock::new();
                tokens.observe_all(self.space.lock(&self.key).stored_holds());
                self.space.reload();
            }
            Loss::All => {
                tokens = TokenClock::new();
                self.space.flush(None);
            }
        }
        self.engine.memory_mut().tokens = tokens;
    }

    pub fn start(&mut self, now: Real) {
        self.is_up = true;
        self.started = self.clock.read(now) / 1_000_000;
    }

    /// Returns whether a client other than this one has waited in the queue since before `since`.
    pub fn has_other_waiter(&self, since: Real, client: usize) -> bool {
        self.waiting.iter().any(|(_, from)| from.client != client && from.arrived < since)
    }

    /// Returns `uptime_in_seconds`.
    pub fn uptime(&self, now: Real) -> u64 {
        (self.clock.read(now) / 1_000_000).saturating_sub(self.started)
    }

    /// Runs a command. Returns a waiter if the command waits.
    pub fn run(&mut self, now: Real, from: Origin, answers: &mut Answers) -> Option<WaiterId> {
        let from = Origin { arrived: now, ..from };
        self.set_clock(now);
        let owner = from.owner();
        let answer = match from.call.ask {
            Ask::Ping => Answer::Done,
            Ask::Enter(entry) | Ask::Queue(entry, _) => match self.enter(owner, from, entry) {
                Ok(answer) => answer,
                Err(waiter) => {
                    self.waiting.push((waiter, from));
                    self.send(answers);
                    return Some(waiter);
                }
            },
            Ask::Repair(token) => {
                let lease = Duration::from_millis(from.lease_ms);
                let entry = Entry { lease, min_token: Some(token) };
                self.enter(owner, from, entry).unwrap_or(Answer::Failed)
            }
            Ask::Raise(token) => {
                let token = Token::new(token).map_or(RenewToken::Any, RenewToken::AtLeast);
                self.renew(&owner, from, token)
            }
            Ask::Renew => self.renew(&owner, from, RenewToken::Any),
            Ask::Release => {
                self.abandon(|waiting| waiting.owner() == owner);
                self.release(&owner)
            }
        };
        answers.push((from, answer));
        self.send(answers);
        None
    }

    /// Runs the timer, which does the work that is due.
    pub fn tick(&mut self, now: Real, answers: &mut Answers) {
        self.set_clock(now);
        self.engine.tick(&mut self.space, Role::Primary);
        self.send(answers);
    }

    /// Ends the wait of a request, which is answered with nil.
    pub fn unblock(&mut self, waiter: WaiterId, answers: &mut Answers) {
        if let Some(from) = self.engine.abandon(waiter) {
            self.waiting.retain(|(id, _)| *id != waiter);
            answers.push((from, Answer::Refused));
        }
    }

    /// Ends the waits whose time limit has passed.
    pub fn end_waits(&mut self, now: Real, answers: &mut Answers) {
        let is_over = |from: &Origin| match from.call.ask {
            Ask::Queue(_, Some(time)) => now >= from.arrived + time.as_micros() as u64,
            _ => false,
        };
        let over: Vec<WaiterId> = self.waiting.iter().filter(|(_, from)| is_over(from)).map(|(id, _)| *id).collect();
        over.into_iter().for_each(|waiter| self.unblock(waiter, answers));
    }

    /// Returns a text of the state on which the server's further behavior depends.
    pub fn fingerprint(&self) -> String {
        let lock = self.space.lock(&self.key);
        let holds: Vec<_> = lock.stored_holds().collect();
        let waiting: Vec<&Origin> = self.waiting.iter().map(|(_, from)| from).collect();
        format!("{holds:?} {:?} {waiting:?} {}", self.engine.memory().tokens, self.process)
    }

    /// Drops the connections of a client's process, whose waits end without answers.
    pub fn disconnect(&mut self, client: usize, process: u32) {
        self.abandon(|waiting| (waiting.client, waiting.process) == (client, process));
    }

    /// Returns the time for which the timer is set, if it is.
    pub fn next_tick(&self, now: Real) -> Option<Real> {
        let at = self.engine.wake_at()?;
        Some(self.clock.when(at.get() * 1000, now))
    }

    /// Runs a request for the lock. Returns the answer, or the waiter if the request waits.
    fn enter(&mut self, owner: Owner, from: Origin, entry: Entry) -> Result<Answer, WaiterId> {
        let want = match from.mode {
            Mode::Exclusive => Want::ExclusiveOnce,
            Mode::Shared => Want::Shared,
        };
        let lease = LeaseChoice::For(Lease::new(entry.lease.as_millis() as u64).unwrap());
        let kind = if want == Want::Shared { Kind::Rlock } else { Kind::Acquire };
        let is_repair = matches!(from.call.ask, Ask::Repair(_));
        // Each repair has the same id, so that a repeat gets the hold of the first one.
        let id = is_repair.then(|| Box::new(RequestId::new(kind, b"repair").unwrap()));
        let min_token = entry.min_token.and_then(Token::new);
        let request = Request { id, min_token, ..Request::new(owner, want, lease) };
        let wait = matches!(from.call.ask, Ask::Queue(..)).then_some(|_: WaiterId| from);
        let call = command(&self.space, &self.key);
        match self.engine.acquire(&mut self.space, call, &request, wait) {
            Ok(Entered::Granted(grant) | Entered::Replayed(grant)) => Ok(Answer::Granted(grant.token.get())),
            Ok(Entered::Waiting(waiter)) => Err(waiter),
            Ok(Entered::Refused) => Ok(Answer::Refused),
            Err(_) => Ok(Answer::Failed),
        }
    }

    fn renew(&mut self, owner: &Owner, from: Origin, token: RenewToken) -> Answer {
        let request = Renew { owner, mode: None, lease: lease(from), token };
        let call = command(&self.space, &self.key);
        match self.engine.renew(&mut self.space, call, &request, BindTo::Nothing) {
            Ok(Some(Reach::Asked)) => Answer::Done,
            Ok(None) => Answer::Gone,
            // A cap may shorten a renewal, but no request of the simulation has one.
            Ok(Some(Reach::Cap)) | Err(_) => Answer::Failed,
        }
    }

    fn release(&mut self, owner: &Owner) -> Answer {
        let request = Release { owner, mode: None, entries: Entries::All, token: None, request: None };
        let call = command(&self.space, &self.key);
        match self.engine.release(&mut self.space, call, &request) {
            Ok(Left::Fully | Left::Partly) => Answer::Done,
            Ok(Left::NotHeld) => Answer::Gone,
            Err(_) => Answer::Failed,
        }
    }

    /// Sends the engine's answers to waiters.
    fn send(&mut self, answers: &mut Answers) {
        for output in self.engine.take_outputs() {
            let Output::Answer(from, answer) = output else { continue };
            self.waiting.retain(|(_, waiting)| *waiting != from);
            let answer = match answer {
                Waited::Granted(grant, _) => Answer::Granted(grant.token.get()),
                Waited::Nil => Answer::Refused,
                Waited::Fault(_) => Answer::Failed,
            };
            answers.push((from, answer));
        }
        // The server has no replica, so nobody reads the stream.
        drop(self.space.take_stream());
    }

    /// Removes the matching waiters from the queue, without answers.
    fn abandon(&mut self, is_gone: impl Fn(&Origin) -> bool) {
        for (waiter, _) in self.waiting.extract_if(.., |(_, from)| is_gone(from)) {
            self.engine.abandon(waiter);
        }
    }

    fn set_clock(&mut self, now: Real) {
        self.space.set_now_us(self.clock.read(now));
    }
}

/// Returns the key, the time and the client of a command. No hold is bound to a session, so any client will do.
fn command<'a>(space: &MemoryKeyspace, key: &'a KeyName) -> Command<'a> {
    Command { name: name(key), now: dlock_core::Keyspace::now(space), client: ClientId(0) }
}

fn lease(from: Origin) -> LeaseChoice {
    LeaseChoice::For(Lease::new(from.lease_ms).unwrap())
}
