//! The lines of a story: who waits for which lock, called w1, w2, … in the order in which they came.

use std::collections::BTreeMap;

use dlock_core::{Acquire, Line, Lock, Owner, Place, UnixMs};

/// The lines of all locks, and where in them everybody is.
#[derive(Default)]
pub struct Lines {
    lines: BTreeMap<String, Line<u64>>,
    places: BTreeMap<u64, (String, Owner, Place)>,
    given: u64,
}

impl Lines {
    /// The line of a lock; it may be empty.
    pub fn of(&mut self, key: &str) -> &mut Line<u64> {
        self.lines.entry(key.to_owned()).or_default()
    }

    /// A request that cannot be granted begins to wait, or takes over the place it has.
    pub fn wait(&mut self, key: &str, lock: &Lock, now: UnixMs, request: &Acquire) -> String {
        let ticket = self.given + 1;
        if let Some(place) = self.place_of_repeated(key, request) {
            let first = self.of(key).take_over(place, request.lease, ticket).expect("it waits");
            let moved = self.places.remove(&first).expect("it waits");
            self.places.insert(ticket, moved);
            self.given = ticket;
            return format!("w{ticket} waits in place of w{first}");
        }
        match self.of(key).join(lock, now, request, ticket) {
            Ok(place) => {
                self.places.insert(ticket, (key.to_owned(), request.owner.clone(), place));
                self.given = ticket;
                format!("w{ticket} waits")
            }
            Err(dlock_core::TwoUpgrades) => "DEADLOCK (two upgrades)".to_owned(),
        }
    }

    /// A waiter is no longer in its line.
    pub fn forget(&mut self, ticket: u64) {
        self.places.remove(&ticket);
    }

    pub fn leave(&mut self, name: &str) -> String {
        let Some((key, _, place)) = self.places.remove(&ticket(name)) else { return "it does not wait".to_owned() };
        let line = self.of(&key);
        let was_head = line.is_head(place);
        let left = line.leave(place).expect("it has a place");
        assert!(line.leave(place).is_none() && !line.is_head(place), "{name} left twice");
        format!("w{} left{}", left.ticket, if was_head { ", it was the head" } else { "" })
    }

    /// What holds are in the way of a waiter.
    pub fn waits_for(&mut self, name: &str) -> dlock_core::Mode {
        let (key, _, place) = self.places.get(&ticket(name)).expect("it waits").clone();
        self.of(&key).waits_for(place)
    }

    fn place_of_repeated(&mut self, key: &str, request: &Acquire) -> Option<Place> {
        let id = request.request?;
        let mine = |of: &str, owner: &Owner| of == key && owner == request.owner;
        let places: Vec<Place> =
            self.places.values().filter(|(of, owner, _)| mine(of, owner)).map(|(_, _, place)| *place).collect();
        let line = self.of(key);
        places.into_iter().find(|place| line.is_repeated(*place, id))
    }
}

fn ticket(name: &str) -> u64 {
    let number = name.strip_prefix('w').and_then(|number| number.parse().ok());
    number.unwrap_or_else(|| panic!("{name}: waiters are called w1, w2, …"))
}
