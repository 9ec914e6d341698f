//! The replies to a client's requests, and which locks it then believes to hold.

use std::num::NonZeroU32;

use dlock_core::Entries;
use dlock_core::engine::Answer;
use dlock_testkit::histories::leave::{Fence, Leave, Renewal};
use dlock_testkit::histories::naive::{Hold, Reply, Request};

use super::Run;
use crate::clients::{Belief, Bond, Connection, Session, Waiting};
use crate::oracle::note_deadline;

impl Run {
    /// Notes until when a server has the holds that these beliefs are about.
    pub(super) fn note_deadlines(&mut self, server: usize, concerns: impl Fn(&Belief) -> bool) {
        let (place, model) = (self.servers.place(server), self.servers.all[server].world.model());
        for (owner, client) in self.clients.all.iter_mut().enumerate() {
            for belief in client.beliefs.iter_mut().filter(|belief| concerns(belief)) {
                let is_it = |hold: &&Hold| (hold.owner, hold.mode, hold.token) == (owner, belief.mode, belief.token);
                if let Some(hold) = model.keys[belief.key].holds.iter().find(is_it) {
                    note_deadline(belief, place, hold.deadline);
                }
            }
        }
    }

    /// Removes what a client believes about one lock, and returns it: the reply to its release says what of it stays.
    pub(super) fn take_beliefs(&mut self, client: usize, key: usize) -> Vec<Belief> {
        let beliefs = &mut self.clients.all[client].beliefs;
        let (taken, rest) = std::mem::take(beliefs).into_iter().partition(|belief| belief.key == key);
        *beliefs = rest;
        taken
    }

    /// A client hears what its release did to the beliefs that it had `before`. `None`: it hears nothing.
    pub(super) fn has_left(&mut self, server: usize, leave: Leave, before: Vec<Belief>, reply: Option<Reply>) {
        let client = leave.owner;
        let concerns = |belief: &Belief| {
            leave.mode.is_none_or(|mode| mode == belief.mode) && leave.token.is_none_or(|token| token == belief.token)
        };
        let is_single = before.len() == 1 && matches!(leave.entries, Entries::All | Entries::Some(NonZeroU32::MIN));
        for belief in before {
            match reply {
                // Entries are left, nothing was released, or the client does not know.
                Some(Reply::Number(0) | Reply::Ambiguous) | None => self.clients.all[client].beliefs.push(belief),
                // The server has no such hold. With two holds of the client, nil may be about the other one.
                Some(Reply::Nil) if concerns(&belief) && is_single => {
                    self.oracle.missed(&self.servers, server, client, &belief);
                }
                // The release was of the client's other hold.
                Some(Reply::Number(1)) if !concerns(&belief) => self.clients.all[client].beliefs.push(belief),
                _ => self.oracle.end(self.servers.now_us, client, &belief),
            }
        }
    }

