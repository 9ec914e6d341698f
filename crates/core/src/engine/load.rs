//! What a session may cost: the watchdog's renewals of one connection have a limit.
//!
//! The server extends each bound hold three times in a lease, and replicates the name of the key each time. A client that
//! binds many holds with short leases, or holds on keys with long names, would keep the server and its replication busy
//! for ever without sending anything. The client's own request is refused instead.

use smallvec::SmallVec;

use super::bound::Renewal;
use super::record::RecordId;
use super::{Ask, Call, Engine, Fault};
use crate::{ClientId, Hold, Lease, LeaseChoice, Name};

/// The renewals of one connection's holds in a second, at most.
pub const MAX_RENEWALS: u64 = 20_000;
/// The longest name of a key, in bytes, on which a hold can be bound: each renewal copies it to replicas and files.
pub const MAX_BOUND_KEY: usize = 65_536;
/// A hold whose key and owner have this many more bytes counts as one renewal more.
pub const BYTES_A_RENEWAL: usize = 128;

/// A thousandth of a renewal a second.
pub(super) type Load = u64;
const A_RENEWAL: Load = 1000;

/// The load of a bound hold.
pub(super) fn load_of(lease: Lease, bytes: usize) -> Load {
    const RENEWALS_A_LEASE: u64 = 3;
    let weight = 1 + (bytes / BYTES_A_RENEWAL) as u64;
    weight * RENEWALS_A_LEASE * 1000 * A_RENEWAL / lease.get()
}

impl<T> Engine<T> {
    /// Checks that a request with `SESSION` can be bound: each lease is long enough to be extended in time, and their
    /// renewals keep the limit.
    pub(super) fn check_session<'n>(
        &self,
        call: Call<'_>,
        ask: &Ask,
        holds: impl IntoIterator<Item = (Name<'n>, Lease)>,
    ) -> Result<(), Fault> {
        if !ask.binds {
            return Ok(());
        }
        let mut more = 0;
        for (name, lease) in holds {
            if !lease.can_be_bound() {
                return Err(Fault::SessionLease);
            }
            if name.key.len() > MAX_BOUND_KEY {
                return Err(Fault::SessionKey);
            }
            let record = self.find(name).and_then(|id| self.records.get(id));
            let own = record.map_or(0, |record| record.bound.load_for(call.client, &ask.owner, ask.want.mode()));
            more += load_of(lease, name.key.len() + ask.owner.heap_bytes()).saturating_sub(own);
        }
        self.check_load(call.client, more)
    }

    /// Checks the same of a request that is not granted now. `own` is the lease of the hold that it would enter again.
    pub(super) fn check_waiting(
        &self,
        call: Call<'_>,
        names: &[Name<'_>],
        ask: &Ask,
        own: Option<Lease>,
    ) -> Result<(), Fault> {
        let lease = match ask.lease {
            LeaseChoice::For(lease) => lease,
            LeaseChoice::Own | LeaseChoice::Until(_) => own.unwrap_or(self.settings.default_lease),
        };
        self.check_session(call, ask, names.iter().map(|name| (*name, lease)))
    }

    /// Checks a renewal of a hold that is bound to this client, or will be.
    pub(super) fn check_renewed(&self, client: ClientId, name: Name<'_>, hold: &Hold) -> Result<(), Fault> {
        if name.key.len() > MAX_BOUND_KEY {
            return Err(Fault::SessionKey);
        }
        let record = self.find(name).and_then(|id| self.records.get(id));
        let own = record.map_or(0, |record| record.bound.load_for(client, &hold.owner, hold.mode));
        let load = load_of(hold.lease, name.key.len() + hold.owner.heap_bytes());
        self.check_load(client, load.saturating_sub(own))
    }

    fn check_load(&self, client: ClientId, more: Load) -> Result<(), Fault> {
        let load = self.clients.get(&client).map_or(0, |holds| holds.load);
        if more > 0 && load + more > MAX_RENEWALS * A_RENEWAL { Err(Fault::SessionLoad) } else { Ok(()) }
    }

    /// When a hold on this lock is extended, and what that costs.
    pub(super) fn renewal(&mut self, id: RecordId, hold: &Hold) -> Renewal {
        let bytes = self.records.get(id).map_or(0, |record| record.key.len()) + hold.owner.heap_bytes();
        Renewal::of(hold, self.random(), load_of(hold.lease, bytes))
    }

    /// Takes over what has changed in the loads of clients with holds on this lock.
    pub(super) fn note_loads(&mut self, id: RecordId) {
        if let Some(record) = self.records.get_mut(id) {
            let changes = record.bound.take_load_changes();
            self.add_loads(changes);
        }
    }

    /// Sessions that have ended have no load any more.
    pub(super) fn add_loads(&mut self, changes: SmallVec<[(ClientId, i64); 2]>) {
        for (client, change) in changes {
            if let Some(holds) = self.clients.get_mut(&client) {
                holds.load = holds.load.saturating_add_signed(change);
                if holds.records.is_empty() && holds.load == 0 {
                    self.clients.remove(&client);
                }
            }
        }
    }
}
