//! Which servers are asked.

use std::time::Duration;

use clap::Args;
use dlock_client::{Client, Error};

use crate::args::duration;

/// The server, or the servers of a quorum.
#[derive(Args)]
pub struct Servers {
    /// redis://[user:password@]host[:port][/db], any nodes of a cluster (redis://host,host), or
    /// redis-sentinel://host[:26379][,host…]/name[/db]. Several (-s URL -s URL -s URL, or separated by blanks in the
    /// environment) are a quorum of independent servers, named in the same order everywhere.
    #[arg(short, long, global = true, value_name = "URL", env = "DLOCK_URL", hide_env_values = true)]
    #[arg(value_delimiter = ' ', default_value = "redis://127.0.0.1:6379")]
    pub server: Vec<String>,

    /// Of a quorum: the longest lease that anybody asks for, the same everywhere
    #[arg(long, global = true, value_name = "TIME", env = "DLOCK_LONGEST_LEASE", value_parser = duration)]
    pub longest_lease: Option<Duration>,

    /// Of a quorum: how long a server has to answer [default: 100ms]
    #[arg(long, global = true, value_name = "TIME", env = "DLOCK_SERVER_TIMEOUT", value_parser = duration)]
    pub server_timeout: Option<Duration>,

    /// Of a quorum: all servers run with appendfsync always, so they count as soon as they are up
    #[arg(long, global = true)]
    pub persistent: bool,
}

impl Servers {
    /// A client of them.
    pub fn open(&self) -> Result<Client, Error> {
        if let [server] = self.server.as_slice() {
            return Client::open(server);
        }
        let longest = self.longest_lease.ok_or_else(|| {
            Error::Invalid(
                "several servers are a quorum, which needs --longest-lease TIME, the same everywhere".to_owned(),
            )
        })?;
        let mut quorum = Client::quorum(self.server.iter().cloned(), longest);
        if let Some(timeout) = self.server_timeout {
            quorum = quorum.server_timeout(timeout);
        }
        if self.persistent {
            quorum = quorum.persistent();
        }
        quorum.open()
    }
}
