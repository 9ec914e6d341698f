//! The work that is left for later, and its times: which lock is visited next and for what, and which keys get another
//! TTL.

pub(crate) mod lanes;
pub(crate) mod turns;

use std::collections::{BTreeSet, VecDeque};
use std::rc::Rc;
use std::time::Duration;

use crate::engine::state::due::lanes::Lanes;
use crate::engine::state::ids::RecordId;
use crate::engine::state::records::attention::Attention;
use crate::engine::state::records::attention::{Due, Lane};
use crate::engine::state::records::record::Record;
use crate::{ClientId, Now, UnixMs};

/// The client whose account pays for work that no client waits for. Servers give no client this id.
const NOBODY: ClientId = ClientId(0);
/// After how long the timer tries again what the server does not allow now, in ms.
pub(crate) const RETRY_MS: u64 = 20;
/// For how many keys the list of keys that need another TTL keeps memory.
const TTLS_KEPT: usize = 64;

#[derive(Clone, Debug, Default)]
pub(crate) struct Backlog {
    /// When queues are due.
    agenda: BTreeSet<(UnixMs, RecordId)>,
    /// When leases are extended.
    renewals: BTreeSet<(UnixMs, RecordId)>,
    /// The locks that are due.
    lanes: Lanes,
    /// Keys whose TTL the engine has to check, because the key was restored or swapped.
    ttls: VecDeque<(i32, Rc<[u8]>)>,
    /// The keys in `ttls`: each is there once, however often it is restored.
    ttl_keys: BTreeSet<(i32, Rc<[u8]>)>,
    /// The timer has more to do, but not before this time.
    pub not_before: UnixMs,
    /// How long the server had worked when the last tick ended, if it has left something to do.
    pub behind_since: Option<Duration>,
}

impl Backlog {
    /// Prepares a turn: a clock that was set back puts no visit off.
    #[inline]
    pub(crate) fn begin(&mut self, now: Now) {
        if self.not_before > UnixMs::ZERO {
            self.not_before = self.not_before.min(retry(now));
        }
    }

    /// Schedules a visit of a record before the end of the turn. `payer` is the client that waits longest for the lock.
    pub(crate) fn mark_due(&mut self, record: &mut Record, payer: Option<ClientId>) {
        let (lane, client) = payer.map_or((Lane::Ended, NOBODY), |client| (Lane::Queues, client));
        // A lock moves to the client that is the head now: a head that has left pays for nothing.
        if matches!(record.attention, Attention::Due(due) if (due.lane, due.position.client) == (lane, client)) {
            return;
        }
        let due = self.lanes.position(lane, client, UnixMs::ZERO);
        self.set_attention(record, Attention::Due(due));
    }

    /// Schedules the next visit of a record.
    pub(crate) fn schedule(&mut self, record: &mut Record, payer: Option<ClientId>) {
        self.schedule_renewal(record);
        if record.is_due() {
            self.mark_due(record, payer);
        } else {
            self.set_attention(record, record.queue_due.map_or(Attention::None, Attention::At));
        }
    }

    /// Schedules the visit of a record that extends its next lease.
    pub(crate) fn schedule_renewal(&mut self, record: &mut Record) {
        let renewal = record.bound.next_renewal().map_or(Attention::None, |renewal| Attention::At(renewal.at));
        self.set_renewal(record, renewal);
    }

    /// Sets when a record is visited to release holds and to serve its queue.
    pub(crate) fn set_attention(&mut self, record: &mut Record, attention: Attention) {
        let old = std::mem::replace(&mut record.attention, attention);
        change(&mut self.agenda, &mut self.lanes, record.id, old, attention);
    }

    /// Sets when a record is visited to extend leases.
    pub(crate) fn set_renewal(&mut self, record: &mut Record, renewal: Attention) {
        let old = std::mem::replace(&mut record.renewal, renewal);
        change(&mut self.renewals, &mut self.lanes, record.id, old, renewal);
    }

    /// Removes a lock that has nothing left to extend from the renewals: it would stay the first in the agenda forever.
    pub(crate) fn note_unbound(&mut self, record: &mut Record) {
        if !record.bound.has_renewal() {
            self.set_renewal(record, Attention::None);
        }
    }

    /// Takes a record out of everything that is due.
    pub(crate) fn unschedule(&mut self, record: &mut Record) {
        self.set_attention(record, Attention::None);
        self.set_renewal(record, Attention::None);
    }

    /// Returns the time of the next visit, unless a record is due already.
    pub(crate) fn next_visit(&self) -> Option<UnixMs> {
        self.agenda.first().into_iter().chain(self.renewals.first()).map(|(at, _)| *at).min()
    }

    /// Returns the first record in the agenda whose queue is due at `now`, and the first whose leases are. Records in a
    /// lane are left out.
    pub(crate) fn first_times(&self, now: UnixMs) -> (Option<RecordId>, Option<RecordId>) {
        let first =
            |agenda: &BTreeSet<(UnixMs, RecordId)>| agenda.first().filter(|(at, _)| *at <= now).map(|(_, id)| *id);
        (first(&self.agenda), first(&self.renewals))
    }

    /// Returns the lock that is visited next, and what for.
    pub(crate) fn first_due(&mut self) -> Option<(Due, RecordId)> {
        self.lanes.first()
    }

    /// Charges for a visit.
    pub(crate) fn charge(&mut self, due: Due, us: u64) {
        self.lanes.charge(due, us);
    }

