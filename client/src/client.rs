//! Where locks are asked for.

use std::sync::Arc;

use crate::acquire::Acquire;
use crate::address::Place;
use crate::backend::Backend;
use crate::error::Error;
use crate::server::Server;
use crate::terms::{Mode, Terms, Wait};

/// Access to the locks of a server, of what Sentinel watches, or of a cluster. Cheap to clone; the clones share their
/// connections.
#[derive(Clone)]
pub struct Client {
    backend: Backend,
}

impl Client {
    /// Connects when it is first needed.
    ///
    /// ```text
    /// redis://[user:password@]host[:port][,host[:port]…][/db]      a server, or any nodes of a cluster
    /// redis-sentinel://[user:password@]host[:port][,…]/name[/db]   the primary that Sentinel knows by that name
    /// unix:///path/to/socket
    /// ```
    ///
    /// `rediss` instead of `redis` for TLS (feature `tls`); `valkey` and `valkeys` mean the same. User and password are
    /// the servers', not the Sentinels'.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] if the URL cannot be understood.
    pub fn open(url: &str) -> Result<Self, Error> {
        let server = Server::new(Place::parse(url)?);
        Ok(Self { backend: Backend::Server(Arc::new(server)) })
    }

    /// The lock for oneself alone, standing in line for as long as it takes.
    pub fn acquire(&self, name: impl AsRef<[u8]>) -> Acquire {
        self.with(name.as_ref(), Mode::Exclusive, Wait::ForEver)
    }

    /// The lock for oneself alone if it is free: otherwise [`Error::Contention`].
    pub fn try_acquire(&self, name: impl AsRef<[u8]>) -> Acquire {
        self.with(name.as_ref(), Mode::Exclusive, Wait::Not)
    }

    /// The lock together with other readers, standing in line for as long as it takes.
    pub fn read(&self, name: impl AsRef<[u8]>) -> Acquire {
        self.with(name.as_ref(), Mode::Read, Wait::ForEver)
    }

    /// The lock for oneself alone, among readers. The same as [`acquire`](Client::acquire), by another command.
    pub fn write(&self, name: impl AsRef<[u8]>) -> Acquire {
        self.with(name.as_ref(), Mode::Write, Wait::ForEver)
    }

    fn with(&self, name: &[u8], mode: Mode, wait: Wait) -> Acquire {
        Acquire::new(self.backend.clone(), Terms::new(name, mode, wait))
    }
}
