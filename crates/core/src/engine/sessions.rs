//! The sessions of clients: which locks they have holds on, what the watchdog does for them, and which have ended.

use std::collections::{BTreeMap, BTreeSet};

use foldhash::fast::FixedState;
use hashbrown::HashMap;
use smallvec::SmallVec;

use super::budget::RECORDS_AT_ONCE;
use super::load::{Load, MAX_BOUND_KEY, MAX_LOAD, load_of};
use super::outbox::Fault;
use super::record::{Record, RecordId};
use super::session_holds::{Renewal, SessionEnd, SessionHolds};
use crate::{ClientId, Hold, Lease, Mode, Owner, Request};

#[derive(Clone, Debug)]
pub(super) struct Sessions {
    clients: HashMap<ClientId, ClientHolds, FixedState>,
    /// Sessions that ended with holds on more locks than are looked at in one go.
    ended: BTreeMap<ClientId, EndedSession>,
    /// How many sessions have been added to these so far: a record that has seen as many has nothing to look for.
    ends_generation: u64,
    /// The ended session of which the next piece is looked at, or the one behind it.
    next_ended: ClientId,
    /// Bindings that are not valid any more and the lock that they were on, to be freed a piece at a time.
    discarded: Vec<(RecordId, SessionHolds)>,
    /// How many holds are bound.
    bound: usize,
    random: u64,
}

/// What is bound to a client.
#[derive(Clone, Debug, Default)]
struct ClientHolds {
    records: BTreeSet<RecordId>,
    /// What the watchdog does for it.
    load: Load,
}

#[derive(Clone, Debug)]
struct EndedSession {
    end: SessionEnd,
    records: BTreeSet<RecordId>,
}

/// A hold that a session is to have.
pub(super) struct Wanted<'r> {
    /// The record of its lock.
    pub record: Option<&'r Record>,
    /// How long the key's name is.
    pub key_len: usize,
    pub lease: Lease,
}

impl Sessions {
    /// `seed` is random.
    pub(super) fn new(hasher: FixedState, seed: u64) -> Sessions {
        Sessions {
            clients: HashMap::with_hasher(hasher),
            ended: BTreeMap::new(),
            ends_generation: 0,
            next_ended: ClientId(0),
            discarded: Vec::new(),
            bound: 0,
            random: seed,
        }
    }

    /// How many holds are bound.
    pub(super) fn bound(&self) -> usize {
        self.bound
    }

    /// Whether there is no ended session to look at, and nothing to free.
    #[inline]
    pub(super) fn is_idle(&self) -> bool {
        self.ended.is_empty() && self.discarded.is_empty()
    }

    /// Whether there are discarded bindings.
    pub(super) fn has_discarded(&self) -> bool {
        !self.discarded.is_empty()
    }

    /// Which ends of large sessions a record that is looked at now has seen.
    pub(super) fn ends_generation(&self) -> u64 {
        self.ends_generation
    }

    /// Ends the session of a client. Returns the locks it has holds on.
    pub(super) fn take(&mut self, client: ClientId) -> Option<BTreeSet<RecordId>> {
        self.clients.remove(&client).map(|holds| holds.records)
    }

    /// Leaves the locks of an ended session to the timer, if they are many. Returns them if they are few.
    pub(super) fn leave_if_many(
        &mut self,
        client: ClientId,
        end: SessionEnd,
        records: BTreeSet<RecordId>,
    ) -> BTreeSet<RecordId> {
        if records.len() <= RECORDS_AT_ONCE {
            return records;
        }
        self.ended.insert(client, EndedSession { end, records });
        self.ends_generation += 1;
        BTreeSet::new()
    }

    /// The next lock of the ended session whose turn it is. Each has its turn for a piece: see
    /// [`Sessions::next_ended`].
    pub(super) fn pop_ended(&mut self, client: ClientId) -> Option<(RecordId, SessionEnd)> {
        let session = self.ended.get_mut(&client)?;
        let next = session.records.pop_first();
        if next.is_none() {
            self.ended.remove(&client);
            return None;
        }
        next.map(|id| (id, session.end))
    }

