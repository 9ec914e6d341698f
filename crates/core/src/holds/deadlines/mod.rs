//! The deadlines of holds in order, with sums of their entries.
//!
//! # Implementation details
//! The deadlines are in sorted runs of at most [`RUN`]. A run knows the sum of its entries, so counting lapsed holds
//! costs one step a run, and taking them out moves whole runs.

use crate::UnixMs;

/// Identifies a hold within one lock or one session. Ids only rise, so none is used twice.
pub(crate) type HoldId = u64;

/// The deadlines of many holds, in order.
#[derive(Clone, Debug, Default)]
pub(crate) struct Deadlines {
    runs: Vec<Run>,
    total: Sum,
}

/// How many holds, and how many entries they have together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sum {
    pub holds: usize,
    pub entries: u64,
}

impl Sum {
    pub(crate) fn minus(self, other: Sum) -> Sum {
        Sum { holds: self.holds.saturating_sub(other.holds), entries: self.entries.saturating_sub(other.entries) }
    }

    pub(crate) fn plus(self, other: Sum) -> Sum {
        Sum { holds: self.holds + other.holds, entries: self.entries + other.entries }
    }
}

/// Neighbouring deadlines, at least one.
#[derive(Clone, Debug, Default)]
pub(crate) struct Run {
    items: Vec<Item>,
    entries: u64,
    /// How many of the deadlines are caps.
    caps: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Item {
    at: UnixMs,
    id: HoldId,
    entries: u32,
    /// Whether the deadline is the cap of the hold.
    is_cap: bool,
}

/// The most deadlines in a run: moving them all in memory costs less than a command.
const RUN: usize = 512;

impl Deadlines {
    pub(crate) fn total(&self) -> Sum {
        self.total
    }

    /// Returns the first deadline and its hold. O(1).
    pub(crate) fn first(&self) -> Option<(UnixMs, HoldId)> {
        self.runs.first()?.items.first().map(|item| (item.at, item.id))
    }

    /// Returns the last deadline and its hold. O(1).
    pub(crate) fn last(&self) -> Option<(UnixMs, HoldId)> {
        self.runs.last()?.items.last().map(|item| (item.at, item.id))
    }

    /// Returns all ids, the first deadline first.
    pub(crate) fn iter(&self) -> impl DoubleEndedIterator<Item = HoldId> {
        self.runs.iter().flat_map(|run| run.items.iter().map(|item| item.id))
    }

    /// Returns all deadlines, each with its hold and the entries of the hold.
    pub(crate) fn items(&self) -> impl Iterator<Item = (UnixMs, HoldId, u32)> {
        self.runs.iter().flat_map(|run| run.items.iter().map(|item| (item.at, item.id, item.entries)))
    }

    /// Returns the holds with this deadline.
    pub(crate) fn at(&self, at: UnixMs) -> impl Iterator<Item = HoldId> {
        let runs = self.runs.iter().skip(self.run_of(at, HoldId::MIN));
        let items = runs.flat_map(move |run| run.items.iter().skip(run.position(at, HoldId::MIN)));
        items.take_while(move |item| item.at == at).map(|item| item.id)
    }

    /// Returns the sum of the holds that have lapsed at `now`. One step for each run of 512.
    pub(crate) fn lapsed(&self, now: UnixMs) -> Sum {
        let mut sum = Sum::default();
        for run in &self.runs {
            if run.items.last().is_some_and(|last| last.at <= now) {
                sum = sum.plus(run.sum());
                continue;
            }
            for item in run.items.iter().take_while(|item| item.at <= now) {
                sum.holds += 1;
                sum.entries += u64::from(item.entries);
            }
            break;
        }
        sum
    }

    /// Returns how many holds have lapsed at `now` because of their cap. One step for each run of 512.
    pub(crate) fn lapsed_at_cap(&self, now: UnixMs) -> usize {
        let mut count = 0;
        for run in &self.runs {
            if run.items.last().is_none_or(|last| last.at > now) {
                return count + run.items.iter().take_while(|item| item.at <= now).filter(|item| item.is_cap).count();
            }
            count += run.caps;
        }
        count
    }

