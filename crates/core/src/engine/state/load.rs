//! The limits on the cost of sessions: the watchdog's renewals of one connection have a limit, and so have those of all
//! named sessions of a user together.
//!
//! The server extends each bound hold three times in a lease, and replicates the name of the key each time. A client
//! that binds many holds with short leases, or holds on keys with long names, would keep the server and its replication
//! busy forever without sending anything. The client's own request is refused instead.

use crate::Lease;

/// The most renewals in a second for the holds of one connection, or of all named sessions of a user.
pub const MAX_RENEWALS: u64 = 20_000;
/// A renewal of a hold counts once, and once more for every this many bytes of the hold's key and owner together.
pub const BYTES_A_RENEWAL: usize = 128;

/// A thousandth of a renewal a second.
pub(crate) type Load = u64;
const A_RENEWAL: Load = 1000;
/// The load that one connection, or a user's named sessions, may have.
pub(crate) const MAX_LOAD: Load = MAX_RENEWALS * A_RENEWAL;

/// Returns the load of a bound hold.
pub(crate) fn load_of(lease: Lease, bytes: usize) -> Load {
    const RENEWALS_A_LEASE: u64 = 3;
    let weight = 1 + (bytes / BYTES_A_RENEWAL) as u64;
    weight * RENEWALS_A_LEASE * 1000 * A_RENEWAL / lease.get()
}