    /// The ended session whose turn it is.
    pub(super) fn next_ended(&mut self) -> Option<ClientId> {
        let next = self.ended.range(self.next_ended..).next().or_else(|| self.ended.first_key_value());
        let client = next.map(|(client, _)| *client)?;
        self.next_ended = ClientId(client.0 + 1);
        Some(client)
    }

    /// The sessions of a lock that have ended with more locks than were looked at so far. Each is looked for once, from
    /// the shorter list.
    pub(super) fn take_ended_of(&mut self, record: &mut Record) -> SmallVec<[(ClientId, SessionEnd); 4]> {
        let seen = std::mem::replace(&mut record.ends_generation, self.ends_generation);
        if seen == self.ends_generation || self.ended.is_empty() {
            return SmallVec::new();
        }
        let (bound, ended) = (&record.bound, &self.ended);
        let clients: SmallVec<[ClientId; 4]> = if bound.sessions() < ended.len() {
            bound.clients().filter(|client| ended.contains_key(client)).collect()
        } else {
            ended.keys().copied().filter(|client| bound.has_client(*client)).collect()
        };
        let ends = clients.into_iter().filter_map(|client| {
            let session = self.ended.get_mut(&client)?;
            session.records.remove(&record.id).then_some((client, session.end))
        });
        ends.collect()
    }

    /// A server that is no primary any more, or has other data, ends no sessions.
    pub(super) fn forget_ended(&mut self) {
        self.ended.clear();
    }

    /// Binds a hold to a client.
    pub(super) fn bind(&mut self, record: &mut Record, hold: &Hold, client: ClientId) {
        let renewal = self.renewal(record, hold);
        let before = record.bound.len();
        let previous = record.bound.client_of(&hold.owner, hold.mode);
        record.bound.bind(hold, client, renewal);
        self.bound = self.bound + record.bound.len() - before;
        if let Some(previous) = previous.filter(|previous| *previous != client) {
            self.check_client(record.id, record.bound.has_client(previous), previous);
        }
        self.clients.entry(client).or_default().records.insert(record.id);
        self.note_loads(record);
    }

    /// Unbinds a hold.
    pub(super) fn unbind(&mut self, record: &mut Record, owner: &Owner, mode: Mode) {
        let before = record.bound.len();
        let client = record.bound.unbind(owner, mode);
        self.bound -= before - record.bound.len();
        self.note_loads(record);
        if let Some(client) = client {
            self.check_client(record.id, record.bound.has_client(client), client);
        }
    }

    /// Follows a change of a hold, if it is bound.
    pub(super) fn follow(&mut self, record: &mut Record, hold: &Hold) {
        let renewal = self.renewal(record, hold);
        record.bound.follow(hold, renewal);
        self.note_loads(record);
    }

    /// Forgets bindings that were on this lock.
    pub(super) fn discard(&mut self, record: &mut Record, bound: SessionHolds) {
        self.note_loads(record);
        self.bound -= bound.len();
        let is_small = bound.len() <= RECORDS_AT_ONCE;
        self.discarded.push((record.id, bound));
        if is_small {
            self.free_discarded(RECORDS_AT_ONCE, |_, client| record.bound.has_client(client));
        }
    }

    /// Frees some of the bindings that are not valid any more. `is_bound`: whether a client has another hold on that lock.
    pub(super) fn free_discarded(&mut self, most: usize, is_bound: impl Fn(RecordId, ClientId) -> bool) {
        let Some((id, bound)) = self.discarded.last_mut() else { return };
        let (id, clients, is_done) = (*id, bound.take_apart(most), bound.is_empty());
        let changes = bound.take_load_changes();
        if is_done {
            self.discarded.pop();
        }
        self.add_loads(changes);
        for client in clients {
            self.check_client(id, is_bound(id, client), client);
        }
    }

