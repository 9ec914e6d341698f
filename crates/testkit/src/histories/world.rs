//! Plays a history on the engine and on the model, and compares them after every step.

mod commands;
mod keys;
mod turn;

use std::collections::{BTreeMap, BTreeSet};

use dlock_core::engine::{Input, Role, Settings, WaiterId};
use dlock_core::{ClientId, Command, Engine, Keyspace, Memory};

use super::deployed::Deployed;
use super::history::{
    self, Acquiring, CLIENTS, ClientNo, History, KEYS, KeyNo, Op, Somebody, Step, TokenPick, TokenRule, What, Who,
};
use super::leave::{Fence, Leave, Renewal};
use super::naive::{Lease, Naive, Request};
use super::plain;
use super::reached::Reached;
use crate::keyspace::{MemoryKeyspace, name};

/// A primary with its engine, a replica, and the model of both.
pub struct World {
    pub(super) space: MemoryKeyspace,
    pub(super) engine: Engine<u64>,
    pub(super) replica: MemoryKeyspace,
    pub(super) replica_memory: Memory,
    pub(super) naive: Naive,
    pub(super) role: Role,
    pub(super) grace: Option<u64>,
    clients: [u64; CLIENTS],
    pub(super) waiters: BTreeMap<u64, WaiterId>,
    tickets: u64,
    drawn: Who,
    /// The last request that had an id.
    sent: Option<Request>,
    /// Keys whose TTL somebody made longer, and that no effect has changed since.
    pub(super) late: BTreeSet<KeyNo>,
    /// What a server of a deployment keeps beside.
    pub(super) deployed: Option<Deployed>,
    /// Keys whose lock was overwritten: nobody may wait for them after the timer has run.
    overwritten: BTreeSet<KeyNo>,
    pub(super) reached: Reached,
}

impl World {
    /// Plays the history; panics where the engine and the model do not agree.
    pub fn play(history: &History) -> Reached {
        let mut world = World::new(history);
        world.gather(history.crowd);
        for step in &history.steps {
            world.step(step);
        }
        world.reached
    }

    pub(super) fn new(history: &History) -> World {
        let History { default_lease, grace, max_waiters, .. } = *history;
        let settings = Settings {
            default_lease: plain::lease(default_lease),
            max_waiters,
            session_grace: grace.map(plain::lease),
        };
        let space = MemoryKeyspace::at(BEGIN_MS);
        World {
            naive: Naive::new(BEGIN_MS * 1000, default_lease, max_waiters),
            engine: Engine::new(7, settings),
            space,
            // Its clock stands still: a replica removes nothing by itself.
            replica: MemoryKeyspace::default(),
            replica_memory: Memory::new(),
            role: Role::Primary,
            grace,
            clients: std::array::from_fn(|client| 1 + client as u64),
            waiters: BTreeMap::new(),
            tickets: 0,
            drawn: 1000,
            sent: None,
            late: BTreeSet::new(),
            deployed: None,
            overwritten: BTreeSet::new(),
            reached: Reached::default(),
        }
    }

    fn gather(&mut self, crowd: usize) {
        for number in 0..crowd {
            let (client, owner, lease) = (number % CLIENTS, Some(100 + number), history::Lease::For(500));
            let what = What::Rlock(0);
            self.acquire(&Acquiring { client, owner, what, lease, block: false, binds: true, ahead: None, id: None });
        }
    }

    fn step(&mut self, step: &Step) {
        self.notice_expired();
        let is_up = self.role == Role::Primary;
        match &step.op {
            Op::Wait(us) => self.wait(*us),
            Op::ClientGone(client) => self.client_gone(*client),
            Op::Abandon(at) => self.abandon(*at),
            Op::Blind(is_blind) => (self.space.is_blind, self.naive.is_blind) = (*is_blind, *is_blind),
            Op::Resume if self.role == Role::HeldStill => self.become_primary(),
            Op::Promote if self.role == Role::Replica => {
                self.input(Input::RoleChanged);
                self.become_primary();
            }
            Op::Demote => self.demote(),
            Op::Pause if is_up => self.role = Role::HeldStill,
            Op::Acquire(acquiring) if is_up => self.acquire(acquiring),
            Op::Upgrade { client, key, holder, lease } if is_up => {
                let (owner, what) = (Some(self.find(*key, Somebody::Holder(*holder))), What::Racquire(*key));
                self.acquire(&Acquiring {
                    client: *client,
                    owner,
                    what,
                    lease: *lease,
                    block: true,
                    binds: false,
                    ahead: None,
                    id: None,
                });
            }
            Op::Resend { client, block } if is_up => self.resend(*client, *block),
            Op::Release { key, who, mode, entries, token, id } if is_up => {
                let owner = self.find(*key, *who);
                let token = token.map(|pick| self.pick(*key, owner, pick));
                let asked = id.map(|id| (Command::Release, id));
                self.release(*key, Leave { owner, mode: *mode, entries: *entries, token, asked });
            }
            Op::Renew { client, key, who, mode, lease, token, binds } if is_up => {
                let owner = self.find(*key, *who);
                let fence = match token {
                    TokenRule::Any => Fence::Any,
                    TokenRule::Is(pick) => Fence::Is(self.pick(*key, owner, *pick)),
                    TokenRule::AtLeast(pick, more) => Fence::AtLeast(self.pick(*key, owner, *pick) + more),
                };
                let (client, lease) = (self.clients[*client], self.lease(*lease));
                self.renew(*key, Renewal { client, owner, mode: *mode, lease, fence, binds: *binds });
            }
            op if is_up => self.change_keys(op),
            _ => {}
        }
        if step.then_tick {
            self.tick();
        }
        self.compare();
        self.audit();
    }

