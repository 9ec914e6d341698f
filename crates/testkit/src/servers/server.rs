//! A real server process with the module, in a directory of its own, on a free port of 127.0.0.1.

use std::ffi::OsString;
use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Child, ExitStatus};
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::client::Client;
use crate::process::{built, command_of, free_port, limit_files, module_path, server_program, signal, spawn};
use crate::replica::info_field;
use crate::wait::{PATIENCE, eventually, soon};
use crate::wire::{list_of, text_of};

/// The settings of a server. By default it loads the module and saves nothing.
#[derive(Clone)]
pub struct Setup {
    program: PathBuf,
    wrapper: Vec<OsString>,
    lines: Vec<String>,
    module: Option<PathBuf>,
    module_args: String,
    environment: Vec<(&'static str, PathBuf)>,
}

impl Setup {
    pub fn new() -> Self {
        Self { module: Some(module_path()), ..Self::plain() }
    }

    /// Uses another server and module than those of the environment.
    pub fn of(program: PathBuf, module: PathBuf) -> Self {
        Self { program, module: Some(module), ..Self::plain() }
    }

    /// Adds lines to `redis.conf`.
    pub fn conf(mut self, lines: &str) -> Self {
        self.lines.extend(lines.lines().map(|line| line.trim().to_owned()));
        self
    }

    pub fn module_args(mut self, args: &str) -> Self {
        args.clone_into(&mut self.module_args);
        self
    }

    /// Sets a variable of the process's environment.
    pub fn env(mut self, name: &'static str, value: PathBuf) -> Self {
        self.environment.push((name, value));
        self
    }

    /// Uses another server than that of the environment.
    pub fn program(self, program: PathBuf) -> Self {
        Self { program, ..self }
    }

    /// Runs the server under a command, such as valgrind with its options.
    pub fn under(self, wrapper: Vec<OsString>) -> Self {
        Self { wrapper, ..self }
    }

    pub fn without_module(mut self) -> Self {
        self.module = None;
        self
    }

    /// Loads the module, for a setup that was without it.
    pub fn with_module(mut self) -> Self {
        self.module = Some(module_path());
        self
    }

    /// Returns the settings of a server without the module.
    pub fn plain() -> Self {
        Self {
            program: server_program(),
            wrapper: Vec::new(),
            lines: Vec::new(),
            module: None,
            module_args: String::new(),
            environment: Vec::new(),
        }
    }

    /// Uses the debug build of the module, with the hooks for tests.
    pub fn hooks(mut self) -> Self {
        self.module = Some(built("DLOCK_MODULE_HOOKS", "target/debug/libdlock.so"));
        self
    }

    #[track_caller]
    pub fn start(self) -> Server {
        self.try_start().unwrap_or_else(|log| panic!("the server did not start:\n{log}"))
    }

    /// Starts the server. If it ends instead, returns its log.
    pub fn try_start(self) -> Result<Server, String> {
        let home = tempfile::Builder::new().prefix("dlock-").tempdir().expect("a temporary directory");
        self.start_in(home)
    }

    fn start_in(self, home: TempDir) -> Result<Server, String> {
        let mut server = Server { home, port: 0, child: None, setup: self, tolerated: None, is_kept: false };
        for _ in 0..20 {
            server.port = free_port();
            match server.try_boot() {
                Err(log) if log.contains("Address already in use") => {
                    let _ = fs::remove_file(server.path("server.log"));
                }
                Err(log) => return Err(log),
                Ok(()) => return Ok(server),
            }
        }
        panic!("no free port");
    }
}

/// A server process. Killed when the value is dropped, or when the test process ends.
pub struct Server {
    home: TempDir,
    port: u16,
    child: Option<Child>,
    setup: Setup,
    /// A word that the log may contain.
    tolerated: Option<&'static str>,
    /// Whether the directory stays and complaints in the log do not fail the test.
    is_kept: bool,
}

impl Server {
    #[track_caller]
    pub fn start() -> Self {
        Setup::new().start()
    }

