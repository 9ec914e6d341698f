//! A lock that was granted, and one that is held.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::binding::{BoundHold, Ticket};
use crate::named::Binding;
use crate::options::{Keep, Mode, Replicas, Terms};
use crate::quorum::kept::Kept;
use crate::session::Session;
use crate::upgrade::{Upgrade, Upgrades};

/// A lock that was granted.
pub(crate) struct Grant {
    pub token: u64,
    /// The owner of the request that was granted. `None`: `kept` knows it.
    pub owner: Option<String>,
    /// The number of its place in the semaphore, if the request asked for one.
    pub slot: Option<u32>,
    /// Until when the lock is held if no further answer comes, by this process's monotonic clock.
    pub until: Instant,
    /// Whether a renewal got no answer: it may still be executed.
    pub is_renewal_open: bool,
    /// Whether a copy of the request got no answer: it may be executed after the release.
    pub is_request_open: bool,
    /// The connection that the hold is bound to, if it is a session.
    pub session: Option<Arc<Session>>,
    /// The named session that the request was sent with.
    pub ticket: Option<Ticket>,
    /// The hold on the servers of a quorum.
    pub kept: Option<Arc<Kept>>,
}

/// A lock that is held.
pub(crate) struct Hold {
    pub names: Vec<Vec<u8>>,
    pub owner: String,
    pub mode: Mode,
    pub token: u64,
    pub slot: Option<u32>,
    pub lease: Duration,
    pub keep: Keep,
    pub replicas: Option<Replicas>,
    pub session: Option<Arc<Session>>,
    /// The binding to a named session.
    pub binding: Option<Binding>,
    pub kept: Option<Arc<Kept>>,
    /// The upgrades of this hold.
    pub upgrades: Upgrades,
    /// The upgrade that this hold is, if it is one.
    pub upgrade: Option<Arc<Upgrade>>,
}

impl Hold {
    pub fn granted(
        terms: &Terms,
        owner: String,
        (token, slot): (u64, Option<u32>),
        session: Option<Arc<Session>>,
        kept: Option<Arc<Kept>>,
    ) -> Self {
        let Terms { lease, mode, keep, replicas, .. } = *terms;
        let (names, upgrade) = (terms.names.clone(), terms.upgrade.clone());
        let (upgrades, binding) = (Upgrades::default(), None);
        Self { names, owner, mode, token, slot, lease, keep, replicas, session, binding, kept, upgrades, upgrade }
    }

    /// Returns what a session needs to bind it again.
    pub fn bound(&self) -> BoundHold {
        BoundHold { names: self.names.clone(), owner: self.owner.clone(), token: self.token }
    }

    /// Returns the lock, or the first of several.
    pub fn name(&self) -> &[u8] {
        self.names.first().map_or(&[], Vec::as_slice)
    }
}
