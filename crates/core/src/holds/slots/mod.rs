//! The numbers that holds have (`SLOT`), in order.
//!
//! # Implementation details
//! The numbers are in chunks of [`CHUNK`]. A chunk knows the first and the last deadline of its holds, so that the
//! search for a free number takes one step for each chunk, even though nothing is updated when a hold lapses. A lock
//! whose holds have no numbers has no chunk.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use super::HoldId;
use crate::UnixMs;

/// The number of each hold that has one.
#[derive(Clone, Debug, Default)]
pub(crate) struct Slots {
    /// The chunks by their first number, divided by [`CHUNK`]. Each has at least one hold.
    chunks: BTreeMap<u32, Chunk>,
}

#[derive(Clone, Debug, Default)]
struct Chunk {
    /// At most [`CHUNK`] places. The missing ones are free.
    places: Vec<Place>,
    /// The first deadline of all [`CHUNK`] places; zero if one of them is free.
    first_end: UnixMs,
    /// The last deadline.
    last_end: UnixMs,
}

#[derive(Clone, Copy, Debug)]
struct Place {
    /// The deadline of the hold.
    end: UnixMs,
    /// [`NOBODY`] if no hold has the number.
    id: HoldId,
}

/// How many numbers are in a chunk. A change looks at all places of its chunk: 1 KB.
const CHUNK: u32 = 64;
const NOBODY: HoldId = HoldId::MAX;
const FREE: Place = Place { end: UnixMs::ZERO, id: NOBODY };

impl Slots {
    /// Returns whether no hold has a number.
    pub(crate) fn is_empty(&self) -> bool {
        self.chunks.is_empty()
    }

    /// Returns the hold with this number, live or lapsed. O(log n).
    pub(crate) fn get(&self, slot: u32) -> Option<HoldId> {
        let chunk = self.chunks.get(&(slot / CHUNK))?;
        chunk.places.get(place_of(slot)).map(|place| place.id).filter(|id| *id != NOBODY)
    }

    /// Gives a number to the hold `id`, whose deadline is `end`. Another hold with the number loses it. O(log n).
    pub(crate) fn insert(&mut self, slot: u32, end: UnixMs, id: HoldId) {
        let chunk = self.chunks.entry(slot / CHUNK).or_default();
        let place = place_of(slot);
        if chunk.places.len() <= place {
            chunk.places.resize(place + 1, FREE);
        }
        if let Some(free) = chunk.places.get_mut(place) {
            *free = Place { end, id };
        }
        chunk.sum_up();
    }

    /// Frees a number, if this hold has it. O(log n).
    pub(crate) fn remove(&mut self, slot: u32, id: HoldId) {
        let Entry::Occupied(mut entry) = self.chunks.entry(slot / CHUNK) else { return };
        let chunk = entry.get_mut();
        let Some(place) = chunk.places.get_mut(place_of(slot)).filter(|place| place.id == id) else { return };
        *place = FREE;
        while chunk.places.pop_if(|last| last.id == NOBODY).is_some() {}
        if chunk.places.is_empty() {
            entry.remove();
        } else {
            chunk.sum_up();
        }
    }

    /// Returns the lowest free number. The number of a hold that has lapsed at `now` is free, too, if `is_free` returns
    /// `true` for the hold. One step for each 64 numbers that are taken.
    pub(crate) fn lowest_free(&self, now: UnixMs, is_free: impl Fn(HoldId) -> bool) -> u32 {
        let mut next = 0;
        for (index, chunk) in &self.chunks {
            if *index != next {
                // A chunk is missing: all of its numbers are free.
                break;
            }
            let is_free = |place: Place| place.id == NOBODY || (place.end <= now && is_free(place.id));
            if chunk.first_end <= now
                && let Some(place) = chunk.first(is_free)
            {
                return index * CHUNK + place;
            }
            next += 1;
        }
        next.saturating_mul(CHUNK)
    }

    /// Returns the lowest number of a hold that is live at `now`, and that hold. One step for each chunk below it.
    pub(crate) fn lowest_taken(&self, now: UnixMs) -> Option<(u32, HoldId)> {
        let (index, chunk) = self.chunks.iter().find(|(_, chunk)| now < chunk.last_end)?;
        let place = chunk.first(|place| now < place.end)?;
        let slot = index * CHUNK + place;
        Some((slot, chunk.places.get(place_of(slot))?.id))
    }

    /// Returns about how many bytes are on the heap.
    pub(crate) fn heap_bytes(&self) -> usize {
        let places: usize = self.chunks.values().map(|chunk| chunk.places.capacity()).sum();
        super::tree_places(self.chunks.len()) * size_of::<(u32, Chunk)>() + places * size_of::<Place>()
    }
}

impl Chunk {
    /// Returns the index of the first place for which `is_it` returns `true`.
    fn first(&self, is_it: impl Fn(Place) -> bool) -> Option<u32> {
        let places = self.places.iter().copied().chain(std::iter::repeat(FREE));
        (0..CHUNK).zip(places).find(|(_, place)| is_it(*place)).map(|(at, _)| at)
    }

    /// Sets the first and the last deadline after a change of the places.
    fn sum_up(&mut self) {
        let ends = || self.places.iter().map(|place| place.end);
        let is_full = self.places.len() == CHUNK as usize;
        self.first_end = ends().min().filter(|_| is_full).unwrap_or(UnixMs::ZERO);
        self.last_end = ends().max().unwrap_or(UnixMs::ZERO);
    }
}

fn place_of(slot: u32) -> usize {
    (slot % CHUNK) as usize
}

#[cfg(test)]
mod tests;
