//! The sessions of connections and the named sessions: which locks they have holds on, the load of their renewals, and
//! which have ended.

pub(crate) mod named;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use foldhash::fast::FixedState;
use hashbrown::HashMap;
use smallvec::SmallVec;

use crate::engine::state::budget::RECORDS_AT_ONCE;
use crate::engine::state::fault::Fault;
use crate::engine::state::ids::RecordId;
use crate::engine::state::load::{Load, MAX_LOAD, load_of};
use crate::engine::state::records::record::{MAX_RECORDED_KEY, Record};
use crate::engine::state::records::session_holds::{LoadChange, Renewal, SessionEnd, SessionHolds};
use crate::engine::state::sessions::named::NamedSessions;
use crate::session::Binding;
use crate::{BindTo, Bond, ClientId, Hold, Lease, Mode, NamedId, NoSession, Owner, Request, SessionId, SessionKey};

#[derive(Clone, Debug)]
pub(crate) struct Sessions {
    /// The named sessions: the user that opened each, and when it ends.
    pub named: NamedSessions,
    /// The locks of each session that has bound holds.
    locks: HashMap<SessionKey, LocksOfSession, FixedState>,
    /// Sessions that ended with holds on more locks than are looked at in one go.
    ended: BTreeMap<SessionKey, EndedSession>,
    /// How many sessions were ever added to `ended`: a record that has seen this count has none to look for.
    ends_generation: u64,
    /// The ended session of which a piece was done last: the session behind it is next.
    last_ended: Option<SessionKey>,
    /// Bindings that are not valid any more and the lock that they were on, to be freed a piece at a time.
    discarded: Vec<(RecordId, SessionHolds)>,
    /// Named sessions that have ended, for which requests wait that must be answered.
    pub orphaned: Vec<NamedId>,
    /// How many requests of orphaned sessions were answered by commands since the last tick: all commands together
    /// answer no more than a tick would.
    pub sent_away: usize,
    /// How many holds are bound.
    bound: usize,
    /// The last bond that was given to a lock.
    bond: Bond,
    random: u64,
}

/// Where a session has holds.
#[derive(Clone, Debug, Default)]
struct LocksOfSession {
    records: BTreeSet<RecordId>,
    /// The load of its renewals.
    load: Load,
}

#[derive(Clone, Debug)]
struct EndedSession {
    end: SessionEnd,
    records: BTreeSet<RecordId>,
}

/// A hold that a request would bind to a session.
pub(crate) struct Wanted<'r> {
    /// The record of its lock.
    pub record: Option<&'r Record>,
    /// How long the key's name is.
    pub key_len: usize,
    pub lease: Lease,
}

impl Sessions {
    /// Returns the state without any session. `seed` is random.
    pub(crate) fn new(hasher: FixedState, seed: u64) -> Sessions {
        Sessions {
            named: NamedSessions::new(hasher.clone()),
            locks: HashMap::with_hasher(hasher),
            ended: BTreeMap::new(),
            ends_generation: 0,
            last_ended: None,
            discarded: Vec::new(),
            orphaned: Vec::new(),
            sent_away: 0,
            bound: 0,
            bond: Bond::NONE,
            random: seed,
        }
    }

    /// Returns how many holds are bound.
    pub(crate) fn bound(&self) -> usize {
        self.bound
    }

    /// Returns whether there is no ended session to look at, no request to answer, and nothing to free.
    #[inline]
    pub(crate) fn is_idle(&self) -> bool {
        self.ended.is_empty() && self.discarded.is_empty() && self.orphaned.is_empty()
    }

    /// Returns whether there are discarded bindings.
    pub(crate) fn has_discarded(&self) -> bool {
        !self.discarded.is_empty()
    }

    /// Returns the generation to store in a record that is checked now.
    pub(crate) fn ends_generation(&self) -> u64 {
        self.ends_generation
    }

    /// Ends a session. Returns the locks it has holds on.
    pub(crate) fn take(&mut self, key: SessionKey) -> Option<BTreeSet<RecordId>> {
        self.locks.remove(&key).map(|locks| locks.records)
    }

    /// Returns the connections with sessions: holds are bound to them.
    pub(crate) fn connections(&self) -> impl Iterator<Item = ClientId> {
        self.locks.keys().filter_map(|key| key.connection())
    }

