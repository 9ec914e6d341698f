//! What a server remembers beside its keys: waiters, sessions, and when which lock is due. It decides everything that
//! commands, timers and lost connections do to locks.
//!
//! An [`Engine`] is a state machine. Its inputs are requests ([`Engine::acquire`], [`Engine::release`], …), events
//! ([`Input`]) and the time ([`Engine::tick`]). It reaches locks through a [`Keyspace`], changes them by effects only,
//! and hands out the rest as data: what the caller has to send ([`Output`]), and when it wants to run next
//! ([`Engine::wake_at`]).
//!
//! # Implementation details
//! A lock that has waiters, or holds that are bound to connections, has a *record*. A lock without either has none, and
//! one lookup finds that out: other locks cost it nothing. Records are found by name, by client (the end of a session),
//! by owner (the deadlock search) and by time (one agenda).
//!
//! One *visit* does what is due on a lock, always in this order: ask what the server permits, open the key, release what
//! has ended, extend leases, serve the queue, close. Commands do the same to their lock before and after their own work.

mod bound;
#[cfg(feature = "check")]
mod check;
mod deadlock;
mod enter;
mod histogram;
mod inspect;
mod keyspace;
mod leave;
mod log;
mod queue;
mod record;
mod several;
mod stats;
mod visit;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::Rc;

use bound::{Bound, SessionEnd, renewal_time};
use foldhash::fast::FixedState;
use hashbrown::{HashMap, HashTable};
use queue::Waiter;
use record::{Attention, Record, RecordId};
use slotmap::SlotMap;
use smallvec::SmallVec;

#[cfg(feature = "check")]
pub use check::{BindingView, RecordView, Snapshot, WaiterView};
pub use enter::{Ask, Entered};
pub use histogram::Histogram;
pub use inspect::{Detail, Inspection, ShownHold, ShownWaiter};
pub use keyspace::{GRACE_MS, KeyEnd, Keyspace, OpenKey, OpenLock, Permission, Replication, Signal, WrongType, replay};
pub use leave::{Left, replay_release};
pub use log::{Log, LogEntry, LogEvent, LogSettings, Lost, Peer};
pub use queue::WaiterId;
pub use stats::{Gauges, Stats};
pub use visit::Role;

use crate::{ClientId, Lease, Memory, Name, Now, Owner, Token, UnixMs};

/// The state machine. `T` is what the caller needs to find a waiting client again.
#[derive(Clone, Debug)]
pub struct Engine<T> {
    /// What the operator set.
    pub settings: Settings,
    /// What `INFO dlock` counts.
    pub stats: Stats,
    /// What `DLOCK.LOG` shows.
    pub log: Log,
    /// The token clock, and what is left of large locks.
    pub memory: Memory,
    /// Boxed: the places of those that are gone stay.
    records: SlotMap<RecordId, Box<Record>>,
    names: HashTable<RecordId>,
    waiters: SlotMap<WaiterId, Waiter<T>>,
    waits: HashMap<Owner, SmallVec<[WaiterId; 1]>, FixedState>,
    clients: HashMap<ClientId, BTreeSet<RecordId>, FixedState>,
    /// Sessions that ended with holds on more locks than are looked at in one go.
    leaving: VecDeque<Leaving>,
    agenda: BTreeSet<(UnixMs, RecordId)>,
    overdue: BTreeSet<(UnixMs, RecordId)>,
    stirred: VecDeque<RecordId>,
    /// Records whose databases may have been emptied or have changed places, to be looked at a piece at a time.
    unsettled: Vec<RecordId>,
    /// Keys that others gave a TTL, or none, that has to be looked at.
    ttls: Vec<(i32, Rc<[u8]>)>,
    /// Bindings that are not valid any more and the lock that they were on, to be freed a piece at a time.
    old_bound: Vec<(RecordId, Bound)>,
    /// The last step of the timer took as long as one may take.
    is_large: bool,
    /// The timer has more to do, but not before this time.
    not_before: UnixMs,
    outbox: Vec<Output<T>>,
    hasher: FixedState,
    random: u64,
    /// How many requests have queued so far.
    arrivals: u64,
    /// How many places in queues are taken: a request for several locks takes several.
    places: usize,
    queues: usize,
    bound: usize,
    searches: u64,
    epoch: u64,
    /// The epoch at which all bindings became invalid, and those of single databases.
    all_epoch: u64,
    db_epochs: BTreeMap<i32, u64>,
}

