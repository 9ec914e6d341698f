//! A real server process with a quiet configuration: the testkit's, set up for measurements.
//!
//! The testkit's client is not used: it copies each reply, and that time would hide what two servers differ in.

use std::ffi::OsString;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use dlock_testkit::Setup;
use dlock_testkit::process::{module_path, server_program};

use crate::command_line::Place;
use crate::connection::Connection;
use crate::error::Error;
use crate::mode::Mode;

/// The server and the module that are measured.
pub struct Programs {
    server: PathBuf,
    /// `None`: the module of the testkit.
    module: Option<PathBuf>,
}

impl Programs {
    pub fn find(place: &Place) -> Result<Self, Error> {
        let module = place.module.as_ref().map(|path| path.canonicalize()).transpose();
        let server = place.server.clone().unwrap_or_else(server_program);
        Ok(Self { server, module: module.map_err(Error::io("looking for the module"))? })
    }

    pub fn module(&self) -> PathBuf {
        self.module.clone().unwrap_or_else(module_path)
    }

    /// Returns the testkit's own setup of a server with the module, for 10,000 clients, without the quiet
    /// configuration.
    pub fn testkit(&self) -> Setup {
        Setup::of(self.server.clone(), self.module()).conf("maxclients 10000")
    }

    /// Starts a quiet server, under the command `wrapper` unless that is empty.
    pub fn start(&self, runs_on: RunsOn, mode: Mode, clock: Clock, wrapper: Vec<OsString>) -> Result<Server, Error> {
        let setup = match runs_on {
            RunsOn::Module => Setup::of(self.server.clone(), self.module()),
            RunsOn::PlainServer => Setup::plain().program(self.server.clone()),
        };
        let setup = setup.conf(QUIET).conf(mode.config()).conf(&clock.config()).under(wrapper);
        let failed = |log| Error::Server(format!("the server did not start; its log:\n{log}"));
        Ok(Server { server: setup.try_start().map_err(failed)? })
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

/// A running server. Killed when dropped; [`Server::stop`] ends it properly.
pub struct Server {
    server: dlock_testkit::Server,
}

impl Server {
    pub fn connect(&self) -> Result<Connection, Error> {
        Connection::open(self.address())
    }

    /// Connects by the server's Unix socket.
    pub fn connect_locally(&self) -> Result<Connection, Error> {
        Connection::open_locally(&self.server.path(SOCKET))
    }

    pub fn address(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.server.port()).into()
    }

    /// Returns the id of its process.
    pub fn process(&self) -> i32 {
        self.server.pid().cast_signed()
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

    /// Ends it by `SHUTDOWN`, and waits until the process is gone.
    pub fn stop(mut self) {
        self.server.shutdown();
    }

    /// Returns an error: the problem, and the last lines of the server's log.
    pub fn failure(&self, problem: &str) -> Error {
        let log = self.server.log();
        let lines: Vec<&str> = log.lines().collect();
        let tail = lines.get(lines.len().saturating_sub(LOG_TAIL)..).unwrap_or_default().join("\n  ");
        Error::Server(format!("{problem}; the end of its log:\n  {tail}"))
    }
}

/// Turns off what runs by itself, as far as the server lets us, and opens the socket at [`SOCKET`]. [`Mode`], [`Clock`]
/// and the testkit set a few more; the rest are defaults.
///
/// The slow log is off because under callgrind commands are slow enough to enter it.
const QUIET: &str = "\
unixsocket server.sock
repl-diskless-sync no
activerehashing no
jemalloc-bg-thread no
slowlog-log-slower-than -1";

/// In the server's directory.
const SOCKET: &str = "server.sock";

/// The limit of a server with [`Clock::Usual`].
pub const MAX_CLIENTS: usize = 14_000;

const LOG_TAIL: usize = 8;

/// The server a contender runs on. Rivals get one without the module, as their users have it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum RunsOn {
    PlainServer,
    Module,
}