    /// Returns the locks that a session has holds on.
    pub(crate) fn locks_of(&self, key: SessionKey) -> impl Iterator<Item = RecordId> {
        self.locks.get(&key).into_iter().flat_map(|locks| locks.records.iter().copied())
    }

    /// Returns the id of a session, if it is a named one that is open.
    pub(crate) fn id_of(&self, key: Option<SessionKey>) -> Option<SessionId> {
        match key? {
            SessionKey::Connection(_) => None,
            SessionKey::Named(named) => self.named.id_of(named),
        }
    }

    /// Returns whether the session that a request binds to is still open. The session of a connection always is: the
    /// requests leave their queues when the connection ends.
    pub(crate) fn is_open(&self, key: SessionKey) -> bool {
        match key {
            SessionKey::Connection(_) => true,
            SessionKey::Named(named) => self.named.is_open(named),
        }
    }

    /// Checks that the session of a binding is open.
    pub(crate) fn check_open(&self, binding: Binding) -> Result<(), Fault> {
        match binding {
            BindTo::Nothing | BindTo::Connection => Ok(()),
            BindTo::Named(Ok(named)) if self.named.is_open(named) => Ok(()),
            BindTo::Named(Ok(_)) => Err(Fault::NoSession(NoSession::Unknown)),
            BindTo::Named(Err(why)) => Err(Fault::NoSession(why)),
        }
    }

    /// Leaves the locks of an ended session to the timer, if they are many. Returns them if they are few.
    pub(crate) fn leave_if_many(
        &mut self,
        key: SessionKey,
        end: SessionEnd,
        records: BTreeSet<RecordId>,
    ) -> BTreeSet<RecordId> {
        if records.len() <= RECORDS_AT_ONCE {
            return records;
        }
        self.ended.insert(key, EndedSession { end, records });
        self.ends_generation += 1;
        BTreeSet::new()
    }

    /// Returns the next lock of the ended session whose turn it is. Each has its turn for a piece: see
    /// [`Sessions::next_ended`].
    pub(crate) fn pop_ended(&mut self, key: SessionKey) -> Option<(RecordId, SessionEnd)> {
        let session = self.ended.get_mut(&key)?;
        let next = session.records.pop_first();
        if next.is_none() {
            self.ended.remove(&key);
            return None;
        }
        next.map(|id| (id, session.end))
    }

    /// Returns the ended session whose turn it is.
    pub(crate) fn next_ended(&mut self) -> Option<SessionKey> {
        let behind = self.last_ended.map_or(Bound::Unbounded, Bound::Excluded);
        let next = self.ended.range((behind, Bound::Unbounded)).next().or_else(|| self.ended.first_key_value());
        self.last_ended = next.map(|(key, _)| *key);
        self.last_ended
    }

    /// Takes the sessions with holds on this lock that have ended with many locks, and whose end has not reached this
    /// one. Goes through the shorter of two lists: the sessions of the lock, and the ended ones.
    pub(crate) fn take_ended_of(&mut self, record: &mut Record) -> SmallVec<[(SessionKey, SessionEnd); 4]> {
        let seen = std::mem::replace(&mut record.ends_generation, self.ends_generation);
        if seen == self.ends_generation || self.ended.is_empty() {
            return SmallVec::new();
        }
        let (bound, ended) = (&record.bound, &self.ended);
        let keys: SmallVec<[SessionKey; 4]> = if bound.sessions() < ended.len() {
            bound.keys().filter(|key| ended.contains_key(key)).collect()
        } else {
            ended.keys().copied().filter(|key| bound.has_session(*key)).collect()
        };
        let ends = keys.into_iter().filter_map(|key| {
            let session = self.ended.get_mut(&key)?;
            session.records.remove(&record.id).then_some((key, session.end))
        });
        ends.collect()
    }

    /// Forgets ended sessions: a server that is no primary any more, or has other data, ends none.
    pub(crate) fn forget_ended(&mut self) {
        self.ended.clear();
    }

