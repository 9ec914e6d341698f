//! The client, which makes acquisitions and inspects locks.

use std::sync::Arc;

use redis::aio::MultiplexedConnection;

use crate::acquire::Acquire;
use crate::backend::Backend;
use crate::cleanup::Cleanups;
use crate::error::Error;
use crate::inspect::LockInfo;
use crate::options::{Mode, Terms, Wait};
use crate::profile::Place;
use crate::profile::Setup;
use crate::semaphore::Semaphore;
use crate::server::Server;
use crate::watch::Watch;

/// Access to the locks of a server, of the primary that Sentinel names, of a cluster, or of a quorum. Cheap to clone;
/// the clones share their connections.
#[derive(Clone, Debug)]
pub struct Client {
    backend: Backend,
}

impl Client {
    /// Takes the servers, the login and the certificates of a client of the crate `redis`. Opens connections of its
    /// own: those of the program do not report when they end, and a request that waits would block them.
    pub fn from_redis(client: &redis::Client) -> Self {
        Self::at(Place::of(client.get_connection_info()), Setup::default())
    }

    /// Does the same as [`from_redis`](Client::from_redis), but sends short commands over a connection that the program
    /// has open: requests that do not wait, renewals, releases, inspection. Waits, sessions and grants that replicas
    /// acknowledge still get connections of their own.
    ///
    /// Send no blocking command over that connection, or renewals come late. When it breaks, the client opens one of
    /// its own.
    pub fn from_connection(client: &redis::Client, connection: MultiplexedConnection) -> Self {
        let place = Place::of(client.get_connection_info());
        Self { backend: Backend::Server(Arc::new(Server::with(place, connection))) }
    }

    pub(crate) fn of(backend: Backend) -> Self {
        Self { backend }
    }

    /// Acquires the lock exclusively. Waits in the queue without limit.
    pub fn acquire(&self, name: impl AsRef<[u8]>) -> Acquire {
        self.with(name.as_ref(), Mode::Exclusive, Wait::ForEver)
    }

    /// Acquires the lock exclusively if it is free; otherwise the result is [`Error::Contention`].
    pub fn try_acquire(&self, name: impl AsRef<[u8]>) -> Acquire {
        self.with(name.as_ref(), Mode::Exclusive, Wait::Not)
    }

    /// Acquires the lock together with other readers. Waits in the queue without limit.
    pub fn read(&self, name: impl AsRef<[u8]>) -> Acquire {
        self.with(name.as_ref(), Mode::Read, Wait::ForEver)
    }

    /// Acquires the lock exclusively, for a writer among readers: the same as [`acquire`](Client::acquire), by another
    /// command.
    pub fn write(&self, name: impl AsRef<[u8]>) -> Acquire {
        self.with(name.as_ref(), Mode::Write, Wait::ForEver)
    }

    /// Returns a semaphore: all programs together hold at most `limit` permits at a time. Sends nothing.
    pub fn semaphore(&self, name: impl AsRef<[u8]>, limit: u32) -> Semaphore {
        Semaphore::new(self.backend.clone(), name.as_ref(), limit)
    }

    /// Acquires all of these locks exclusively, or none: 1 to 64, each named once. Waits in the queues of all of them
    /// until none is held, and holds nothing while it waits.
    ///
    /// Programs need not agree on an order: such requests never deadlock among themselves if their programs hold
    /// nothing else. One [`Guard`] renews and releases all of them. In a cluster, all names must be in one slot
    /// (`{account}:1`, `{account}:2`). Not offered over a quorum.
    ///
    /// [`Guard`]: crate::Guard
    pub fn acquire_all<N: AsRef<[u8]>>(&self, names: impl IntoIterator<Item = N>) -> Acquire {
        let names = names.into_iter().map(|name| name.as_ref().to_vec()).collect();
        Acquire::new(self.backend.clone(), Terms::new(names, Mode::Together, Wait::ForEver))
    }

    /// Reads the holds and the waiters of a lock, up to 1,000 of each. `None` if nobody holds it or waits for it.
    ///
    /// # Errors
    ///
    /// [`Error::Unreachable`], [`Error::Refused`], or [`Error::Invalid`] over a quorum.
    pub async fn info(&self, name: impl AsRef<[u8]>) -> Result<Option<LockInfo>, Error> {
        self.backend.info(name.as_ref()).await
    }

    /// Reads the locks whose names match a pattern (`*`, `job:*`, as in `KEYS`), in the order of their names, each with
    /// its first hold and its first waiter. In a cluster, asks all nodes.
    ///
    /// Goes through all keys of the server by `SCAN`, so the time grows with the number of keys, of locks and of other
    /// types. Locks that come or go meanwhile may be missed.
    ///
    /// # Errors
    ///
    /// [`Error::Unreachable`], [`Error::Refused`], or [`Error::Invalid`] over a quorum.
    pub async fn locks(&self, pattern: impl AsRef<[u8]>) -> Result<Vec<LockInfo>, Error> {
        self.backend.locks(pattern.as_ref()).await
    }

    /// Watches who holds a lock: reports the present holders, and then each change of them, by push messages of the
    /// server (`CLIENT TRACKING`). Observers of a leader need not poll. Opens a connection of its own.
    ///
    /// Must be called inside a tokio runtime.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] for a quorum, whose servers are looked at one by one.
    pub fn watch(&self, name: impl AsRef<[u8]>) -> Result<Watch, Error> {
        self.backend.watch(name.as_ref())
    }

    /// Takes a lock away from its owner: all holds of that owner, or the one with this token. For locks that were left
    /// behind. The owner learns of it at its next renewal. False: the owner had no such hold.
    ///
    /// # Errors
    ///
    /// [`Error::Unreachable`], [`Error::Refused`], or [`Error::Invalid`] over a quorum.
    pub async fn evict(
        &self,
        name: impl AsRef<[u8]>,
        owner: impl AsRef<[u8]>,
        token: Option<u64>,
    ) -> Result<bool, Error> {
        self.backend.evict(name.as_ref(), owner.as_ref(), token).await
    }

    /// Waits until dropped guards and acquisitions are released in the background. For a program that is about to end.
    /// A release that gets no answer is abandoned after 5 s; its hold ends with its lease.
    pub async fn settled(&self) {
        self.cleanups().settled().await;
    }

    /// Returns the releases in the background.
    pub(crate) fn cleanups(&self) -> &Cleanups {
        self.backend.cleanups()
    }

    pub(crate) fn backend(&self) -> &Backend {
        &self.backend
    }

    pub(crate) fn at(place: Place, setup: Setup) -> Self {
        Self { backend: Backend::Server(Arc::new(Server::new(place, setup))) }
    }

    fn with(&self, name: &[u8], mode: Mode, wait: Wait) -> Acquire {
        Acquire::new(self.backend.clone(), Terms::new(vec![name.to_vec()], mode, wait))
    }
}
