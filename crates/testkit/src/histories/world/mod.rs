//! Plays a history on the engine and on the naive model, and compares them after every step.

mod commands;
mod keys;
mod sessions;
mod turn;

use std::collections::BTreeSet;

use dlock_core::engine::Answer;
use dlock_core::engine::{Input, Role, Settings};
use dlock_core::{ClientId, Command, Engine, Memory};

use super::how::How;
use super::leave::{Fence, Leave, Renewal};
use super::naive::{Counts, Naive, Request};
use super::ops::{History, Op, Step};
use super::plain;
use super::reached::Reached;
use crate::histories::naive::Hold;
use crate::histories::values::{CLIENTS, ClientNo, KEYS, KeyNo, Lease, Somebody, TokenPick, TokenRule, Who};
use crate::keyspace::MemoryKeyspace;
use crate::memory_server::MemoryServer;

/// A primary, a replica, and the model of both.
#[derive(Clone)]
pub struct World {
    pub(super) server: MemoryServer,
    pub(super) replica: MemoryKeyspace,
    pub(super) replica_memory: Memory,
    pub(super) naive: Naive,
    /// `dlock.session-grace`, in ms.
    pub(super) grace: Option<u64>,
    /// The id of each client's connection. The ids of a client differ by multiples of [`CLIENTS`].
    clients: [u64; CLIENTS],
    /// The last ticket that a request got. A ticket names a request that may wait.
    tickets: u64,
    /// The last owner that the server has generated.
    drawn: Who,
    /// The last request with an id.
    sent: Option<Request>,
    /// Keys whose TTL a client has extended or removed, and that no effect has changed since.
    pub(super) late: BTreeSet<KeyNo>,
    /// Keys that have expired early, and that the timer has removed.
    removed_by_timer: BTreeSet<KeyNo>,
    /// When the timer ran last, in µs of the monotonic clock.
    pub(super) ran_at: u64,
    /// For each key, the time by which the watchdog repeats a renewal that the server has refused, in ms.
    retry_by: [u64; KEYS.len()],
    /// The state of a server of a deployment, besides its locks.
    pub(super) deployed: Option<Deployed>,
    /// Keys whose lock was overwritten. They have no waiters after the timer has run.
    overwritten: BTreeSet<KeyNo>,
    pub(super) reached: Reached,
}

impl World {
    /// Plays a history. Panics if the engine and the model do not agree.
    pub fn play(history: &History) -> Reached {
        let mut world = World::begin(history);
        for step in &history.steps {
            world.step(step);
        }
        world.reached
    }

    /// Returns the world in which a history begins.
    pub fn begin(history: &History) -> World {
        let mut world = World::new(history);
        world.gather(history.crowd);
        world
    }

    pub(super) fn new(history: &History) -> World {
        let History { default_lease, grace, max_waiters, .. } = *history;
        let settings = Settings {
            max_waiters,
            session_grace: grace.map(plain::lease),
            ..Settings::new(plain::lease(default_lease))
        };
        World {
            naive: Naive { has_users: true, ..Naive::new(BEGIN_MS * 1000, default_lease, max_waiters) },
            server: MemoryServer::new(settings, MemoryKeyspace::at(BEGIN_MS)),
            // The replica's clock stands still: a replica removes nothing by itself.
            replica: MemoryKeyspace::default(),
            replica_memory: Memory::new(),
            grace,
            clients: std::array::from_fn(|client| 1 + client as u64),
            tickets: 0,
            drawn: 1000,
            sent: None,
            late: BTreeSet::new(),
            removed_by_timer: BTreeSet::new(),
            ran_at: BEGIN_MS * 1000,
            retry_by: [0; KEYS.len()],
            deployed: None,
            overwritten: BTreeSet::new(),
            reached: Reached::default(),
        }
    }

    /// Lets a crowd of owners hold the first lock shared. Their numbers begin at 100, beyond those of fixed owners.
    fn gather(&mut self, crowd: usize) {
        for number in 0..crowd {
            let how = How { lease: Lease::For(500), binds: true, ..How::new(Command::Rlock) };
            self.enter(number % CLIENTS, Some(Somebody::Any(100 + number)), vec![0], how);
        }
    }

    /// Plays a step, and compares the engine with the model.
    pub fn step(&mut self, step: &Step) {
        self.play_step(step);
        self.compare();
    }

