//! How a queue is served: who gets in, and how waits end.

use super::keyspace::{OpenKey, OpenLock, Replication};
use super::queue::{Waiter, WaiterId};
use super::record::RecordId;
use super::visit::PIECE;
use super::{Answer, Engine, Event, Fault, LogEvent, Output};
use crate::holds::Sum;
use crate::lock::{Acquired, Entry, Refusal, Terms};
use crate::{Change, ClientId, Effect, Expiry, Hold, Now, Token, UnixMs};

impl<T> Engine<T> {
    /// Serves the queue of an open lock as far as it goes: O(1) for each request. A timer serves the rest of a long one.
    /// Returns the head, if that is a request for several locks: it is looked at when the key is closed.
    pub(super) fn serve<K: OpenKey>(&mut self, id: RecordId, open: &mut OpenLock<K>, now: Now) -> Option<WaiterId> {
        let several = loop {
            let head = self.records.get(id)?.queue.head();
            let Some((head, waiter)) = head.and_then(|head| Some((head, self.waiters.get(head)?))) else { break None };
            if waiter.is_multiple() {
                break Some(head);
            }
            // What its owner had by a session that has ended is no part of the decision.
            if self.records.get(id)?.bound.has_ended() {
                let owner = waiter.owner.clone();
                self.release_ended_of(id, open, now, &owner);
            }
            let Some(waiter) = self.waiters.get(head) else { break None };
            if self.allowance == 0 {
                self.leave_rest(id);
                break None;
            }
            let departed = self.departed(id, open, now);
            let binds = waiter.binds;
            let terms = self.terms(now, waiter.min_token);
            let answer = match open.lock().acquire_without(now.ms(), &waiter.acquire(), terms, departed) {
                // An owner that got in through another connection: its turn comes when that hold is gone.
                Acquired::Refused(Refusal::Held | Refusal::Owned | Refusal::OverLimit | Refusal::OnlyHolder) => {
                    break None;
                }
                Acquired::Refused(refusal) => self.refusal(refusal, head, now),
                // The lease was long enough when the client began to wait.
                Acquired::Granted(hold, _) | Acquired::Replayed(hold) if binds && !hold.lease.can_be_bound() => {
                    Answer::Fault(Fault::SessionLease)
                }
                Acquired::Replayed(hold) => {
                    self.stats.replays += 1;
                    if let Some(client) = self.client_to_bind(head) {
                        self.bind(id, &hold, client);
                    }
                    Answer::Granted(hold.token, None)
                }
                Acquired::Granted(hold, entry) => {
                    let (token, client) = (hold.token, self.client_to_bind(head));
                    self.note_granted(head, token, now);
                    self.grant(Some(id), open, now, hold, entry, client);
                    self.emit(Some(id), open.own, Event::Acquire);
                    Answer::Granted(token, None)
                }
            };
            self.allowance -= 1;
            self.answer(head, answer, Some(id));
        };
        self.watch(id, open, now);
        several
    }

    /// Sees to a lock whose queue was served: drops what has lapsed, and sets when the queue is due next.
    pub(super) fn watch<K: OpenKey>(&mut self, id: RecordId, open: &mut OpenLock<K>, now: Now) {
        let Some(record) = self.records.get(id) else { return };
        let mut due = None;
        if !record.queue.is_empty() {
            if open.lock().has_lapsed(now.ms()) {
                let sweep = Effect { clock: now.ms(), change: Change::Sweep };
                self.apply(Some(id), open, sweep, Replication::Effect);
            }
            let early = open.early_end().map(|end| UnixMs::new(end.get() + 1));
            due = open.lock().first_deadline().into_iter().chain(early).min();
        }
        if let Some(record) = self.records.get_mut(id) {
            record.queue_due = due;
        }
        self.schedule(id);
    }

    /// The live holds that count as released.
    pub(super) fn departed<K: OpenKey>(&self, id: RecordId, open: &OpenLock<K>, now: Now) -> Sum {
        let Some(record) = self.records.get(id).filter(|record| record.bound.has_ended()) else {
            return Sum::default();
        };
        let departed = record.bound.departed(now.ms());
        // More than there are cannot be: then nothing is taken for released.
        if departed.holds <= open.lock().stored() { departed } else { Sum::default() }
    }

