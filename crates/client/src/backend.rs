//! The seam between guards and servers.
//!
//! Guards know leases, monotonic time and loss; a backend knows how to take, renew and release one hold. A backend
//! promises:
//!
//! - `acquire` that fails, or is dropped half-way, leaves nothing held for longer than a lease, and does what it can to
//!   leave nothing at all;
//! - the times it returns are counted from when the command was *sent*, so they are never later than the server's;
//! - `renew` is one attempt: when to try again is the guard's business;
//! - `release` may be repeated and come late, and never touches another hold.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::cleanup::Cleanups;
use crate::error::Error;
use crate::holding::{Grant, Hold};
use crate::inspect::LockInfo;
use crate::named;
use crate::options::Terms;
use crate::quorum::Quorum;
use crate::renewal::Renewal;
use crate::server::Server;
use crate::server::fault::Fault;
use crate::session::Session;
use crate::watch::Watch;

/// Where locks are kept.
#[derive(Clone)]
pub(crate) enum Backend {
    /// A primary decides: a server, the primary that Sentinel names, or the primary of the lock's cluster slot.
    Server(Arc<Server>),
    /// A majority of independent servers decides.
    Quorum(Arc<Quorum>),
}

impl Backend {
    pub async fn acquire(&self, terms: &Terms) -> Result<Grant, Error> {
        match self {
            // Boxed, because this future is several times as large as that of a quorum, and both would take its size.
            Self::Server(server) => Box::pin(server.clone().acquire(terms)).await,
            Self::Quorum(quorum) => quorum.clone().acquire(terms).await,
        }
    }

    /// Asks once how long a hold lasts. Over a quorum, renews it instead.
    pub async fn look(&self, hold: &Hold, within: Duration) -> Renewal {
        match self {
            Self::Server(server) => server.look(hold, within).await,
            Self::Quorum(_) => self.renew(hold, hold.lease, within).await,
        }
    }

    /// Tries once to renew a hold.
    pub async fn renew(&self, hold: &Hold, lease: Duration, within: Duration) -> Renewal {
        match self {
            Self::Server(server) => server.renew(hold, lease, within).await,
            Self::Quorum(_) => match &hold.kept {
                Some(kept) => kept.renew().await,
                None => Renewal::Gone,
            },
        }
    }

    /// Releases the hold, and tries again until `until`, when it has lapsed. `was_held`: the server certainly
    /// had the hold before. [`Error::Lost`]: the hold had ended.
    pub async fn release(&self, hold: &Hold, was_held: bool, until: Instant) -> Result<(), Error> {
        match self {
            Self::Server(server) => server.release(hold, was_held, until).await,
            Self::Quorum(_) => match &hold.kept {
                Some(kept) => kept.release().await,
                None => Err(Error::Lost),
            },
        }
    }

    /// Sets the end of the hold to `end`, and tries again until `until`. [`Error::Lost`]: the hold had ended.
    pub async fn stay(&self, hold: &Hold, end: Instant, until: Instant) -> Result<(), Error> {
        match self {
            Self::Server(server) => server.stay(hold, end, until).await,
            Self::Quorum(_) => Err(no_stay()),
        }
    }

    /// Tries once to bind the hold of a session again, after its connection has ended.
    pub async fn bind(&self, hold: &Hold, session: &Session) -> Renewal {
        match self {
            Self::Server(server) => server.bind(hold, session).await,
            Self::Quorum(_) => Renewal::Failed(Fault::Refused("a quorum has no sessions".into())),
        }
    }

    /// Returns whether a session is on this server.
    pub fn has(&self, session: &named::Inner) -> bool {
        matches!(self, Self::Server(server) if session.is_of(server))
    }

    /// Returns the releases that run in the background.
    pub fn cleanups(&self) -> &Cleanups {
        match self {
            Self::Server(server) => &server.cleanups,
            Self::Quorum(quorum) => &quorum.cleanups,
        }
    }

    /// Returns the server, unless it is a quorum.
    pub fn server(&self) -> Result<&Arc<Server>, Error> {
        match self {
            Self::Server(server) => Ok(server),
            Self::Quorum(_) => Err(one_by_one()),
        }
    }

    /// Reads a lock with all its holds and waiters.
    pub async fn info(&self, name: &[u8]) -> Result<Option<LockInfo>, Error> {
        match self {
            Self::Server(server) => server.info(name).await,
            Self::Quorum(_) => Err(one_by_one()),
        }
    }

    /// Reads the locks whose names match, by name.
    pub async fn locks(&self, pattern: &[u8]) -> Result<Vec<LockInfo>, Error> {
        match self {
            Self::Server(server) => server.locks(pattern).await,
            Self::Quorum(_) => Err(one_by_one()),
        }
    }

    /// Watches the holders of a lock.
    pub fn watch(&self, name: &[u8]) -> Result<Watch, Error> {
        match self {
            Self::Server(server) => Ok(Watch::new(server.clone(), name.to_vec())),
            Self::Quorum(_) => Err(one_by_one()),
        }
    }

    /// Releases another owner's hold. False: there was none.
    pub async fn evict(&self, name: &[u8], owner: &[u8], token: Option<u64>) -> Result<bool, Error> {
        match self {
            Self::Server(server) => server.evict(name, owner, token).await,
            Self::Quorum(_) => Err(one_by_one()),
        }
    }
}

/// Returns the error of a question that only a single server answers.
fn one_by_one() -> Error {
    Error::Invalid("the servers of a quorum are looked at one by one: name one of them".to_owned())
}

/// Returns the error of a quorum that was asked to keep a lock after its release.
pub(crate) fn no_stay() -> Error {
    Error::Invalid("a quorum does not keep a lock after its release".to_owned())
}

/// Shows the addresses without logins.
impl fmt::Debug for Backend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Server(server) => f.debug_tuple("Server").field(&server.place()).finish(),
            Self::Quorum(quorum) => f.debug_tuple("Quorum").field(&quorum.addresses()).finish(),
        }
    }
}
