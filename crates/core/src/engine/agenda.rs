//! Which record is visited next, when, and for what.

use super::Engine;
use super::lanes::{Due, Lane};
use super::record::{Attention, RecordId};
use crate::{ClientId, UnixMs};

/// How many records that have become due are put in order at a visit: after a pause, all may be due at once.
const MOVED_AT_ONCE: usize = 32;
/// Whose work it is that nobody waits for. Servers give no client this id.
const NOBODY: ClientId = ClientId(0);

impl<T> Engine<T> {
    /// Has a record visited before the end of the turn.
    pub(super) fn mark_due(&mut self, id: RecordId) {
        let Some(record) = self.records.get(id) else { return };
        let head = record.queue.head().and_then(|head| self.waiters.get(head));
        let (lane, client) = head.map_or((Lane::Ended, NOBODY), |head| (Lane::Queues, head.client));
        // One that somebody waits for now stands there no longer with those that nobody waits for.
        if matches!(record.attention, Attention::Due(due) if due.lane == Lane::Queues || due.lane == lane) {
            return;
        }
        let due = self.lanes.place(lane, client, UnixMs::ZERO);
        self.set_attention(id, Attention::Due(due));
    }

    /// Leaves the rest of a long queue to the timer.
    pub(super) fn leave_rest(&mut self, id: RecordId) {
        self.is_large = true;
        self.mark_due(id);
    }

    /// Has a record visited when it is due next.
    pub(super) fn schedule(&mut self, id: RecordId) {
        let Some(record) = self.records.get(id) else { return };
        let renewal = record.bound.next_renewal().map_or(Attention::None, |renewal| Attention::At(renewal.at));
        let queue = record.queue_due.map_or(Attention::None, Attention::At);
        let is_due = matches!(record.attention, Attention::Due(_));
        let is_now = is_due || record.bound.has_ended() || record.was_deserted;
        self.set_renewal(id, renewal);
        if is_now {
            self.mark_due(id);
        } else {
            self.set_attention(id, queue);
        }
    }

    /// Sets when a record is visited to release holds and to serve its queue.
    pub(super) fn set_attention(&mut self, id: RecordId, attention: Attention) {
        let Some(record) = self.records.get_mut(id) else { return };
        let old = std::mem::replace(&mut record.attention, attention);
        if old == attention {
            return;
        }
        match old {
            Attention::None => {}
            Attention::At(at) => drop(self.agenda.remove(&(at, id))),
            Attention::Due(due) => self.lanes.remove(due),
        }
        match attention {
            Attention::None => {}
            Attention::At(at) => drop(self.agenda.insert((at, id))),
            Attention::Due(due) => self.lanes.insert(due, id),
        }
    }

    /// Sets when a record is visited to extend leases.
    pub(super) fn set_renewal(&mut self, id: RecordId, renewal: Attention) {
        let Some(record) = self.records.get_mut(id) else { return };
        let old = std::mem::replace(&mut record.renewal, renewal);
        if old == renewal {
            return;
        }
        match old {
            Attention::None => {}
            Attention::At(at) => drop(self.renewals.remove(&(at, id))),
            Attention::Due(due) => self.lanes.remove(due),
        }
        match renewal {
            Attention::None => {}
            Attention::At(at) => drop(self.renewals.insert((at, id))),
            Attention::Due(due) => self.lanes.insert(due, id),
        }
    }

    /// Takes a record out of everything that is due.
    pub(super) fn unschedule(&mut self, id: RecordId) {
        self.set_attention(id, Attention::None);
        self.set_renewal(id, Attention::None);
    }

    /// The time of the next visit, unless a record is due already.
    pub(super) fn next_visit(&self) -> Option<UnixMs> {
        self.agenda.first().into_iter().chain(self.renewals.first()).map(|(at, _)| *at).min()
    }

    /// The record that is visited next, if one is due at `now`, and what for. It is out of the agenda then.
    pub(super) fn next_due(&mut self, now: UnixMs) -> Option<(RecordId, Due)> {
        for _ in 0..MOVED_AT_ONCE {
            let queue = self.agenda.first().copied().filter(|(at, _)| *at <= now);
            let renewal = self.renewals.first().copied().filter(|(at, _)| *at <= now);
            match (queue, renewal) {
                (None, None) => break,
                (queue, renewal) => {
                    queue.into_iter().for_each(|(_, id)| self.mark_due(id));
                    renewal.into_iter().for_each(|(_, id)| self.set_renewal_due(id, now));
                }
            }
        }
        let (due, id) = self.lanes.first()?;
        match due.lane {
            Lane::Queues | Lane::Ended => self.set_attention(id, Attention::None),
            Lane::Renewals | Lane::Lapsed => self.set_renewal(id, Attention::None),
        }
        Some((id, due))
    }

    /// Moves a record whose leases are to be extended among those that are due.
    fn set_renewal_due(&mut self, id: RecordId, now: UnixMs) {
        let Some(record) = self.records.get(id) else { return };
        // One without a renewal must not stand before all others.
        let Some(renewal) = record.bound.next_renewal() else { return self.set_renewal(id, Attention::None) };
        // What keeps a live hold comes before what forgets lapsed ones.
        let due = if record.bound.has_lapsed(now) {
            self.lanes.place(Lane::Lapsed, NOBODY, UnixMs::ZERO)
        } else {
            self.lanes.place(Lane::Renewals, renewal.client, renewal.deadline)
        };
        self.set_renewal(id, Attention::Due(due));
    }

    /// A lock whose leases have all ended before they were extended is left to those that are forgotten. Returns whether
    /// that is so.
    pub(super) fn leave_lapsed(&mut self, id: RecordId, due: Due, now: UnixMs) -> bool {
        let has_lapsed = due.lane == Lane::Renewals
            && due.place.urgency <= now
            && self.records.get(id).is_some_and(|record| record.bound.has_lapsed(now));
        if has_lapsed {
            self.set_renewal_due(id, now);
        }
        has_lapsed
    }
}
