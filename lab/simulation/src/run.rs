//! How an event runs, and how time passes.

use std::num::NonZeroU32;

use dlock_core::engine::{Answer, Role};
use dlock_core::{Command as Verb, Entries};
use dlock_testkit::histories::leave::{Fence, Leave, Renewal};
use dlock_testkit::histories::naive::{Lease, Reply, Request};

use crate::clients::{Belief, Clients, Connection, Late, Waiting, verb};
use crate::oracle::{Explained, Oracle, note_deadline, note_lapsed, note_session_end};
use crate::plan::{CLIENTS, Command, Event, Fate, Moving, OTHER_NODE, Plan, REPLICATED, SLOTS, What};
use crate::servers::{Faults, Servers};

/// What a run came to.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counts {
    /// Commands, timers, units that reached a replica, and what failed.
    pub events: usize,
    pub grants: usize,
    pub waits: usize,
    pub faults: Faults,
    pub explained: Explained,
}

impl Counts {
    pub fn add(&mut self, other: &Counts) {
        let Counts { events, grants, waits, faults, explained } = self;
        (*events, *grants, *waits) = (*events + other.events, *grants + other.grants, *waits + other.waits);
        faults.add(&other.faults);
        explained.add(&other.explained);
    }
}

struct Run {
    servers: Servers,
    clients: Clients,
    oracle: Oracle,
    counts: Counts,
}

/// Plays a plan; panics where something is wrong.
pub fn play(plan: &Plan) -> Counts {
    let mut run = Run {
        servers: Servers::new(&plan.setting),
        clients: Clients::default(),
        oracle: Oracle::default(),
        counts: Counts::default(),
    };
    for Event { after_us, what } in &plan.events {
        run.pass(*after_us);
        run.counts.events += 1;
        run.happen(what);
    }
    run.heal();
    run.oracle.finish(&run.servers);
    Counts { faults: run.servers.faults, explained: run.oracle.explained, ..run.counts }
}

impl Run {
    // Time.

    /// Time passes, and timers run when they are due.
    fn pass(&mut self, us: u64) {
        let end = self.servers.now_us + us;
        while let Some((at, server)) = self.servers.next_timer().filter(|(at, _)| *at <= end) {
            self.servers.now_us = self.servers.now_us.max(at);
            self.servers.set_clock(server);
            let world = &self.servers.all[server].world;
            if world.wake_at_us().is_some_and(|wake| wake > world.now_us()) {
                self.servers.now_us += 1;
                continue;
            }
            self.counts.events += 1;
            self.end_turn(server);
        }
        self.servers.now_us = self.servers.now_us.max(end);
        (0..self.servers.all.len()).for_each(|server| self.servers.set_clock(server));
    }

    /// A server ends its turn: its timer runs, its stream goes on, and clients hear of the ends of their waits.
    fn end_turn(&mut self, server: usize) {
        if !self.servers.is_writing(server) {
            return self.servers.all[server].world.end_turn();
        }
        note_lapsed(&self.servers, &mut self.clients, server);
        self.servers.record(server);
        self.servers.all[server].world.end_turn();
        self.servers.record(server);
        self.note_deadlines(server);
        for (request, answer) in self.servers.all[server].world.take_answered() {
            self.answered(server, &request, &answer);
        }
        for client in &self.clients.all {
            if let Some(waiting) = client.waiting.as_ref().filter(|waiting| waiting.connection.server == server) {
                let model = self.servers.all[server].world.model();
                let is_there = model.waiting.iter().any(|request| request.ticket == waiting.ticket);
                assert!(is_there, "a waiter was forgotten: {waiting:?}");
            }
        }
    }

    fn note_deadlines(&mut self, server: usize) {
        let (place, model) = (self.servers.place(server), self.servers.all[server].world.model());
        for (owner, client) in self.clients.all.iter_mut().enumerate() {
            for belief in client.beliefs.iter_mut().filter(|belief| belief.session.is_some()) {
                let is_it = |hold: &&dlock_testkit::histories::naive::Hold| {
                    hold.owner == owner && hold.mode == belief.mode && hold.token == belief.token
                };
                if let Some(hold) = model.keys[belief.key].holds.iter().find(is_it) {
                    note_deadline(belief, place, hold.deadline);
                }
            }
        }
    }

