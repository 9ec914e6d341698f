//! Holds that are bound to clients: how they are bound, extended, and released when a session has ended.

use super::bound::{Bound, SessionEnd};
use super::keyspace::{Keyspace, OpenKey, OpenLock, Replication};
use super::record::{Attention, RecordId};
use super::visit::PIECE;
use super::{ClientHolds, Engine, Event, Leaving};
use crate::{Change, ClientId, Effect, Expiry, Hold, LeaseChoice, Mode, Name, Now, Owner, UnixMs};

/// How many records of an ended session one step looks at.
const RECORDS_AT_ONCE: usize = 64;

impl<T> Engine<T> {
    pub(super) fn end_sessions(&mut self, client: ClientId, at: UnixMs) {
        let Some(ClientHolds { records, .. }) = self.clients.remove(&client) else { return };
        let end = SessionEnd { at, grace: self.settings.session_grace };
        self.log_session_end(client, &records, at);
        if records.len() > RECORDS_AT_ONCE {
            self.leaving.insert(client, Leaving { end, records });
            self.leaves += 1;
            return;
        }
        for id in records {
            self.end_session(id, client, end);
        }
    }

    pub(super) fn end_session(&mut self, id: RecordId, client: ClientId, end: SessionEnd) {
        if self.records.get_mut(id).is_some_and(|record| record.bound.end(client, end)) {
            self.mark_due(id);
        }
    }

    /// Looks at some of the locks of sessions that have ended, each session in turn.
    pub(super) fn end_leaving(&mut self, most: usize) {
        let next = self.leaving.range(self.leaving_next..).next().or_else(|| self.leaving.first_key_value());
        let Some(client) = next.map(|(client, _)| *client) else { return };
        self.leaving_next = ClientId(client.0 + 1);
        for _ in 0..most {
            let Some(leaving) = self.leaving.get_mut(&client) else { return };
            let end = leaving.end;
            match leaving.records.pop_first() {
                Some(id) => self.end_session(id, client, end),
                None => drop(self.leaving.remove(&client)),
            }
        }
    }

    /// Binds a hold to a client.
    pub(super) fn bind(&mut self, id: RecordId, hold: &Hold, client: ClientId) {
        let renewal = self.renewal(id, hold);
        let Some(record) = self.records.get_mut(id) else { return };
        let before = record.bound.len();
        let previous = record.bound.client_of(&hold.owner, hold.mode);
        record.bound.bind(hold, client, renewal);
        self.bound = self.bound + record.bound.len() - before;
        if let Some(previous) = previous.filter(|previous| *previous != client) {
            self.check_client(id, previous);
        }
        self.clients.entry(client).or_default().records.insert(id);
        self.note_loads(id);
        self.schedule(id);
    }

    /// Unbinds a hold.
    pub(super) fn unbind(&mut self, id: RecordId, owner: &Owner, mode: Mode) {
        let Some(record) = self.records.get_mut(id) else { return };
        let before = record.bound.len();
        let client = record.bound.unbind(owner, mode);
        self.bound -= before - record.bound.len();
        if record.bound.is_empty() {
            self.set_renewal(id, Attention::None);
        }
        self.note_loads(id);
        if let Some(client) = client {
            self.check_client(id, client);
        }
    }

    /// Forgets where a client has holds, if it has none on this lock any more.
    fn check_client(&mut self, id: RecordId, client: ClientId) {
        if self.records.get(id).is_some_and(|record| record.bound.has_client(client)) {
            return;
        }
        if let Some(holds) = self.clients.get_mut(&client) {
            holds.records.remove(&id);
            // What is still to be freed is still to be taken from its load.
            if holds.records.is_empty() && holds.load == 0 {
                self.clients.remove(&client);
            }
        }
    }

    /// Unbinds all holds of a lock: it is gone, or another lock has its name.
    pub(super) fn forget_bound(&mut self, id: RecordId) {
        let Some(record) = self.records.get_mut(id) else { return };
        record.has_grace = false;
        if record.bound.is_empty() {
            return;
        }
        let bound = std::mem::take(&mut record.bound);
        // Nothing is left to extend.
        self.set_renewal(id, Attention::None);
        self.discard(id, bound);
    }

