//! How an action is done: a server with its engine and its keys, its connections, and a replica.

use std::collections::BTreeMap;

use dlock_core::engine::{Answer, Call, Detail, Entered, Fault, Input, Left, Output, Role, Settings, WaiterId};
use dlock_core::{
    ClientId, Command, Engine, Entries, Hold, Keyspace, Lease, LeaseChoice, Memory, Mode, Name, RenewToken, Request,
    Token, UnixMs,
};
use dlock_testkit::keyspace::{KeyName, MemoryKeyspace, Replicated, RunningRelease, name};

use super::action::{self, Action, ClientNo, Enter, Fence, KeyNo, Release, Renew, Who, key_name, who};
use super::scope::{Scope, Turns};

/// A server, its connections and its replica.
#[derive(Clone)]
pub struct World {
    /// A ticket is the id of the client that waits.
    pub(super) engine: Engine<u64>,
    pub(super) space: MemoryKeyspace,
    pub(super) replica: MemoryKeyspace,
    pub(super) replica_memory: Memory,
    pub(super) role: Role,
    /// The id of each connection.
    pub(super) clients: Vec<u64>,
    /// The requests that wait, in the order in which they came.
    pub(super) waiting: Vec<Waiting>,
    /// Until then the timer has not tried again what the server did not allow.
    pub(super) catches_up_at: u64,
    pub(super) refuses_writes: bool,
    /// The highest token that was granted.
    pub(super) highest: u64,
    keys: usize,
}

/// A request that waits.
#[derive(Clone, Debug)]
pub struct Waiting {
    pub id: WaiterId,
    pub ticket: u64,
    pub enter: Enter,
    pub is_upgrade: bool,
}

/// A hold as everybody sees it: one whose session has ended is none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Held {
    pub key: KeyNo,
    pub owner: Who,
    pub mode: Mode,
    pub count: u64,
    pub lease: u64,
    /// When it ends, if nothing happens.
    pub end: u64,
    pub token: u64,
    pub request: Option<(Command, u8)>,
    pub session: Option<u64>,
}

/// What an action was answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// It was no command.
    None,
    Granted(u64),
    Replayed(u64),
    Waits,
    /// It took the place of the same request, sent before.
    TakesOver,
    Nil,
    Fault(Fault),
    /// What `RELEASE` and `RENEW` reply.
    Number(u8),
}

/// What somebody was told.
#[derive(Clone, Debug)]
pub struct Told {
    pub waiting: Waiting,
    pub answer: Answer,
}

/// The result of an action.
pub struct Happened {
    pub reply: Reply,
    /// Whose wait ended, in order.
    pub told: Vec<Told>,
    /// What was replicated.
    pub stream: Vec<(KeyName, Replicated)>,
    /// How often the timer ran.
    pub ticks: u32,
}

/// All times are multiples of it, so that the random part of a renewal does not matter.
pub const GRID_MS: u64 = 10;
const HALF_MS: u64 = 50;
const BEGIN_MS: u64 = 1_000_000;
/// When the timer tries again what the server did not allow.
pub const RETRY_MS: u64 = 20;
const DEFAULT_LEASE: u64 = 100;
/// How often a timer runs in a turn before that is called restless.
pub const MOST_TICKS: u32 = 50;

impl World {
    pub fn new(scope: &Scope) -> World {
        World {
            engine: Engine::new(7, settings(scope)),
            space: MemoryKeyspace::at(BEGIN_MS),
            // Its clock stands still: a replica removes nothing by itself.
            replica: MemoryKeyspace::default(),
            replica_memory: Memory::new(),
            role: Role::Primary,
            clients: (1..=scope.clients as u64).collect(),
            waiting: Vec::new(),
            catches_up_at: 0,
            refuses_writes: false,
            highest: 0,
            keys: scope.keys,
        }
    }

    pub(super) fn keys(&self) -> usize {
        self.keys
    }

    pub(super) fn now(&self) -> u64 {
        self.space.ms()
    }