    /// The engine's own tables agree.
    pub(super) fn audit(&self) {
        self.engine.audit().unwrap_or_else(|how| panic!("{how}: {:?}", self.naive));
    }

    // Time and clients.

    fn wait(&mut self, us: u64) {
        let now = self.naive.now_us + us;
        self.space.set_now_us(now);
        self.naive.advance(now);
        self.notice_expired();
    }

    /// Keys that have expired hold nothing, whatever the end of a session would have given to a hold.
    pub(super) fn notice_expired(&mut self) {
        for key in 0..KEYS.len() {
            if self.space.has_expired(&plain::key_name(key)) {
                let now = self.naive.now();
                let holds = std::mem::take(&mut self.naive.keys[key].holds);
                assert!(holds.iter().all(|hold| hold.ended.is_some() || hold.deadline <= now), "{key} had {holds:?}");
            }
        }
    }

    fn become_primary(&mut self) {
        self.role = Role::Primary;
        // Until then the timer does not try again.
        self.wait(RETRY_US);
    }

    pub(super) fn demote(&mut self) {
        self.role = Role::Replica;
        self.input(Input::RoleChanged);
        while !self.naive.waiting.is_empty() {
            self.abandon(0);
        }
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
        self.reached.count_if("session ended in a pause", has_ended && self.role == Role::HeldStill);
    }

    pub(super) fn abandon(&mut self, at: usize) {
        if at < self.naive.waiting.len() {
            let waiter = self.naive.waiting.remove(at);
            let id = self.waiters.remove(&waiter.ticket).expect("it waits");
            assert_eq!(self.engine.abandon(id), Some(waiter.ticket));
            assert_eq!(self.engine.abandon(id), None, "it has left");
        }
    }

    pub(super) fn input(&mut self, input: Input<'_>) {
        self.engine.input(input, self.space.now());
    }

    /// The engine hears which locks went: whether any did.
    pub(super) fn unlinked(&mut self) -> bool {
        let names = self.space.take_unlinked();
        names.iter().for_each(|key| self.input(Input::Removed(name(key))));
        !names.is_empty()
    }

    // Choices that depend on what there is.

    fn lease(&self, lease: history::Lease) -> Lease {
        match lease {
            history::Lease::Own => Lease::Own,
            history::Lease::For(ms) => Lease::For(ms),
            history::Lease::Until(ms) => Lease::Until(self.naive.now() + ms),
        }
    }

    fn find(&self, key: KeyNo, somebody: Somebody) -> Who {
        let holds: Vec<_> = self.naive.live(key).collect();
        match somebody {
            Somebody::Holder(at) => holds.get(at % holds.len().max(1)).map_or(0, |hold| hold.owner),
            Somebody::Any(who) => who,
        }
    }

    fn pick(&self, key: KeyNo, owner: Who, pick: TokenPick) -> u64 {
        let holds: Vec<_> = self.naive.live(key).collect();
        match pick {
            TokenPick::Mine(mode) => self.naive.mine(key, owner, mode).map_or(NEVER, |hold| hold.token),
            TokenPick::Of(at) => holds.get(at % holds.len().max(1)).map_or(NEVER, |hold| hold.token),
            TokenPick::Never => NEVER,
        }
    }
}

const BEGIN_MS: u64 = 1_000_000;
/// How long the timer waits before it tries again what the server did not allow.
const RETRY_US: u64 = 20_000;
/// A token that no hold ever had.
const NEVER: u64 = 7;
