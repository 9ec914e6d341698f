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

mod agenda;
mod bound;
#[cfg(feature = "check")]
mod check;
mod databases;
mod deadlock;
mod enter;
mod histogram;
mod inspect;
mod keyspace;
mod lanes;
mod leave;
mod load;
mod log;
mod open;
mod queue;
mod record;
mod serve;
mod sessions;
mod several;
mod stats;
mod turns;
mod visit;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::Rc;

use bound::{Bound, SessionEnd};
use databases::Databases;
use foldhash::fast::FixedState;
use hashbrown::{HashMap, HashTable};
use lanes::Lanes;
use load::Load;
use queue::Waiter;
use record::{Record, RecordId};
use slotmap::SlotMap;
use smallvec::SmallVec;

#[cfg(feature = "check")]
pub use check::{BindingView, RecordView, Snapshot, WaiterView};
pub use enter::{Ask, Entered};
pub use histogram::Histogram;
pub use inspect::{Detail, Inspection, ShownHold, ShownWaiter};
pub use keyspace::{GRACE_MS, KeyEnd, Keyspace, OpenKey, OpenLock, Permission, Replication, Signal, WrongType, replay};
pub use leave::{Left, replay_release};
pub use load::{BYTES_A_RENEWAL, MAX_BOUND_KEY, MAX_RENEWALS};
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
    /// With their hashes, so that to grow the table looks at no record.
    names: HashTable<(u64, RecordId)>,
    waiters: SlotMap<WaiterId, Waiter<T>>,
    waits: HashMap<Owner, SmallVec<[WaiterId; 1]>, FixedState>,
    clients: HashMap<ClientId, ClientHolds, FixedState>,
    /// Sessions that ended with holds on more locks than are looked at in one go.
    leaving: BTreeMap<ClientId, Leaving>,
    /// How many sessions have been added to these so far.
    leaves: u64,
    /// The ended session of which the next piece is looked at, or the one behind it.
    leaving_next: ClientId,
    databases: Databases,
    agenda: BTreeSet<(UnixMs, RecordId)>,
    renewals: BTreeSet<(UnixMs, RecordId)>,
    lanes: Lanes,
    /// Keys that others gave a TTL, or none, that has to be looked at.
    ttls: VecDeque<(i32, Rc<[u8]>)>,
    /// Bindings that are not valid any more and the lock that they were on, to be freed a piece at a time.
    old_bound: Vec<(RecordId, Bound)>,
    /// How many waiters the running command, or this step of the timer, may still answer.
    allowance: usize,
    /// The last step of the timer took as long as one may take.
    is_large: bool,
    /// The timer has more to do, but not before this time.
    not_before: UnixMs,
    /// When the last tick ended, if it has left something to do.
    behind_since: Option<Now>,
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
}

/// What is bound to a client.
#[derive(Clone, Debug, Default)]
struct ClientHolds {
    records: BTreeSet<RecordId>,
    /// What the watchdog does for it.
    load: Load,
}

#[derive(Clone, Debug)]
struct Leaving {
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
    /// The watchdog would have to extend this client's leases too often: see [`MAX_RENEWALS`].
    SessionLoad,
    /// The name of the key is too long for a hold that is bound to a session: see [`MAX_BOUND_KEY`].
    SessionKey,
    /// The key is leaving for another node of the cluster.
    TryAgain,
}

impl From<WrongType> for Fault {
    fn from(_: WrongType) -> Fault {
        Fault::WrongType
    }
}

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
            leaving: BTreeMap::new(),
            leaves: 0,
            leaving_next: ClientId(0),
            databases: Databases::default(),
            agenda: BTreeSet::new(),
            renewals: BTreeSet::new(),
            lanes: Lanes::default(),
            ttls: VecDeque::new(),
            old_bound: Vec::new(),
            allowance: 0,
            is_large: false,
            not_before: UnixMs::ZERO,
            behind_since: None,
            outbox: Vec::new(),
            hasher,
            random: seed,
            arrivals: 0,
            places: 0,
            queues: 0,
            bound: 0,
            searches: 0,
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
        self.swap_outputs(Vec::new())
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
        let is_due = !(self.lanes.is_empty()
            && self.leaving.is_empty()
            && self.databases.are_settled()
            && self.ttls.is_empty()
            && self.old_bound.is_empty()
            && self.memory.trash.is_empty());
        let at = if is_due { UnixMs::ZERO } else { self.next_visit()? };
        Some(at.max(self.not_before))
    }

    /// Takes in what happened outside of the module's commands.
    pub fn input(&mut self, input: Input<'_>, now: Now) {
        // What frees a lock is served in the same turn. If the server still holds its data still, the timer waits again.
        self.not_before = UnixMs::ZERO;
        match input {
            Input::Removed(name) => {
                if let Some(id) = self.find(name) {
                    self.forget_lock(id);
                }
            }
            Input::Restored(Name { db, key }) => {
                if self.ttls.back().is_none_or(|(last, same)| (*last, &**same) != (db, key)) {
                    self.ttls.push_back((db, key.into()));
                }
            }
            Input::ClientGone(client) => self.end_sessions(client, now.ms()),
            Input::Flushed(db) => self.databases.invalidate(db),
            Input::Swapped(first, second) if self.databases.has(first) || self.databases.has(second) => {
                self.take_graces(first, second);
                self.databases.invalidate(Some(first));
                self.databases.invalidate(Some(second));
            }
            Input::Swapped(..) => {}
            Input::Loaded | Input::RoleChanged => {
                self.leaving.clear();
                self.databases.invalidate(None);
            }
        }
    }

    /// Two databases changed places: where the locks are now, nobody waits for them, and their keys need no grace.
    fn take_graces(&mut self, first: i32, second: i32) {
        for (id, waiter) in &self.waiters {
            for record_id in &waiter.records {
                let Some(record) = self.records.get_mut(*record_id) else { continue };
                let to = match record.db {
                    db if db == first => second,
                    db if db == second => first,
                    _ => continue,
                };
                // Once: what is swapped again and again needs it once.
                if record.queue.head() == Some(id) && std::mem::take(&mut record.has_grace) {
                    self.ttls.push_back((to, Rc::clone(&record.key)));
                }
            }
        }
    }

    /// Begins a command: it may give [`PIECE`](visit::PIECE) answers. A clock that was set back puts no visit off.
    #[inline]
    fn begin(&mut self, now: Now) {
        self.allowance = visit::PIECE;
        self.not_before = self.not_before.min(visit::retry(now));
    }

    /// Takes out a waiter whose client is gone, or whose time is over. The next in its queues may get in.
    pub fn abandon(&mut self, id: WaiterId) -> Option<T> {
        self.take_waiter(id, None).map(|waiter| waiter.ticket)
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