    /// The lock is gone, or another has its name: what was bound to it is void, and its queue may move.
    pub(super) fn forget_lock(&mut self, id: RecordId) {
        self.forget_bound(id);
        self.mark_due(id);
    }

    /// Forgets bindings; `id` is the lock that they were on.
    fn discard(&mut self, id: RecordId, bound: Bound) {
        self.bound -= bound.len();
        let is_small = bound.len() <= RECORDS_AT_ONCE;
        self.old_bound.push((id, bound));
        if is_small {
            self.free_bound(RECORDS_AT_ONCE);
        }
    }

    /// Frees some of the bindings that are not valid any more.
    pub(super) fn free_bound(&mut self, most: usize) {
        let Some((id, bound)) = self.old_bound.last_mut() else { return };
        let (id, clients, is_done) = (*id, bound.take_apart(most), bound.is_empty());
        let changes = bound.take_load_changes();
        if is_done {
            self.old_bound.pop();
        }
        self.add_loads(changes);
        for client in clients {
            self.check_client(id, client);
        }
    }

    pub(super) fn follow(&mut self, id: RecordId, effect: &Effect) {
        let Some(record) = self.records.get_mut(id) else { return };
        if record.bound.is_empty() {
            return;
        }
        record.bound.sweep(effect.clock);
        match &effect.change {
            Change::Put { hold, .. } => {
                let renewal = self.renewal(id, hold);
                if let Some(record) = self.records.get_mut(id) {
                    record.bound.follow(hold, renewal);
                }
                self.note_loads(id);
                if hold.mode == Mode::Exclusive {
                    self.evict_others(id, &hold.owner, effect.clock);
                }
            }
            Change::Remove { owner, mode } => {
                for gone in [Mode::Exclusive, Mode::Shared] {
                    if mode.is_none_or(|mode| mode == gone) {
                        self.unbind(id, owner, gone);
                    }
                }
            }
            Change::Sweep => {}
        }
    }

    /// An exclusive grant ends what others had bound: holds whose sessions have ended and that were not released yet.
    fn evict_others(&mut self, id: RecordId, owner: &Owner, now: UnixMs) {
        let Some(record) = self.records.get_mut(id) else { return };
        let Some((others, ended)) = record.bound.split_others(owner) else { return };
        if self.settings.session_grace.is_none() {
            self.note_departed(others.ended_tokens(), ended as u64, now.get() * 1000);
        }
        if self.records.get(id).is_some_and(|record| record.bound.is_empty()) {
            self.set_renewal(id, Attention::None);
        }
        self.note_loads(id);
        self.discard(id, others);
        self.stats.session_ends += ended as u64;
        if self.settings.session_grace.is_none() && ended > 0 {
            self.stats.releases += ended as u64;
            self.emit(Some(id), None, Event::Release);
        }
    }

    /// Releases holds whose sessions have ended: some of them, if there are many.
    pub(super) fn release_ended<K: OpenKey>(&mut self, id: RecordId, open: &mut OpenLock<K>, now: Now) {
        for _ in 0..PIECE {
            let Some(record) = self.records.get_mut(id) else { return };
            let Some((_, binding, _)) = record.bound.next_ended() else { return };
            let (owner, mode) = (binding.owner.clone(), binding.mode);
            self.release_one(id, open, now, &owner, mode);
        }
        self.is_large = true;
        // The exclusive owner is in everybody's way.
        if let Some(owner) = open.lock().exclusive(UnixMs::ZERO).map(|hold| hold.owner.clone()) {
            self.release_ended_of(id, open, now, &owner);
        }
    }

    /// Releases holds whose sessions have ended, on a lock that is not open. Returns whether none is left.
    pub(super) fn release_all_ended<S: Keyspace>(
        &mut self,
        space: &mut S,
        id: RecordId,
        name: Name<'_>,
        now: Now,
    ) -> bool {
        // The visit sees to a key of another type.
        let Ok(mut open) = self.open(space, Some(id), name, None) else { return false };
        self.release_ended(id, &mut open, now);
        self.close(Some(id), open);
        !self.records.get(id).is_some_and(|record| record.bound.has_ended())
    }