    // Requests.

    fn happen(&mut self, what: &What) {
        match *what {
            What::Send { client, ref command, fate } => self.send(client, command, fate),
            What::Again { client, block, fate } => {
                if let Some(Command::Enter { keys, want, lease, binds, id, .. }) = self.clients.all[client].last.clone()
                {
                    self.send(client, &Command::Enter { keys, want, lease, block, binds, id }, fate);
                }
            }
            What::Arrive(at) => {
                if !self.clients.late.is_empty() {
                    let at = at % self.clients.late.len();
                    let late = self.clients.late.swap_remove(at);
                    self.arrive(&late);
                }
            }
            What::Notice(at) => {
                if !self.clients.ghosts.is_empty() {
                    let at = at % self.clients.ghosts.len();
                    let ghost = self.clients.ghosts.swap_remove(at);
                    self.notice(ghost);
                }
            }
            What::Disconnect { client, noticed } => self.disconnect(client, noticed),
            What::TimeOut { client } => {
                if let Some(Waiting { connection, ticket, .. }) = self.clients.all[client].waiting.take() {
                    assert!(self.servers.all[connection.server].world.give_up(ticket), "it waits");
                    self.end_turn(connection.server);
                }
            }
            What::Replicate { server, units } => self.servers.replicate(server, units),
            What::Fsync(server) => self.servers.fsync(server),
            What::Save(server) => self.servers.save(server),
            What::Jump { server, by_us } => self.jump(server, by_us),
            What::Pause => {
                if self.servers.is_serving(self.servers.primary) {
                    self.servers.all[self.servers.primary].world.hold_still();
                }
            }
            What::Resume => self.resume(),
            What::Crash(server) => self.crash(server),
            What::Restart(server) => self.restart(server),
            What::Promote { server } => self.promote(server),
            What::HandOver { server } => self.hand_over(server),
            What::Demote => {
                if let Some(former) = self.servers.former {
                    self.demote(former);
                }
            }
            What::Delete(key) => self.delete(key),
            What::ExpireKeys => {
                let primary = self.servers.primary;
                if self.servers.is_serving(primary) {
                    self.servers.all[primary].world.expire_keys();
                    self.end_turn(primary);
                }
            }
            What::Move { slot, how } => self.move_slot(slot, how),
        }
    }

    /// The server that serves these keys, as the client sees it.
    fn connection(&mut self, client: usize, keys: &[usize]) -> Option<Connection> {
        let is_moved =
            SLOTS.iter().position(|slot| slot.contains(&keys[0])).is_some_and(|slot| self.servers.moved[slot]);
        let node = usize::from(is_moved);
        if let Some(connection) = self.clients.all[client].connections[node] {
            if self.servers.is_writing(connection.server) {
                return self.servers.is_serving(connection.server).then_some(connection);
            }
            // `READONLY`: the client looks for the primary.
            self.close(client, connection, true);
        }
        // Some clients hear late that another server was promoted.
        let former = self.servers.former.filter(|_| client.is_multiple_of(3));
        let server = if is_moved { OTHER_NODE } else { former.unwrap_or(self.servers.primary) };
        if !self.servers.is_serving(server) {
            return None;
        }
        let connection = self.clients.connect(server);
        self.clients.all[client].connections[node] = Some(connection);
        Some(connection)
    }

    fn send(&mut self, client: usize, command: &Command, fate: Fate) {
        if self.clients.all[client].waiting.is_some() {
            return;
        }
        let command = match self.resolve(client, command) {
            Some(command) => command,
            None => return,
        };
        let keys = keys_of(&command);
        let Some(connection) = self.connection(client, &keys) else { return };
        if matches!(command, Command::Enter { id: Some(_), .. }) {
            self.clients.all[client].last = Some(command.clone());
        }
        match fate {
            Fate::Answered => self.execute(client, connection, &command, true),
            Fate::Lost { noticed } => self.close(client, connection, noticed),
            Fate::ReplyLost { noticed } => {
                self.doubt(client, &keys);
                self.execute(client, connection, &command, false);
                self.close(client, connection, noticed);
            }
            Fate::Late => {
                self.doubt(client, &keys);
                self.close(client, connection, false);
                self.clients.late.push(Late { client, connection, command });
            }
        }
    }

