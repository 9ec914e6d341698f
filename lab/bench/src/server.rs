//! A real server process with a quiet configuration, on a free loopback port.
//!
//! The testkit starts the servers of `times/stalls`, but not these. They run under callgrind, have a Unix socket and do
//! as little as possible by themselves. A failure is a value, because a contender that a server lacks is left out. The
//! testkit's client is not used here either: it copies each reply, and that time would hide what two servers differ in.

use std::env;
use std::ffi::OsString;
use std::fs::{self, File};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{self, Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::connection::Connection;
use crate::error::Error;
use crate::resp::{self, Reply};
use tempfile::TempDir;

/// The server to start.
pub struct Setup<'a> {
    pub program: &'a Path,
    pub module: Option<&'a Path>,
    pub mode: Mode,
    pub clock: Clock,
    /// Command that the server runs under (callgrind); empty: none.
    pub wrapper: Vec<OsString>,
}

/// The persistence and replication of writes.
#[derive(Debug, Clone, Copy, PartialEq, clap::ValueEnum)]
pub enum Mode {
    #[value(name = "none")]
    NoPersistence,
    /// To a file, flushed once a second.
    Aof,
    /// To one replica, which the bench plays ([`crate::follower`]).
    Replica,
}

impl Mode {
    pub const ALL: [Self; 3] = [Self::NoPersistence, Self::Aof, Self::Replica];

    /// For `--mode` and figures.
    pub fn name(self) -> &'static str {
        match self {
            Self::NoPersistence => "none",
            Self::Aof => "aof",
            Self::Replica => "replica",
        }
    }

    pub fn label(self) -> &'static str {
        match self {
            Self::NoPersistence => "no persistence",
            Self::Aof => "AOF everysec",
            Self::Replica => "one replica",
        }
    }

    fn config(self) -> &'static str {
        match self {
            Self::NoPersistence => "appendonly no\n",
            Self::Aof => "appendonly yes\nappendfsync everysec\nauto-aof-rewrite-percentage 0\n",
            Self::Replica => "appendonly no\nrepl-ping-replica-period 3600\n",
        }
    }
}

/// How often the server looks at its clock by itself.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Clock {
    /// As seldom as it can be told to. For counts.
    Still,
    /// At the usual rate, and there is room for [`MAX_CLIENTS`]. For benchmarks of time.
    Usual,
}

impl Clock {
    fn config(self) -> String {
        match self {
            Self::Still => "hz 1\ndynamic-hz no\n".to_owned(),
            Self::Usual => format!("hz 10\ndynamic-hz yes\nmaxclients {MAX_CLIENTS}\n"),
        }
    }
}

/// A folder for one run: configuration, log and callgrind's output. Gone when dropped.
pub fn run_dir() -> Result<TempDir, Error> {
    tempfile::Builder::new().prefix("dlock-bench-").tempdir().map_err(Error::io("creating a folder"))
}

/// A running server. Killed when dropped; [`Server::stop`] ends it properly.
pub struct Server {
    process: Child,
    address: SocketAddr,
    socket: PathBuf,
    log: PathBuf,
}

impl Server {
    /// Starts it and waits until it answers.
    pub fn start(setup: &Setup, dir: &TempDir) -> Result<Self, Error> {
        let address = free_address()?;
        let config = dir.path().join("server.conf");
        fs::write(&config, configuration(setup, dir, address)?)
            .map_err(Error::io("writing the server's configuration"))?;
        let log = dir.path().join("server.log");
        let log_file = File::create(&log).map_err(Error::io("creating the server's log"))?;
        let log_copy = log_file.try_clone().map_err(Error::io("creating the server's log"))?;

        let mut line = setup.wrapper.clone();
        line.push(runnable(setup.program, dir)?.into());
        line.push(config.into());
        let (first, rest) = line.split_first().ok_or_else(|| Error::Server("no server to start".into()))?;
        let process = Command::new(first)
            .args(rest)
            .stdin(Stdio::null())
            .stdout(log_file)
            .stderr(log_copy)
            .spawn()
            .map_err(Error::io(format!("starting {}", first.to_string_lossy())))?;
        let mut server = Self { process, address, socket: socket_in(dir), log };
        server.wait_until_ready(dir)?;
        Ok(server)
    }