#[derive(Clone, Debug)]
struct Leaving {
    client: ClientId,
    end: SessionEnd,
    records: BTreeSet<RecordId>,
}

/// What the operator set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The lease of a new hold that names none.
    pub default_lease: Lease,
    /// How many requests may wait; `None`: no limit.
    pub max_waiters: Option<usize>,
    /// How long a hold stays after its session ended; `None`: it is released at once.
    pub session_grace: Option<Lease>,
}

/// Where and when a command runs, and for which client.
#[derive(Clone, Copy, Debug)]
pub struct Call<'a> {
    /// The lock.
    pub name: Name<'a>,
    /// The time.
    pub now: Now,
    /// The client that sent the command.
    pub client: ClientId,
}

/// What happened outside of the module's commands. A hook only notes it: the engine acts on it after the running command.
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
    /// The data were loaded anew.
    Loaded,
    /// The server became a primary or a replica.
    RoleChanged,
}

/// What the caller has to send.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output<T> {
    /// A keyspace event on the key of the running command with this index.
    Own(usize, Event),
    /// A keyspace event.
    Event(i32, Rc<[u8]>, Event),
    /// `WATCH` and `CLIENT TRACKING` hear that `INFO` shows something else.
    Modified(i32, Rc<[u8]>),
    /// The answer to a request that waited.
    Answer(T, Answer),
}

/// A keyspace event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// An owner entered.
    Acquire,
    /// Entries were given back, by command or by the end of a session.
    Release,
    /// A deadline was set by command.
    Renew,
    /// A request queued.
    Wait,
    /// A lease ran out.
    Lapse,
}

/// How a wait ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// With a grant: the token, and the owner if the server drew it.
    Granted(Token, Option<Owner>),
    /// With nil.
    Nil,
    /// With an error.
    Fault(Fault),
}

/// Why a request is an error. It has changed nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The key holds another type.
    WrongType,
    /// The owner holds both modes and names none.
    Ambiguous,
    /// The hold would count more entries than a hold can.
    TooManyEntries,
    /// There is no fencing token left.
    NoToken,
    /// The request would wait forever; the text says why.
    Deadlock(String),
    /// `dlock.max-waiters` requests wait already.
    TooManyWaiters,
    /// A hold that is bound to a session, or would be, needs a lease of at least 300 ms.
    SessionLease,
    /// A hold that is bound to a session cannot have an absolute lease.
    SessionAbsolute,
    /// The key is leaving for another node of the cluster.
    TryAgain,
}

impl From<WrongType> for Fault {
    fn from(_: WrongType) -> Fault {
        Fault::WrongType
    }
}

/// How many records of an ended session one step looks at.
const RECORDS_AT_ONCE: usize = 64;

impl<T> Engine<T> {
    /// An engine that remembers nothing. `seed` is random: it protects the tables against chosen names, and spreads
    /// renewals.
    pub fn new(seed: u64, settings: Settings) -> Engine<T> {
        let hasher = FixedState::with_seed(seed);
        Engine {
            settings,
            stats: Stats::default(),
            log: Log::new(),
            memory: Memory::new(),
            records: SlotMap::with_key(),
            names: HashTable::new(),
            waiters: SlotMap::with_key(),
            waits: HashMap::with_hasher(hasher.clone()),
            clients: HashMap::with_hasher(hasher.clone()),
            leaving: VecDeque::new(),
            agenda: BTreeSet::new(),
            overdue: BTreeSet::new(),
            stirred: VecDeque::new(),
            unsettled: Vec::new(),
            ttls: Vec::new(),
            old_bound: Vec::new(),
            is_large: false,
            not_before: UnixMs::ZERO,
            outbox: Vec::new(),
            hasher,
            random: seed,
            arrivals: 0,
            places: 0,
            queues: 0,
            bound: 0,
            searches: 0,
            epoch: 0,
            all_epoch: 0,
            db_epochs: BTreeMap::new(),
        }
    }

