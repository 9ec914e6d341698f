//! Plays a history on the engine and on the model, and compares them after every step.

use std::collections::{BTreeMap, BTreeSet};

use dlock_core::engine::{
    Answer, Ask, Call, Entered, Event, Fault, Input, Left, Output, Permission, Role, Settings, WaiterId,
};
use dlock_core::{ClientId, Command, Engine, Keyspace, LeaseChoice, Memory, Name, Renew, RenewToken, UnixMs, Want};

use super::deployed::Deployed;
use super::history::{
    Acquiring, CLIENTS, ClientNo, History, KEYS, KeyNo, Op, Permit, Somebody, Step, TokenPick, TokenRule, What, Who,
};
use super::leave::{Fence, Leave, Renewal};
use super::naive::{Key, Lease, Naive, Reply, Request, Turn};
use super::plain;
use super::reached::Reached;
use crate::keyspace::{KeyName, MemoryKeyspace, RunningRelease, name};

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
            let (client, owner, lease) = (number % CLIENTS, Some(100 + number), super::history::Lease::For(500));
            let what = What::Rlock(0);
            self.acquire(&Acquiring { client, owner, what, lease, block: false, binds: true, id: None });
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

    // Commands.

    fn may_run(&self, keys: &[KeyNo]) -> bool {
        keys.iter().all(|key| !self.space.permissions.contains_key(&plain::key_name(*key)))
    }

    fn acquire(&mut self, acquiring: &Acquiring) {
        let Acquiring { client, owner, what, lease, block, binds, id } = acquiring;
        let (keys, want) = match what {
            What::Acquire(key) => (vec![*key], Want::ExclusiveOnce),
            What::Racquire(key) => (vec![*key], Want::Exclusive),
            What::Rlock(key) => (vec![*key], Want::Shared),
            What::Sacquire(key, permits, limit) => (vec![*key], Want::Permits { permits: *permits, limit: *limit }),
            What::Macquire(keys) => (keys.clone(), Want::ExclusiveOnce),
        };
        let is_drawn = owner.is_none();
        self.drawn += 3 * usize::from(is_drawn);
        let request = Request {
            ticket: 0,
            client: self.clients[*client],
            owner: owner.unwrap_or(self.drawn),
            is_drawn,
            keys,
            want,
            lease: self.lease(*lease),
            binds: *binds,
            asked: id.map(|id| (plain::command(what), id)),
            since: 0,
            is_upgrade: false,
        };
        if id.is_some() {
            self.sent = Some(request.clone());
        }
        self.request(request, *block);
    }

    fn resend(&mut self, client: ClientNo, block: bool) {
        if let Some(sent) = self.sent.clone() {
            let lease = match sent.lease {
                // A lease that has passed is a syntax error.
                Lease::Until(at) if at <= self.naive.now() => Lease::For(400),
                lease => lease,
            };
            self.request(Request { client: self.clients[client], lease, ..sent }, block);
        }
    }

    /// The reply, and the ticket if the request waits; `None` if the server does not serve its keys.
    pub(super) fn request(&mut self, request: Request, block: bool) -> Option<(u64, Reply)> {
        if !self.may_run(&request.keys) {
            return None;
        }
        self.tickets += 1;
        let ticket = self.tickets;
        let request = Request { ticket, ..request };
        let names: Vec<KeyName> = request.keys.iter().map(|key| plain::key_name(*key)).collect();
        let names: Vec<Name<'_>> = names.iter().map(name).collect();
        let call = Call { name: names[0], now: self.space.now(), client: ClientId(request.client) };
        let ask = Ask {
            is_owner_drawn: request.is_drawn,
            request: request.asked.map(plain::request),
            binds: request.binds,
            ..Ask::new(plain::owner(request.owner), request.want, choice(request.lease))
        };
        let wait = block.then_some(|_: WaiterId| ticket);
        let entered = if names.len() == 1 && request.asked.is_none_or(|(command, _)| command != Command::Macquire) {
            self.engine.acquire(&mut self.space, call, &ask, wait)
        } else {
            self.engine.acquire_all(&mut self.space, call, &names, &ask, wait)
        };
        let outputs = self.engine.take_outputs();
        let is_takeover = matches!(entered, Ok(Entered::Waiting(_))) && !outputs.contains(&Output::Own(0, Event::Wait));
        let mut before = split(outputs, request.keys.len(), None).0;
        let first = if is_takeover { before.pop() } else { None };
        self.naive.begin_command(&request.keys, request.owner);
        self.answers(before);
        let expected = self.naive.acquire(request.clone(), block);
        let reply = match &entered {
            Ok(Entered::Granted(token)) => Reply::Granted(token.get()),
            Ok(Entered::Replayed(token)) => Reply::Replayed(token.get()),
            Ok(Entered::Waiting(id)) => {
                self.waiters.insert(ticket, *id);
                match first {
                    Some((first, Answer::Nil)) => {
                        assert_eq!(self.waiters.remove(&first), Some(*id), "it has the place of the first");
                        Reply::TakesOver(first)
                    }
                    _ => Reply::Waits,
                }
            }
            Ok(Entered::Refused) => Reply::Nil,
            Err(fault) => reply_of(fault),
        };
        assert_eq!(reply, expected, "{request:?} {entered:?} {:?}", self.naive);
        self.reached.acquired(&request, reply);
        self.end_command(&request.keys);
        Some((ticket, reply))
    }

    pub(super) fn release(&mut self, key: KeyNo, leave: Leave) -> Option<Reply> {
        if !self.may_run(&[key]) {
            return None;
        }
        let Leave { owner, mode, entries, token, asked } = leave;
        let running = RunningRelease {
            owner: plain::owner(owner),
            mode,
            entries,
            token: token.map(plain::token),
            request: asked.map(plain::request),
        };
        self.space.running = Some(running.clone());
        let key_name = plain::key_name(key);
        let call = Call { name: name(&key_name), now: self.space.now(), client: ClientId(0) };
        let stats = self.engine.stats;
        let left = self.engine.release(&mut self.space, call, &running.request());
        self.space.running = None;
        // Those that waited before the release, and those that it lets in.
        let is_certain =
            self.engine.stats.replays == stats.replays || self.engine.stats.session_ends == stats.session_ends;
        let is_released = matches!(left, Ok(Left::Fully)) || (matches!(left, Ok(Left::Partly)) && is_certain);
        let marker = is_released.then_some(Event::Release);
        let (before, after) = split(self.engine.take_outputs(), 1, marker);
        self.naive.begin_command(&[key], leave.owner);
        self.answers(before);
        let expected = self.naive.release(key, leave);
        let reply = match left {
            Ok(Left::NotHeld) => Reply::Nil,
            Ok(Left::Partly) => Reply::Number(0),
            Ok(Left::Fully) => Reply::Number(1),
            Err(fault) => reply_of(&fault),
        };
        assert_eq!(reply, expected, "{leave:?} {:?}", self.naive);
        self.reached.released(reply);
        self.answers(after);
        self.end_command(&[key]);
        Some(reply)
    }

    pub(super) fn renew(&mut self, key: KeyNo, renewal: Renewal) -> Option<Reply> {
        if !self.may_run(&[key]) {
            return None;
        }
        let Renewal { client, owner, mode, lease, fence, binds } = renewal;
        let owner = plain::owner(owner);
        let token = match fence {
            Fence::Any => RenewToken::Any,
            Fence::Is(token) => RenewToken::Is(plain::token(token)),
            Fence::AtLeast(token) => RenewToken::AtLeast(plain::token(token)),
        };
        let request = Renew { owner: &owner, mode, lease: choice(lease), token };
        let key_name = plain::key_name(key);
        let call = Call { name: name(&key_name), now: self.space.now(), client: ClientId(client) };
        let renewed = self.engine.renew(&mut self.space, call, &request, binds);
        let before = split(self.engine.take_outputs(), 1, None).0;
        self.naive.begin_command(&[key], renewal.owner);
        self.answers(before);
        let expected = self.naive.renew(key, renewal);
        let reply = match renewed {
            Ok(false) => Reply::Nil,
            Ok(true) => Reply::Number(1),
            Err(fault) => reply_of(&fault),
        };
        assert_eq!(reply, expected, "{renewal:?} {:?}", self.naive);
        self.reached.renewed(reply);
        self.end_command(&[key]);
        Some(reply)
    }

    /// After a command, nobody waits for its keys who could have them, unless the timer runs in the same turn.
    fn end_command(&mut self, keys: &[KeyNo]) {
        self.sync();
        if self.engine.wake_at().is_some_and(|at| at <= self.space.now().ms()) {
            return;
        }
        let is_concerned = |waiter: &&Request| waiter.keys.iter().any(|key| keys.contains(key));
        for waiter in self.naive.waiting.iter().filter(is_concerned).filter(|waiter| self.may_be_served(waiter)) {
            assert_eq!(self.naive.turn(waiter), Turn::NotYet, "{waiter:?} {:?}", self.naive);
        }
    }

    // The timer.

    pub(super) fn tick(&mut self) {
        let due: Vec<_> = self.bound().into_iter().filter(|(_, hold)| self.may_be_extended(hold)).collect();
        let mut ticks = 0;
        while self.engine.wake_at().is_some_and(|at| at <= self.space.now().ms()) {
            self.engine.tick(&mut self.space, self.role);
            let (answers, none) = split(self.engine.take_outputs(), 0, None);
            assert!(none.is_empty());
            self.answers(answers);
            ticks += 1;
            assert!(ticks < 50, "the timer has always something to do: {:?}", self.naive);
        }
        self.sync();
        if self.role == Role::Primary {
            self.follow_watchdog(&due);
            self.check_settled();
        }
    }

    /// Whether the server lets a waiter in at all.
    fn may_be_served(&self, waiter: &Request) -> bool {
        let may = |key: &KeyNo| {
            let (name, naive) = (plain::key_name(*key), &self.naive.keys[*key]);
            // Of a key that somebody had expire early, the server learns when it removes it.
            let is_unnoticed =
                self.space.has_expired(&name) && naive.unnoticed.is_some_and(|until| self.naive.now() < until);
            !self.space.permissions.contains_key(&name) && !naive.is_other && !is_unnoticed
        };
        waiter.keys.iter().all(may)
    }

    fn check_settled(&mut self) {
        for key in &self.naive.keys {
            assert!(key.holds.iter().all(|hold| hold.ended.is_none()), "not released: {:?}", self.naive);
        }
        for key in std::mem::take(&mut self.overwritten) {
            assert!(self.naive.queue(key).is_empty(), "{key}: {:?}", self.naive);
        }
        for waiter in self.naive.waiting.iter().filter(|waiter| self.may_be_served(waiter)) {
            assert_eq!(self.naive.turn(waiter), Turn::NotYet, "{waiter:?} {:?}", self.naive);
        }
        let now = self.naive.now();
        let wakes = |at: u64| self.engine.wake_at().is_some_and(|wake| wake.get() <= at);
        let ends =
            self.naive.keys.iter().flat_map(|key| key.holds.iter().map(|hold| hold.deadline).chain(key.unnoticed));
        for at in ends.filter(|at| *at > now) {
            let mut then = self.naive.clone();
            then.advance(at * 1000);
            let is_noticed = |key: &KeyNo| then.keys[*key].unnoticed.is_none_or(|until| until <= at);
            let is_turn = |waiter: &&Request| {
                self.may_be_served(waiter) && waiter.keys.iter().all(is_noticed) && then.turn(waiter) != Turn::NotYet
            };
            if let Some(waiter) = then.waiting.iter().find(is_turn) {
                assert!(wakes(at), "at {at}, not {:?}: {waiter:?} {:?}", self.engine.wake_at(), self.naive);
            }
        }
        for (key, hold) in self.bound() {
            if self.may_run(&[key]) {
                let due = hold.deadline - hold.lease + hold.lease / 3;
                assert!(wakes(due), "{hold:?} is due at {due}, not {:?}", self.engine.wake_at());
            }
        }
        let has_expired = (0..KEYS.len()).any(|key| self.space.has_expired(&plain::key_name(key)));
        if self.space.permissions.is_empty() && !has_expired {
            assert_eq!(self.engine.gauges().sessions, self.bound().len());
        }
    }

    fn bound(&self) -> Vec<(KeyNo, super::naive::Hold)> {
        let holds =
            |key| self.naive.live(key).filter(|hold| hold.session.is_some()).map(move |hold| (key, hold.clone()));
        (0..KEYS.len()).flat_map(holds).collect()
    }

    /// Whether the watchdog may extend the lease: a third of it has passed, or a little less.
    fn may_be_extended(&self, hold: &super::naive::Hold) -> bool {
        let third = hold.lease / 3;
        self.naive.now() >= hold.deadline - hold.lease + third - third / 12
    }

    /// The watchdog extends leases when they are due. Some were due before the timer ran, and then it has let in a
    /// request of the same owner.
    fn follow_watchdog(&mut self, due: &[(KeyNo, super::naive::Hold)]) {
        let now = self.naive.now();
        for (key, hold) in self.bound() {
            let lock = self.space.lock(&plain::key_name(key));
            let stored = lock.stored_holds().map(plain::hold);
            let stored = stored.into_iter().find(|stored| (stored.owner, stored.mode) == (hold.owner, hold.mode));
            let deadline = stored.unwrap_or_else(|| panic!("{hold:?} is gone from {key}")).deadline;
            let (begin, third) = (hold.deadline - hold.lease, hold.lease / 3);
            if deadline == hold.deadline {
                let is_due = now >= begin + third && self.may_run(&[key]) && hold.deadline != now + hold.lease;
                assert!(!is_due, "{hold:?} was not extended at {now}");
                continue;
            }
            assert_eq!(deadline, now + hold.lease, "{hold:?} at {now}");
            let is_it = |(at, due): &(KeyNo, super::naive::Hold)| {
                (*at, due.owner, due.mode, due.token) == (key, hold.owner, hold.mode, hold.token)
            };
            assert!(self.may_be_extended(&hold) || due.iter().any(is_it), "{hold:?} was extended at {now}");
            assert!(self.may_run(&[key]), "{hold:?} was extended without permission");
            self.reached.count("watchdog");
            let is_it = |other: &&mut super::naive::Hold| other.token == hold.token && other.mode == hold.mode;
            let found = self.naive.keys[key].holds.iter_mut().filter(|other| other.owner == hold.owner).find(is_it);
            found.expect("it is bound").deadline = deadline;
            self.naive.keep_early(key);
            self.late.remove(&key);
        }
    }

    /// Holds whose sessions have ended: has the engine released them, or given them their grace?
    fn sync(&mut self) {
        for key in 0..KEYS.len() {
            let lock = self.space.lock(&plain::key_name(key));
            let stored: Vec<super::naive::Hold> = lock.stored_holds().map(plain::hold).collect();
            let before = self.naive.keys[key].holds.clone();
            self.naive.keys[key].holds.retain_mut(|hold| {
                let Some(end) = hold.ended else { return true };
                let name = |hold: &super::naive::Hold| (hold.token, hold.owner, hold.mode);
                let is_it = |other: &&super::naive::Hold| name(other) == name(hold);
                let Some(found) = stored.iter().find(is_it) else { return false };
                if found.deadline == end {
                    (hold.deadline, hold.ended) = (end, None);
                }
                true
            });
            if before != self.naive.keys[key].holds {
                self.naive.keep_early(key);
            }
        }
        self.naive.advance(self.naive.now_us);
    }

    // The result of a wait.

    fn answers(&mut self, answers: Answers) {
        for (ticket, answer) in answers {
            let at = self.naive.waiting.iter().position(|waiter| waiter.ticket == ticket).expect("it waits");
            let waiter = self.naive.waiting[at].clone();
            self.waiters.remove(&ticket).expect("it waits");
            if let Some(deployed) = &mut self.deployed {
                deployed.answered.push((waiter.clone(), answer.clone()));
            }
            let has = |permit| {
                waiter.keys.iter().any(|key| self.space.permissions.get(&plain::key_name(*key)) == Some(&permit))
            };
            let turn = self.naive.turn(&waiter);
            match &answer {
                Answer::Fault(Fault::WrongType) => {
                    assert!(waiter.keys.iter().any(|key| self.naive.keys[*key].is_other));
                }
                Answer::Fault(Fault::TryAgain) => assert!(has(Permission::Elsewhere)),
                Answer::Fault(Fault::SessionLease) => assert_eq!(turn, Turn::SessionLease, "{:?}", self.naive),
                Answer::Nil => assert_eq!(turn, Turn::LeasePassed, "{:?}", self.naive),
                Answer::Granted(token, owner) => {
                    assert!(!has(Permission::ReleaseOnly) && !has(Permission::Elsewhere) && self.role == Role::Primary);
                    assert_eq!(owner.as_ref().map(plain::who), waiter.is_drawn.then_some(waiter.owner));
                    self.reached.served(&waiter, turn);
                    self.naive.waiting.remove(at);
                    let Some(Reply::Granted(expected) | Reply::Replayed(expected)) = self.naive.let_in(&waiter, turn)
                    else {
                        panic!("{waiter:?} is granted, but {turn:?} {:?}", self.naive);
                    };
                    assert_eq!(token.get(), expected);
                    continue;
                }
                answer => panic!("{answer:?}"),
            }
            self.reached.ended(&answer);
            self.naive.waiting.remove(at);
        }
    }

    // What the server does to keys.

    fn change_keys(&mut self, op: &Op) {
        self.sync_replica();
        let now = self.naive.now();
        match op {
            Op::Expire(key, ms) => {
                let name = plain::key_name(*key);
                if !self.space.exists(&name) || self.naive.keys[*key].is_other {
                    return;
                }
                let last = self.space.lock(&name).last_deadline().map(UnixMs::get);
                self.space.set_expiry(&name, Some(now + ms));
                if self.unlinked() {
                    return self.naive.clear(*key);
                }
                self.replica.set_expiry(&name, Some(now + ms));
                let is_early = last.is_some_and(|last| now + ms < last);
                self.naive.keys[*key].early = is_early.then_some(now + ms);
                self.late.remove(key);
                if !is_early {
                    self.late.insert(*key);
                }
                self.reached.count_if("early expiry", is_early);
            }
            Op::Persist(key) => {
                let name = plain::key_name(*key);
                if self.space.exists(&name) {
                    self.space.set_expiry(&name, None);
                    self.replica.set_expiry(&name, None);
                    self.naive.keys[*key].early = None;
                    self.late.insert(*key);
                }
            }
            Op::Delete(key) => self.delete(*key),
            Op::Overwrite(key) => {
                let name = plain::key_name(*key);
                self.space.set_other(&name);
                self.drain();
                self.replica.set_other(&name);
                self.naive.overwrite(*key);
                if self.unlinked() {
                    self.overwritten.insert(*key);
                }
            }
            Op::MoveAway(key) => {
                self.space.permissions.insert(plain::key_name(*key), Permission::Elsewhere);
                self.delete(*key);
                let was_lock = self.unlinked();
                self.tick();
                assert!(!was_lock || self.naive.queue(*key).is_empty(), "{:?}", self.naive);
            }
            Op::Rename(from, to) if from != to => self.rename(*from, *to),
            Op::Restore(from, to, ttl) => self.restore(*from, *to, ttl.map(|ttl| now + ttl)),
            Op::Flush(db) => {
                self.space.flush(*db);
                self.replica.flush(*db);
                self.naive.flush(*db);
                self.overwritten.clear();
                self.input(Input::Flushed(*db));
            }
            Op::Swap => {
                self.space.swap(0, 1);
                self.replica.swap(0, 1);
                self.naive.swap();
                let swapped = |key: &KeyNo| if *key < 3 { key + 3 } else { key - 3 };
                self.late = self.late.iter().map(swapped).collect();
                self.overwritten.clear();
                self.input(Input::Swapped(0, 1));
            }
            Op::Reload => {
                self.space.reload();
                self.replica.reload();
                (0..KEYS.len()).for_each(|key| self.naive.unbind(key));
                self.input(Input::Loaded);
            }
            Op::ExpireActively => self.space.expire_actively(),
            Op::Permit(key, permit) => self.permit(*key, *permit),
            _ => {}
        }
        self.unlinked();
    }

    pub(super) fn delete(&mut self, key: KeyNo) {
        let name = plain::key_name(key);
        self.space.delete(&name);
        self.overwritten.remove(&key);
        self.naive.clear(key);
        self.late.remove(&key);
    }

    fn rename(&mut self, from: KeyNo, to: KeyNo) {
        let (name, target) = (plain::key_name(from), plain::key_name(to));
        if !self.space.exists(&name) {
            return;
        }
        self.space.rename(&name, &target);
        self.drain();
        self.replica.rename(&name, &target);
        self.naive.rename(from, to);
        self.naive.advance(self.naive.now_us);
        self.late.insert(to);
        self.late.remove(&from);
        self.overwritten.remove(&from);
        self.overwritten.remove(&to);
        self.reached.count("renamed");
    }

    fn restore(&mut self, from: KeyNo, to: KeyNo, expiry: Option<u64>) {
        let name = plain::key_name(to);
        let Some(bytes) = self.space.dump(&plain::key_name(from)) else { return };
        let lock = self.space.restore(&name, &bytes, expiry);
        self.drain();
        self.unlinked();
        self.engine.memory.tokens.observe_all(lock.stored_holds());
        self.replica.restore(&name, &bytes, expiry);
        self.input(Input::Restored(crate::keyspace::name(&name)));
        let last = lock.last_deadline().map(UnixMs::get);
        let early = expiry.filter(|at| last.is_some_and(|last| *at < last));
        let holds = lock.stored_holds().map(plain::hold).collect();
        self.naive.keys[to] = Key { holds, early, is_other: false, unnoticed: None };
        self.naive.advance(self.naive.now_us);
        self.late.insert(to);
        self.overwritten.remove(&to);
    }

    fn permit(&mut self, key: KeyNo, permit: Permit) {
        let name = plain::key_name(key);
        match permit {
            Permit::Full => {
                if self.space.permissions.remove(&name).is_some() {
                    self.wait(RETRY_US);
                }
            }
            Permit::ReleaseOnly => drop(self.space.permissions.insert(name, Permission::ReleaseOnly)),
            Permit::Elsewhere => drop(self.space.permissions.insert(name, Permission::Elsewhere)),
        }
    }

    // Choices that depend on what there is.

    fn lease(&self, lease: super::history::Lease) -> Lease {
        match lease {
            super::history::Lease::Own => Lease::Own,
            super::history::Lease::For(ms) => Lease::For(ms),
            super::history::Lease::Until(ms) => Lease::Until(self.naive.now() + ms),
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

type Answers = Vec<(u64, Answer)>;

/// The answers before and after the last event of this kind on the command's own key; without one, all are before.
fn split(outputs: Vec<Output<u64>>, keys: usize, marker: Option<Event>) -> (Answers, Answers) {
    let is_marker = |output: &Output<u64>| matches!(output, Output::Own(_, event) if Some(*event) == marker);
    let cut = outputs.iter().rposition(is_marker).unwrap_or(outputs.len());
    let (mut before, mut after) = (Vec::new(), Vec::new());
    for (at, output) in outputs.into_iter().enumerate() {
        match output {
            Output::Own(index, event) => assert!(index < keys, "{event:?} on key {index} of {keys}"),
            Output::Answer(ticket, answer) if at > cut => after.push((ticket, answer)),
            Output::Answer(ticket, answer) => before.push((ticket, answer)),
            Output::Event(..) | Output::Modified(..) => {}
        }
    }
    (before, after)
}

fn reply_of(fault: &Fault) -> Reply {
    match fault {
        Fault::WrongType => Reply::WrongType,
        Fault::Ambiguous => Reply::Ambiguous,
        Fault::Deadlock(_) => Reply::Deadlock,
        Fault::TooManyWaiters => Reply::TooManyWaiters,
        Fault::SessionLease => Reply::SessionLease,
        Fault::SessionAbsolute => Reply::SessionAbsolute,
        Fault::TooManyEntries | Fault::NoToken | Fault::TryAgain => panic!("{fault:?}"),
    }
}

fn choice(lease: Lease) -> LeaseChoice {
    match lease {
        Lease::Own => LeaseChoice::Own,
        Lease::For(ms) => LeaseChoice::For(plain::lease(ms)),
        Lease::Until(at) => LeaseChoice::Until(UnixMs::new(at)),
    }
}

const BEGIN_MS: u64 = 1_000_000;
/// How long the timer waits before it tries again what the server did not allow.
const RETRY_US: u64 = 20_000;
/// A token that no hold ever had.
const NEVER: u64 = 7;