    /// A release or a renewal names one of the client's holds.
    fn resolve(&self, client: usize, command: &Command) -> Option<Command> {
        let beliefs = &self.clients.all[client].beliefs;
        let pick = |hold: usize| (!beliefs.is_empty()).then(|| hold % beliefs.len());
        Some(match command {
            Command::Enter { .. } => command.clone(),
            Command::Release { hold, entries, mode, names_token, id } => {
                let belief = &beliefs[pick(*hold)?];
                let mode = mode.map(|_| belief.mode);
                let token = names_token.then_some(belief.token);
                Command::ReleaseOf { key: belief.key, entries: *entries, mode, token, id: *id }
            }
            Command::Renew { hold, lease, binds, names_token } => {
                let belief = &beliefs[pick(*hold)?];
                let token = names_token.then_some(belief.token);
                Command::RenewOf { key: belief.key, lease: *lease, binds: *binds, token, mode: belief.mode }
            }
            Command::ReleaseOf { .. } | Command::RenewOf { .. } => command.clone(),
        })
    }

    fn arrive(&mut self, late: &Late) {
        let Late { client, connection, command } = late;
        let keys = keys_of(command);
        let is_known = self.clients.ghosts.contains(connection);
        if !is_known || !self.servers.is_serving(connection.server) {
            return;
        }
        self.doubt(*client, &keys);
        self.execute(*client, *connection, command, false);
    }

    fn execute(&mut self, client: usize, connection: Connection, command: &Command, is_heard: bool) {
        let server = connection.server;
        self.servers.set_clock(server);
        note_lapsed(&self.servers, &mut self.clients, server);
        self.counts.events += 1;
        match command {
            Command::Enter { keys, want, lease, block, binds, id } => {
                let request = Request {
                    ticket: 0,
                    client: connection.id,
                    owner: client,
                    is_drawn: false,
                    keys: keys.clone(),
                    want: *want,
                    lease: lease.map_or(Lease::Own, Lease::For),
                    binds: *binds,
                    asked: id.map(|id| (verb(keys, *want), id)),
                    since: 0,
                    is_upgrade: false,
                };
                let entered = self.servers.all[server].world.request(request.clone(), *block);
                self.servers.record(server);
                match entered {
                    Some((_, Reply::Granted(token) | Reply::Replayed(token))) => {
                        self.granted(client, connection, &request, token, is_heard);
                    }
                    Some((ticket, Reply::Waits)) => self.waits(client, connection, ticket, keys, is_heard),
                    Some((ticket, Reply::TakesOver(first))) => {
                        self.forget_ticket(server, first);
                        self.waits(client, connection, ticket, keys, is_heard);
                    }
                    Some(_) | None => {}
                }
            }
            Command::ReleaseOf { key, entries, mode, token, id } => {
                let asked = id.map(|id| (Verb::Release, id));
                let leave = Leave { owner: client, mode: *mode, entries: *entries, token: *token, asked };
                let before = self.take_beliefs(client, *key);
                let reply = self.servers.all[server].world.release(*key, leave);
                self.servers.record(server);
                if is_heard {
                    self.has_left(server, client, leave, before, reply);
                }
            }
            Command::RenewOf { key, lease, binds, token, mode } => {
                let fence = token.map_or(Fence::Any, Fence::Is);
                let lease = lease.map_or(Lease::Own, Lease::For);
                let (mode, binds) = (Some(*mode), *binds);
                let renewal = Renewal { client: connection.id, owner: client, mode, lease, fence, binds };
                let reply = self.servers.all[server].world.renew(*key, renewal);
                self.servers.record(server);
                if is_heard {
                    self.was_renewed(client, connection, *key, renewal, reply);
                }
            }
            Command::Release { .. } | Command::Renew { .. } => unreachable!("it names a hold by now"),
        }
        self.end_turn(server);
    }

    fn take_beliefs(&mut self, client: usize, key: usize) -> Vec<Belief> {
        let beliefs = &mut self.clients.all[client].beliefs;
        let (taken, rest) = std::mem::take(beliefs).into_iter().partition(|belief| belief.key == key);
        *beliefs = rest;
        taken
    }