    pub(super) fn terms(&self, now: Now, min_token: Option<Token>) -> Terms {
        let least = min_token.map_or(0, Token::get);
        Terms { default: self.settings.default_lease, fresh: self.memory.tokens.next(now.us().max(least)) }
    }

    /// Gives an owner a hold, or more entries.
    #[inline]
    pub(super) fn grant<K: OpenKey>(
        &mut self,
        id: Option<RecordId>,
        open: &mut OpenLock<K>,
        now: Now,
        hold: Hold,
        entry: Entry,
        client: Option<ClientId>,
    ) {
        match entry {
            Entry::First => self.stats.grants += 1,
            Entry::Again => self.stats.reentries += 1,
        }
        if let (Some(id), Entry::First) = (id, entry) {
            self.unbind(id, &hold.owner, hold.mode);
        }
        self.put(id, open, now, hold, client);
    }

    /// Puts a hold into a lock, with its own TTL, and binds it to a client if there is one.
    #[inline]
    pub(super) fn put<K: OpenKey>(
        &mut self,
        id: Option<RecordId>,
        open: &mut OpenLock<K>,
        now: Now,
        hold: Hold,
        client: Option<ClientId>,
    ) {
        let bound = client.map(|client| (hold.clone(), client));
        let put = Effect { clock: now.ms(), change: Change::Put { hold, expiry: Expiry::Anew } };
        self.apply(id, open, put, Replication::Effect);
        if let (Some(id), Some((hold, client))) = (id, bound) {
            self.bind(id, &hold, client);
        }
    }

    pub(super) fn client_to_bind(&self, id: WaiterId) -> Option<ClientId> {
        self.waiters.get(id).filter(|waiter| waiter.binds).map(|waiter| waiter.client)
    }

    pub(super) fn refusal(&mut self, refusal: Refusal, id: WaiterId, now: Now) -> Answer {
        match refusal {
            Refusal::LeasePassed => {
                self.stats.wait_timeouts += 1;
                self.note_waited(id, LogEvent::Timeout, None, now);
                Answer::Nil
            }
            Refusal::Held | Refusal::Owned | Refusal::OverLimit | Refusal::OnlyHolder => Answer::Nil,
            Refusal::TooManyEntries => Answer::Fault(Fault::TooManyEntries),
            Refusal::NoToken => Answer::Fault(Fault::NoToken),
        }
    }

    /// Takes a waiter out of its queues, and has it answered. `served` is the lock whose queue is being served.
    pub(super) fn answer(&mut self, id: WaiterId, answer: Answer, served: Option<RecordId>) {
        let Some(waiter) = self.take_waiter(id, served) else { return };
        let answer = match answer {
            Answer::Granted(token, None) if waiter.is_owner_drawn => Answer::Granted(token, Some(waiter.owner)),
            answer => answer,
        };
        self.outbox.push(Output::Answer(waiter.ticket, answer));
    }

    /// Takes a waiter out of all its queues. Where it was the head, the next may get in before the end of the turn.
    pub(super) fn take_waiter(&mut self, id: WaiterId, served: Option<RecordId>) -> Option<Waiter<T>> {
        let waiter = self.waiters.remove(id)?;
        for record_id in &waiter.records {
            let Some(record) = self.records.get_mut(*record_id) else { continue };
            let was_head = record.queue.head() == Some(id);
            record.queue.leave(waiter.place);
            self.places -= 1;
            if record.queue.is_empty() {
                self.queues -= 1;
                record.queue_due = None;
                record.was_deserted = served != Some(*record_id);
            }
            if was_head && served != Some(*record_id) {
                self.mark_due(*record_id);
            }
        }
        if let Some(waits) = self.waits.get_mut(&waiter.owner) {
            waits.retain(|other| *other != id);
            if waits.is_empty() {
                self.waits.remove(&waiter.owner);
            }
        }
        Some(waiter)
    }

    /// Sends everybody in a queue away with an error: some of them, if there are many.
    pub(super) fn dismiss(&mut self, id: RecordId, fault: &Fault) {
        // Each may stand in 64 queues.
        for _ in 0..PIECE / 4 {
            let Some(head) = self.head_of(Some(id)) else { return };
            self.answer(head, Answer::Fault(fault.clone()), None);
        }
        self.leave_rest(id);
    }
}