    /// Plays a step without comparing, for a caller that has played the same step before.
    pub fn play_step(&mut self, step: &Step) {
        self.notice_expired();
        let is_up = self.server.role == Role::Primary;
        match &step.op {
            Op::Wait(us) => self.wait(*us),
            Op::ClientGone(client) => self.client_gone(*client),
            Op::Abandon(at) => self.abandon(*at),
            Op::FailOver => self.fail_over(),
            Op::Idle(turns) => self.idle(*turns),
            Op::Beat { client, session, only, timeout } if self.server.role != Role::Replica => {
                self.beat(*client, *session, *only, *timeout);
            }
            Op::Close(client, session) if self.server.role != Role::Replica => self.close_session(*client, *session),
            Op::Beat { .. } | Op::Close(..) => {}
            Op::Blind(is_blind) => (self.server.space.is_blind, self.naive.is_blind) = (*is_blind, *is_blind),
            Op::Resume if self.server.role == Role::HeldStill => self.become_primary(),
            Op::Promote if self.server.role == Role::Replica => {
                self.input(Input::RoleChanged);
                self.naive.sessions.clear();
                self.become_primary();
            }
            Op::Demote => self.demote(),
            Op::Pause if is_up => self.server.role = Role::HeldStill,
            Op::Enter { client, owner, keys, how } if is_up => {
                self.open_for(*client, how);
                self.enter(*client, *owner, keys.clone(), *how);
            }
            Op::Resend { client, block } if is_up => self.resend(*client, *block),
            Op::Release { key, who, mode, entries, token, id } if is_up => {
                let owner = self.find(*key, *who);
                let token = token.map(|pick| self.pick(*key, owner, pick));
                let asked = id.map(|id| (Command::Release, id));
                self.release(*key, Leave { owner, mode: *mode, entries: *entries, token, asked });
            }
            Op::Renew { client, key, who, mode, lease, token, binds, named } if is_up => {
                let owner = self.find(*key, *who);
                let fence = match token {
                    TokenRule::Any => Fence::Any,
                    TokenRule::Is(pick) => Fence::Is(self.pick(*key, owner, *pick)),
                    TokenRule::AtLeast(pick, more) => Fence::AtLeast(self.pick(*key, owner, *pick) + more),
                };
                let (client, lease) = (self.clients[*client], self.lease(*lease));
                self.renew(*key, Renewal { client, owner, mode: *mode, lease, fence, binds: *binds, named: *named });
            }
            op if is_up => self.change_keys(op),
            _ => {}
        }
        if step.then_tick {
            self.tick();
        }
    }

    // Time and clients.

    /// Lets time pass.
    fn wait(&mut self, us: u64) {
        let now = self.naive.now_us + us;
        self.server.space.set_now_us(now);
        self.naive.advance(now);
        self.notice_expired();
    }

    /// Removes the holds of expired keys from the model. Only holds whose sessions have ended may have time left: the
    /// grace that they would have got.
    pub(super) fn notice_expired(&mut self) {
        for key in 0..KEYS.len() {
            if self.server.space.has_expired(&plain::key_name(key)) {
                let now = self.naive.now();
                let holds = std::mem::take(&mut self.naive.keys[key].holds);
                assert!(holds.iter().all(|hold| hold.ended.is_some() || hold.deadline <= now), "{key} had {holds:?}");
            }
        }
    }

    fn become_primary(&mut self) {
        self.server.role = Role::Primary;
        // In this time, the timer repeats the work that was refused before.
        self.wait(RETRY_US);
    }

    /// Makes the server a replica, which loses its waiters and sessions.
    pub(super) fn demote(&mut self) {
        self.server.role = Role::Replica;
        self.input(Input::RoleChanged);
        while !self.naive.waiting.is_empty() {
            self.abandon(0);
        }
        self.naive.sessions.clear();
        (0..KEYS.len()).for_each(|key| self.naive.unbind(key));
        self.tick();
    }

    fn client_gone(&mut self, client: ClientNo) {
        let id = self.clients[client];
        self.clients[client] += CLIENTS as u64;
        self.close_client(id);
    }

    pub(super) fn close_client(&mut self, id: u64) {
        self.input(Input::ClientGone(ClientId(id)));
        while let Some(at) = self.naive.waiting.iter().position(|waiter| waiter.client == id) {
            self.abandon(at);
        }
        self.naive.end_session(id, self.grace);
        let has_ended = self.naive.keys.iter().any(|key| key.holds.iter().any(|hold| hold.ended.is_some()));
        self.reached.count_if("session ended", has_ended);
        self.reached.count_if("session ended in a pause", has_ended && self.server.role == Role::HeldStill);
    }

