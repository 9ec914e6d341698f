//! How a program opens a client.

use std::time::Duration;

use crate::builder::ClientBuilder;
use crate::client::Client;
use crate::error::Error;
use crate::profile::Tls;
use crate::quorum::builder::QuorumBuilder;

impl Client {
    /// Returns a client, which connects when it is first needed.
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
    /// [`Error::Invalid`] if the URL cannot be understood, or needs TLS and the feature `tls` is missing.
    pub fn open(url: &str) -> Result<Self, Error> {
        Self::builder(url).open()
    }

    /// Returns a client that connects over TLS, with these certificates.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] if the URL cannot be understood or is not a TLS URL, or a certificate or the key cannot be
    /// read.
    pub fn open_with_tls(url: &str, tls: &Tls) -> Result<Self, Error> {
        Self::builder(url).tls(tls.clone()).open()
    }

    /// Begins a client with more options than a URL has: certificates, the login and the TLS settings of Sentinels, a
    /// name, credentials that change.
    pub fn builder(url: &str) -> ClientBuilder {
        ClientBuilder::new(url)
    }

    /// Begins a client of a quorum: a majority of these servers decides. They are independent primaries, none a replica
    /// of another. All clients name the same servers in the same order.
    ///
    /// `longest_lease` is the longest lease that any client of these servers asks for, and the same for all clients. A
    /// server counts as down for this time after its start, because it may have forgotten locks, unless the quorum is
    /// [`persistent`](QuorumBuilder::persistent); see `docs/quorum.md`.
    pub fn quorum<U: Into<String>>(urls: impl IntoIterator<Item = U>, longest_lease: Duration) -> QuorumBuilder {
        QuorumBuilder::new(urls.into_iter().map(Into::into).collect(), longest_lease)
    }
}
