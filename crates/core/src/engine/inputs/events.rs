//! Events outside of the module's commands.

use std::collections::BTreeSet;
use std::rc::Rc;

use smallvec::SmallVec;

use crate::engine::state::engine::Engine;
use crate::engine::state::ids::RecordId;
use crate::engine::state::ids::WaiterId;
use crate::engine::state::outbox::log::{AT_ONCE, Lost};
use crate::engine::state::outbox::log_entry::{LogEntry, LogEvent};
use crate::engine::state::parts::Parts;
use crate::engine::state::records::record::Record;
use crate::engine::state::records::session_holds::{NextRenewal, SessionEnd};
use crate::engine::state::waiting::Waiter;
use crate::{ClientId, Name, Now, SessionId, SessionKey, UnixMs};

/// An event outside of the module's commands. The engine only records it: the timer acts after the running command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Input<'a> {
    /// A lock's key was removed or replaced.
    Removed(Name<'a>),
    /// A lock was restored from a dump.
    Restored(Name<'a>),
    /// A connection has ended.
    ClientGone(ClientId),
    /// A database is empty now; `None`: all are.
    Flushed(Option<i32>),
    /// Two databases changed places.
    Swapped(i32, i32),
    /// Slots of the cluster, from the first to the last of each range, have left with their keys, or have arrived.
    SlotsMoved(&'a [(u16, u16)]),
    /// The server has loaded its data again, in place of those before.
    Loaded,
    /// The server became a primary or a replica.
    RoleChanged,
}

/// At how many locks the end of a session looks for holds to log.
const LOOKS: usize = AT_ONCE;
/// How many records [`Engine::has_session_hold`] looks through.
const RECORDS: usize = 10_000;
/// How many of these records, at most, it brings up to date.
const FEW: usize = 64;

impl<T> Engine<T> {
    /// Takes in an event outside of the module's commands.
    pub fn input(&mut self, input: Input<'_>, now: Now) {
        // The timer runs at once, because a lock that an event frees is served in the same turn. If the server permits
        // no change of its data then, the timer waits again.
        self.parts.backlog.not_before = UnixMs::ZERO;
        self.parts.sessions.named.limit_wake(now);
        let databases = self.registry.databases_mut();
        match input {
            Input::Removed(name) => {
                if let Some(id) = self.registry.find(name) {
                    self.forget_lock(id);
                }
            }
            Input::Restored(name) => self.parts.backlog.correct_ttl(name.db, name.key.into()),
            Input::ClientGone(client) => {
                let grace = self.parts.settings.session_grace;
                self.end_session(SessionKey::Connection(client), None, SessionEnd { at: now.ms(), grace });
            }
            Input::Flushed(db) => databases.invalidate(db),
            Input::SlotsMoved(ranges) => databases.invalidate_slots(ranges),
            Input::Swapped(first, second) if databases.has(first) || databases.has(second) => {
                databases.invalidate(Some(first));
                databases.invalidate(Some(second));
                self.take_graces(first, second);
            }
            Input::Swapped(..) => {}
            Input::Loaded | Input::RoleChanged => {
                databases.invalidate(None);
                if input == Input::RoleChanged {
                    self.forget_sessions();
                } else {
                    self.parts.sessions.forget_ended();
                }
            }
        }
    }

    /// Looks at every lock again, a piece at a time: an event may have been lost, or work left undone.
    pub fn look_at_all_again(&mut self) {
        self.parts.backlog.not_before = UnixMs::ZERO;
        self.registry.databases_mut().doubt();
    }

    /// Returns the clients that wait, or whose connections have sessions. If an event may have been lost, the caller
    /// finds out which of them are gone.
    pub fn clients(&self) -> BTreeSet<ClientId> {
        let waiting = self.parts.waiters.iter().map(|(_, waiter)| waiter.client);
        self.parts.sessions.connections().chain(waiting).collect()
    }

    /// Handles the end of a client whose event was lost: its session and its waits end.
    pub fn lose_client(&mut self, client: ClientId, now: Now) {
        self.input(Input::ClientGone(client), now);
        let of_client = |(_, waiter): &(WaiterId, &Waiter<T>)| waiter.client == client;
        let waits: Vec<WaiterId> = self.parts.waiters.iter().filter(of_client).map(|(id, _)| id).collect();
        waits.into_iter().for_each(|id| drop(self.abandon(id)));
    }

    /// Forgets all sessions: the server is no primary any more, or has not been one.
    pub(super) fn forget_sessions(&mut self) {
        self.parts.sessions.forget_ended();
        if self.parts.sessions.named.forget() {
            // Nothing else would end the holds that are bound to these sessions.
            self.registry.databases_mut().invalidate(None);
        }
    }

    /// Removes the TTL grace of keys after two databases changed places: no queue moved, so nobody waits for the locks.
    fn take_graces(&mut self, first: i32, second: i32) {
        for (id, waiter) in self.parts.waiters.iter() {
            for record_id in &waiter.records {
                let Some(record) = self.registry.get_mut(*record_id) else { continue };
                let to = match record.db {
                    db if db == first => second,
                    db if db == second => first,
                    _ => continue,
                };
                // The TTL is corrected once, however often the databases are swapped.
                if record.queue.head() == Some(id) && std::mem::take(&mut record.has_ttl_grace) {
                    self.parts.backlog.correct_ttl(to, Rc::clone(&record.key));
                }
            }
        }
    }

    /// Ends a session. `name` is the id of a named session.
    pub(super) fn end_session(&mut self, key: SessionKey, name: Option<&SessionId>, end: SessionEnd) {
        let Some(records) = self.parts.sessions.take(key) else { return };
        self.log_session_end(key, name, &records, end.at);
        for id in self.parts.sessions.leave_if_many(key, end, records) {
            self.with_record(id, |parts, record| parts.end_session_on(record, key, end));
        }
    }

    /// Logs the holds of an ended session on these locks: a part of them, if there are many.
    fn log_session_end(
        &mut self,
        key: SessionKey,
        name: Option<&SessionId>,
        records: &BTreeSet<RecordId>,
        now: UnixMs,
    ) {
        if !self.parts.outbox.log.is_on() {
            return;
        }
        let mut entries: SmallVec<[LogEntry; 1]> = SmallVec::new();
        for id in records.iter().take(LOOKS) {
            let Some((record, since)) = self.registry.look_at(*id) else { continue };
            self.parts.take_in(record, since);
            // The look begins with the last deadline: many lapsed holds may come before.
            let live = record.bound.of_session(key).rev().take_while(|binding| now < binding.deadline);
            entries.extend(live.take(AT_ONCE - entries.len()).map(|binding| {
                let entry = LogEntry { session: name.cloned(), ..LogEntry::new(LogEvent::SessionEnd, now) };
                entry.of(record.name(), &binding.owner, binding.mode).held(binding.token, now)
            }));
        }
        entries.into_iter().for_each(|entry| self.parts.outbox.log.add(entry, key.connection()));
    }

    /// Returns the ticket of a request that waits. A repeat takes the place of the first request, and brings its own.
    pub fn ticket(&self, id: WaiterId) -> Option<&T> {
        self.parts.waiters.get(id).map(|waiter| &waiter.ticket)
    }

    /// Takes out a waiter whose client is gone. The next waiters in its queues may get in.
    pub fn abandon(&mut self, id: WaiterId) -> Option<T> {
        self.take_waiter(id).map(|waiter| waiter.ticket)
    }

    /// Takes out a waiter whose time is over: it gets nil.
    pub fn time_out(&mut self, id: WaiterId, now: Now) {
        self.parts.outbox.stats.wait_timeouts += 1;
        self.note_timeout(id, now);
        self.take_waiter(id);
    }

    /// Counts and logs the holds that were lost with a removed key.
    pub fn lose(&mut self, lost: &Lost) {
        let Parts { outbox, sessions, .. } = &mut self.parts;
        outbox.stats.lapses += lost.lapsed;
        outbox.stats.caps += lost.capped;
        outbox.log.holds.record_all(&lost.sample, lost.lapsed);
        let record = if lost.has_whole_name() { self.registry.record_of(lost.name()) } else { None };
        for hold in &lost.holds {
            let key = record.and_then(|record| record.bound.session_of(&hold.owner, hold.mode));
            outbox.log_end(lost.name(), hold, (key, sessions.id_of(key)), lost.at.ms());
        }
    }

    /// Logs that a flush of this database, or of all, removes at least one lock.
    pub fn log_flush(&mut self, db: Option<i32>, now: Now) {
        self.parts.outbox.log.add(LogEntry { db, ..LogEntry::new(LogEvent::Flush, now.ms()) }, None);
    }

    /// Returns whether a live hold that is bound to a session is known in a database; `None`: in any. Looks at some
    /// records only.
    pub fn has_session_hold(&mut self, db: Option<i32>, now: Now) -> bool {
        let is_there = |record: &&Record| db.is_none_or(|db| db == record.db) && !record.bound.is_empty();
        let some = self.registry.iter().take(RECORDS).filter(is_there).map(|record| record.id);
        let some: SmallVec<[RecordId; FEW]> = some.take(FEW).collect();
        let is_live = |renewal: NextRenewal| now.ms() < renewal.deadline;
        some.into_iter().any(|id| {
            let record = self.refresh(id);
            record.is_some_and(|record| !record.bound.has_ended() && record.bound.next_renewal().is_some_and(is_live))
        })
    }
}