    pub(super) fn is_due(&self) -> bool {
        self.engine.wake_at().is_some_and(|at| at.get() <= self.now())
    }

    /// The holds that count.
    pub fn holds(&mut self) -> Vec<Held> {
        let mut holds = Vec::new();
        for key in 0..self.keys {
            let (key_name, now) = (key_name(key), self.space.now());
            let expiry = self.space.expiry(&key_name).flatten().map(UnixMs::new);
            let lock = self.space.lock(&key_name);
            let shown = self.engine.inspect(name(&key_name), lock, expiry, now, &Detail::Full(usize::MAX));
            for shown in shown.and_then(|shown| shown.holds).unwrap_or_default() {
                let end = now.ms().get() + shown.ttl;
                holds.push(held(key, &shown.hold, end, shown.session.map(|client| client.0)));
            }
        }
        holds
    }

    pub fn is_waiting(&self, client: ClientNo) -> bool {
        self.waiting.iter().any(|waiting| waiting.ticket == self.clients[client])
    }

    /// Does what happens.
    pub fn act(&mut self, scope: &Scope, action: &Action) -> Happened {
        let mut happened = Happened { reply: Reply::None, told: Vec::new(), stream: Vec::new(), ticks: 0 };
        match action {
            Action::Enter(enter) => happened.reply = self.enter(enter, &mut happened.told),
            Action::Release(release) => happened.reply = self.release(release),
            Action::Renew(renew) => happened.reply = self.renew(renew),
            Action::Pass => self.pass_until_due(),
            Action::PassHalf => self.pass(HALF_MS),
            Action::Tick => self.tick(&mut happened),
            Action::Delete(key) => self.space.delete(&key_name(*key)),
            Action::Flush => {
                self.replicate(&mut happened);
                self.space.flush(None);
                self.replica.flush(None);
                self.input(Input::Flushed(None));
            }
            Action::Unblock(client) => self.abandon(self.clients[*client]),
            Action::Gone(client) => {
                let id = self.clients[*client];
                self.clients[*client] += self.clients.len() as u64;
                self.input(Input::ClientGone(ClientId(id)));
                self.abandon(id);
            }
            Action::Pause => self.role = Role::HeldStill,
            Action::Resume => {
                self.role = Role::Primary;
                self.catches_up_at = self.now() + RETRY_MS;
            }
            Action::RefuseWrites | Action::AcceptWrites => self.refuse_writes(*action == Action::RefuseWrites),
            Action::Demote => {
                self.role = Role::Replica;
                self.input(Input::RoleChanged);
                self.unblock_all();
            }
            Action::Promote => {
                self.input(Input::RoleChanged);
                self.role = Role::Primary;
            }
            Action::FailOver => self.fail_over(scope, &mut happened),
        }
        self.hear();
        self.take_answers(&mut happened.told);
        if scope.turns == Turns::EndWithEachAction {
            while self.is_due() && happened.ticks < MOST_TICKS {
                self.tick(&mut happened);
            }
        }
        self.replicate(&mut happened);
        happened
    }

    // Commands.

