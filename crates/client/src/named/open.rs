//! How a program opens a session.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use super::{Inner, LONGEST, SHORTEST, Session};
use crate::backend::Backend;
use crate::client::Client;
use crate::error::Error;

impl Session {
    /// Opens a session on the client's server. When the `timeout` has passed since the last heartbeat, the server
    /// frees all locks of the session: 300 ms to one hour. Must be called inside a tokio runtime.
    ///
    /// # Errors
    ///
    /// [`Error::Unreachable`] if no server answers within a second. [`Error::Invalid`] for a quorum, or if the timeout
    /// is out of range.
    pub async fn open(client: &Client, timeout: Duration) -> Result<Self, Error> {
        Self::begin(client, timeout, false).await
    }

    /// Does the same as [`open`](Session::open), but sends heartbeats only while the program calls
    /// [`beat`](Session::beat). If the loop that works calls it, the locks are freed when that loop hangs. Each call
    /// stands for one heartbeat at most: one that fails is repeated after the next call.
    ///
    /// # Errors
    ///
    /// Returns those of [`open`](Session::open).
    pub async fn open_manual(client: &Client, timeout: Duration) -> Result<Self, Error> {
        Self::begin(client, timeout, true).await
    }

    async fn begin(client: &Client, timeout: Duration, manual: bool) -> Result<Self, Error> {
        let Backend::Server(server) = client.backend() else {
            return Err(Error::Invalid("a quorum keeps locks by renewing them, not by sessions".to_owned()));
        };
        if !(SHORTEST..=LONGEST).contains(&timeout) {
            return Err(Error::Invalid("the timeout of a session is 300 ms to one hour".to_owned()));
        }
        let inner = Arc::new(Inner::new(server.clone(), timeout, manual));
        // The future is a `dyn`, because concrete types would nest too deep for the compiler in programs.
        let open: Pin<Box<dyn Future<Output = _> + Send + '_>> = Box::pin(inner.open());
        open.await?;
        Ok(Self { inner })
    }
}
