//! The agent as a process, and the servers behind it.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use dlock_testkit::process::{self, die_with_the_tests, free_port, hear_all_signals, spawn};
use dlock_testkit::{Client, Server, Setup, lock_info, soon, thread_time};

/// A process `dlock agent`, which is killed when the value is dropped.
pub struct Agent {
    child: Child,
    pub port: u16,
    log: Arc<Mutex<String>>,
}

/// Longer than any lease in these tests.
pub const LONGEST: &str = "30s";

impl Agent {
    /// Starts an agent on a free port with these options.
    #[track_caller]
    pub fn start(options: &[&str]) -> Self {
        let port = free_port();
        let mut command = command();
        command.args(["--listen", &format!("127.0.0.1:{port}")]).args(options);
        Self::run(command, port)
    }

    /// Starts the command of an agent, and waits until the agent listens on that port of loopback.
    #[track_caller]
    pub fn run(mut command: Command, port: u16) -> Self {
        die_with_the_tests(&mut command);
        hear_all_signals(&mut command);
        command.stderr(Stdio::piped());
        let mut child = spawn(command);
        let log = Arc::<Mutex<String>>::default();
        let mut stderr = child.stderr.take().expect("a pipe");
        std::thread::spawn({
            let log = log.clone();
            move || {
                let mut chunk = [0; 4096];
                while let Ok(count @ 1..) = stderr.read(&mut chunk) {
                    log.lock().unwrap().push_str(&String::from_utf8_lossy(&chunk[..count]));
                }
            }
        });
        let mut agent = Self { child, port, log };
        soon("the agent listens", || {
            assert_eq!(agent.child.try_wait().unwrap(), None, "{}", agent.log());
            Client::connect(port).is_ok()
        });
        agent
    }

    /// Starts an agent over a quorum of these servers, with a timeout that is long enough on a busy machine.
    #[track_caller]
    pub fn over(servers: &[Server]) -> Self {
        Self::over_with(servers, &[])
    }

    #[track_caller]
    pub fn over_with(servers: &[Server], options: &[&str]) -> Self {
        let urls: Vec<_> = servers.iter().map(|server| format!("redis://127.0.0.1:{}", server.port())).collect();
        Self::over_urls(&urls, options)
    }

    #[track_caller]
    pub fn over_urls(urls: &[String], options: &[&str]) -> Self {
        let mut all = vec!["--longest-lease", LONGEST, "--persistent", "--server-timeout", "500ms"];
        urls.iter().for_each(|url| all.extend(["-s", url]));
        all.extend(options);
        Self::start(&all)
    }

    pub fn client(&self) -> Client {
        Client::connect(self.port).expect("the agent")
    }

    pub fn log(&self) -> String {
        self.log.lock().unwrap().clone()
    }

    /// Waits until a majority answers: the first connections take long on a busy machine.
    #[track_caller]
    pub fn has_majority(&self) {
        soon("a majority answers", || matches!(self.client().outcome("PING"), Ok(Ok(_))));
    }

    /// Waits until the log has this text.
    #[track_caller]
    pub fn logged(&self, text: &str) {
        soon(text, || self.log().contains(text));
    }

    pub fn kill9(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Asks the agent to stop, and returns its exit code.
    #[track_caller]
    pub fn stop(&mut self) -> Option<i32> {
        self.signal(libc::SIGTERM);
        let mut code = None;
        soon("the agent ends", || {
            code = self.child.try_wait().unwrap();
            code.is_some()
        });
        code.expect("it has ended").code()
    }

    pub fn signal(&self, signal: i32) {
        process::signal(&self.child, signal);
    }

    /// Sends this line again and again over several connections, and reads the replies, until the value is dropped.
    pub fn flooded(&self, connections: usize, line: &str) -> Vec<Flood> {
        (0..connections).map(|_| Flood::start(self.port, line)).collect()
    }

    /// Returns how long the agent's threads have run on a core.
    pub fn cpu_time(&self) -> Duration {
        let threads: Vec<_> = thread_time::of_process(self.child.id()).collect();
        assert!(!threads.is_empty(), "the agent runs");
        threads.iter().map(|(_, thread)| thread.on_core).sum()
    }

    /// Returns how much of the agent's memory is resident, in bytes.
    pub fn memory(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).expect("its status");
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("its memory");
        line.trim().trim_end_matches(" kB").trim().parse::<u64>().expect("a number") * 1024
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        self.kill9();
    }
}

/// A client that sends faster than the agent answers, until the value is dropped.
pub struct Flood(TcpStream);

impl Flood {
    fn start(port: u16, line: &str) -> Self {
        let stream = TcpStream::connect(("127.0.0.1", port)).expect("the agent");
        let lines = format!("{line}\r\n").repeat(500);
        let (mut to, mut from) = (stream.try_clone().unwrap(), stream.try_clone().unwrap());
        std::thread::spawn(move || while to.write_all(lines.as_bytes()).is_ok() {});
        std::thread::spawn(move || {
            let mut chunk = vec![0; 1 << 16];
            while let Ok(1..) = from.read(&mut chunk) {}
        });
        Self(stream)
    }
}

impl Drop for Flood {
    fn drop(&mut self) {
        let _ = self.0.shutdown(std::net::Shutdown::Both);
    }
}

/// `dlock agent` without options.
pub fn command() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_dlock"));
    command.env_remove("DLOCK_URL").stdin(Stdio::null()).stdout(Stdio::null()).arg("agent");
    command
}

/// Servers that keep their locks on disk, so that they count towards a majority right after their start.
pub fn servers(count: usize) -> Vec<Server> {
    let setup = Setup::new().conf("appendonly yes\nappendfsync always");
    (0..count).map(|_| setup.clone().start()).collect()
}

/// Three servers, an agent over them, and a client of it.
#[track_caller]
pub fn trio() -> (Vec<Server>, Agent, Client) {
    let servers = servers(3);
    let agent = Agent::over(&servers);
    agent.has_majority();
    let client = agent.client();
    (servers, agent, client)
}

/// Waits until the lock is free on all of these servers.
#[track_caller]
pub fn freed<'a>(servers: impl IntoIterator<Item = &'a Server>, name: &str) {
    for server in servers {
        soon("the lock is free", || server.holders(name).is_empty());
    }
}

/// Waits until this number of requests wait at the agent.
#[track_caller]
pub fn waiting(agent: &Agent, count: u64) {
    let mut client = agent.client();
    soon("the requests wait", || client.text("INFO agent").contains(&format!("agent_waiters:{count}\r\n")));
}

/// Waits until this number of requests are in the queues of these servers, not only on their way. An agent waits at one
/// server, but not always at the same: one that connects too slowly is passed over.
#[track_caller]
pub fn queued<'a>(servers: impl IntoIterator<Item = &'a Server> + Clone, count: usize, name: &str) {
    let queued = || {
        let waiters = |server: &Server| lock_info(&mut server.client(), name).map_or(0, |info| info.waiters);
        servers.clone().into_iter().map(waiters).sum::<i64>()
    };
    soon("the requests are in the queues of the servers", || usize::try_from(queued()) == Ok(count));
}

/// How long a test waits for an event that must not happen.
pub const MOMENT: Duration = Duration::from_millis(100);
