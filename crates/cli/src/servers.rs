//! The servers that the command line names.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use dlock_client::{Client, Error, Tls};

use crate::values::duration;

/// The server, or the servers of a quorum.
#[derive(Args)]
pub struct Servers {
    /// The URL of the server, or of each server of a quorum
    // The long help stands apart: rustdoc would take its brackets for links.
    #[arg(short, long, global = true, value_name = "URL", env = "DLOCK_URL", hide_env_values = true, long_help = URLS)]
    #[arg(default_value = "redis://127.0.0.1:6379", help_heading = "Connection")]
    pub server: Vec<String>,

    /// The longest lease that any client uses, the same everywhere (quorum only)
    #[arg(long, global = true, value_name = "TIME", env = "DLOCK_LONGEST_LEASE", value_parser = duration)]
    #[arg(help_heading = QUORUM, hide = true)]
    pub longest_lease: Option<Duration>,

    /// How long a server has to answer (quorum only) [default: 100ms]
    #[arg(long, global = true, value_name = "TIME", env = "DLOCK_SERVER_TIMEOUT", value_parser = duration)]
    #[arg(help_heading = QUORUM, hide = true)]
    pub server_timeout: Option<Duration>,

    /// All servers run with appendfsync always, so they count as soon as they are up (quorum only)
    #[arg(long, global = true)]
    #[arg(help_heading = QUORUM, hide = true)]
    pub persistent: bool,

    /// Trust this certificate authority (PEM) instead of those that the system trusts (rediss:// only)
    #[arg(long, global = true, value_name = "FILE", env = "DLOCK_CACERT")]
    #[arg(help_heading = "Connection", hide_short_help = true)]
    pub cacert: Option<PathBuf>,

    /// The user for the Sentinels, with --sentinel-password [default: the default user]
    #[arg(long, global = true, value_name = "USER", env = "DLOCK_SENTINEL_USER", requires = "sentinel_password")]
    #[arg(help_heading = "Connection", hide_short_help = true)]
    pub sentinel_user: Option<String>,

    /// The password for the Sentinels
    ///
    /// Other users see it in the list of processes, unless it is in the environment.
    #[arg(long, global = true, value_name = "PASSWORD", env = "DLOCK_SENTINEL_PASSWORD", hide_env_values = true)]
    #[arg(help_heading = "Connection", hide_short_help = true)]
    pub sentinel_password: Option<String>,

    /// Trust this certificate authority (PEM) for Sentinels that use TLS
    #[arg(long, global = true, value_name = "FILE", env = "DLOCK_SENTINEL_CACERT")]
    #[arg(help_heading = "Connection", hide_short_help = true)]
    pub sentinel_cacert: Option<PathBuf>,

    /// The certificate to present to a server that asks for one (PEM; rediss:// only)
    #[arg(long, global = true, value_name = "FILE", env = "DLOCK_CERT")]
    #[arg(help_heading = "Connection", hide_short_help = true)]
    pub cert: Option<PathBuf>,

    /// The key of that certificate (PEM; rediss:// only)
    #[arg(long, global = true, value_name = "FILE", env = "DLOCK_KEY")]
    #[arg(help_heading = "Connection", hide_short_help = true)]
    pub key: Option<PathBuf>,
}

impl Servers {
    /// Returns a client of the server, or of the quorum.
    pub fn open(&self) -> Result<Client, Error> {
        let urls = self.urls()?;
        if let [server] = urls.as_slice() {
            return self.one(server);
        }
        let mut quorum = Client::quorum(urls, self.longest()?);
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

    /// Returns a client of each server, for subcommands that ask every server by itself.
    pub fn each(&self) -> Result<Vec<Client>, Error> {
        self.urls()?.into_iter().map(|server| self.one(server)).collect()
    }

    /// Returns whether several servers are named, which `run` and `agent` take for a quorum.
    pub fn are_several(&self) -> bool {
        self.urls().is_ok_and(|urls| urls.len() > 1)
    }

    /// Returns the URLs, which blanks and line ends separate. Environment files may leave some around them, too.
    pub fn urls(&self) -> Result<Vec<&str>, Error> {
        let urls: Vec<_> = self.server.iter().flat_map(|text| text.split_whitespace()).collect();
        let wrong = |why: String| Err(Error::Invalid(why));
        match urls.iter().find(|url| !url.contains("://")) {
            _ if self.server.iter().any(|text| text.trim().is_empty()) => {
                wrong("the URL of the server is empty (-s, DLOCK_URL)".to_owned())
            }
            // Does not show it: with a blank in a password, it is a piece of that.
            Some(_) => wrong(
                "the URL of a server is redis://HOST:PORT, a blank in it %20 (-s is the server; flock's is --shared)"
                    .to_owned(),
            ),
            None => Ok(urls),
        }
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

/// The heading of the options that only a quorum has. Only the help of subcommands that take a quorum shows them.
pub const QUORUM: &str = "Quorum";

const URLS: &str = "\
The URL of the server, or of each server of a quorum

redis://[user:password@]host[:port][/db] (rediss:// for TLS), any nodes of a cluster (redis://host,host), or \
redis-sentinel://host[:26379][,host…]/name[/db]. Several (-s URL -s URL -s URL, or separated by blanks in the \
environment) are a quorum of independent servers, named in the same order everywhere";

fn read(file: &Path) -> Result<Vec<u8>, Error> {
    std::fs::read(file).map_err(|error| Error::Invalid(format!("{}: {error}", file.display())))
}