    /// Ends the wait at this place, if there is one.
    pub(super) fn abandon(&mut self, at: usize) {
        if at < self.naive.waiting.len() {
            let waiter = self.naive.waiting.remove(at);
            assert!(self.server.abandon(waiter.ticket), "the request waits");
        }
    }

    /// Replaces the primary with its replica, which has all changes, but no clients, no sessions and no pause.
    fn fail_over(&mut self) {
        while !self.naive.waiting.is_empty() {
            self.abandon(0);
        }
        self.drain();
        self.server.space = std::mem::take(&mut self.replica);
        self.server.space.set_now_us(self.naive.now_us);
        self.replica = self.server.space.clone();
        self.replica.set_now_us(0);
        self.server.engine = Engine::new(7, self.server.engine.settings());
        *self.server.engine.memory_mut() = self.replica_memory.clone();
        self.server.role = Role::Primary;
        self.clients.iter_mut().for_each(|client| *client += CLIENTS as u64);
        self.naive.counts = Counts::default();
        self.naive.sessions.clear();
        (0..KEYS.len()).for_each(|key| self.naive.unbind(key));
        self.naive.advance(self.naive.now_us);
    }

    pub(super) fn input(&mut self, input: Input<'_>) {
        self.server.input(input);
    }

    pub(super) fn unlinked(&mut self) -> bool {
        self.server.hear_of_removals()
    }

    // Lookups.

    /// Returns the server.
    pub fn server(&self) -> &MemoryServer {
        &self.server
    }

    /// Returns the keys of the replica.
    pub fn replica(&self) -> &MemoryKeyspace {
        &self.replica
    }

    /// Returns the present id of a client's connection.
    pub fn client(&self, client: ClientNo) -> u64 {
        self.clients[client]
    }

    /// Returns the states that the history has reached so far.
    pub fn reached(&self) -> &Reached {
        &self.reached
    }

    // Choices that depend on the present holds.

    /// Returns the lease of a command. An absolute end, which a history has in ms from now, becomes a time.
    fn lease(&self, lease: Lease) -> Lease {
        match lease {
            Lease::Until(ms) => Lease::Until(self.naive.now() + ms),
            lease => lease,
        }
    }

    /// Returns the owner of a command. For a holder of a lock without holds, returns owner 0.
    fn find(&self, key: KeyNo, somebody: Somebody) -> Who {
        let holds: Vec<_> = self.naive.live(key).collect();
        match somebody {
            Somebody::Holder(at) => holds.get(at % holds.len().max(1)).map_or(0, |hold| hold.owner),
            Somebody::Any(who) => who,
        }
    }

    /// Returns the token of a command, or [`NEVER`] if there is no such hold.
    fn pick(&self, key: KeyNo, owner: Who, pick: TokenPick) -> u64 {
        let holds: Vec<_> = self.naive.live(key).collect();
        match pick {
            TokenPick::Mine(mode) => self.naive.mine(key, owner, mode).map_or(NEVER, |hold| hold.token),
            TokenPick::Of(at) => holds.get(at % holds.len().max(1)).map_or(NEVER, |hold| hold.token),
            TokenPick::Never => NEVER,
        }
    }
}

/// The time at which a history begins, in Unix ms.
const BEGIN_MS: u64 = 1_000_000;
/// How long the timer waits before it repeats work that the server has refused, in µs.
const RETRY_US: u64 = 20_000;
/// A token that no hold has: the tokens of holds are times in µs.
const NEVER: u64 = 7;

/// The state of a server of a deployment, besides its locks.
#[derive(Clone, Debug, Default)]
pub struct Deployed {
    /// Answers to waiters that the driver has not passed on to the clients yet.
    pub(super) answered: Vec<(Request, Answer)>,
    /// Holds that have lapsed, but are still stored. A clock that goes back revives them.
    pub(super) lapsed: Vec<(KeyNo, Hold)>,
    /// The highest token that the server had seen when it became a primary, and the highest that was replicated to it.
    pub(super) inherited: (u64, u64),
    /// The time until which the timer for named sessions may be late, because the clock was set back, in ms.
    pub(super) late_until: u64,
}
