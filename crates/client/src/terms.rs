//! What an acquisition asks for, what it got, and what became of it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use uuid::Uuid;

use crate::quorum::Kept;
use crate::server::Link;

/// How the lock is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    Exclusive,
    Read,
    Write,
}

/// How long to stand in line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wait {
    Not,
    AtMost(Duration),
    ForEver,
}

/// Who keeps the lease alive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Keep {
    /// This process, by renewing.
    Renewal,
    /// The server, for as long as a connection lives.
    Session,
}

/// One acquisition. Its owner is used for no other, so whatever is sent late or twice concerns this one only.
#[derive(Clone, Debug)]
pub(crate) struct Terms {
    pub name: Vec<u8>,
    pub owner: String,
    pub mode: Mode,
    pub lease: Duration,
    pub keep: Keep,
    pub wait: Wait,
}

impl Terms {
    pub fn new(name: &[u8], mode: Mode, wait: Wait) -> Self {
        let owner = Uuid::new_v4().to_string();
        Self { name: name.to_vec(), owner, mode, lease: DEFAULT_LEASE, keep: Keep::Renewal, wait }
    }
}

/// A lock that was got.
pub(crate) struct Grant {
    pub token: u64,
    /// Until when it is held if nothing is heard any more, by this process' monotonic clock.
    pub until: Instant,
    /// What the hold is bound to, if it is a session.
    pub link: Option<Link>,
    /// What a quorum knows of it.
    pub kept: Option<Arc<Kept>>,
}

/// A lock that is held.
pub(crate) struct Hold {
    pub name: Vec<u8>,
    pub owner: String,
    pub token: u64,
    pub lease: Duration,
    pub link: Option<Link>,
    pub kept: Option<Arc<Kept>>,
}

/// How one renewal went.
pub(crate) enum Renewal {
    /// Held until then, counted from when the renewal was sent.
    Until(Instant),
    /// Not held any more.
    Gone,
    /// No usable answer: the hold is as it was, or renewed without our knowing.
    Failed(String),
}

/// The lease of those who name none, the same as the server's.
const DEFAULT_LEASE: Duration = Duration::from_secs(30);
