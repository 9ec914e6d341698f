//! A real server process with the module, that is killed and started again in the same directory.

use std::env;
use std::ffi::OsString;
use std::fs::{self, File};
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use rustix::process::{Signal, set_parent_process_death_signal};
use tempfile::TempDir;

use crate::connection::{Connection, Reply};
use crate::failure::{Doing, Failure, Result};
use crate::jumping::JumpingClock;
use crate::time::wait_until;

/// A server, running or not. Killed when dropped, and with this process at the latest.
pub struct Server {
    home: TempDir,
    port: u16,
    child: Option<Child>,
    pub clock: Option<JumpingClock>,
}

/// By which clock a server lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clock {
    Machine,
    Jumping,
}

impl Server {
    /// Starts one on a free port, with `appendfsync always`.
    pub fn start(clock: Clock) -> Result<Server> {
        let home = tempfile::Builder::new().prefix("dlock-chaos-").tempdir()?;
        let clock = match clock {
            Clock::Machine => None,
            Clock::Jumping => Some(JumpingClock::build(home.path())?),
        };
        let mut server = Server { home, port: free_port()?, child: None, clock };
        server.boot(None)?;
        Ok(server)
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// `kill -9`.
    pub fn kill(&mut self) -> Result<()> {
        if let Some(mut child) = self.child.take() {
            child.kill()?;
            child.wait()?;
        }
        Ok(())
    }

    /// Starts it (again) with what is in its directory, as a replica if a primary's port is given, and waits until
    /// it answers.
    pub fn boot(&mut self, primary: Option<u16>) -> Result<()> {
        let config = self.home.path().join("redis.conf");
        fs::write(&config, self.configuration(primary)?)?;
        // By way of ourselves, so that it ends with us: see `guard`.
        let mut command = Command::new(env::current_exe()?);
        command.arg("guard").arg(program()).arg(config).stdin(Stdio::null());
        command.stdout(Stdio::null()).stderr(File::create(self.home.path().join("stderr"))?);
        if let Some(clock) = &self.clock {
            clock.give(&mut command);
        }
        self.child = Some(command.spawn()?);
        let is_up = wait_until(PATIENCE_MS, || {
            let replied = self.admin().and_then(|mut admin| admin.call("PING").doing("PING"));
            matches!(replied, Ok(Reply::Text(_))) || self.has_ended()
        });
        if is_up && !self.has_ended() { Ok(()) } else { Err(self.failure("the server does not start")) }
    }

    /// A connection whose replies have to come.
    pub fn admin(&self) -> Result<Connection> {
        Ok(Connection::open(self.port)?.patient_for(Duration::from_millis(PATIENCE_MS))?)
    }

    /// Asks, and expects anything but an error.
    pub fn ask(&self, command: &str) -> Result<Reply> {
        match self.admin()?.call(command).doing(command)? {
            Reply::Error(error) => Err(Failure(format!("{command}: {error}"))),
            reply => Ok(reply),
        }
    }

    /// A field of `INFO`.
    pub fn info(&self, section: &str, name: &str) -> Result<String> {
        let Reply::Text(info) = self.ask(&format!("INFO {section}"))? else {
            return Err(Failure("INFO is no text".into()));
        };
        let field = info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        field.map(|value| value.trim().to_owned()).ok_or_else(|| Failure(format!("INFO has no {name}")))
    }

    pub fn is_primary(&self) -> bool {
        matches!(self.info("replication", "role").as_deref(), Ok("master"))
    }

    /// Its name and version.
    pub fn version(&self) -> Result<String> {
        match self.info("server", "valkey_version") {
            Ok(version) => Ok(format!("Valkey {version}")),
            Err(_) => Ok(format!("Redis {}", self.info("server", "redis_version")?)),
        }
    }

    /// Lines of the log that tell of a crash or of a panic of the module.
    pub fn complaints(&self) -> Vec<String> {
        let words = ["panick", "ASSERTION", "BUG REPORT", "crashed by signal"];
        let is_bad = |line: &&str| words.iter().any(|word| line.contains(word));
        self.log().lines().filter(is_bad).map(str::to_owned).collect()
    }

    /// The problem, with the end of the log.
    pub fn failure(&self, problem: &str) -> Failure {
        let log = self.log();
        let lines: Vec<&str> = log.lines().collect();
        let tail = lines.get(lines.len().saturating_sub(10)..).unwrap_or_default().join("\n  ");
        Failure(format!("{problem}; the end of its log:\n  {tail}"))
    }

    /// Leaves its directory behind, and says where.
    pub fn keep(&mut self) -> PathBuf {
        self.home.disable_cleanup(true);
        self.home.path().to_owned()
    }

    fn has_ended(&mut self) -> bool {
        self.child.as_mut().is_none_or(|child| matches!(child.try_wait(), Ok(Some(_))))
    }

    fn log(&self) -> String {
        let read = |name| fs::read(self.home.path().join(name)).unwrap_or_default();
        String::from_utf8_lossy(&[read("server.log"), read("stderr")].concat()).into_owned()
    }

    fn configuration(&self, primary: Option<u16>) -> Result<String> {
        let (home, port) = (self.home.path().display(), self.port);
        let module = module()?;
        let replica_of = primary.map(|port| format!("replicaof 127.0.0.1 {port}\n")).unwrap_or_default();
        Ok(format!(
            "bind 127.0.0.1\nport {port}\ndir {home}\nlogfile {home}/server.log\nsave \"\"\n\
             appendonly yes\nappendfsync always\nmaxmemory-policy noeviction\n\
             repl-diskless-sync yes\nrepl-diskless-sync-delay 0\nloadmodule {}\n{replica_of}",
            module.display()
        ))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.kill();
    }
}

/// `dlock-chaos guard PROGRAM ARGUMENT…`: becomes that program, and is killed when the process that started it ends.
pub fn guard(mut line: impl Iterator<Item = OsString>) -> Failure {
    if let Err(error) = set_parent_process_death_signal(Some(Signal::KILL)) {
        return Failure(format!("prctl: {error}"));
    }
    let program = line.next().unwrap_or_default();
    let error = Command::new(&program).args(line).exec();
    Failure(format!("{}: {error}", program.display()))
}

fn program() -> OsString {
    env::var_os("DLOCK_SERVER").filter(|path| !path.is_empty()).unwrap_or_else(|| "redis-server".into())
}

fn module() -> Result<PathBuf> {
    let built = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/release/libdlock.so");
    let path = env::var_os("DLOCK_MODULE").filter(|path| !path.is_empty()).map_or_else(built, PathBuf::from);
    path.canonicalize().doing(&format!("no module {} (`make build` makes it)", path.display()))
}

/// A port nobody listens on, outside of the range of outgoing connections.
fn free_port() -> Result<u16> {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let first = u16::try_from(std::process::id() % 900).unwrap_or(0) * 10;
    for _ in 0..1000 {
        let port = 12_000 + (first + NEXT.fetch_add(1, Ordering::Relaxed)) % 9_000;
        if TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
            return Ok(port);
        }
    }
    Err(Failure("no free port".into()))
}

/// How long a server may take to start or to answer.
const PATIENCE_MS: u64 = 60_000;
