//! Locks that one primary decides on.
//!
//! Everything may be sent again when a connection breaks, because:
//!
//! - each acquisition has an owner of its own and a `REQUEST`, so the repeat of one that was granted gets its token,
//!   and the repeat of one that waits takes its place;
//! - each renewal and release names the `TOKEN`, so a late one affects no other hold: an upgrade does not enter the hold
//!   of an earlier one again (see [`Upgrades::begin`](crate::upgrade::Upgrades::begin));
//! - an acquisition that is abandoned with an unknown outcome is released by the name of its owner. The next upgrade
//!   waits until no such release can come any more (see `releasing`).

mod acquire;
mod admin;
mod commands;
pub(crate) mod fault;
mod hold;
mod in_flight;
pub(crate) mod link;
pub(crate) mod nodes;
mod observe;
mod releasing;
mod replicated;
mod sessions;
mod slot;
mod stay;
mod survey;

use redis::aio::MultiplexedConnection;

use crate::cleanup::Cleanups;
use crate::profile::{Place, Setup};
use nodes::Nodes;
pub(crate) use releasing::LATEST;

pub(crate) struct Server {
    nodes: Nodes,
    pub cleanups: Cleanups,
}

impl Server {
    pub fn new(place: Place, setup: Setup) -> Self {
        Self { nodes: Nodes::new(place, setup), cleanups: Cleanups::default() }
    }

    /// Sends short commands over this connection as long as it works.
    pub fn with(place: Place, connection: MultiplexedConnection) -> Self {
        Self { nodes: Nodes::with(place, connection), cleanups: Cleanups::default() }
    }

    /// Returns the place and the login of the URL.
    pub fn origin(&self) -> (&Place, &Setup) {
        self.nodes.origin()
    }
}