    /// Takes what the caller has to send, in order, and leaves `spare` in its place: an empty list, so that its memory is
    /// used again, or what could not be sent.
    #[inline]
    pub fn swap_outputs(&mut self, spare: Vec<Output<T>>) -> Vec<Output<T>> {
        std::mem::replace(&mut self.outbox, spare)
    }

    /// Takes what the caller has to send, in order.
    pub fn take_outputs(&mut self) -> Vec<Output<T>> {
        std::mem::take(&mut self.outbox)
    }

    /// Returns the current numbers.
    pub fn gauges(&self) -> Gauges {
        let last_token = self.memory.tokens.last();
        Gauges { waiters: self.waiters.len(), queues: self.queues, sessions: self.bound, last_token }
    }

    /// Whether a lock has a record: only then does its removal concern the engine.
    pub fn remembers(&self, name: Name<'_>) -> bool {
        self.find(name).is_some()
    }

    /// Returns the time of the next [`Engine::tick`]; `None`: not before the next input.
    #[inline]
    pub fn wake_at(&self) -> Option<UnixMs> {
        let is_due = !(self.stirred.is_empty()
            && self.overdue.is_empty()
            && self.leaving.is_empty()
            && self.unsettled.is_empty()
            && self.ttls.is_empty()
            && self.old_bound.is_empty()
            && self.memory.trash.is_empty());
        let at = if is_due { UnixMs::ZERO } else { self.agenda.first().map(|(at, _)| *at)? };
        Some(at.max(self.not_before))
    }

    /// Takes in what happened outside of the module's commands.
    pub fn input(&mut self, input: Input<'_>, now: Now) {
        // What frees a lock is served in the same turn. If the server still holds its data still, the timer waits again.
        self.not_before = UnixMs::ZERO;
        match input {
            Input::Removed(name) => {
                if let Some(id) = self.find(name) {
                    self.forget_bound(id);
                    self.stir(id);
                }
            }
            Input::Restored(Name { db, key }) => self.ttls.push((db, key.into())),
            Input::ClientGone(client) => self.end_sessions(client, now.ms()),
            Input::Flushed(db) => self.invalidate(db),
            Input::Swapped(first, second) => {
                // Where the locks are now, nobody waits for them.
                let heads = self.waiters.iter().flat_map(|(id, waiter)| {
                    let records = waiter.records.iter().filter_map(|record| self.records.get(*record));
                    records.filter(move |record| record.has_grace && record.queue.head() == Some(id))
                });
                for record in heads {
                    match record.db {
                        db if db == first => self.ttls.push((second, Rc::clone(&record.key))),
                        db if db == second => self.ttls.push((first, Rc::clone(&record.key))),
                        _ => {}
                    }
                }
                self.invalidate(Some(first));
                self.invalidate(Some(second));
            }
            Input::Loaded | Input::RoleChanged => {
                self.leaving.clear();
                self.invalidate(None);
            }
        }
    }

    /// Waits no longer than it meant to, although the clock was set back.
    #[inline]
    fn heed(&mut self, now: Now) {
        if self.not_before > UnixMs::ZERO {
            self.not_before = self.not_before.min(visit::retry(now));
        }
    }

    /// Takes out a waiter whose client is gone, or whose time is over. The next in its queues may get in.
    pub fn abandon(&mut self, id: WaiterId) -> Option<T> {
        let waiter = self.take_waiter(id, None)?;
        Some(waiter.ticket)
    }

    fn end_sessions(&mut self, client: ClientId, at: UnixMs) {
        let Some(records) = self.clients.remove(&client) else { return };
        let end = SessionEnd { at, grace: self.settings.session_grace };
        self.log_session_end(client, &records, at);
        if records.len() > RECORDS_AT_ONCE {
            self.leaving.push_back(Leaving { client, end, records });
            return;
        }
        for id in records {
            self.end_session(id, client, end);
        }
    }

