//! Which servers are asked.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use dlock_client::{Client, Error, Tls};

use crate::args::duration;

/// The server, or the servers of a quorum.
#[derive(Args)]
pub struct Servers {
    /// The URL of the server, or those of a quorum.
    // The help stands apart: rustdoc would take its brackets for links.
    #[arg(short, long, global = true, value_name = "URL", env = "DLOCK_URL", hide_env_values = true, help = URLS)]
    #[arg(value_delimiter = ' ', default_value = "redis://127.0.0.1:6379")]
    pub server: Vec<String>,

    /// The longest lease that any client uses, the same everywhere (quorum only)
    #[arg(long, global = true, value_name = "TIME", env = "DLOCK_LONGEST_LEASE", value_parser = duration)]
    pub longest_lease: Option<Duration>,

    /// How long a server has to answer (quorum only) [default: 100ms]
    #[arg(long, global = true, value_name = "TIME", env = "DLOCK_SERVER_TIMEOUT", value_parser = duration)]
    pub server_timeout: Option<Duration>,

    /// All servers run with appendfsync always, so they count as soon as they are up (quorum only)
    #[arg(long, global = true)]
    pub persistent: bool,

    /// Trust this certificate authority (PEM) instead of those that the system trusts (rediss:// only)
    #[arg(long, global = true, value_name = "FILE", env = "DLOCK_CACERT")]
    pub cacert: Option<PathBuf>,

    /// The user for the Sentinels, with --sentinel-password [default: the default user]
    #[arg(long, global = true, value_name = "USER", env = "DLOCK_SENTINEL_USER", requires = "sentinel_password")]
    pub sentinel_user: Option<String>,

    /// The password for the Sentinels. Other users see it in the list of processes, unless it is in the environment
    #[arg(long, global = true, value_name = "PASSWORD", env = "DLOCK_SENTINEL_PASSWORD", hide_env_values = true)]
    pub sentinel_password: Option<String>,

    /// Trust this certificate authority (PEM) for Sentinels that use TLS
    #[arg(long, global = true, value_name = "FILE", env = "DLOCK_SENTINEL_CACERT")]
    pub sentinel_cacert: Option<PathBuf>,

    /// The certificate to present to a server that asks for one (PEM; rediss:// only)
    #[arg(long, global = true, value_name = "FILE", env = "DLOCK_CERT")]
    pub cert: Option<PathBuf>,

    /// The key of that certificate (PEM; rediss:// only)
    #[arg(long, global = true, value_name = "FILE", env = "DLOCK_KEY")]
    pub key: Option<PathBuf>,
}

impl Servers {
    /// Returns a client of them.
    pub fn open(&self) -> Result<Client, Error> {
        if let [server] = self.server.as_slice() {
            return self.one(server);
        }
        let mut quorum = Client::quorum(self.server.iter().cloned(), self.longest()?);
        if let Some(timeout) = self.server_timeout {
            quorum = quorum.server_timeout(timeout);
        }
        if self.persistent {
            quorum = quorum.persistent();
        }
        if let Some(tls) = self.tls()? {
            quorum = quorum.tls(tls);
        }
        quorum.open()
    }

    /// Returns the longest lease, which a quorum needs.
    pub fn longest(&self) -> Result<Duration, Error> {
        self.longest_lease.ok_or_else(|| {
            let why = "several servers are a quorum, which needs --longest-lease TIME, the same everywhere";
            Error::Invalid(why.to_owned())
        })
    }

    /// Returns a client of each of them, even if they are a quorum.
    pub fn each(&self) -> Result<Vec<Client>, Error> {
        self.server.iter().map(|server| self.one(server)).collect()
    }

    fn one(&self, server: &str) -> Result<Client, Error> {
        let mut client = Client::builder(server);
        if let Some(tls) = self.tls()? {
            client = client.tls(tls);
        }
        if let Some(password) = &self.sentinel_password {
            client = client.sentinel_login(self.sentinel_user.as_deref(), password);
        }
        if let Some(ca) = &self.sentinel_cacert {
            client = client.sentinel_tls(Tls::new().ca(read(ca)?));
        }
        client.open()
    }

    /// Returns the certificates, if any are named.
    fn tls(&self) -> Result<Option<Tls>, Error> {
        let mut tls = Tls::new();
        if let Some(ca) = &self.cacert {
            tls = tls.ca(read(ca)?);
        }
        match (&self.cert, &self.key) {
            (Some(certificate), Some(key)) => tls = tls.identity(read(certificate)?, read(key)?),
            (None, None) if self.cacert.is_none() => return Ok(None),
            (None, None) => {}
            _ => return Err(Error::Invalid("--cert FILE and --key FILE go together".to_owned())),
        }
        Ok(Some(tls))
    }
}

const URLS: &str = "\
redis://[user:password@]host[:port][/db] (rediss:// for TLS), any nodes of a cluster (redis://host,host), or \
redis-sentinel://host[:26379][,host…]/name[/db]. Several (-s URL -s URL -s URL, or separated by blanks in the \
environment) are a quorum of independent servers, named in the same order everywhere";

fn read(file: &Path) -> Result<Vec<u8>, Error> {
    std::fs::read(file).map_err(|error| Error::Invalid(format!("{}: {error}", file.display())))
}