    /// The client hears what its release did.
    fn has_left(&mut self, server: usize, client: usize, leave: Leave, before: Vec<Belief>, reply: Option<Reply>) {
        let concerns = |belief: &Belief| {
            leave.mode.is_none_or(|mode| mode == belief.mode) && leave.token.is_none_or(|token| token == belief.token)
        };
        let is_single = before.len() == 1 && matches!(leave.entries, Entries::All | Entries::Some(NonZeroU32::MIN));
        for belief in before {
            match reply {
                Some(Reply::Number(0) | Reply::Ambiguous) | None => self.clients.all[client].beliefs.push(belief),
                Some(Reply::Nil) if concerns(&belief) && is_single => {
                    self.oracle.missed(&self.servers, server, client, &belief);
                }
                Some(Reply::Number(1)) if !concerns(&belief) => self.clients.all[client].beliefs.push(belief),
                _ => self.oracle.end(self.servers.now_us, client, &belief),
            }
        }
    }

    fn was_renewed(&mut self, client: usize, connection: Connection, key: usize, what: Renewal, reply: Option<Reply>) {
        let server = connection.server;
        let is_it = |belief: &Belief| {
            let is_token = !matches!(what.fence, Fence::Is(token) if token != belief.token);
            belief.key == key && what.mode == Some(belief.mode) && is_token
        };
        let Some(at) = self.clients.all[client].beliefs.iter().position(is_it) else { return };
        match reply {
            Some(Reply::Nil) => {
                let belief = self.clients.all[client].beliefs.swap_remove(at);
                self.oracle.missed(&self.servers, server, client, &belief);
            }
            Some(Reply::Number(1)) => {
                let belief = self.clients.all[client].beliefs.swap_remove(at);
                self.believe(client, server, belief);
            }
            _ => {}
        }
    }

    /// Takes over from the server until when a hold lasts.
    fn believe(&mut self, client: usize, server: usize, mut belief: Belief) {
        let world = &self.servers.all[server].world;
        let Some(hold) = world.model().mine(belief.key, client, belief.mode) else { return };
        // A hold that is bound to a connection that the client has given up ends when the server notices that.
        let is_it = |connection: &Connection| Some(connection.id) == hold.session && connection.server == server;
        belief.session = self.clients.all[client].connections.into_iter().flatten().find(is_it);
        if belief.session.is_none() && hold.session.is_some() {
            return;
        }
        belief.token = hold.token;
        belief.until = self.servers.now_us + (hold.deadline * 1000).saturating_sub(world.now_us());
        let place = self.servers.place(server);
        belief.deadlines.push((place, hold.deadline));
        // What is in the stream of this server has not removed it.
        belief.ended.retain(|(ended, _)| !self.servers.contains(place, *ended));
        self.clients.all[client].beliefs.push(belief);
    }

    /// A server has let the client in; whether it hears of it.
    fn granted(&mut self, client: usize, connection: Connection, request: &Request, token: u64, is_heard: bool) {
        self.counts.grants += 1;
        let (server, mode) = (connection.server, request.want.mode());
        for key in request.keys.iter().copied() {
            let at = self.clients.all[client].beliefs.iter().position(|old| old.key == key && old.mode == mode);
            let old = at.map(|at| self.clients.all[client].beliefs.swap_remove(at));
            let is_same = |old: &&Belief| old.token == token;
            let from = old.as_ref().filter(is_same).map_or(self.servers.now_us, |old| old.from);
            let belief =
                Belief { key, mode, token, from, until: 0, session: None, deadlines: Vec::new(), ended: Vec::new() };
            self.oracle.granted(&self.servers, &mut self.clients, server, client, &belief);
            if is_heard {
                self.believe(client, server, belief);
            }
        }
    }

    fn waits(&mut self, client: usize, connection: Connection, ticket: u64, keys: &[usize], is_heard: bool) {
        self.counts.waits += 1;
        if is_heard {
            self.clients.all[client].waiting = Some(Waiting { connection, ticket, keys: keys.to_vec() });
        }
    }

