//! Which record is visited next, and when.

use super::Engine;
use super::record::{Attention, RecordId};
use crate::UnixMs;

/// How many records that have become due are put in order at a visit: after a pause, all may be due at once.
const MOVED_AT_ONCE: usize = 32;

impl<T> Engine<T> {
    /// Has a record visited before the end of the turn.
    pub(super) fn mark_due(&mut self, id: RecordId) {
        self.set_attention(id, Attention::Now);
    }

    /// Leaves the rest of a long queue to the timer.
    pub(super) fn leave_rest(&mut self, id: RecordId) {
        self.is_large = true;
        self.mark_due(id);
    }

    /// Has a record visited when it is due next.
    pub(super) fn schedule(&mut self, id: RecordId) {
        let Some(record) = self.records.get(id) else { return };
        if record.attention == Attention::Now {
            return;
        }
        let renewal = record.bound.next_renewal().map(|(at, _)| at);
        let attention = if record.bound.has_ended() || record.was_deserted {
            Attention::Now
        } else {
            match (record.queue_due, renewal) {
                (Some(first), Some(second)) => Attention::At(first.min(second)),
                (Some(at), None) | (None, Some(at)) => Attention::At(at),
                (None, None) => Attention::None,
            }
        };
        self.set_attention(id, attention);
    }

    pub(super) fn set_attention(&mut self, id: RecordId, attention: Attention) {
        let Some(record) = self.records.get_mut(id) else { return };
        let old = std::mem::replace(&mut record.attention, attention);
        if old == attention {
            return;
        }
        match old {
            // It is skipped when its turn comes.
            Attention::None | Attention::Now => {}
            Attention::At(at) => drop(self.agenda.remove(&(at, id))),
            Attention::Overdue(at) => drop(self.overdue.remove(&(at, id))),
        }
        match attention {
            Attention::None => {}
            Attention::At(at) => drop(self.agenda.insert((at, id))),
            Attention::Overdue(at) => drop(self.overdue.insert((at, id))),
            Attention::Now => self.marked.push_back(id),
        }
    }

    /// The record that needs a visit most at `now`. It is out of the agenda then.
    pub(super) fn next_due(&mut self, now: UnixMs) -> Option<RecordId> {
        while let Some(id) = self.marked.pop_front() {
            if self.records.get(id).is_some_and(|record| record.attention == Attention::Now) {
                self.set_attention(id, Attention::None);
                return Some(id);
            }
        }
        // Of what is due, the lease that would run out first comes first.
        for _ in 0..MOVED_AT_ONCE {
            let Some((_, id)) = self.agenda.first().copied().filter(|(at, _)| *at <= now) else { break };
            let Some(record) = self.records.get(id) else { break };
            let renewal = record.bound.next_renewal().filter(|(at, _)| *at <= now).map(|(_, deadline)| deadline);
            let urgency = record.queue_due.filter(|at| *at <= now).or(renewal).unwrap_or(now);
            self.set_attention(id, Attention::Overdue(urgency));
        }
        let (_, id) = self.overdue.first().copied()?;
        self.set_attention(id, Attention::None);
        Some(id)
    }
}