    /// A client hears what its renewal did. `None`: it hears nothing.
    pub(super) fn was_renewed(&mut self, server: usize, key: usize, what: Renewal, reply: Option<Reply>) {
        let client = what.owner;
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
            // 1, or 0 if the cap makes the lease shorter than asked for: the hold is renewed.
            Some(Reply::Number(_)) => {
                let belief = self.clients.all[client].beliefs.swap_remove(at);
                self.believe(client, server, belief);
            }
            _ => {}
        }
    }

    /// Has a client believe what its server has of a hold: its token, its session and how long it lasts.
    fn believe(&mut self, client: usize, server: usize, mut belief: Belief) {
        let world = &self.servers.all[server].world;
        let Some(hold) = world.model().mine(belief.key, client, belief.mode) else { return };
        // A hold that is bound to a connection that the client has given up ends when the server notices that. So does one
        // that is bound to an earlier session.
        let is_it = |connection: &Connection| Some(connection.id) == hold.session && connection.server == server;
        let own = &self.clients.all[client];
        let connection = own.connections.into_iter().flatten().find(is_it);
        let is_named = |session: &Session| Some(session.bond.number) == hold.session && session.bond.server == server;
        let named = own.sessions.into_iter().flatten().find(is_named);
        belief.session = connection.map(Bond::Connection).or(named.map(|session| Bond::Named(session.bond)));
        if belief.session.is_none() && hold.session.is_some() {
            return;
        }
        (belief.token, belief.slot) = (hold.token, hold.slot);
        let from_now = |time: u64| self.servers.now_us + (time * 1000).saturating_sub(world.now_us());
        belief.until = named.map_or(from_now(hold.deadline), |session| session.until);
        belief.last = hold.cap.map_or(u64::MAX, from_now);
        let place = self.servers.place(server);
        belief.deadlines.push((place, hold.deadline));
        // The server has the hold, so nothing that its stream contains has removed it.
        belief.ended.retain(|(ended, _)| !self.servers.contains(place, *ended));
        self.clients.all[client].beliefs.push(belief);
    }

    /// A server has granted a request. `is_heard`: its client gets the reply.
    pub(super) fn granted(&mut self, server: usize, request: &Request, token: u64, is_heard: bool) {
        self.counts.grants += 1;
        let (client, mode) = (request.owner, request.how.want.mode());
        for key in request.keys.iter().copied() {
            let at = self.clients.all[client].beliefs.iter().position(|old| old.key == key && old.mode == mode);
            let old = at.map(|at| self.clients.all[client].beliefs.swap_remove(at));
            let is_same = |old: &&Belief| old.token == token;
            let from = old.as_ref().filter(is_same).map_or(self.servers.now_us, |old| old.from);
            let (deadlines, ended) = (Vec::new(), Vec::new());
            let slot = self.servers.all[server].world.model().mine(key, client, mode).and_then(|hold| hold.slot);
            self.counts.slots += usize::from(slot.is_some());
            let (until, last, session) = (0, u64::MAX, None);
            let belief = Belief { key, mode, token, slot, from, until, last, session, deadlines, ended };
            self.oracle.granted(&self.servers, &mut self.clients, server, client, &belief);
            if is_heard {
                self.believe(client, server, belief);
            }
        }
    }

    /// A request waits in the queues of its locks. `is_heard`: its client is still there, and waits for the reply.
    pub(super) fn waits(&mut self, client: usize, connection: Connection, ticket: u64, keys: &[usize], is_heard: bool) {
        self.counts.waits += 1;
        if is_heard {
            self.clients.all[client].waiting = Some(Waiting { connection, ticket, keys: keys.to_vec() });
        }
    }

    /// Ends a client's wait for a ticket of a server, and returns the client.
    pub(super) fn forget_ticket(&mut self, server: usize, ticket: u64) -> Option<usize> {
        let is_it = |waiting: &Waiting| waiting.connection.server == server && waiting.ticket == ticket;
        let client = self.clients.all.iter().position(|client| client.waiting.as_ref().is_some_and(is_it))?;
        self.clients.all[client].waiting = None;
        Some(client)
    }

    /// A wait has ended.
    pub(super) fn answered(&mut self, server: usize, request: &Request, answer: &Answer) {
        let client = self.forget_ticket(server, request.ticket);
        let Answer::Granted(grant, _) = answer else { return };
        // The client does not wait any more: it cannot know that it was granted.
        if client.is_none() {
            self.doubt(request.owner, &request.keys);
        }
        self.granted(server, request, grant.token.get(), client.is_some());
    }

    /// Ends what a client believes about these locks, since a reply that it did not get may have changed them.
    pub(super) fn doubt(&mut self, client: usize, keys: &[usize]) {
        for belief in &self.clients.all[client].beliefs {
            if keys.contains(&belief.key) {
                self.oracle.end(self.servers.now_us, client, belief);
            }
        }
        self.clients.doubt(client, keys);
    }
}