    fn forget_ticket(&mut self, server: usize, ticket: u64) -> Option<usize> {
        let is_it = |waiting: &Waiting| waiting.connection.server == server && waiting.ticket == ticket;
        let client = self.clients.all.iter().position(|client| client.waiting.as_ref().is_some_and(is_it))?;
        self.clients.all[client].waiting = None;
        Some(client)
    }

    /// A wait has ended.
    fn answered(&mut self, server: usize, request: &Request, answer: &Answer) {
        let connection = Connection { id: request.client, server };
        let client = self.forget_ticket(server, request.ticket);
        let Answer::Granted(token, _) = answer else { return };
        if client.is_none() {
            self.doubt(request.owner, &request.keys);
        }
        self.granted(request.owner, connection, request, token.get(), client.is_some());
    }

    // Connections.

    fn doubt(&mut self, client: usize, keys: &[usize]) {
        for belief in &self.clients.all[client].beliefs {
            if keys.contains(&belief.key) {
                self.oracle.end(self.servers.now_us, client, belief);
            }
        }
        self.clients.doubt(client, keys);
    }

    fn close(&mut self, client: usize, connection: Connection, is_noticed: bool) {
        for belief in self.clients.all[client].beliefs.iter().filter(|belief| belief.session == Some(connection)) {
            self.oracle.end(self.servers.now_us, client, belief);
        }
        self.clients.give_up(client, connection);
        if is_noticed { self.notice(connection) } else { self.clients.ghosts.push(connection) }
    }

    /// A server hears that a connection has ended.
    fn notice(&mut self, connection: Connection) {
        let Connection { id, server } = connection;
        if self.servers.is_writing(server) {
            self.servers.set_clock(server);
            note_session_end(&self.servers, &mut self.clients, connection);
            self.servers.all[server].world.disconnect(id);
            self.end_turn(server);
        }
    }

    fn disconnect(&mut self, client: usize, is_noticed: bool) {
        for connection in self.clients.all[client].connections.into_iter().flatten() {
            self.close(client, connection, is_noticed);
        }
    }

    // What fails.

    fn jump(&mut self, server: usize, by_us: i64) {
        self.servers.jump(server, by_us);
        if self.servers.is_writing(server) {
            self.end_turn(server);
        }
    }

    fn resume(&mut self) {
        for server in 0..self.servers.all.len() {
            if self.servers.all[server].is_up && self.servers.all[server].world.role() == Role::HeldStill {
                self.servers.all[server].world.go_on();
            }
        }
        // Until then the timer does not try again.
        self.pass(RETRY_US);
    }

    fn crash(&mut self, server: usize) {
        if self.servers.all[server].is_up {
            self.servers.crash(server);
            self.clients.lose_server(server);
        }
    }

    fn restart(&mut self, server: usize) {
        self.servers.restart(server).unwrap_or_else(|what| panic!("{what}"));
    }

    fn promote(&mut self, server: usize) {
        self.servers.promote(server).unwrap_or_else(|what| panic!("{what}"));
    }

    fn hand_over(&mut self, server: usize) {
        let former = self.servers.primary;
        if !self.servers.is_serving(former) || self.servers.former.is_some() || !self.servers.all[server].is_up {
            return;
        }
        self.servers.all[former].world.hold_still();
        self.pass(1000);
        self.servers.replicate(server, usize::MAX / 2);
        let before = self.servers.faults.lost_units;
        match self.servers.promote(server) {
            Ok(true) => self.demote(former),
            Ok(false) => self.resume(),
            Err(what) => panic!("{what}"),
        }
        assert_eq!(self.servers.faults.lost_units, before, "a planned failover loses nothing");
    }

    /// A primary becomes a replica: those that wait get `UNBLOCKED`.
    fn demote(&mut self, server: usize) {
        self.servers.demote(server);
        for client in &mut self.clients.all {
            if client.waiting.as_ref().is_some_and(|waiting| waiting.connection.server == server) {
                client.waiting = None;
            }
        }
        // A timer that was put off runs first: no clock jumps before.
        self.pass(RETRY_US);
    }