    /// Starts a server with these additional lines in `redis.conf`.
    #[track_caller]
    pub fn conf(lines: &str) -> Self {
        Setup::new().conf(lines).start()
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    pub fn pid(&self) -> u32 {
        self.child().id()
    }

    fn child(&self) -> &Child {
        self.child.as_ref().expect("a running server")
    }

    #[track_caller]
    pub fn client(&self) -> Client {
        Client::connect(self.port).expect("the server accepts connections")
    }

    /// Returns this server and a client.
    #[track_caller]
    pub fn with_client(self) -> (Self, Client) {
        let client = self.client();
        (self, client)
    }

    /// Returns this server and several clients.
    #[track_caller]
    pub fn with_clients<const N: usize>(self) -> (Self, [Client; N]) {
        let clients = std::array::from_fn(|_| self.client());
        (self, clients)
    }

    /// Returns the path of a file in the server's directory.
    pub fn path(&self, name: &str) -> PathBuf {
        self.home.path().join(name)
    }

    pub fn log(&self) -> String {
        let read = |name| fs::read(self.path(name)).unwrap_or_default();
        String::from_utf8_lossy(&[read("server.log"), read("stderr")].concat()).into_owned()
    }

    /// Waits for a line of the log with this text.
    #[track_caller]
    pub fn logged(&self, text: &str) {
        eventually(PATIENCE, &format!("{text:?} in the log"), || self.log().contains(text));
    }

    /// Accepts complaints in the log with this word, which the test provokes.
    pub fn tolerate(&mut self, word: &'static str) {
        self.tolerated = Some(word);
    }

    /// Returns the lines of the log about crashes and panics.
    ///
    /// The complaint about nested `MULTI` is left out after an AOF was truncated: a server that was killed while it wrote a
    /// transaction truncates the file after the last whole command, and then loads a `MULTI` without an `EXEC`.
    pub fn complaints(&self) -> Vec<String> {
        let log = self.log();
        let was_cut = log.contains("Truncating the AOF");
        let is_bad = |line: &&str| {
            let mut words = ["BUG REPORT", "ASSERTION FAILED", "CRITICAL", "panic"].into_iter();
            words.any(|bad| self.tolerated != Some(bad) && line.contains(bad))
                && !(was_cut && line.contains("MULTI calls can not be nested"))
        };
        log.lines().filter(is_bad).map(str::to_owned).collect()
    }

    /// Keeps the directory with the log after the test. The caller checks the log by itself.
    pub fn keep(&mut self) -> PathBuf {
        self.home.disable_cleanup(true);
        self.is_kept = true;
        self.home.path().to_owned()
    }

    /// Changes the settings for the next [`Server::boot`].
    pub fn reconfigure(&mut self, change: impl FnOnce(Setup) -> Setup) {
        self.setup = change(self.setup.clone());
    }

    /// Kills the process with `SIGKILL`.
    pub fn kill9(&mut self) {
        if let Some(mut child) = self.child.take() {
            child.kill().expect("a process that can be killed");
            child.wait().expect("a process that can be waited for");
        }
    }

    /// Ends the server with `SHUTDOWN`, which saves the keys if the server is configured to.
    #[track_caller]
    pub fn shutdown(&mut self) {
        self.client().send("SHUTDOWN");
        let status = self.ended();
        assert!(status.success(), "shutdown ended with {status}");
    }

    /// Waits until the process has ended by itself.
    #[track_caller]
    pub fn ended(&mut self) -> ExitStatus {
        let mut child = self.child.take().expect("a running server");
        let mut status = None;
        eventually(2 * PATIENCE, "the server ends", || {
            status = child.try_wait().expect("a process that can be waited for");
            status.is_some()
        });
        status.expect("the status of the ended process")
    }

    /// Starts the server again after it has ended, with the same directory and port.
    #[track_caller]
    pub fn boot(&mut self) {
        let start = Instant::now();
        while let Err(log) = self.try_boot() {
            let in_use = log.contains("Address already in use");
            assert!(in_use && start.elapsed() < PATIENCE, "the server did not start again:\n{log}");
            let _ = fs::remove_file(self.path("server.log"));
        }
    }

    /// Does the same as [`Server::boot`]. If the server ends instead, returns its log.
    pub fn try_boot(&mut self) -> Result<(), String> {
        assert!(self.child.is_none(), "the server runs");
        fs::write(self.path("redis.conf"), self.conf_file()).expect("a writable directory");
        let home = self.home.path();
        let mut command = command_of(&self.setup.program, &self.setup.wrapper, home);
        command.envs(self.setup.environment.iter().map(|(name, value)| (name, value)));
        let mut child = spawn(command);
        let start = Instant::now();
        loop {
            if let Some(status) = child.try_wait().expect("a process that can be waited for") {
                assert!(status.signal().is_none(), "the server ended with {status}:\n{}", self.log());
                return Err(self.log());
            }
            if self.answers() {
                self.child = Some(child);
                return Ok(());
            }
            if start.elapsed() > PATIENCE {
                let _ = child.kill();
                panic!("the server does not answer:\n{}", self.log());
            }
            std::thread::sleep(Duration::from_millis(3));
        }
    }

    /// Kills the server with `SIGKILL`, and starts it again.
    #[track_caller]
    pub fn crash(&mut self) {
        self.kill9();
        self.boot();
    }

    #[track_caller]
    pub fn restart(&mut self) {
        self.shutdown();
        self.boot();
    }

    /// Waits until no save and no rewrite of the AOF is running. Fails if the last one has failed.
    #[track_caller]
    pub fn wait_saved(&self) {
        let mut client = self.client();
        soon("saved", || {
            let field = |client: &mut Client, name| info_field(client, "persistence", name);
            let busy = ["rdb_bgsave_in_progress", "aof_rewrite_in_progress", "aof_rewrite_scheduled"]
                .map(|name| field(&mut client, name).as_deref() == Some("1"));
            busy == [false; 3]
        });
        for status in ["rdb_last_bgsave_status", "aof_last_bgrewrite_status"] {
            assert_eq!(info_field(&mut client, "persistence", status).as_deref(), Some("ok"), "{status}");
        }
    }

    /// Stops the process (`SIGSTOP`).
    pub fn freeze(&self) {
        signal(self.child(), libc::SIGSTOP);
    }

    /// Lets a stopped process continue (`SIGCONT`).
    pub fn thaw(&self) {
        signal(self.child(), libc::SIGCONT);
    }

    /// Limits the size of files that the server writes, so that writes fail as on a full disk. `None` removes the limit.
    pub fn limit_files(&self, bytes: Option<u64>) {
        limit_files(self.child(), bytes.unwrap_or(libc::RLIM_INFINITY));
    }

    fn conf_file(&self) -> String {
        let mut text = format!(
            "port {}\nbind 127.0.0.1\ndir {}\nlogfile server.log\nsave \"\"\nenable-debug-command yes\n\
             enable-module-command yes\nrepl-diskless-sync-delay 0\nrepl-ping-replica-period 1\nhz 50\n",
            self.port,
            self.home.path().display()
        );
        if let Some(module) = &self.setup.module {
            text += &format!("loadmodule {} {}\n", module.display(), self.setup.module_args);
        }
        text + &self.setup.lines.join("\n") + "\n"
    }

    /// Returns whether this server, and not another process on the port, has loaded its data and answers.
    fn answers(&self) -> bool {
        let Ok(mut client) = Client::connect(self.port) else { return false };
        let Some(dir) = client.ask("CONFIG GET dir") else { return false };
        let dir = list_of(&dir).pop().map(|dir| PathBuf::from(text_of(&dir)));
        dir.and_then(|dir| dir.canonicalize().ok()) == self.home.path().canonicalize().ok()
            && client.ask("PING").is_some()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill9();
        if std::thread::panicking() {
            let log = self.log();
            let tail: Vec<_> = log.lines().rev().take(60).collect();
            eprintln!("--- server on port {}, end of its log:", self.port);
            tail.iter().rev().for_each(|line| eprintln!("{line}"));
            return;
        }
        let complaints = self.complaints();
        assert!(self.is_kept || complaints.is_empty(), "in the log: {complaints:?}\n{}", self.log());
    }
}