    fn end_session(&mut self, id: RecordId, client: ClientId, end: SessionEnd) {
        if self.records.get_mut(id).is_some_and(|record| record.bound.end(client, end)) {
            self.stir(id);
        }
    }

    /// Looks at some of the locks of sessions that have ended.
    fn end_leaving(&mut self) {
        for _ in 0..RECORDS_AT_ONCE {
            let Some(leaving) = self.leaving.front_mut() else { return };
            let (client, end) = (leaving.client, leaving.end);
            match leaving.records.pop_first() {
                Some(id) => self.end_session(id, client, end),
                None => drop(self.leaving.pop_front()),
            }
        }
    }

    /// All bindings, or those of one database, are void, and all queues there need a look.
    fn invalidate(&mut self, db: Option<i32>) {
        self.epoch += 1;
        match db {
            Some(db) => drop(self.db_epochs.insert(db, self.epoch)),
            None => self.all_epoch = self.epoch,
        }
        self.unsettled = self.records.keys().collect();
    }

    // Records.

    #[inline]
    fn find(&self, name: Name<'_>) -> Option<RecordId> {
        if self.records.is_empty() {
            return None;
        }
        let hash = self.hash(name);
        let is_it = |id: &RecordId| self.records.get(*id).is_some_and(|record| record.name() == name);
        self.names.find(hash, is_it).copied()
    }

    /// The record of a lock, up to date with what happened to its database and to the clients of its holds.
    #[inline]
    fn look_up(&mut self, name: Name<'_>) -> Option<RecordId> {
        let id = self.find(name)?;
        self.refresh(id);
        Some(id)
    }

    fn refresh(&mut self, id: RecordId) {
        let Some(record) = self.records.get_mut(id) else { return };
        let db_epoch = self.db_epochs.get(&record.db).copied().unwrap_or(0);
        let is_stale = record.epoch < self.all_epoch.max(db_epoch);
        record.epoch = self.epoch;
        if is_stale {
            self.forget_bound(id);
            self.stir(id);
        }
        for index in 0..self.leaving.len() {
            let Some(leaving) = self.leaving.get_mut(index) else { break };
            if leaving.records.remove(&id) {
                let (client, end) = (leaving.client, leaving.end);
                self.end_session(id, client, end);
            }
        }
    }

    fn find_or_create(&mut self, name: Name<'_>) -> RecordId {
        if let Some(id) = self.look_up(name) {
            return id;
        }
        let hash = self.hash(name);
        let id = self.records.insert(Box::new(Record {
            db: name.db,
            key: name.key.into(),
            hash,
            queue: queue::Queue::default(),
            bound: Bound::default(),
            queue_due: None,
            attention: Attention::None,
            has_grace: false,
            was_deserted: false,
            epoch: self.epoch,
        }));
        let records = &self.records;
        self.names.insert_unique(hash, id, |id| records.get(*id).map_or(0, |record| record.hash));
        id
    }

    fn hash(&self, name: Name<'_>) -> u64 {
        use std::hash::BuildHasher;
        self.hasher.hash_one(name)
    }

    /// Forgets a record that has nothing left to remember.
    fn drop_if_idle(&mut self, id: RecordId) {
        let Some(record) = self.records.get(id) else { return };
        if !record.is_idle() {
            return;
        }
        let hash = record.hash;
        self.set_attention(id, Attention::None);
        if let Ok(entry) = self.names.find_entry(hash, |other| *other == id) {
            entry.remove();
        }
        self.records.remove(id);
        let records = &self.records;
        if self.names.len() < self.names.capacity() / 8 {
            self.names.shrink_to(self.names.len() * 2, |id| records.get(*id).map_or(0, |record| record.hash));
        }
    }

    // The agenda.

    /// Has a record visited before the end of the turn.
    fn stir(&mut self, id: RecordId) {
        self.set_attention(id, Attention::Now);
    }

    /// Has a record visited when it is due next.
    fn schedule(&mut self, id: RecordId) {
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

    fn set_attention(&mut self, id: RecordId, attention: Attention) {
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
            Attention::Now => self.stirred.push_back(id),
        }
    }

