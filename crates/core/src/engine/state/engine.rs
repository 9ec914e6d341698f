//! The engine: the records of locks and what all locks share. Inputs and visits are its methods, above this folder.

use foldhash::fast::FixedState;

use crate::engine::state::budget::SearchBudget;
use crate::engine::state::due::Backlog;
use crate::engine::state::outbox::log::Log;
use crate::engine::state::outbox::stats::{Gauges, Stats};
use crate::engine::state::outbox::{Answer, Event, Outbox, Output};
use crate::engine::state::parts::Parts;
use crate::engine::state::records::registry::Registry;
use crate::engine::state::sessions::Sessions;
use crate::engine::state::waiting::Waiters;
use crate::settings::Settings;
use crate::{Memory, Name, UnixMs};

/// The state machine. `T` is the value by which the caller finds a waiting client.
#[derive(Clone, Debug)]
pub struct Engine<T> {
    pub(in crate::engine) registry: Registry,
    pub(in crate::engine) parts: Parts<T>,
}

impl<T> Engine<T> {
    /// Returns an engine that remembers nothing. `seed` is random: it protects the tables against chosen names, and
    /// spreads renewals.
    pub fn new(seed: u64, settings: Settings) -> Engine<T> {
        let hasher = FixedState::with_seed(seed);
        Engine {
            registry: Registry::new(hasher.clone()),
            parts: Parts {
                settings,
                memory: Memory::new(),
                waiters: Waiters::new(hasher.clone()),
                searches: SearchBudget::FULL,
                sessions: Sessions::new(hasher, seed),
                backlog: Backlog::default(),
                outbox: Outbox::new(),
                has_rights: |_| true,
            },
        }
    }

    /// Sets the function that says whether the client of a waiting request still has the rights to send it. The engine
    /// calls it when the turn of the request has come, while the key is open: the function runs no command.
    pub fn ask_rights_by(&mut self, has_rights: fn(&T) -> bool) {
        self.parts.has_rights = has_rights;
    }

    /// Sets the function that learns the answer to a waiting request as soon as the engine knows it, before the outputs
    /// are taken. The engine calls it while keys are open: the function runs no command.
    pub fn tell_answers_by(&mut self, tell: fn(&T, &Answer)) {
        self.parts.outbox.tell_by(tell);
    }

    /// Returns the operator's settings.
    pub fn settings(&self) -> Settings {
        self.parts.settings
    }

    /// Returns the operator's settings, for a change.
    pub fn settings_mut(&mut self) -> &mut Settings {
        &mut self.parts.settings
    }

    /// Returns the counters of `INFO dlock`.
    pub fn stats(&self) -> Stats {
        self.parts.outbox.stats
    }

    /// Returns the log that `DLOCK.LOG` shows.
    pub fn log(&self) -> &Log {
        &self.parts.outbox.log
    }

    /// Returns the log that `DLOCK.LOG` shows, to set or empty it.
    pub fn log_mut(&mut self) -> &mut Log {
        &mut self.parts.outbox.log
    }

    /// Returns the token clock, and the parts of large locks that are still to be freed.
    pub fn memory(&self) -> &Memory {
        &self.parts.memory
    }

    /// Returns the token clock, and the parts of large locks that are still to be freed, for effects to change.
    pub fn memory_mut(&mut self) -> &mut Memory {
        &mut self.parts.memory
    }

    /// Takes the event on a key of the running command, with the index of that key, if the caller has nothing else to
    /// send.
    #[inline]
    pub fn take_own_event(&mut self) -> Option<(usize, Event)> {
        self.parts.outbox.take_own_event()
    }

    /// Takes the outputs that the caller has to send, in order, and leaves `spare` in their place: an empty list, so
    /// that its memory is used again, or outputs that could not be sent.
    #[inline]
    pub fn swap_outputs(&mut self, spare: Vec<Output<T>>) -> Vec<Output<T>> {
        self.parts.outbox.swap(spare)
    }

    /// Takes the outputs that the caller has to send, in order.
    pub fn take_outputs(&mut self) -> Vec<Output<T>> {
        self.swap_outputs(Vec::new())
    }

    /// Returns the fields of `INFO dlock`, without their prefix `dlock_`. `version` is that of the server's program.
    pub fn info(&self, version: &str) -> Vec<(&'static str, String)> {
        let numbers = self.stats().named().chain(self.gauges().named());
        let log = self.log();
        let times = [("wait_usec", log.waits.percentiles()), ("hold_usec", log.holds.percentiles())];
        let first = [("version", version.to_owned())].into_iter();
        first
            .chain(numbers.map(|(name, number)| (name, number.to_string())))
            .chain(times)
            .chain([("internal_errors", crate::doubt::count().to_string())])
            .collect()
    }

    /// Returns the current numbers.
    pub fn gauges(&self) -> Gauges {
        let Parts { waiters, sessions, memory, .. } = &self.parts;
        let (queues, named_sessions) = (waiters.queues(), sessions.named.len());
        let (sessions, last_token) = (sessions.bound(), memory.tokens.last());
        Gauges { waiters: waiters.len(), queues, sessions, named_sessions, last_token }
    }

    /// Returns whether a lock has a record. If it has none, its removal does not concern the engine.
    pub fn remembers(&self, name: Name<'_>) -> bool {
        self.registry.find(name).is_some()
    }

    /// Returns the time of the next [`Engine::tick`]; `None`: not before the next input.
    #[inline]
    pub fn wake_at(&self) -> Option<UnixMs> {
        let Parts { memory, sessions, backlog, .. } = &self.parts;
        let has_rest = backlog.has_ttls() || !sessions.is_idle() || !memory.trash.is_empty();
        let at = match sessions.named.wake_at() {
            _ if has_rest => UnixMs::ZERO,
            // A lock without a record is never due.
            at if self.registry.is_empty() => at,
            at => at.min(self.next_visit()),
        };
        (at != UnixMs::MAX).then(|| at.max(backlog.not_before))
    }

    /// Returns when a lock is due next; [`UnixMs::MAX`]: not at all.
    fn next_visit(&self) -> UnixMs {
        if self.parts.backlog.has_due() || !self.registry.databases().are_checked() {
            return UnixMs::ZERO;
        }
        self.parts.backlog.next_visit().unwrap_or(UnixMs::MAX)
    }
}
