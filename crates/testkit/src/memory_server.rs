//! A server in memory: the engine of the core over keys in memory, with a clock and a table of waiting requests.

use std::collections::BTreeMap;

use dlock_core::engine::{Call, Entered, Fault, Grant, Input, Left, Output, Role, Settings, WaiterId};
use dlock_core::{Binding, ClientId, Engine, Keyspace, Name, Reach, Renew, Request};

use crate::keyspace::{KeyName, MemoryKeyspace, RunningRelease, name};

/// A server. The caller gives each request that may wait a ticket, and refers to it by the ticket.
#[derive(Clone, Debug)]
pub struct MemoryServer {
    /// The engine, which decides.
    pub engine: Engine<u64>,
    /// The keys and the clock.
    pub space: MemoryKeyspace,
    /// Whether the server is a primary or a replica.
    pub role: Role,
    /// The waiting requests, by ticket.
    waiters: BTreeMap<u64, WaiterId>,
}

/// The outcome of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Entry {
    /// A new hold, or more entries.
    Granted(Grant),
    /// The request had been granted before.
    Replayed(Grant),
    /// The request waits.
    Waits,
    /// The request waits in the place of the one with this ticket, which gets nil.
    TakesOver(u64),
    /// The lock is not free, and the request may not wait.
    Refused,
}

impl MemoryServer {
    /// Returns a primary over these keys.
    pub fn new(settings: Settings, space: MemoryKeyspace) -> MemoryServer {
        MemoryServer { engine: Engine::new(7, settings), space, role: Role::Primary, waiters: BTreeMap::new() }
    }

    // Commands.

    /// Runs a request for one lock, or with `all` for several. The request may wait if it has a ticket.
    pub fn enter(
        &mut self,
        client: u64,
        keys: &[KeyName],
        all: bool,
        request: &Request,
        ticket: Option<u64>,
    ) -> Result<Entry, Fault> {
        let names: Vec<Name<'_>> = keys.iter().map(name).collect();
        let call = Call { name: names[0], now: self.space.now(), client: ClientId(client) };
        let wait = ticket.map(|ticket| move |_: WaiterId| ticket);
        let entered = if all {
            self.engine.acquire_all(&mut self.space, call, &names, request, wait)
        } else {
            self.engine.acquire(&mut self.space, call, request, wait)
        };
        Ok(match entered? {
            Entered::Granted(grant) => Entry::Granted(grant),
            Entered::Replayed(grant) => Entry::Replayed(grant),
            Entered::Refused => Entry::Refused,
            Entered::Waiting(id) => {
                let first = self.waiters.iter().find(|(_, other)| **other == id).map(|(first, _)| *first);
                first.map(|first| self.waiters.remove(&first));
                self.waiters.insert(ticket.expect("only a request with a ticket waits"), id);
                first.map_or(Entry::Waits, Entry::TakesOver)
            }
        })
    }

    /// Runs a `RELEASE`.
    pub fn release(&mut self, client: u64, key: &KeyName, release: RunningRelease) -> Result<Left, Fault> {
        self.space.running = Some(release.clone());
        let call = Call { name: name(key), now: self.space.now(), client: ClientId(client) };
        let left = self.engine.release(&mut self.space, call, &release.request());
        self.space.running = None;
        left
    }

    /// Runs a `RENEW`. Returns how far the hold was extended, or `None` if there is no such hold.
    pub fn renew(
        &mut self,
        client: u64,
        key: &KeyName,
        renew: &Renew<'_>,
        session: Binding,
    ) -> Result<Option<Reach>, Fault> {
        let call = Call { name: name(key), now: self.space.now(), client: ClientId(client) };
        self.engine.renew(&mut self.space, call, renew, session)
    }

    // Time, waiters and events.

    /// Returns whether the timer is due.
    pub fn is_due(&self) -> bool {
        self.engine.wake_at().is_some_and(|at| at <= self.space.now().ms())
    }

    /// Runs the timer once.
    pub fn tick(&mut self) {
        self.engine.tick(&mut self.space, self.role);
    }

    /// Tells the engine about an event.
    pub fn input(&mut self, input: Input<'_>) {
        self.engine.input(input, self.space.now());
    }

    /// Tells the engine which locks commands of the server have removed. Returns whether there were any.
    pub fn hear_of_removals(&mut self) -> bool {
        let names = self.space.take_unlinked();
        names.iter().for_each(|key| self.input(Input::Removed(name(key))));
        !names.is_empty()
    }

    /// Returns the tickets of all waiting requests.
    pub fn tickets(&self) -> impl Iterator<Item = u64> {
        self.waiters.keys().copied()
    }

    /// Removes a request from its queues without an answer. Returns whether it waited.
    pub fn abandon(&mut self, ticket: u64) -> bool {
        let Some(id) = self.waiters.remove(&ticket) else { return false };
        assert_eq!(self.engine.abandon(id), Some(ticket), "the engine does not know a waiter");
        assert_eq!(self.engine.abandon(id), None, "the request has left its queues");
        true
    }

    /// Ends the wait of a request whose time limit has passed. Returns whether it waited.
    pub fn time_out(&mut self, ticket: u64) -> bool {
        let Some(id) = self.waiters.remove(&ticket) else { return false };
        self.engine.time_out(id, self.space.now());
        true
    }

    /// Takes the outputs to send, as the module does. Answered requests no longer wait.
    pub fn take_outputs(&mut self) -> Vec<Output<u64>> {
        if let Some((index, event)) = self.engine.take_own_event() {
            assert!(self.engine.take_outputs().is_empty(), "there is more than {event:?} to send");
            return vec![Output::Own(index, event)];
        }
        let outputs = self.engine.take_outputs();
        for output in &outputs {
            if let Output::Answer(ticket, _) = output {
                self.waiters.remove(ticket);
            }
        }
        outputs
    }
}
