//! How an event runs, and how time passes.

mod beliefs;
mod faults;
mod requests;
mod sessions;

use dlock_testkit::histories::How;

use crate::clients::{Clients, Waiting};
use crate::oracle::{Explained, Oracle, named_elsewhere, note_lapsed, note_named_ends};
use crate::plan::{Command, Event, Plan, What};
use crate::servers::{Faults, Servers};

/// The results of a run.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counts {
    /// Commands, timers, units that reached a replica, and what failed.
    pub events: usize,
    pub grants: usize,
    /// The grants with a slot number.
    pub slots: usize,
    pub waits: usize,
    pub beats: usize,
    /// Holds that were bound to another named session, because theirs was lost.
    pub bound_anew: usize,
    /// How often a client hung, or was cut off.
    pub silences: usize,
    pub faults: Faults,
    pub explained: Explained,
}

impl Counts {
    pub fn add(&mut self, other: &Counts) {
        let Counts { events, grants, slots, waits, beats, bound_anew, silences, faults, explained } = self;
        (*events, *grants, *waits) = (*events + other.events, *grants + other.grants, *waits + other.waits);
        (*beats, *bound_anew) = (*beats + other.beats, *bound_anew + other.bound_anew);
        (*slots, *silences) = (*slots + other.slots, *silences + other.silences);
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
        while let Some((at, client, node)) = self.clients.next_beat().filter(|(at, ..)| *at <= end) {
            self.pass_without_beats(at.saturating_sub(self.servers.now_us));
            self.beat(client, node);
        }
        self.pass_without_beats(end.saturating_sub(self.servers.now_us));
    }

    fn pass_without_beats(&mut self, us: u64) {
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
        let named = named_elsewhere(&self.servers, &self.clients, server);
        let next = self.servers.next_place(server);
        self.servers.all[server].world.end_turn();
        self.servers.record(server);
        note_named_ends(&self.servers, &mut self.clients, (server, next), named);
        self.note_deadlines(server, |belief| belief.session.is_some());
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

    // Events.

    fn happen(&mut self, what: &What) {
        match *what {
            What::Send { client, ref command, fate } => self.send(client, command, fate),
            What::Again { client, block, fate } => {
                if let Some(Command::Enter { keys, how }) = self.clients.all[client].last.clone() {
                    self.send(client, &Command::Enter { keys, how: How { blocks: block, ..how } }, fate);
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
            What::Hang { client, for_us } => self.fall_silent(client, for_us),
            What::CutOff { client, for_us } => self.cut_off(client, for_us),
            What::Die { client } => self.die(client),
            What::CloseSession { client } => self.close_sessions(client),
            What::Meddle { client, with } => self.meddle(client, with),
        }
    }
}