    /// Binds a hold to a session. Returns the bond, which ties the value of the key to its bindings.
    #[must_use]
    pub(crate) fn bind(&mut self, record: &mut Record, hold: &Hold, key: SessionKey) -> Bond {
        debug_assert!(self.is_open(key), "a hold is bound to a session that has ended");
        let renewal = self.renewal(record, hold);
        let before = record.bound.len();
        let previous = record.bound.session_of(&hold.owner, hold.mode);
        record.bound.bind(hold, key, renewal);
        self.bound = self.bound + record.bound.len() - before;
        if let Some(previous) = previous.filter(|previous| *previous != key) {
            self.check_session(record.id, record.bound.has_session(previous), previous);
        }
        self.locks.entry(key).or_default().records.insert(record.id);
        self.note_loads(record);
        record.bound.bond_or(|| {
            self.bond = self.bond.next();
            self.bond
        })
    }

    /// Unbinds a hold.
    pub(crate) fn unbind(&mut self, record: &mut Record, owner: &Owner, mode: Mode) {
        let before = record.bound.len();
        let key = record.bound.unbind(owner, mode);
        self.bound -= before - record.bound.len();
        self.note_loads(record);
        if let Some(key) = key {
            // The session has no other hold on this lock.
            self.check_session(record.id, false, key);
        }
    }

    /// Updates the binding of a hold that has changed, if it is bound.
    pub(crate) fn follow(&mut self, record: &mut Record, hold: &Hold) {
        let renewal = self.renewal(record, hold);
        record.bound.follow(hold, renewal);
        self.note_loads(record);
    }

    /// Forgets bindings that were on this lock.
    pub(crate) fn discard(&mut self, record: &mut Record, mut bound: SessionHolds) {
        self.note_loads(record);
        bound.discount();
        let changes = bound.take_load_changes();
        self.add_loads(changes);
        self.bound -= bound.len();
        let is_small = bound.len() <= RECORDS_AT_ONCE;
        self.discarded.push((record.id, bound));
        if is_small {
            self.free_discarded(RECORDS_AT_ONCE, |_, key| record.bound.has_session(key));
        }
    }

    /// Frees some of the discarded bindings. `is_bound` returns whether a session has a hold on the lock again.
    pub(crate) fn free_discarded(&mut self, most: usize, is_bound: impl Fn(RecordId, SessionKey) -> bool) {
        let Some((id, bound)) = self.discarded.last_mut() else { return };
        let (id, keys, is_done) = (*id, bound.take_apart(most), bound.is_empty());
        let changes = bound.take_load_changes();
        if is_done {
            self.discarded.pop();
        }
        self.add_loads(changes);
        for key in keys {
            self.check_session(id, is_bound(id, key), key);
        }
    }

