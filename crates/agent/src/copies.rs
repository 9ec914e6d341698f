//! Requests that wait, and which of several copies of one is the newest.
//!
//! A client repeats a request on another connection, and the agent repeats it on another connection to the server. The
//! server gives the place in the queue to the copy that arrives last, and the copy before it gets nil. If the newest
//! copy gets nil, an older one has arrived late: that is no refusal, so the agent repeats the newest. An older copy
//! ends with its nil; otherwise the two would take each other's place forever.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::call::Call;
use crate::resp::Request;

/// The requests that wait, by their words.
#[derive(Default)]
pub(crate) struct Copies(Mutex<HashMap<Vec<Vec<u8>>, Known>>);

/// The copies of one request.
#[derive(Default)]
struct Known {
    /// The number of the newest copy.
    newest: u64,
    count: usize,
}

/// A copy, until it is dropped.
pub(crate) struct Copy {
    all: Arc<Copies>,
    words: Vec<Vec<u8>>,
    number: u64,
    /// Whether another copy was waiting when this one came.
    pub is_repeat: bool,
}

impl Copies {
    /// Adds a request. `None`: it does not wait, or has no request id by which a copy could be told from another
    /// request.
    pub fn enter(self: &Arc<Self>, request: &Request, call: &Call) -> Option<Copy> {
        if call.block.is_none() || !call.is_repeatable {
            return None;
        }
        // The time is left out: a repeat waits only for the rest of it.
        let others = request.words().iter().enumerate().filter(|(at, _)| call.block_at != Some(*at));
        let words: Vec<_> = others.map(|(_, word)| word.clone()).collect();
        let mut known = self.known();
        let entry = known.entry(words.clone()).or_default();
        entry.newest += 1;
        entry.count += 1;
        let (number, is_repeat) = (entry.newest, entry.count > 1);
        drop(known);
        Some(Copy { all: self.clone(), words, number, is_repeat })
    }

    fn known(&self) -> MutexGuard<'_, HashMap<Vec<Vec<u8>>, Known>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Copy {
    /// Returns whether no other copy has come since.
    pub fn is_newest(&self) -> bool {
        self.all.known().get(&self.words).is_none_or(|known| known.newest == self.number)
    }
}

impl Drop for Copy {
    fn drop(&mut self) {
        let mut known = self.all.known();
        if let Some(entry) = known.get_mut(&self.words) {
            entry.count = entry.count.saturating_sub(1);
            if entry.count == 0 {
                known.remove(&self.words);
            }
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that panics has failed, which is what it is for")]
mod tests {
    use super::*;
    use crate::resp::Bounds;

    fn enter(all: &Arc<Copies>, line: &str) -> Option<Copy> {
        let line = format!("{line}\r\n");
        let request = Request::parse(line.as_bytes(), Bounds::default()).unwrap().unwrap().0;
        all.enter(&request, &Call::of(&request))
    }

    #[test]
    fn a_copy_with_less_time_left_is_a_repeat_and_the_newest() {
        let all = Arc::default();
        let first = enter(&all, "DLOCK.ACQUIRE k a REQUEST 1 BLOCK 900").unwrap();
        let other = enter(&all, "DLOCK.ACQUIRE k a REQUEST 2 BLOCK 900").unwrap();
        assert!(!first.is_repeat && !other.is_repeat && first.is_newest());
        let second = enter(&all, "DLOCK.ACQUIRE k a REQUEST 1 BLOCK 30").unwrap();
        assert!(second.is_repeat && second.is_newest() && !first.is_newest() && other.is_newest());
        drop(first);
        assert!(second.is_newest());
        drop((second, other));
        assert!(!enter(&all, "DLOCK.ACQUIRE k a REQUEST 1 BLOCK 30").unwrap().is_repeat);
        assert!(enter(&all, "DLOCK.ACQUIRE k a BLOCK 30").is_none());
        assert!(enter(&all, "DLOCK.ACQUIRE k a REQUEST 1").is_none());
    }
}
