//! The locks that were held when they were last asked for: their next acquisition begins in the queue.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// Some locks that were held lately. The table may forget a lock, or take one for another, which costs a round trip.
pub(super) struct Contended {
    began: Instant,
    hasher: RandomState,
    /// For each lock, a part of its hash and when it was held last, in ms.
    seen: [AtomicU64; PLACES],
}

impl Contended {
    pub fn new(began: Instant) -> Self {
        Self { began, hasher: RandomState::new(), seen: [const { AtomicU64::new(0) }; PLACES] }
    }

    pub fn was_held(&self, name: &[u8]) -> bool {
        let (place, tag) = self.place(name);
        let seen = place.load(Ordering::Relaxed);
        seen & !TIME == tag && self.now().wrapping_sub(seen & TIME) < LATELY_MS
    }

    pub fn note(&self, name: &[u8]) {
        let (place, tag) = self.place(name);
        place.store(tag | self.now(), Ordering::Relaxed);
    }

    fn place(&self, name: &[u8]) -> (&AtomicU64, u64) {
        let hash = self.hasher.hash_one(name);
        let [first, ..] = &self.seen;
        let place = usize::try_from(hash % PLACES as u64).ok().and_then(|place| self.seen.get(place));
        (place.unwrap_or(first), hash & !TIME)
    }

    fn now(&self) -> u64 {
        // An empty place has the time 0, which must not look like lately.
        (u64::try_from(self.began.elapsed().as_millis()).unwrap_or(0) + 2 * LATELY_MS) & TIME
    }
}

const PLACES: usize = 256;

/// The bits of the time: 34 years.
const TIME: u64 = (1 << 40) - 1;

/// How long a lock counts as held lately.
const LATELY_MS: u64 = 1000;