    /// Checks that a request can be bound: its session is open, each lease is long enough to be extended in time, and
    /// the renewals stay within the limit.
    #[inline]
    pub(crate) fn check<'r>(
        &self,
        client: ClientId,
        request: &Request,
        holds: impl IntoIterator<Item = Wanted<'r>>,
    ) -> Result<(), Fault> {
        if matches!(request.session, BindTo::Nothing) { Ok(()) } else { self.check_bound(client, request, holds) }
    }

    #[inline(never)]
    fn check_bound<'r>(
        &self,
        client: ClientId,
        request: &Request,
        holds: impl IntoIterator<Item = Wanted<'r>>,
    ) -> Result<(), Fault> {
        self.check_open(request.session)?;
        let Some(key) = request.session_key(client) else { return Ok(()) };
        let mut more = 0;
        for wanted in holds {
            if !wanted.lease.can_be_bound() {
                return Err(Fault::SessionLease);
            }
            more += self.load_more(key, &wanted, &request.owner, request.want.mode())?;
        }
        self.check_load(key, more)
    }

    /// Checks a renewal of a hold that is bound to this session, or will be.
    #[inline(never)]
    pub(crate) fn check_renewed(
        &self,
        key: SessionKey,
        record: Option<&Record>,
        key_len: usize,
        hold: &Hold,
    ) -> Result<(), Fault> {
        let wanted = Wanted { record, key_len, lease: hold.lease };
        self.check_load(key, self.load_more(key, &wanted, &hold.owner, hold.mode)?)
    }

    /// Returns how much load a hold adds to that of this session, or to that of all named sessions of its user.
    fn load_more(&self, key: SessionKey, wanted: &Wanted<'_>, owner: &Owner, mode: Mode) -> Result<Load, Fault> {
        if wanted.key_len > MAX_RECORDED_KEY {
            return Err(Fault::SessionKey);
        }
        let counts = |other: SessionKey| match (key, other) {
            (SessionKey::Named(named), SessionKey::Named(other)) => self.named.have_one_user(named, other),
            (key, other) => key == other,
        };
        let own = wanted.record.and_then(|record| record.bound.load_of(owner, mode));
        let own = own.filter(|(other, _)| counts(*other)).map_or(0, |(_, load)| load);
        Ok(load_of(wanted.lease, wanted.key_len + owner.heap_bytes()).saturating_sub(own))
    }

    fn check_load(&self, key: SessionKey, more: Load) -> Result<(), Fault> {
        let load = match key {
            SessionKey::Connection(_) => self.locks.get(&key).map_or(0, |locks| locks.load),
            SessionKey::Named(named) => self.named.load_of_user(named),
        };
        if more > 0 && load + more > MAX_LOAD { Err(Fault::SessionLoad) } else { Ok(()) }
    }

    /// Returns when a hold on this lock is extended, and what that costs.
    fn renewal(&mut self, record: &Record, hold: &Hold) -> Renewal {
        let bytes = record.key.len() + hold.owner.heap_bytes();
        Renewal::of(hold, self.random(), load_of(hold.lease, bytes))
    }

    /// Takes this lock from those of a session, if the session has no hold on the lock any more.
    fn check_session(&mut self, id: RecordId, is_bound: bool, key: SessionKey) {
        if is_bound {
            return;
        }
        if let Some(locks) = self.locks.get_mut(&key) {
            locks.records.remove(&id);
            // Bindings that are not freed yet still have a part in its load.
            if locks.records.is_empty() && locks.load == 0 {
                self.locks.remove(&key);
            }
        }
    }

    /// Adds the changes in load that this lock has recorded.
    fn note_loads(&mut self, record: &mut Record) {
        let changes = record.bound.take_load_changes();
        self.add_loads(changes);
    }

    /// Adds changes to the loads of sessions. A session that has ended has none.
    fn add_loads(&mut self, changes: SmallVec<[LoadChange; 2]>) {
        for LoadChange { key, load, holds } in changes {
            if let SessionKey::Named(named) = key {
                self.named.note_change(named, holds, load);
            }
            if load != 0
                && let Some(locks) = self.locks.get_mut(&key)
            {
                locks.load = locks.load.saturating_add_signed(load);
                if locks.records.is_empty() && locks.load == 0 {
                    self.locks.remove(&key);
                }
            }
        }
    }

    /// Returns the next number of a sequence that the seed began (SplitMix64).
    fn random(&mut self) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.random;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}

#[cfg(feature = "check")]
impl Sessions {
    /// Returns whether the numbers of holds of named sessions are those of the bound holds, `bound`, and the loads of
    /// all sessions those of the bound and the discarded ones.
    pub(crate) fn audit(&self, bound: &BTreeMap<SessionKey, (Load, usize)>) -> bool {
        let mut loads: BTreeMap<SessionKey, Load> = bound.iter().map(|(key, (load, _))| (*key, *load)).collect();
        for (_, bound) in &self.discarded {
            bound.loads().for_each(|(key, load)| *loads.entry(key).or_default() += load);
        }
        let is_right =
            |(key, locks): (&SessionKey, &LocksOfSession)| loads.get(key).copied().unwrap_or(0) == locks.load;
        let of_named = |named| {
            let key = SessionKey::Named(named);
            (loads.get(&key).copied().unwrap_or(0), bound.get(&key).map_or(0, |(_, holds)| *holds))
        };
        self.locks.iter().all(is_right) && self.named.audit(of_named)
    }

    /// Returns whether a session, open or ended, is known to have a hold on this lock.
    pub(crate) fn knows(&self, key: SessionKey, id: RecordId) -> bool {
        self.locks.get(&key).is_some_and(|locks| locks.records.contains(&id))
            || self.ended.get(&key).is_some_and(|session| session.records.contains(&id))
    }
}
