//! Options of a client beyond its URL.

use std::fmt;
use std::future::Future;

use crate::client::Client;
use crate::error::Error;
use crate::profile::Tls;
use crate::profile::{Credentials, Setup};
use crate::profile::{Place, Security};

/// The options of a client that is opened later, from [`Client::builder`].
///
/// ```no_run
/// # fn example() -> Result<(), dlock_client::Error> {
/// let client = dlock_client::Client::builder("redis-sentinel://sentinel-1,sentinel-2/main")
///     .sentinel_login(Some("observer"), "secret")
///     .client_name("billing")
///     .open()?;
/// # Ok(()) }
/// ```
#[derive(Clone)]
#[must_use = "nothing happens until it is opened"]
pub struct ClientBuilder {
    url: String,
    tls: Option<Tls>,
    sentinel_login: Option<(Option<String>, String)>,
    sentinel_security: Security,
    setup: Setup,
}

impl ClientBuilder {
    pub(crate) fn new(url: &str) -> Self {
        Self {
            url: url.to_owned(),
            tls: None,
            sentinel_login: None,
            sentinel_security: Security::AsServers,
            setup: Setup::default(),
        }
    }

    /// Uses these certificates for TLS. The URL must say that the servers use TLS (`rediss://`).
    pub fn tls(mut self, tls: Tls) -> Self {
        self.tls = Some(tls);
        self
    }

    /// Logs in at the Sentinels, which have users and passwords of their own. `None`: the default user.
    pub fn sentinel_login(mut self, user: Option<&str>, password: &str) -> Self {
        self.sentinel_login = Some((user.map(str::to_owned), password.to_owned()));
        self
    }

    /// Connects to the Sentinels over TLS with these certificates, whether or not the servers use TLS.
    pub fn sentinel_tls(mut self, tls: Tls) -> Self {
        self.sentinel_security = Security::Tls(tls);
        self
    }

    /// Connects to the Sentinels without TLS, even if the servers use it.
    pub fn sentinel_plain(mut self) -> Self {
        self.sentinel_security = Security::Plain;
        self
    }

    /// Sets the name of all connections, which `CLIENT LIST` and the log of the server show. It has no blanks.
    pub fn client_name(mut self, name: &str) -> Self {
        self.setup.client_name = Some(name.to_owned());
        self
    }

    /// Asks for user and password before each new connection to a server, instead of taking them from the URL: for
    /// passwords that expire. If the provider fails, the connection counts as one that could not be made. Connections
    /// that are open stay logged in. The login of Sentinels is not affected.
    pub fn credentials<F, R>(mut self, provider: F) -> Self
    where
        F: Fn() -> R + Send + Sync + 'static,
        R: Future<Output = Result<Credentials, Box<dyn std::error::Error + Send + Sync>>> + Send + 'static,
    {
        self.setup.provide(provider);
        self
    }

    /// Returns the client, which connects when it is first needed.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] if the URL cannot be understood, an option does not go with it, or a certificate or the key
    /// cannot be read.
    pub fn open(self) -> Result<Client, Error> {
        let Self { url, tls, sentinel_login, sentinel_security, setup } = self;
        if setup.client_name.as_ref().is_some_and(|name| name.contains(|c: char| !c.is_ascii_graphic())) {
            return Err(Error::Invalid("the name of a client has no blanks and no special characters".to_owned()));
        }
        let place = Place::parse(&url)?;
        // The Sentinels may have a TLS setting of their own: `tls` then counts for the servers only.
        let place = place.with_sentinel_settings(sentinel_login.as_ref(), &sentinel_security)?;
        let place = match &tls {
            Some(tls) => place.secured(tls, matches!(sentinel_security, Security::AsServers))?,
            None => place,
        };
        Ok(Client::at(place, setup))
    }
}

impl fmt::Debug for ClientBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientBuilder").finish_non_exhaustive()
    }
}
