//! The tokens of holds in order, with their deadlines.
//!
//! # Implementation details
//! The tokens are in sorted runs of at most [`RUN`]. A run knows the last deadline of its holds, so the search for a
//! live hold takes one step for each run whose holds have all lapsed.

use smallvec::SmallVec;

use super::deadlines::HoldId;
use crate::{Token, UnixMs};

/// The tokens of many holds, in order.
#[derive(Clone, Debug, Default)]
pub(super) struct Tokens {
    /// Most locks with several holds have a few: one run, without an allocation of its own.
    runs: SmallVec<[Run; 1]>,
}

/// Neighbouring tokens, at least one.
#[derive(Clone, Debug)]
struct Run {
    items: Vec<Item>,
    /// The last deadline.
    end: UnixMs,
}

/// The token of one hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Item {
    pub token: Token,
    pub id: HoldId,
    /// The deadline of the hold.
    pub end: UnixMs,
}

/// The most tokens in a run: a change looks at all of its run, 1.5 KB.
const RUN: usize = 64;
/// A run has places for at least this many tokens.
const FEW: usize = 4;

impl Tokens {
    /// Returns all tokens, the lowest first.
    pub(super) fn iter(&self) -> impl DoubleEndedIterator<Item = Item> {
        self.runs.iter().flat_map(|run| run.items.iter().copied())
    }

    /// Returns the tokens of the holds that are live at `now`, the lowest first. One step for each run without one, and
    /// for each token of the other runs.
    pub(super) fn live(&self, now: UnixMs) -> impl DoubleEndedIterator<Item = Item> {
        let runs = self.runs.iter().filter(move |run| now < run.end);
        runs.flat_map(|run| run.items.iter().copied()).filter(move |item| now < item.end)
    }

    /// Returns the holds with this token. O(log n) and one step a hold found.
    pub(super) fn with(&self, token: Token) -> impl Iterator<Item = Item> {
        let runs = self.runs.iter().skip(self.run_of(token, HoldId::MIN));
        let items = runs.flat_map(move |run| run.items.iter().skip(run.position(token, HoldId::MIN)));
        items.copied().take_while(move |item| item.token == token)
    }

    /// Adds the token of a hold. O(log n), and a move of the later runs in memory if a run is split.
    pub(super) fn insert(&mut self, item: Item) {
        let index = self.run_of(item.token, item.id);
        let is_last = index == self.runs.len();
        let Some(run) = self.runs.get_mut(if is_last { index.saturating_sub(1) } else { index }) else {
            return self.runs.push(Run::starting(item));
        };
        if run.items.len() < RUN {
            return run.insert(item);
        }
        if is_last {
            // New tokens are nearly always the highest: no run is split for them, so that the runs are full.
            return self.runs.push(Run::starting(item));
        }
        let mut upper = run.split();
        let half =
            if run.items.last().is_some_and(|last| last.is_before(item.token, item.id)) { &mut upper } else { run };
        half.insert(item);
        self.runs.insert(index + 1, upper);
    }

    /// Sets the deadline of a hold that is listed with this token. O(log n).
    pub(super) fn set_end(&mut self, new: Item) {
        let index = self.run_of(new.token, new.id);
        let Some(run) = self.runs.get_mut(index) else { return };
        let position = run.position(new.token, new.id);
        let Some(item) = run.items.get_mut(position).filter(|item| (item.token, item.id) == (new.token, new.id)) else {
            return;
        };
        let before = std::mem::replace(&mut item.end, new.end);
        let was_last = before == run.end && new.end < before;
        run.end = if was_last { last_end(&run.items) } else { run.end.max(new.end) };
    }

    /// Takes the token of a hold out. O(log n), and a move of the later runs in memory if a run becomes empty.
    pub(super) fn remove(&mut self, token: Token, id: HoldId) {
        let index = self.run_of(token, id);
        let Some(run) = self.runs.get_mut(index) else { return };
        let position = run.position(token, id);
        if run.items.get(position).is_none_or(|item| (item.token, item.id) != (token, id)) {
            return;
        }
        let gone = run.items.remove(position);
        if run.items.is_empty() {
            self.runs.remove(index);
            if self.runs.len() < self.runs.capacity() / 4 {
                self.runs.shrink_to_fit();
            }
            return;
        }
        if gone.end == run.end {
            run.end = last_end(&run.items);
        }
        let (len, places) = (run.items.len(), run.items.capacity());
        if places > FEW && len < places / 2 {
            run.items.shrink_to(len + len / 3);
        }
    }

    /// Frees the last token, as a step of freeing all of them. Returns whether there was one.
    pub(super) fn free_last(&mut self) -> bool {
        let Some(run) = self.runs.last_mut() else { return false };
        run.items.pop();
        if run.items.is_empty() {
            self.runs.pop();
        }
        true
    }

    /// Returns the bytes on the heap, about.
    pub(super) fn heap_bytes(&self) -> usize {
        let items: usize = self.runs.iter().map(|run| run.items.capacity()).sum();
        let runs = if self.runs.spilled() { self.runs.capacity() * size_of::<Run>() } else { 0 };
        runs + items * size_of::<Item>()
    }

    /// Returns the run that has a token, or would have it; the number of runs if it is behind all of them.
    fn run_of(&self, token: Token, id: HoldId) -> usize {
        self.runs.partition_point(|run| run.items.last().is_some_and(|last| last.is_before(token, id)))
    }
}

impl Run {
    fn of(items: Vec<Item>) -> Run {
        let end = last_end(&items);
        Run { items, end }
    }

    fn starting(item: Item) -> Run {
        let mut items = Vec::with_capacity(FEW);
        items.push(item);
        Run { items, end: item.end }
    }

    fn insert(&mut self, item: Item) {
        self.items.insert(self.position(item.token, item.id), item);
        self.end = self.end.max(item.end);
    }

    fn position(&self, token: Token, id: HoldId) -> usize {
        self.items.partition_point(|item| item.is_before(token, id))
    }

    fn split(&mut self) -> Run {
        let upper = Run::of(self.items.split_off(RUN / 2));
        self.end = last_end(&self.items);
        upper
    }
}

impl Item {
    fn is_before(&self, token: Token, id: HoldId) -> bool {
        (self.token, self.id) < (token, id)
    }
}

fn last_end(items: &[Item]) -> UnixMs {
    items.iter().map(|item| item.end).max().unwrap_or_default()
}

#[cfg(test)]
mod tests;
