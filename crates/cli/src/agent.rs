//! The subcommand `dlock agent`: its options, and how it runs.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use dlock_agent::{Agent, Listen, Options};
use dlock_client::Error;

use crate::output::say;
use crate::servers::Servers;
use crate::signals::Signals;
use crate::values::duration;
use crate::{exit, fail};

/// `dlock agent`.
#[derive(Args)]
pub struct AgentOptions {
    /// Where clients connect: unix:/path/to/socket, or 127.0.0.1:6390; may be given several times
    #[arg(long, required = true, value_name = "ADDRESS")]
    listen: Vec<Listen>,

    /// The permissions of the Unix socket, in octal
    #[arg(long, value_name = "MODE", default_value = "600", value_parser = mode)]
    socket_mode: u32,

    /// Listen on an address that other machines reach, without encryption; needs a password
    #[arg(long)]
    remote: bool,

    /// The user that clients log in as, if there is a password
    #[arg(long, value_name = "USER", default_value = "default", env = "DLOCK_AGENT_USER")]
    user: String,

    /// The file with the password that clients log in with. Another way is the environment: DLOCK_AGENT_PASSWORD
    #[arg(long, value_name = "FILE")]
    password_file: Option<PathBuf>,

    /// How many clients may be connected
    #[arg(long, value_name = "N", default_value_t = 4096)]
    max_clients: usize,

    /// How many locks may be held (quorum only): one takes 13 kB of memory, and more with a long name
    #[arg(long, value_name = "N", default_value_t = 20_000)]
    max_holds: usize,

    /// Disconnect a client that is silent for this long [default: never, since a connection may be a session]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    idle: Option<Duration>,

    /// Serve metrics to Prometheus at http://ADDRESS/metrics
    #[arg(long, value_name = "ADDRESS")]
    metrics: Option<SocketAddr>,

    /// Leave locks to their leases when the agent stops, instead of releasing them (quorum only)
    #[arg(long)]
    keep: bool,

    /// Log clients that connect and leave
    #[arg(long)]
    verbose: bool,
}

/// Runs the agent until a signal ends it. Returns the exit code.
pub async fn agent(servers: &Servers, options: AgentOptions) -> Result<u8, Error> {
    let options = options.read()?;
    let log = |line: &str| say(&format!("dlock agent: {line}"));
    let agent = match servers.are_several() {
        false => Agent::passing(servers.open()?, options, log)?,
        true => Agent::of_quorum(servers.open()?, &servers.each()?, servers.longest()?, options, log)?,
    };
    let stop = match Signals::take() {
        Ok(signals) => signals.asked_to_end(),
        Err(error) => return Ok(fail(exit::UNAVAILABLE, &error.to_string())),
    };
    match agent.run(stop).await {
        Ok(()) => Ok(0),
        Err(error) => Ok(fail(exit::UNAVAILABLE, &error.to_string())),
    }
}

impl AgentOptions {
    fn read(self) -> Result<Options, Error> {
        let password = self.password_file.as_deref();
        let login = Login { user: &self.user, file: password, variable: "DLOCK_AGENT_PASSWORD" }.read()?;
        let mut options = Options::new(self.listen);
        options.socket_mode = self.socket_mode;
        options.remote = self.remote;
        options.login = login;
        options.max_clients = self.max_clients;
        options.max_holds = self.max_holds;
        options.idle = self.idle;
        options.metrics = self.metrics;
        options.keep = self.keep;
        options.verbose = self.verbose;
        Ok(options)
    }
}

/// The user that clients log in as, and where the password of that user is.
pub struct Login<'a> {
    pub user: &'a str,
    pub file: Option<&'a Path>,
    /// The environment variable that has the password, if there is no file.
    pub variable: &'a str,
}

impl Login<'_> {
    /// Reads the password. `None`: there is none, and clients do not log in.
    pub fn read(&self) -> Result<Option<dlock_agent::Login>, Error> {
        let password = match self.file {
            Some(file) => std::fs::read_to_string(file)
                .map(Some)
                .map_err(|error| Error::Invalid(format!("{}: {error}", file.display())))?,
            None => std::env::var(self.variable).ok(),
        };
        match password.as_deref().map(|password| password.trim_end_matches(['\r', '\n'])) {
            None => Ok(None),
            // An empty password is a mistake: without this error, every client would get in.
            Some("") => Err(Error::Invalid("the password for clients is empty".to_owned())),
            Some(password) => {
                Ok(Some(dlock_agent::Login { user: self.user.to_owned(), password: password.to_owned() }))
            }
        }
    }
}

/// Reads the permissions of a socket.
pub fn mode(text: &str) -> Result<u32, String> {
    match u32::from_str_radix(text, 8) {
        Ok(mode) if mode <= 0o777 => Ok(mode),
        _ => Err("an octal number, such as 660".to_owned()),
    }
}