    fn enter(&mut self, enter: &Enter, told: &mut Vec<Told>) -> Reply {
        let Enter { client, owner, keys, how } = enter;
        let names: Vec<KeyName> = keys.iter().map(|key| key_name(*key)).collect();
        let names: Vec<Name<'_>> = names.iter().map(name).collect();
        let ticket = client.map_or(0, |client| self.clients[client]);
        let call = Call { name: names[0], now: self.space.now(), client: ClientId(ticket) };
        let ask = Request {
            id: how.request.map(|id| Box::new(action::request(how.want.command(), id))),
            session: how.binds,
            ..Request::new(action::owner(*owner), how.want.want(), LeaseChoice::For(lease(how.lease)))
        };
        let wait = how.blocks.then_some(|_: WaiterId| ticket);
        let is_upgrade = how.want.want() == dlock_core::Want::Exclusive
            && self.holds().iter().any(|hold| hold.owner == *owner && hold.key == keys[0] && hold.mode == Mode::Shared);
        let entered = if how.want == action::Wanted::All {
            self.engine.acquire_all(&mut self.space, call, &names, &ask, wait)
        } else {
            self.engine.acquire(&mut self.space, call, &ask, wait)
        };
        match entered {
            Ok(Entered::Granted(token)) => Reply::Granted(token.get()),
            Ok(Entered::Replayed(token)) => Reply::Replayed(token.get()),
            Ok(Entered::Refused) => Reply::Nil,
            Err(fault) => Reply::Fault(fault),
            Ok(Entered::Waiting(id)) => match self.waiting.iter().position(|waiting| waiting.id == id) {
                None => {
                    self.waiting.push(Waiting { id, ticket, enter: enter.clone(), is_upgrade });
                    Reply::Waits
                }
                Some(at) => {
                    // The first hears of it by an answer.
                    let first = self.waiting[at].clone();
                    (self.waiting[at].ticket, self.waiting[at].enter) = (ticket, enter.clone());
                    told.push(Told { waiting: first, answer: Answer::Nil });
                    Reply::TakesOver
                }
            },
        }
    }

    fn release(&mut self, release: &Release) -> Reply {
        let Release { key, owner, how } = release;
        let running = RunningRelease {
            owner: action::owner(*owner),
            mode: how.mode,
            entries: how.entries.map_or(Entries::All, |entries| Entries::Some(action::number(entries))),
            token: self.token(*key, *owner, how.mode, how.token),
            request: how.request.map(|id| action::request(Command::Release, id)),
        };
        self.space.running = Some(running.clone());
        let key_name = key_name(*key);
        let call = Call { name: name(&key_name), now: self.space.now(), client: ClientId(0) };
        let left = self.engine.release(&mut self.space, call, &running.request());
        self.space.running = None;
        match left {
            Ok(Left::NotHeld) => Reply::Nil,
            Ok(Left::Partly) => Reply::Number(0),
            Ok(Left::Fully) => Reply::Number(1),
            Err(fault) => Reply::Fault(fault),
        }
    }

    fn renew(&mut self, renew: &Renew) -> Reply {
        let Renew { client, key, owner, how } = renew;
        let token = self.token(*key, *owner, None, how.token).map_or(RenewToken::Any, RenewToken::Is);
        let owner = action::owner(*owner);
        let lease = how.lease.map_or(LeaseChoice::Own, |ms| LeaseChoice::For(lease(ms)));
        let request = dlock_core::Renew { owner: &owner, mode: None, lease, token };
        let key_name = key_name(*key);
        let client = ClientId(client.map_or(0, |client| self.clients[client]));
        let call = Call { name: name(&key_name), now: self.space.now(), client };
        match self.engine.renew(&mut self.space, call, &request, how.binds) {
            Ok(true) => Reply::Number(1),
            Ok(false) => Reply::Nil,
            Err(fault) => Reply::Fault(fault),
        }
    }

    /// The token that a command names.
    pub(super) fn token(&mut self, key: KeyNo, owner: Who, mode: Option<Mode>, fence: Fence) -> Option<Token> {
        let holds = self.holds();
        let mut on_key = holds.iter().filter(|hold| hold.key == key);
        let named = |hold: &&Held| hold.owner == owner && mode.is_none_or(|mode| mode == hold.mode);
        let token = match fence {
            Fence::None => return None,
            Fence::Mine => on_key.rfind(named),
            Fence::Other => on_key.find(|hold| !named(hold)),
        };
        Token::new(token.map_or(NEVER, |hold| hold.token))
    }

    // Time.

    fn pass(&mut self, ms: u64) {
        self.space.set_now_us((self.now() + ms) * 1000);
    }

    /// To the next moment at which a lease or a key ends, or the timer wants to run.
    fn pass_until_due(&mut self) {
        let now = self.now();
        let ends = (0..self.keys).flat_map(|key| {
            let (key, mut ends) = (key_name(key), Vec::new());
            ends.extend(self.space.lock(&key).stored_holds().map(|hold| hold.deadline.get()));
            ends.extend(self.space.expiry(&key).flatten().map(|at| at + 1));
            ends
        });
        let wakes = self.engine.wake_at().map(UnixMs::get);
        let next = ends.chain(wakes).filter(|at| *at > now).min();
        let next = next.map_or(now + GRID_MS, |at| at.next_multiple_of(GRID_MS));
        self.pass(next - now);
    }

