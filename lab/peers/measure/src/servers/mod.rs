//! Servers of one system, in a folder of their own.

pub mod etcd;
pub mod postgres;
pub mod redis;
pub mod zookeeper;

use std::env;
use std::future::Future;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use tempfile::TempDir;
use tokio::time::{sleep, timeout};

use crate::processes::{Process, Usage, memory};
use crate::result::{Result, failed};

pub struct Servers {
    /// The processes in the order of the addresses. A replica of the first, which has no address here, may be the last.
    pub processes: Vec<Process>,
    /// Where the clients connect: `host:port`.
    pub addresses: Vec<String>,
    /// The version, as the servers report it.
    pub version: String,
    stops_by: Signal,
    // Dropped last, with all data.
    _folder: TempDir,
}

impl Servers {
    fn new(processes: Vec<Process>, addresses: Vec<String>, version: String, folder: TempDir) -> Self {
        Self { processes, addresses, version, stops_by: Signal::SIGKILL, _folder: folder }
    }

    pub fn usage(&self) -> Usage {
        Usage::of(&self.processes)
    }

    pub fn memory(&self) -> f64 {
        memory(&self.processes)
    }

    /// An error with the end of its log, if one of them has ended.
    pub fn must_run(&mut self) -> Result<()> {
        self.processes.iter_mut().try_for_each(Process::must_run)
    }

    /// Ends all of them.
    pub fn end(&mut self) {
        for process in &mut self.processes {
            process.end_by(self.stops_by);
        }
    }

    /// `kill -9` for this one.
    pub fn kill(&mut self, which: usize) -> Result<()> {
        match self.processes.get_mut(which) {
            Some(process) => process.kill(),
            None => failed("no such server"),
        }
    }
}

impl Drop for Servers {
    fn drop(&mut self) {
        self.end();
    }
}

/// A folder that the users of all servers may enter.
fn folder() -> Result<TempDir> {
    let folder = tempfile::Builder::new().prefix("dlock-peers-").tempdir()?;
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o755))?;
    Ok(folder)
}

/// Returns a path from the environment, absolute.
fn variable(name: &str) -> Result<String> {
    let value = env::var(name).map_err(|_| format!("{name} is not set: `make bench-peers` sets it"))?;
    // Symbolic links are not resolved: the name of a server's program decides what it does.
    Ok(std::path::absolute(PathBuf::from(value))?.to_string_lossy().into_owned())
}

/// Asks until there is an answer.
async fn answers<T, F>(processes: &mut [Process], mut ask: impl FnMut() -> F) -> Result<T>
where
    F: Future<Output = Result<T>>,
{
    let end = Instant::now() + PATIENCE;
    loop {
        for process in processes.iter_mut() {
            process.must_run()?;
        }
        let why = match timeout(Duration::from_secs(5), ask()).await {
            Ok(Ok(answer)) => return Ok(answer),
            Ok(Err(error)) => error.to_string(),
            Err(_) => "no answer".to_owned(),
        };
        if Instant::now() > end {
            return failed(format!("the server does not answer: {why}"));
        }
        sleep(Duration::from_millis(50)).await;
    }
}

/// How long a start may take.
const PATIENCE: Duration = Duration::from_secs(60);