    /// Returns whether a lock is due.
    pub(crate) fn has_due(&self) -> bool {
        !self.lanes.is_empty()
    }

    /// Returns whether a key needs another TTL.
    #[inline]
    pub(crate) fn has_ttls(&self) -> bool {
        !self.ttls.is_empty()
    }

    /// Moves a record with leases that must be extended now from the agenda to a lane.
    pub(crate) fn set_renewal_due(&mut self, record: &mut Record, now: UnixMs) {
        // A lock without a renewal must not stay the first in the agenda.
        let Some(renewal) = record.bound.next_renewal() else { return self.set_renewal(record, Attention::None) };
        // A visit that keeps a live hold comes before one that forgets lapsed holds.
        let due = if record.bound.has_lapsed(now) {
            self.lanes.position(Lane::Lapsed, NOBODY, UnixMs::ZERO)
        } else {
            self.lanes.position(Lane::Renewals, renewal.key.payer(), renewal.deadline)
        };
        self.set_renewal(record, Attention::Due(due));
    }

    /// Moves a lock whose leases have all ended before they were extended to the lane of lapsed holds. Returns whether
    /// it did.
    pub(crate) fn leave_lapsed(&mut self, record: &mut Record, due: Due, now: UnixMs) -> bool {
        let has_lapsed = due.lane == Lane::Renewals && due.position.urgency <= now && record.bound.has_lapsed(now);
        if has_lapsed {
            self.set_renewal_due(record, now);
        }
        has_lapsed
    }

    /// Schedules a check of the TTL of a key.
    pub(crate) fn correct_ttl(&mut self, db: i32, key: Rc<[u8]>) {
        if self.ttl_keys.insert((db, Rc::clone(&key))) {
            self.ttls.push_back((db, key));
        }
    }

    /// Takes the next key whose TTL waits for a check.
    pub(crate) fn next_ttl(&mut self) -> Option<(i32, Rc<[u8]>)> {
        let next = self.ttls.pop_front()?;
        self.ttl_keys.remove(&next);
        if self.ttls.is_empty() {
            self.ttls.shrink_to(TTLS_KEPT);
        }
        Some(next)
    }

    /// Forgets the keys whose TTL waits for a check: a replica corrects no TTL.
    pub(crate) fn forget_ttls(&mut self) {
        self.ttls.clear();
        self.ttl_keys.clear();
    }
}

/// Moves a record from its old place to its new one.
fn change(agenda: &mut BTreeSet<(UnixMs, RecordId)>, lanes: &mut Lanes, id: RecordId, old: Attention, new: Attention) {
    if old == new {
        return;
    }
    match old {
        Attention::None => {}
        Attention::At(at) => drop(agenda.remove(&(at, id))),
        Attention::Due(due) => lanes.remove(due),
    }
    match new {
        Attention::None => {}
        Attention::At(at) => drop(agenda.insert((at, id))),
        Attention::Due(due) => lanes.insert(due, id),
    }
}

/// Returns when to try again what the server does not allow now.
pub(crate) fn retry(now: Now) -> UnixMs {
    now.ms_later(RETRY_MS)
}

#[cfg(feature = "check")]
impl Backlog {
    /// Returns the locks that are due to serve their queues or to release ended holds, in order.
    pub(crate) fn marked(&self) -> impl Iterator<Item = RecordId> {
        self.lanes.marked()
    }

    /// Returns the keys whose TTL waits for a check.
    pub(crate) fn ttls(&self) -> impl Iterator<Item = crate::Name<'_>> {
        self.ttls.iter().map(|(db, key)| crate::Name { db: *db, key })
    }

    /// Returns whether a record is where its fields say.
    pub(crate) fn has(&self, record: &Record) -> bool {
        let is_there = |attention, agenda: &BTreeSet<(UnixMs, RecordId)>| match attention {
            Attention::None => true,
            Attention::At(at) => agenda.contains(&(at, record.id)),
            Attention::Due(due) => self.lanes.has(due, record.id),
        };
        is_there(record.attention, &self.agenda) && is_there(record.renewal, &self.renewals)
    }

    /// Returns how many places the agendas and the lanes have.
    pub(crate) fn places(&self) -> usize {
        self.agenda.len() + self.renewals.len() + self.lanes.len()
    }

    /// Returns whether a record is visited to extend leases when it has to be, and at no other time.
    pub(crate) fn has_right_renewal(record: &Record) -> bool {
        match (record.renewal, record.bound.next_renewal()) {
            (Attention::None, renewal) => renewal.is_none(),
            (Attention::At(at), renewal) => renewal.is_some_and(|renewal| renewal.at == at),
            (Attention::Due(due), renewal) => renewal.is_some() && matches!(due.lane, Lane::Renewals | Lane::Lapsed),
        }
    }

    /// Returns whether a record is visited for its queue and for ended holds when it has to be, at no other time, and
    /// paid by the head of the queue.
    pub(crate) fn has_right_attention(record: &Record, payer: Option<ClientId>) -> bool {
        let must_be_due = record.bound.has_ended() || record.lost_last_waiter;
        match record.attention {
            Attention::None => record.queue_due.is_none() && !must_be_due,
            Attention::At(at) => record.queue_due == Some(at) && !must_be_due,
            Attention::Due(due) => match payer {
                Some(payer) => (due.lane, due.position.client) == (Lane::Queues, payer),
                None => due.lane == Lane::Ended,
            },
        }
    }
}
