//! `dlock serve`: its options, and a server of the crate `dlock_agent` that runs with them.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Args;
use dlock_agent::{Certificates, Listen, Serve, ServeOptions};
use dlock_client::Error;

use crate::agent::{Login, mode};
use crate::output::{print, say};
use crate::signals::Signals;
use crate::{exit, fail};

/// `dlock serve`.
#[derive(Args)]
pub struct Options {
    /// Where clients connect: 127.0.0.1:6380, or unix:/path/to/socket; may be given several times [default: 127.0.0.1:6380]
    #[arg(long, value_name = "ADDRESS")]
    listen: Vec<Listen>,

    /// Listen on this port of 127.0.0.1; 0: on a free one
    #[arg(long, value_name = "PORT", conflicts_with = "listen")]
    port: Option<u16>,

    /// Write the port to standard output once clients can connect
    #[arg(long)]
    print_port: bool,

    /// The permissions of the Unix socket, in octal
    #[arg(long, value_name = "MODE", default_value = "600", value_parser = mode)]
    socket_mode: u32,

    /// Listen on an address that other machines reach; needs a password
    #[arg(long)]
    remote: bool,

    /// The user that clients log in as, if there is a password
    #[arg(long, value_name = "USER", default_value = "default", env = "DLOCK_SERVE_USER")]
    user: String,

    /// The file with the password that clients log in with. Another way is the environment: DLOCK_SERVE_PASSWORD
    #[arg(long, value_name = "FILE")]
    password_file: Option<PathBuf>,

    /// The certificate of the server (PEM, with its chain): clients speak TLS, except on a Unix socket
    #[arg(long, value_name = "FILE", requires = "tls_key", env = "DLOCK_SERVE_TLS_CERT")]
    tls_cert: Option<PathBuf>,

    /// The key of that certificate (PEM)
    #[arg(long, value_name = "FILE", requires = "tls_cert", env = "DLOCK_SERVE_TLS_KEY")]
    tls_key: Option<PathBuf>,

    /// Ask each client for a certificate of this authority (PEM)
    #[arg(long, value_name = "FILE", requires = "tls_cert", env = "DLOCK_SERVE_TLS_CA")]
    tls_ca: Option<PathBuf>,

    /// A setting of the module without its prefix, such as max-hold=60000; may be given several times
    #[arg(long, value_name = "NAME=VALUE")]
    set: Vec<String>,

    /// How many clients may be connected
    #[arg(long, value_name = "N", default_value_t = 10_000)]
    max_clients: usize,

    /// Refuse to grant more locks once the server uses this much memory
    #[arg(long, value_name = "MB", default_value_t = 1024)]
    max_memory: u64,

    /// For tests: clients may move the clock on (DLOCK.CLOCK ADVANCE milliseconds), and leases end without waiting
    #[arg(long)]
    test_clock: bool,

    /// Log clients that connect
    #[arg(long)]
    verbose: bool,
}

/// Serves until a signal asks the process to end. Returns the exit code.
pub async fn serve(options: Options) -> Result<u8, Error> {
    let prints_port = options.print_port;
    let options = options.read()?;
    let log = |line: &str| say(&format!("dlock serve: {line}"));
    let stop = match Signals::take() {
        Ok(signals) => signals.asked_to_end(),
        Err(error) => return Ok(fail(exit::UNAVAILABLE, &error.to_string())),
    };
    let ready = |port: Option<u16>| {
        if let Some(port) = port.filter(|_| prints_port) {
            print(&port.to_string());
        }
    };
    match Serve::new(options, log).run(stop, ready).await {
        Ok(()) => Ok(0),
        Err(error) => Ok(fail(exit::UNAVAILABLE, &error.to_string())),
    }
}

impl Options {
    fn read(self) -> Result<ServeOptions, Error> {
        let listen = match self.port {
            None if self.listen.is_empty() => vec![Listen::Tcp(SocketAddr::from(([127, 0, 0, 1], PORT)))],
            None => self.listen,
            Some(port) => vec![Listen::Tcp(SocketAddr::from(([127, 0, 0, 1], port)))],
        };
        let mut options = ServeOptions::new(listen);
        for setting in &self.set {
            let (name, value) = setting.split_once('=').ok_or_else(|| invalid(setting, "NAME=VALUE"))?;
            options.set(name, value).map_err(|why| invalid(setting, &why))?;
        }
        let login = Login { user: &self.user, file: self.password_file.as_deref(), variable: "DLOCK_SERVE_PASSWORD" };
        options.login = login.read()?;
        options.socket_mode = self.socket_mode;
        options.remote = self.remote;
        let pair = self.tls_cert.zip(self.tls_key);
        options.tls = pair.map(|(cert, key)| Certificates { cert, key, ca: self.tls_ca });
        options.max_clients = self.max_clients;
        options.max_memory = self.max_memory.saturating_mul(1 << 20);
        options.test_clock = self.test_clock;
        options.verbose = self.verbose;
        Ok(options)
    }
}

fn invalid(setting: &str, why: &str) -> Error {
    Error::Invalid(format!("--set {setting}: {why}"))
}

/// The default port: the one after that of Redis, which may run on the same machine.
const PORT: u16 = 6380;
