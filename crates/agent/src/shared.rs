//! The state that all connections of the agent share.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use crate::options::Options;
use crate::pass::Pass;
use crate::quorum::Quorum;
use crate::stats::Stats;

/// The state that all connections of the agent share.
pub(crate) struct Shared {
    pub options: Options,
    pub locks: Locks,
    pub stats: Arc<Stats>,
    /// The number of the next connection.
    pub numbers: AtomicU64,
}

/// The servers that keep the locks.
#[derive(Clone)]
pub(crate) enum Locks {
    Quorum(Arc<Quorum>),
    /// A server, or a primary that Sentinels know, to which commands are passed on.
    Passed(Arc<Pass>),
}

impl Shared {
    /// Returns the agent's section of `INFO`.
    pub fn info(&self) -> String {
        let (mode, (holds, sessions)) = match &self.locks {
            Locks::Quorum(quorum) => ("quorum", quorum.sizes()),
            Locks::Passed(_) => ("passing", (0, 0)),
        };
        self.stats.section(mode, holds, sessions)
    }

    /// Returns the page for Prometheus.
    pub fn page(&self) -> String {
        let (holds, sessions) = match &self.locks {
            Locks::Quorum(quorum) => quorum.sizes(),
            Locks::Passed(_) => (0, 0),
        };
        self.stats.page(holds, sessions)
    }
}
