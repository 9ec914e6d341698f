//! Sentinels: processes of the server's program that monitor a primary, and promote a replica when the primary is down.

use std::fs;
use std::path::Path;
use std::process::Child;

use redis::Value;
use tempfile::TempDir;

use crate::client::Client;
use crate::process::{free_port, sentinel_command, signal, spawn};
use crate::replica::info_field;
use crate::server::Server;
use crate::wait::soon;
use crate::wire::{list_of, text_of};

/// The name by which the Sentinels know the primary and its replicas.
pub const NAME: &str = "locks";

/// Three Sentinels, two of which must agree, or a single one.
pub struct Sentinels(Vec<Sentinel>);

struct Sentinel {
    home: TempDir,
    port: u16,
    child: Child,
}

impl Sentinels {
    /// Starts three Sentinels for a primary, and waits until they know its replicas and each other.
    #[track_caller]
    pub fn watch(primary: &Server, replicas: usize) -> Self {
        Self::watch_at(primary.port(), replicas)
    }

    /// Starts three Sentinels for a primary at this port, which may be the port of a proxy.
    #[track_caller]
    pub fn watch_at(primary: u16, replicas: usize) -> Self {
        let sentinels = Self((0..3).map(|_| Sentinel::start(primary, 2, "")).collect());
        for port in sentinels.ports() {
            let mut client = Client::connect(port).expect("a sentinel");
            let known = format!("slaves={replicas},sentinels=3");
            soon("the sentinels know the replicas and each other", || {
                info_field(&mut client, "sentinel", "master0").is_some_and(|field| field.contains(&known))
            });
        }
        sentinels
    }

    /// Raises the time after which the Sentinels count a silent server as down to 20 seconds.
    pub fn patient(&self) {
        for port in self.ports() {
            let mut client = Client::connect(port).expect("a sentinel");
            client.ok(format!("SENTINEL SET {NAME} down-after-milliseconds 20000"));
        }
    }

    /// Starts a single Sentinel, which decides alone, with more lines in its configuration.
    #[track_caller]
    pub fn one(primary: &Server, more: &str) -> Self {
        Self(vec![Sentinel::start(primary.port(), 1, more)])
    }

    /// Stops the processes (`SIGSTOP`).
    pub fn freeze(&self) {
        self.0.iter().for_each(|sentinel| signal(&sentinel.child, libc::SIGSTOP));
    }

    pub fn ports(&self) -> Vec<u16> {
        self.0.iter().map(|sentinel| sentinel.port).collect()
    }

    /// Asks a Sentinel for the port of the primary.
    pub fn primary(sentinel: u16) -> Option<u16> {
        let mut client = Client::connect(sentinel).ok()?;
        let address = client.ask(format!("SENTINEL GET-MASTER-ADDR-BY-NAME {NAME}"))?;
        match address {
            Value::Nil => None,
            address => text_of(&list_of(&address)[1]).parse().ok(),
        }
    }
}

impl Sentinel {
    #[track_caller]
    fn start(primary: u16, quorum: usize, more: &str) -> Self {
        for _ in 0..20 {
            match Self::try_start(primary, quorum, more) {
                Ok(sentinel) => return sentinel,
                Err(log) => assert!(log.contains("Address already in use"), "the sentinel did not start:\n{log}"),
            }
        }
        panic!("no free port");
    }

    /// Starts a Sentinel. If it ends instead, returns its log.
    #[track_caller]
    fn try_start(primary: u16, quorum: usize, more: &str) -> Result<Self, String> {
        let home = tempfile::Builder::new().prefix("dlock-sentinel-").tempdir().expect("a temporary directory");
        let port = free_port();
        let conf = format!("{}{more}\n", conf(home.path(), port, primary, quorum));
        fs::write(home.path().join("redis.conf"), conf).expect("a writable directory");
        let mut sentinel = Self { child: spawn(sentinel_command(home.path())), home, port };
        let mut ended = false;
        soon("the sentinel answers", || {
            ended = sentinel.child.try_wait().expect("a process that can be waited for").is_some();
            ended || sentinel.answers()
        });
        if ended { Err(sentinel.log()) } else { Ok(sentinel) }
    }

    /// Returns whether this Sentinel, and not another process on the port, answers.
    fn answers(&self) -> bool {
        let Ok(mut client) = Client::connect(self.port) else { return false };
        let Some(info) = client.ask("INFO server") else { return false };
        text_of(&info).contains(&format!("config_file:{}", self.home.path().display()))
    }

    fn log(&self) -> String {
        fs::read_to_string(self.home.path().join("sentinel.log")).unwrap_or_default()
    }
}

fn conf(home: &Path, port: u16, primary: u16, quorum: usize) -> String {
    format!(
        "port {port}\nbind 127.0.0.1\ndir {}\nlogfile sentinel.log\n\
         sentinel monitor {NAME} 127.0.0.1 {primary} {quorum}\nsentinel down-after-milliseconds {NAME} 3000\n\
         sentinel failover-timeout {NAME} 10000\nsentinel parallel-syncs {NAME} 2\n",
        home.display()
    )
}

impl Drop for Sentinel {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            eprintln!("--- sentinel on port {}:\n{}", self.port, self.log());
        }
    }
}