    pub fn connect(&self) -> Result<Connection, Error> {
        Connection::open(self.address)
    }

    /// By its Unix socket.
    pub fn connect_locally(&self) -> Result<Connection, Error> {
        Connection::open_locally(&self.socket)
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the id of its process.
    pub fn process(&self) -> i32 {
        self.process.id().cast_signed()
    }

    /// Returns the server's name and version, such as `redis 7.0.15`.
    pub fn version(&self) -> Result<String, Error> {
        let info = self.connect()?.info("server")?;
        let field = |name: &str| info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        Ok(match (field("valkey_version"), field("redis_version")) {
            (Some(version), _) => format!("valkey {version}"),
            (None, Some(version)) => format!("redis {version}"),
            (None, None) => "unknown server".to_owned(),
        })
    }

    /// Ends it by `SHUTDOWN NOSAVE` and waits until the process is gone.
    pub fn stop(mut self) -> Result<(), Error> {
        self.connect()?.send(&resp::request(&[b"SHUTDOWN", b"NOSAVE"]))?;
        let deadline = Instant::now() + PATIENCE;
        while Instant::now() < deadline {
            match self.exited()? {
                Some(status) if status.success() => return Ok(()),
                Some(status) => return Err(self.failure(&format!("the server ended with {status}"))),
                None => thread::sleep(POLL),
            }
        }
        Err(self.failure("the server does not stop"))
    }

    /// The problem with the end of the server's log.
    pub fn failure(&self, problem: &str) -> Error {
        let log = fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        let tail = lines.get(lines.len().saturating_sub(LOG_TAIL)..).unwrap_or_default().join("\n  ");
        Error::Server(format!("{problem}; the end of its log:\n  {tail}"))
    }

    pub fn exited(&mut self) -> Result<Option<ExitStatus>, Error> {
        self.process.try_wait().map_err(Error::io("waiting for the server"))
    }

    fn wait_until_ready(&mut self, dir: &TempDir) -> Result<(), Error> {
        let deadline = Instant::now() + PATIENCE;
        while Instant::now() < deadline {
            if self.exited()?.is_some() {
                return Err(self.failure("the server did not start"));
            }
            if self.is_ours(dir) {
                return Ok(());
            }
            thread::sleep(POLL);
        }
        Err(self.failure("the server does not answer"))
    }

    /// Returns whether what answers on the port is this server and not a stranger who took the port first.
    fn is_ours(&self, dir: &TempDir) -> bool {
        let reply = self.connect().and_then(|mut connection| connection.call(&[b"CONFIG", b"GET", b"dir"]));
        let expected = dir.path().canonicalize().map(|path| path.into_os_string().into_encoded_bytes());
        match (reply, expected) {
            (Ok(Reply::Array(pair)), Ok(expected)) => pair.get(1) == Some(&Reply::Bulk(expected)),
            (Ok(_) | Err(_), Ok(_) | Err(_)) => false,
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Errors mean that it has already ended.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Finds the server to run: what was asked for, `DLOCK_SERVER`, or `redis-server` on the `PATH`.
///
/// Debian keeps the server in `redis-tools`, as `redis-check-rdb`; that one is taken if there is no `redis-server`.
pub fn find_program(asked: Option<&Path>) -> Result<PathBuf, Error> {
    let wanted = asked
        .map(Path::to_owned)
        .or_else(|| env::var_os("DLOCK_SERVER").filter(|value| !value.is_empty()).map(PathBuf::from))
        .unwrap_or_else(|| PathBuf::from("redis-server"));
    let name = wanted.to_string_lossy().into_owned();
    let candidates = [Some(name.clone()), name.strip_suffix("-server").map(|stem| format!("{stem}{CHECK_RDB}"))];
    candidates
        .iter()
        .flatten()
        .find_map(|name| on_path(name))
        .ok_or_else(|| Error::Server(format!("no server `{name}`; name one with --server or DLOCK_SERVER")))
}

/// Finds the module: what was asked for, `DLOCK_MODULE`, or the release build of this workspace.
pub fn find_module(asked: Option<&Path>) -> Result<PathBuf, Error> {
    let built = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/release/libdlock.so");
    let path = asked
        .map(Path::to_owned)
        .or_else(|| env::var_os("DLOCK_MODULE").filter(|value| !value.is_empty()).map(PathBuf::from))
        .unwrap_or_else(built);
    path.canonicalize().map_err(Error::io(format!(
        "no module {} (`make build` makes it, --module or DLOCK_MODULE names another)",
        path.display()
    )))
}

fn on_path(name: &str) -> Option<PathBuf> {
    if name.contains('/') {
        return std::path::absolute(name).ok().filter(|path| path.is_file());
    }
    let path = env::var_os("PATH")?;
    env::split_paths(&path).map(|dir| dir.join(name)).find(|path| path.is_file())
}

/// The path to start. `redis-check-rdb` is the server only under the server's name, which a link gives it.
pub fn runnable(program: &Path, dir: &TempDir) -> Result<PathBuf, Error> {
    let name = program.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let Some(stem) = name.strip_suffix(CHECK_RDB) else {
        return Ok(program.to_owned());
    };
    let link = dir.path().join(format!("{stem}-server"));
    symlink(program, &link).map_err(Error::io("linking the server"))?;
    Ok(link)
}

fn configuration(setup: &Setup, dir: &TempDir, address: SocketAddr) -> Result<String, Error> {
    let mut config = format!("bind {}\nport {}\ndir {}\n", address.ip(), address.port(), quoted(dir.path())?);
    config.push_str(&format!("unixsocket {}\n", quoted(&socket_in(dir))?));
    config.push_str(QUIET);
    config.push_str(setup.mode.config());
    config.push_str(&setup.clock.config());
    if let Some(module) = setup.module {
        config.push_str(&format!("loadmodule {}\n", quoted(module)?));
    }
    Ok(config)
}

fn socket_in(dir: &TempDir) -> PathBuf {
    dir.path().join("server.sock")
}

fn quoted(path: &Path) -> Result<String, Error> {
    match path.to_str() {
        Some(text) if !text.contains(['"', '\\', '\n']) => Ok(format!("\"{text}\"")),
        Some(_) | None => Err(Error::Server(format!("{} cannot stand in a configuration file", path.display()))),
    }
}

/// A port below the range that the kernel gives to outgoing connections, so that it stays free until the server has it.
fn free_address() -> Result<SocketAddr, Error> {
    (0..PORT_COUNT)
        .find_map(|_| {
            let step = PORTS_TRIED.fetch_add(1, Ordering::Relaxed).wrapping_add(process::id() % 1000 * 10);
            let offset = u16::try_from(step % u32::from(PORT_COUNT)).ok()?;
            TcpListener::bind((Ipv4Addr::LOCALHOST, FIRST_PORT.checked_add(offset)?)).ok()?.local_addr().ok()
        })
        .ok_or_else(|| Error::Server("no free port".into()))
}

/// Nothing that runs by itself, as far as the server lets us; defaults otherwise.
///
/// The slow log goes because under callgrind commands are slow enough to enter it.
const QUIET: &str = "\
daemonize no
save \"\"
repl-diskless-sync no
activerehashing no
jemalloc-bg-thread no
slowlog-log-slower-than -1
";

/// Of a server with [`Clock::Usual`].
pub const MAX_CLIENTS: usize = 14_000;

const FIRST_PORT: u16 = 21_000;
const PORT_COUNT: u16 = 10_000;

/// Servers of one process get neighbouring ports; processes start ten apart.
static PORTS_TRIED: AtomicU32 = AtomicU32::new(0);

const CHECK_RDB: &str = "-check-rdb";

/// Start and end take about a second under callgrind on a quiet machine.
const PATIENCE: Duration = Duration::from_secs(60);

const POLL: Duration = Duration::from_millis(20);

const LOG_TAIL: usize = 8;