    /// Returns the sum of the holds that are live at `now`.
    pub(crate) fn live(&self, now: UnixMs) -> Sum {
        self.total.minus(self.lapsed(now))
    }

    /// Adds a hold. `is_cap`: the deadline is its cap. O(log n).
    pub(crate) fn insert(&mut self, at: UnixMs, id: HoldId, entries: u32, is_cap: bool) {
        self.total = self.total.plus(Sum { holds: 1, entries: u64::from(entries) });
        let item = Item { at, id, entries, is_cap };
        let index = self.run_of(at, id).min(self.runs.len().saturating_sub(1));
        let Some(run) = self.runs.get_mut(index) else {
            self.runs.push(Run::of(vec![item]));
            return;
        };
        run.items.insert(run.position(at, id), item);
        run.entries += u64::from(entries);
        run.caps += usize::from(is_cap);
        if run.items.len() > RUN {
            let upper = run.split();
            self.runs.insert(index + 1, upper);
        }
    }

    /// Takes a hold out. O(log n).
    pub(crate) fn remove(&mut self, at: UnixMs, id: HoldId) {
        let index = self.run_of(at, id);
        let Some(run) = self.runs.get_mut(index) else { return };
        let position = run.position(at, id);
        if run.items.get(position).is_none_or(|item| (item.at, item.id) != (at, id)) {
            return;
        }
        let gone = run.items.remove(position);
        run.entries -= u64::from(gone.entries);
        run.caps -= usize::from(gone.is_cap);
        self.total = self.total.minus(Sum { holds: 1, entries: u64::from(gone.entries) });
        if run.items.is_empty() {
            self.runs.remove(index);
        } else if run.items.len() < run.items.capacity() / 4 {
            run.items.shrink_to(run.items.len() * 2);
        }
        if self.runs.len() < self.runs.capacity() / 4 {
            self.runs.shrink_to(self.runs.len() * 2);
        }
    }

    /// Takes out all holds that have lapsed at `now`, in whole runs. One step a run.
    pub(crate) fn drain_lapsed(&mut self, now: UnixMs) -> Vec<Run> {
        let whole = self.runs.iter().take_while(|run| run.items.last().is_some_and(|last| last.at <= now)).count();
        let mut drained: Vec<Run> = self.runs.drain(..whole).collect();
        if let Some(run) = self.runs.first_mut() {
            let cut = run.items.partition_point(|item| item.at <= now);
            let upper = Run::of(run.items.split_off(cut));
            let lower = Run::of(std::mem::take(&mut run.items));
            *run = upper;
            if !lower.items.is_empty() {
                drained.push(lower);
            }
        }
        for run in &drained {
            self.total = self.total.minus(run.sum());
        }
        drained
    }

    /// Returns the bytes on the heap, about.
    pub(crate) fn heap_bytes(&self) -> usize {
        let items: usize = self.runs.iter().map(|run| run.items.capacity()).sum();
        self.runs.capacity() * size_of::<Run>() + items * size_of::<Item>()
    }

    /// Returns the run that has a deadline, or would have it; the number of runs if it is behind all of them.
    fn run_of(&self, at: UnixMs, id: HoldId) -> usize {
        self.runs.partition_point(|run| run.items.last().is_some_and(|last| (last.at, last.id) < (at, id)))
    }
}

impl Run {
    fn of(items: Vec<Item>) -> Run {
        let entries = items.iter().map(|item| u64::from(item.entries)).sum();
        let caps = items.iter().filter(|item| item.is_cap).count();
        Run { items, entries, caps }
    }

    /// Takes out the last id.
    pub(crate) fn pop(&mut self) -> Option<HoldId> {
        self.items.pop().map(|item| item.id)
    }

    fn sum(&self) -> Sum {
        Sum { holds: self.items.len(), entries: self.entries }
    }

    fn position(&self, at: UnixMs, id: HoldId) -> usize {
        self.items.partition_point(|item| (item.at, item.id) < (at, id))
    }

    fn split(&mut self) -> Run {
        let upper = Run::of(self.items.split_off(RUN / 2));
        self.entries -= upper.entries;
        self.caps -= upper.caps;
        upper
    }
}

#[cfg(test)]
mod tests;