    /// The record that needs a visit most at `now`. It is out of the agenda then.
    fn next_due(&mut self, now: UnixMs) -> Option<RecordId> {
        while let Some(id) = self.stirred.pop_front() {
            if self.records.get(id).is_some_and(|record| record.attention == Attention::Now) {
                self.set_attention(id, Attention::None);
                return Some(id);
            }
        }
        // Of all that is due, the lease that would run out first comes first.
        while let Some((_, id)) = self.agenda.first().copied().filter(|(at, _)| *at <= now) {
            let Some(record) = self.records.get(id) else { break };
            let renewal = record.bound.next_renewal().filter(|(at, _)| *at <= now).map(|(_, deadline)| deadline);
            let urgency = record.queue_due.filter(|at| *at <= now).or(renewal).unwrap_or(now);
            self.set_attention(id, Attention::Overdue(urgency));
        }
        let (_, id) = self.overdue.first().copied()?;
        self.set_attention(id, Attention::None);
        Some(id)
    }

    // Bindings.

    /// Binds a hold to a client.
    fn bind(&mut self, id: RecordId, hold: &crate::Hold, client: ClientId) {
        let spread = self.random();
        let Some(record) = self.records.get_mut(id) else { return };
        let before = record.bound.len();
        let previous = record.bound.client_of(&hold.owner, hold.mode);
        record.bound.bind(hold, client, renewal_time(hold, spread));
        self.bound = self.bound + record.bound.len() - before;
        if let Some(previous) = previous.filter(|previous| *previous != client) {
            self.check_client(id, previous);
        }
        self.clients.entry(client).or_default().insert(id);
        self.schedule(id);
    }

    /// Unbinds a hold.
    fn unbind(&mut self, id: RecordId, owner: &Owner, mode: crate::Mode) {
        let Some(record) = self.records.get_mut(id) else { return };
        let before = record.bound.len();
        let client = record.bound.unbind(owner, mode);
        self.bound -= before - record.bound.len();
        if let Some(client) = client {
            self.check_client(id, client);
        }
    }

    /// Forgets where a client has holds, if it has none on this lock any more.
    fn check_client(&mut self, id: RecordId, client: ClientId) {
        if self.records.get(id).is_some_and(|record| record.bound.has_client(client)) {
            return;
        }
        if let Some(records) = self.clients.get_mut(&client) {
            records.remove(&id);
            if records.is_empty() {
                self.clients.remove(&client);
            }
        }
    }

    /// Unbinds all holds of a lock: it is gone, or another lock has its name.
    fn forget_bound(&mut self, id: RecordId) {
        let Some(record) = self.records.get_mut(id) else { return };
        record.has_grace = false;
        if record.bound.is_empty() {
            return;
        }
        let bound = std::mem::take(&mut record.bound);
        self.discard(id, bound);
    }

    /// Forgets bindings; `id` is the lock that they were on.
    fn discard(&mut self, id: RecordId, bound: Bound) {
        self.bound -= bound.len();
        if bound.len() <= RECORDS_AT_ONCE {
            for client in bound.clients() {
                self.check_client(id, client);
            }
        } else {
            self.old_bound.push((id, bound));
        }
    }

    /// Frees some of the bindings that are not valid any more.
    fn free_bound(&mut self, most: usize) {
        let Some((id, bound)) = self.old_bound.last_mut() else { return };
        let (id, clients, is_done) = (*id, bound.take_apart(most), bound.is_empty());
        if is_done {
            self.old_bound.pop();
        }
        for client in clients {
            self.check_client(id, client);
        }
    }

    /// The next number of a sequence that `seed` began (SplitMix64).
    fn random(&mut self) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.random;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn emit(&mut self, id: Option<RecordId>, own: Option<usize>, event: Event) {
        let output = match (own, id.and_then(|id| self.records.get(id))) {
            (Some(index), _) => Output::Own(index, event),
            (None, Some(record)) => Output::Event(record.db, Rc::clone(&record.key), event),
            (None, None) => return,
        };
        self.outbox.push(output);
    }
}