    /// Checks that a request with `SESSION` can be bound: each lease is long enough to be extended in time, and their
    /// renewals keep the limit.
    pub(super) fn check<'r>(
        &self,
        client: ClientId,
        request: &Request,
        holds: impl IntoIterator<Item = Wanted<'r>>,
    ) -> Result<(), Fault> {
        if !request.session {
            return Ok(());
        }
        let mut more = 0;
        for wanted in holds {
            if !wanted.lease.can_be_bound() {
                return Err(Fault::SessionLease);
            }
            more += load_more(client, &wanted, &request.owner, request.want.mode())?;
        }
        self.check_load(client, more)
    }

    /// Checks a renewal of a hold that is bound to this client, or will be.
    pub(super) fn check_renewed(
        &self,
        client: ClientId,
        record: Option<&Record>,
        key_len: usize,
        hold: &Hold,
    ) -> Result<(), Fault> {
        let wanted = Wanted { record, key_len, lease: hold.lease };
        self.check_load(client, load_more(client, &wanted, &hold.owner, hold.mode)?)
    }

    fn check_load(&self, client: ClientId, more: Load) -> Result<(), Fault> {
        let load = self.clients.get(&client).map_or(0, |holds| holds.load);
        if more > 0 && load + more > MAX_LOAD { Err(Fault::SessionLoad) } else { Ok(()) }
    }

    /// When a hold on this lock is extended, and what that costs.
    fn renewal(&mut self, record: &Record, hold: &Hold) -> Renewal {
        let bytes = record.key.len() + hold.owner.heap_bytes();
        Renewal::of(hold, self.random(), load_of(hold.lease, bytes))
    }

    /// Forgets where a client has holds, if it has none on this lock any more.
    fn check_client(&mut self, id: RecordId, is_bound: bool, client: ClientId) {
        if is_bound {
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

    /// Takes over what has changed in the loads of clients with holds on this lock.
    fn note_loads(&mut self, record: &mut Record) {
        let changes = record.bound.take_load_changes();
        self.add_loads(changes);
    }

    /// Sessions that have ended have no load any more.
    fn add_loads(&mut self, changes: SmallVec<[(ClientId, i64); 2]>) {
        for (client, change) in changes {
            if let Some(holds) = self.clients.get_mut(&client) {
                holds.load = holds.load.saturating_add_signed(change);
                if holds.records.is_empty() && holds.load == 0 {
                    self.clients.remove(&client);
                }
            }
        }
    }

    /// The next number of a sequence that the seed began (SplitMix64).
    fn random(&mut self) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.random;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}

/// How much load a hold adds to that of its client.
fn load_more(client: ClientId, wanted: &Wanted<'_>, owner: &Owner, mode: Mode) -> Result<Load, Fault> {
    if wanted.key_len > MAX_BOUND_KEY {
        return Err(Fault::SessionKey);
    }
    let own = wanted.record.map_or(0, |record| record.bound.load_for(client, owner, mode));
    Ok(load_of(wanted.lease, wanted.key_len + owner.heap_bytes()).saturating_sub(own))
}

#[cfg(feature = "check")]
impl Sessions {
    /// Checks that these are the loads of all bound holds, by client.
    pub(super) fn audit(&self, mut loads: BTreeMap<ClientId, Load>) -> bool {
        for (_, bound) in &self.discarded {
            bound.loads().for_each(|(client, load)| *loads.entry(client).or_default() += load);
        }
        let is_right =
            |(client, holds): (&ClientId, &ClientHolds)| loads.get(client).copied().unwrap_or(0) == holds.load;
        self.clients.iter().all(is_right)
    }

    /// Whether a client, or its session that has ended, is known to have a hold on this lock.
    pub(super) fn knows(&self, client: ClientId, id: RecordId) -> bool {
        self.clients.get(&client).is_some_and(|holds| holds.records.contains(&id))
            || self.ended.get(&client).is_some_and(|session| session.records.contains(&id))
    }
}
