//! Failures, an operator's actions, and how everything works again at the end.

use dlock_core::engine::Role;

use super::Run;
use crate::clients::{Connection, Session, Waiting};
use crate::plan::{CLIENTS, Moving, OTHER_NODE, REPLICATED, SLOTS};

impl Run {
    pub(super) fn jump(&mut self, server: usize, by_us: i64) {
        self.servers.jump(server, by_us);
        if self.servers.is_writing(server) {
            self.end_turn(server);
        }
    }

    pub(super) fn resume(&mut self) {
        for server in 0..self.servers.all.len() {
            if self.servers.all[server].is_up && self.servers.all[server].world.role() == Role::HeldStill {
                self.servers.all[server].world.go_on();
            }
        }
        // The timer tries again only after this time.
        self.pass_without_beats(RETRY_US);
    }

    pub(super) fn crash(&mut self, server: usize) {
        if self.servers.all[server].is_up {
            self.servers.crash(server);
            self.clients.lose_server(server);
        }
    }

    pub(super) fn restart(&mut self, server: usize) {
        self.servers.restart(server).unwrap_or_else(|what| panic!("{what}"));
    }

    pub(super) fn promote(&mut self, server: usize) {
        self.servers.promote(server).unwrap_or_else(|what| panic!("{what}"));
    }

    pub(super) fn hand_over(&mut self, server: usize) {
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
    pub(super) fn demote(&mut self, server: usize) {
        self.servers.demote(server);
        for client in &mut self.clients.all {
            if client.waiting.as_ref().is_some_and(|waiting| waiting.connection.server == server) {
                client.waiting = None;
            }
        }
        // A timer that was put off runs within this time, before any clock jumps.
        self.pass_without_beats(RETRY_US);
    }

    pub(super) fn delete(&mut self, key: usize) {
        let server = if self.servers.is_moved(key) { OTHER_NODE } else { self.servers.primary };
        if self.servers.is_serving(server) && self.servers.former.is_none() {
            (0..CLIENTS).for_each(|client| self.doubt(client, &[key]));
            self.servers.set_clock(server);
            self.servers.all[server].world.remove(key);
            self.end_turn(server);
        }
    }

    pub(super) fn move_slot(&mut self, slot: usize, how: Moving) {
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
            self.pass_without_beats(RETRY_US);
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
        self.note_deadlines(OTHER_NODE, |belief| keys.contains(&belief.key));
    }

    // The end of a run.

    fn holds_by_session(&self, client: usize) -> bool {
        let is_bound = |connection: &Connection| {
            let model = self.servers.all[connection.server].world.model();
            model.keys.iter().flat_map(|key| &key.holds).any(|hold| hold.session == Some(connection.id))
        };
        let own = &self.clients.all[client];
        let is_named = |session: &Session| {
            let model = self.servers.all[session.bond.server].world.model();
            model.keys.iter().flat_map(|key| &key.holds).any(|hold| hold.session == Some(session.bond.number))
        };
        own.connections.iter().flatten().any(is_bound) || own.sessions.iter().flatten().any(is_named)
    }

    /// Everything works again: every wait has to end.
    pub(super) fn heal(&mut self) {
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
            others.into_iter().for_each(|client| self.die(client));
            // Owners that want more permits than there are may wait for each other.
            let in_the_way = waiting.into_iter().find(|client| self.holds_by_session(*client));
            if let Some(client) = in_the_way.filter(|_| round > ROUNDS / 4) {
                self.die(client);
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

/// More than the 20 ms after which the engine's timer tries again what the server was not allowed to do.
const RETRY_US: u64 = 21_000;
/// How many times the clients that do not wait leave at the end of a run, before the others are said to starve.
const ROUNDS: usize = 40;
