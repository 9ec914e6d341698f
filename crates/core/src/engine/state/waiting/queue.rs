//! The queue of one lock: first come, first served.
//!
//! # Implementation details
//! Waiters are in a tree by place, so that any of them leaves in O(log n). An upgrade, whose owner holds the lock
//! shared and waits for the other holders to leave, comes before all others. Only the head is served, and only owners
//! that hold the lock already overtake it: the queue moves when its head can be granted, which is decided in O(1).

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use crate::Mode;
use crate::engine::state::ids::WaiterId;

/// A place in a queue. Smaller is nearer to the head. A request has the same place in all of its queues.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place {
    pub rank: Rank,
    pub arrival: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Rank {
    Upgrade,
    Arrival,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Queue {
    places: BTreeMap<Place, WaiterId>,
    writers: BTreeSet<Place>,
    /// The requests that wait for other locks, too.
    several: BTreeSet<Place>,
}

impl Queue {
    pub(crate) fn len(&self) -> usize {
        self.places.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// Returns the waiters, the head first.
    pub(crate) fn iter(&self) -> impl Iterator<Item = WaiterId> {
        self.places.values().copied()
    }

    pub(crate) fn head(&self) -> Option<WaiterId> {
        self.places.first_key_value().map(|(_, waiter)| *waiter)
    }

    /// Returns whether any of the requests waits for other locks, too.
    pub(crate) fn has_several(&self) -> bool {
        !self.several.is_empty()
    }

    /// Adds a request at its place. `is_several`: it waits for other locks, too.
    pub(crate) fn join(&mut self, place: Place, waiter: WaiterId, mode: Mode, is_several: bool) {
        self.places.insert(place, waiter);
        if mode == Mode::Exclusive {
            self.writers.insert(place);
        }
        if is_several {
            self.several.insert(place);
        }
    }

    pub(crate) fn leave(&mut self, place: Place) {
        self.places.remove(&place);
        self.writers.remove(&place);
        self.several.remove(&place);
    }

    /// Returns the requests for several locks that stand between two places, nearest to the head first: behind `from`,
    /// which was looked at before, and ahead of `place`.
    pub(crate) fn several_ahead(&self, from: Option<Place>, place: Place) -> impl Iterator<Item = (Place, WaiterId)> {
        let behind = from.map_or(Bound::Unbounded, Bound::Excluded);
        // `BTreeSet::range` panics if it has to begin at its end or behind it.
        let range = if from.is_some_and(|from| from >= place) { None } else { Some((behind, Bound::Excluded(place))) };
        let several = range.into_iter().flat_map(|range| self.several.range(range));
        several.filter_map(|place| Some((*place, *self.places.get(place)?)))
    }

    /// Returns the exclusive requests ahead of a place, or at it, nearest to the head first.
    pub(crate) fn writers(&self, place: Place) -> impl Iterator<Item = WaiterId> {
        self.writers.range(..=place).filter_map(|writer| self.places.get(writer).copied())
    }

    /// Returns the upgrades that wait.
    pub(crate) fn upgrades(&self) -> impl Iterator<Item = WaiterId> {
        self.places.iter().take_while(|(place, _)| place.rank == Rank::Upgrade).map(|(_, waiter)| *waiter)
    }
}
