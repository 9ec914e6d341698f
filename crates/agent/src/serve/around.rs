//! The parts of the server around its keys: the clock, the user, and the record of keys that were removed.

use std::rc::Rc;

use dlock_core::engine::{Engine, Input, Lost, UserState};
use dlock_core::{Lock, Name, Now, Uptime};
use dlock_memory::{Gone, Surroundings};

use super::client::Waiter;
use super::clock::Clock;

/// The surroundings of the keys. Keys that are removed while the engine works are recorded, and the engine is told
/// before it works again.
#[derive(Debug)]
pub(super) struct Around {
    pub clock: Rc<Clock>,
    /// The one user of the server.
    pub user: Rc<[u8]>,
    lost: Vec<Lost>,
    removed: Vec<(i32, Box<[u8]>)>,
    /// Whether events have subscribers.
    pub are_heard: bool,
    events: Vec<(i32, Box<[u8]>, &'static str)>,
}

impl Around {
    pub fn new(clock: Rc<Clock>, user: Rc<[u8]>) -> Self {
        Self { clock, user, lost: Vec::new(), removed: Vec::new(), are_heard: false, events: Vec::new() }
    }

    /// Tells the engine what happened to keys without it.
    pub fn tell(&mut self, engine: &mut Engine<Rc<Waiter>>) {
        self.lost.drain(..).for_each(|lost| engine.lose(&lost));
        let now = self.clock.now();
        for (db, key) in self.removed.drain(..) {
            engine.input(Input::Removed(Name { db, key: &key }), now);
        }
    }

    /// Returns whether there is something to tell the engine.
    pub fn has_notes(&self) -> bool {
        !self.lost.is_empty() || !self.removed.is_empty()
    }

    /// Takes the events of keys that were removed.
    pub fn take_events(&mut self) -> Vec<(i32, Box<[u8]>, &'static str)> {
        std::mem::take(&mut self.events)
    }
}

impl Surroundings for Around {
    fn now(&self) -> Now {
        self.clock.now()
    }

    fn uptime(&self) -> Uptime {
        self.clock.uptime()
    }

    fn user(&mut self) -> Option<Vec<u8>> {
        Some(self.user.to_vec())
    }

    fn user_state(&mut self, user: &[u8]) -> UserState {
        if *self.user == *user { UserState::Enabled } else { UserState::Unknown }
    }

    fn gone(&mut self, name: Name<'_>, lock: Option<&Lock>, how: Gone) {
        if let Some(lock) = lock.filter(|lock| !lock.is_empty()) {
            self.lost.push(Lost::of(name, lock, self.clock.now()));
            if how != Gone::ExpiredForEngine {
                self.removed.push((name.db, name.key.into()));
            }
        }
        if self.are_heard {
            let event = if how == Gone::Deleted { "del" } else { "expired" };
            self.events.push((name.db, name.key.into(), event));
        }
    }
}