    fn delete(&mut self, key: usize) {
        let is_moved = SLOTS.iter().position(|slot| slot.contains(&key)).is_some_and(|slot| self.servers.moved[slot]);
        let server = if is_moved { OTHER_NODE } else { self.servers.primary };
        if self.servers.is_serving(server) && self.servers.former.is_none() {
            (0..CLIENTS).for_each(|client| self.doubt(client, &[key]));
            self.servers.set_clock(server);
            self.servers.all[server].world.remove(key);
            self.end_turn(server);
        }
    }

    fn move_slot(&mut self, slot: usize, how: Moving) {
        let source = self.servers.primary;
        if !self.servers.is_serving(source) {
            return;
        }
        if how == Moving::Atomic {
            self.servers.all[source].world.hold_still();
            self.pass(2000);
        }
        let is_moved = self.servers.move_slot(slot);
        if how == Moving::Atomic {
            self.servers.all[source].world.go_on();
            self.pass(RETRY_US);
        }
        if !is_moved {
            return;
        }
        self.end_turn(source);
        self.end_turn(OTHER_NODE);
        self.follow_slot(source, slot);
    }

    /// Clients that wait for a slot that has moved get `MOVED`. Holds are in the stream of the other node from now on.
    fn follow_slot(&mut self, source: usize, slot: usize) {
        let keys = SLOTS[slot];
        for client in 0..CLIENTS {
            let concerns = |waiting: &Waiting| waiting.connection.server == source && keys.contains(&waiting.keys[0]);
            if let Some(Waiting { ticket, .. }) = self.clients.all[client].waiting.take_if(|waiting| concerns(waiting))
            {
                self.servers.all[source].world.give_up(ticket);
                self.end_turn(source);
            }
        }
        let place = self.servers.place(OTHER_NODE);
        let model = self.servers.all[OTHER_NODE].world.model();
        for (owner, client) in self.clients.all.iter_mut().enumerate() {
            for belief in client.beliefs.iter_mut().filter(|belief| keys.contains(&belief.key)) {
                if let Some(hold) = model.mine(belief.key, owner, belief.mode).filter(|hold| hold.token == belief.token)
                {
                    note_deadline(belief, place, hold.deadline);
                }
            }
        }
    }

    // The end.

    fn holds_by_session(&self, client: usize) -> bool {
        let is_bound = |connection: &Connection| {
            let model = self.servers.all[connection.server].world.model();
            model.keys.iter().flat_map(|key| &key.holds).any(|hold| hold.session == Some(connection.id))
        };
        self.clients.all[client].connections.iter().flatten().any(is_bound)
    }

    /// Everything works again: every wait has to end.
    fn heal(&mut self) {
        for server in 0..self.servers.all.len() {
            self.restart(server);
        }
        if let Some(former) = self.servers.former {
            self.demote(former);
        }
        self.resume();
        while let Some(ghost) = self.clients.ghosts.pop() {
            self.notice(ghost);
        }
        for round in 0..ROUNDS {
            self.pass(2_000_000);
            if self.clients.all.iter().all(|client| client.waiting.is_none()) {
                break;
            }
            let waits = |client: &usize| self.clients.all[*client].waiting.is_some();
            let (waiting, others): (Vec<usize>, Vec<usize>) = (0..CLIENTS).partition(waits);
            others.into_iter().for_each(|client| self.disconnect(client, true));
            // Owners that want more permits than there are may wait for each other.
            let in_the_way = waiting.into_iter().find(|client| self.holds_by_session(*client));
            if let Some(client) = in_the_way.filter(|_| round > ROUNDS / 4) {
                self.disconnect(client, true);
            }
        }
        for client in &self.clients.all {
            assert!(client.waiting.is_none(), "a waiter starves: {:?}", client.waiting);
        }
        for server in 0..REPLICATED {
            self.servers.replicate(server, usize::MAX / 2);
        }
    }
}

fn keys_of(command: &Command) -> Vec<usize> {
    match command {
        Command::Enter { keys, .. } => keys.clone(),
        Command::ReleaseOf { key, .. } | Command::RenewOf { key, .. } => vec![*key],
        Command::Release { .. } | Command::Renew { .. } => Vec::new(),
    }
}

/// How long a server waits before it tries again what it was not allowed to do.
const RETRY_US: u64 = 21_000;
/// How many times a client leaves at the end of a run before the others are said to starve.
const ROUNDS: usize = 40;
