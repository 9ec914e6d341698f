//! How the server runs.

use std::path::PathBuf;

use dlock_core::settings::Setting;

use crate::options::{Listen, Login};

/// The version of Redis whose protocol clients may expect.
pub(super) const REDIS_VERSION: &str = "7.2.4";

/// How many databases there are.
pub(super) const DATABASES: i32 = 16;

/// The files of certificates for TLS, each of them PEM.
#[derive(Clone, Debug)]
pub struct Certificates {
    /// The certificate of the server, with the chain that leads to its authority if there is one.
    pub cert: PathBuf,
    /// The private key of that certificate.
    pub key: PathBuf,
    /// The authorities of clients: each client has to show a certificate of one of them.
    pub ca: Option<PathBuf>,
}

/// How `dlock serve` runs.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ServeOptions {
    /// Where clients connect.
    pub listen: Vec<Listen>,
    /// The permissions of a Unix socket.
    pub socket_mode: u32,
    /// Whether an address may be one that other machines reach. Needs a login.
    pub remote: bool,
    /// The user. `None`: every client that can connect is the user `default`.
    pub login: Option<Login>,
    /// With certificates, clients speak TLS, except on a Unix socket (feature `tls`).
    pub tls: Option<Certificates>,
    /// How many clients may be connected.
    pub max_clients: usize,
    /// The memory of the process, in bytes, above which acquisitions are refused.
    pub max_memory: u64,
    /// How many bytes of requests and replies may wait, of all clients together.
    pub max_buffers: usize,
    /// Whether clients may move the clock on.
    pub test_clock: bool,
    /// Whether to log each client that connects and leaves.
    pub verbose: bool,
    pub(super) settings: [i64; Setting::ALL.len()],
}

impl ServeOptions {
    /// Returns options to listen on these addresses. Unless set otherwise, there may be 10,000 clients and 1 GiB of
    /// memory, of which 256 MiB for requests and replies that wait.
    pub fn new(listen: Vec<Listen>) -> Self {
        Self {
            listen,
            socket_mode: 0o600,
            remote: false,
            login: None,
            tls: None,
            max_clients: 10_000,
            max_memory: 1 << 30,
            max_buffers: 256 << 20,
            test_clock: false,
            verbose: false,
            settings: Setting::ALL.map(|which| which.range().default),
        }
    }

    /// Sets one of the settings that the module has, by its name without the prefix `dlock.`.
    ///
    /// # Errors
    ///
    /// The message for the user, if there is no such setting, or the value is out of its range.
    pub fn set(&mut self, name: &str, value: &str) -> Result<(), String> {
        let which = setting(name).ok_or_else(|| format!("there is no setting {name}"))?;
        let value = in_range(which, value)?;
        if let Some(place) = self.settings.get_mut(which as usize) {
            *place = value;
        }
        Ok(())
    }
}

/// Returns the setting of this name, with the prefix or without.
pub(super) fn setting(name: &str) -> Option<Setting> {
    let name = name.to_ascii_lowercase();
    let name = name.strip_prefix("dlock.").unwrap_or(&name);
    Setting::ALL.into_iter().find(|which| which.range().name == name)
}

/// Returns the value, if it is in the range.
pub(super) fn in_range(which: Setting, value: &str) -> Result<i64, String> {
    let range = which.range();
    let number = value.parse().map_err(|_| "argument couldn't be parsed into an integer".to_owned())?;
    match (range.min..=range.max).contains(&number) {
        true => Ok(number),
        false => Err(format!("argument must be between {} and {} inclusive", range.min, range.max)),
    }
}