    /// Releases the holds of one owner whose session has ended.
    pub(super) fn release_ended_of<K: OpenKey>(
        &mut self,
        id: RecordId,
        open: &mut OpenLock<K>,
        now: Now,
        owner: &Owner,
    ) {
        for mode in [Mode::Exclusive, Mode::Shared] {
            self.release_one(id, open, now, owner, mode);
        }
    }

    fn release_one<K: OpenKey>(&mut self, id: RecordId, open: &mut OpenLock<K>, now: Now, owner: &Owner, mode: Mode) {
        let ended = self.records.get(id).and_then(|record| record.bound.ended_of(owner, mode));
        let Some((binding, end)) = ended.map(|(_, binding, end)| (binding.clone(), end)) else { return };
        self.unbind(id, owner, mode);
        let is_it = |hold: &&Hold| hold.token == binding.token;
        // It may have lapsed since its session ended; what had lapsed then is left alone.
        let Some(hold) = open.lock().live(owner, mode, end.at.min(now.ms())).filter(is_it) else { return };
        let deadline = end.deadline();
        let effect = if end.grace.is_some() && deadline > now.ms() {
            let hold = Hold { deadline, ..hold.clone() };
            Effect { clock: end.at.min(now.ms()), change: Change::Put { hold, expiry: Expiry::Keep } }
        } else if hold.is_live(now.ms()) {
            Effect { clock: now.ms(), change: Change::Remove { owner: owner.clone(), mode: Some(mode) } }
        } else {
            // It counts as lapsed.
            Effect { clock: now.ms(), change: Change::Sweep }
        };
        let is_released = matches!(effect.change, Change::Remove { .. }) && end.grace.is_none();
        self.apply(Some(id), open, effect, Replication::Effect);
        self.stats.session_ends += 1;
        if is_released {
            self.note_departed(std::iter::once(binding.token), 1, now.us());
            self.stats.releases += 1;
            self.emit(Some(id), open.own, Event::Release);
        }
    }

    /// Forgets the bindings of leases that have ended before they were extended: some of them, if there are many.
    pub(super) fn forget_lapsed(&mut self, id: RecordId, now: Now) {
        for _ in 0..PIECE {
            let due = self.records.get(id).and_then(|record| record.bound.due(now.ms()));
            let Some((_, binding)) = due.filter(|(_, binding)| binding.deadline <= now.ms()) else { return };
            let (owner, mode) = (binding.owner.clone(), binding.mode);
            self.unbind(id, &owner, mode);
        }
    }

    /// Extends the leases that are due: some of them, if there are many.
    pub(super) fn extend<K: OpenKey>(&mut self, id: RecordId, open: &mut OpenLock<K>, now: Now) {
        for _ in 0..PIECE {
            let Some(record) = self.records.get_mut(id) else { return };
            let Some((hold_id, binding)) = record.bound.due(now.ms()) else { return };
            if record.bound.ended_of(&binding.owner, binding.mode).is_some() {
                record.bound.skip_renewal(hold_id);
                continue;
            }
            let hold = open.lock().live(&binding.owner, binding.mode, now.ms());
            let renewed = hold.filter(|hold| hold.token == binding.token).and_then(|hold| {
                let (_, deadline) = LeaseChoice::Own.resolve(now.ms(), hold.lease)?;
                Some(Hold { deadline, ..hold.clone() })
            });
            match renewed {
                Some(hold) => {
                    // The operator's earlier expiry stands: a watchdog is not a command.
                    let change = Change::Put { hold, expiry: Expiry::Keep };
                    self.apply(Some(id), open, Effect { clock: now.ms(), change }, Replication::Effect);
                }
                // It lapsed, or is gone.
                None => {
                    let (owner, mode) = (binding.owner.clone(), binding.mode);
                    self.unbind(id, &owner, mode);
                }
            }
        }
        self.is_large = true;
    }
}