    fn tick(&mut self, happened: &mut Happened) {
        self.engine.tick(&mut self.space, self.role);
        self.take_answers(&mut happened.told);
        happened.ticks += 1;
    }

    // What the server does.

    fn refuse_writes(&mut self, refuses: bool) {
        self.refuses_writes = refuses;
        let permit = |key| (key_name(key), dlock_core::engine::Permission::ReleaseOnly);
        self.space.permissions = if refuses { (0..self.keys).map(permit).collect() } else { BTreeMap::new() };
        if !refuses {
            self.catches_up_at = self.now() + RETRY_MS;
        }
    }

    fn fail_over(&mut self, scope: &Scope, happened: &mut Happened) {
        self.unblock_all();
        self.replicate(happened);
        let now_us = self.now() * 1000;
        self.space = std::mem::take(&mut self.replica);
        self.space.set_now_us(now_us);
        self.replica = self.space.clone();
        self.replica.set_now_us(0);
        self.engine = Engine::new(7, settings(scope));
        *self.engine.memory_mut() = self.replica_memory.clone();
        self.role = Role::Primary;
        for client in &mut self.clients {
            *client += scope.clients as u64;
        }
        self.refuse_writes(false);
        self.catches_up_at = 0;
    }

    /// Has the replica do what this server has replicated.
    fn replicate(&mut self, happened: &mut Happened) {
        let stream = self.space.take_stream();
        MemoryKeyspace::replay_on(stream.clone(), &mut self.replica, &mut self.replica_memory);
        happened.stream.extend(stream);
    }

    /// The engine hears which locks went.
    fn hear(&mut self) {
        for key in self.space.take_unlinked() {
            self.input(Input::Removed(name(&key)));
        }
    }

    fn input(&mut self, input: Input<'_>) {
        self.engine.input(input, self.space.now());
    }

    fn unblock_all(&mut self) {
        while let Some(waiting) = self.waiting.first() {
            self.abandon(waiting.ticket);
        }
    }

    fn abandon(&mut self, ticket: u64) {
        if let Some(at) = self.waiting.iter().position(|waiting| waiting.ticket == ticket) {
            let waiting = self.waiting.remove(at);
            assert_eq!(self.engine.abandon(waiting.id), Some(ticket), "the engine does not know a waiter");
        }
    }

    fn take_answers(&mut self, told: &mut Vec<Told>) {
        for output in self.engine.take_outputs() {
            let Output::Answer(ticket, answer) = output else { continue };
            // Of a place that was taken over, `enter` has told.
            if told.iter().any(|told| told.waiting.ticket == ticket && answer == Answer::Nil) {
                continue;
            }
            let at = self.waiting.iter().position(|waiting| waiting.ticket == ticket);
            let waiting = self.waiting.remove(at.expect("an answer to somebody who does not wait"));
            told.push(Told { waiting, answer });
        }
    }
}

fn held(key: KeyNo, hold: &Hold, end: u64, session: Option<u64>) -> Held {
    Held {
        key,
        owner: who(&hold.owner),
        mode: hold.mode,
        count: u64::from(hold.count),
        lease: hold.lease.get(),
        end,
        token: hold.token.get(),
        request: hold.request.as_deref().map(|request| (request.command(), request.id()[0])),
        session,
    }
}

fn settings(scope: &Scope) -> Settings {
    Settings {
        default_lease: lease(DEFAULT_LEASE),
        max_waiters: scope.max_waiters,
        session_grace: scope.grace.map(lease),
    }
}

fn lease(ms: u64) -> Lease {
    Lease::new(ms).expect("a lease in its range")
}

/// A token that no hold ever had.
const NEVER: u64 = 7;
