//! `dlock` as a process, and the commands that it runs.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use dlock_testkit::process::{die_with_the_tests, hear_all_signals, signal, spawn};
use dlock_testkit::wait::PATIENCE;
use dlock_testkit::{Server, soon, thread_time};

/// `dlock` with the URL of this server.
pub fn dlock(server: &Server) -> Command {
    let mut command = bare();
    command.env("DLOCK_URL", format!("redis://127.0.0.1:{}", server.port()));
    command
}

/// `dlock` without a URL.
pub fn bare() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_dlock"));
    command.env_remove("DLOCK_URL").stdin(Stdio::null());
    command
}

/// Adds to a command within one expression.
pub trait With {
    /// Returns the command with these arguments behind its own.
    fn with<A: AsRef<OsStr>>(self, arguments: impl IntoIterator<Item = A>) -> Self;
}

impl With for Command {
    fn with<A: AsRef<OsStr>>(mut self, arguments: impl IntoIterator<Item = A>) -> Self {
        self.args(arguments);
        self
    }
}

/// The output of a finished process, and how it ended: an exit code, or the signal that killed it.
#[derive(Debug)]
pub struct Outcome {
    pub code: Option<i32>,
    pub signal: Option<i32>,
    pub stdout: String,
    pub stderr: String,
    /// How long the process could have run, but waited for a core.
    pub waited: Duration,
}

/// Runs a command to its end.
#[track_caller]
pub fn outcome(mut command: Command) -> Outcome {
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    Running::start(command).outcome()
}

/// A running process. The drop of the value kills it.
pub struct Running(Option<Child>);

impl Running {
    pub fn start(mut command: Command) -> Self {
        die_with_the_tests(&mut command);
        hear_all_signals(&mut command);
        Self(Some(spawn(command)))
    }

    pub fn child(&mut self) -> &mut Child {
        self.0.as_mut().expect("a process")
    }

    pub fn signal(&mut self, number: i32) {
        signal(self.child(), number);
    }

    pub fn has_ended(&mut self) -> bool {
        self.child().try_wait().expect("a process that can be waited for").is_some()
    }

    /// Waits for the end of the process, for two minutes at most.
    #[track_caller]
    pub fn outcome(mut self) -> Outcome {
        use std::os::unix::process::ExitStatusExt;
        let (start, mut waits) = (Instant::now(), BTreeMap::new());
        while !self.has_ended() {
            waits.extend(thread_time::of_process(self.child().id()));
            assert!(start.elapsed() < 2 * PATIENCE, "the process does not end");
            std::thread::sleep(Duration::from_millis(2));
        }
        let output = self.0.take().expect("a process").wait_with_output().expect("its output");
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("readable output");
        let (code, signal) = (output.status.code(), output.status.signal());
        let waited = waits.into_values().map(|thread| thread.waited).sum();
        Outcome { code, signal, stdout: text(output.stdout), stderr: text(output.stderr), waited }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(mut child) = self.0.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// A directory for what commands write.
pub struct Notes(tempfile::TempDir);

impl Notes {
    pub fn new() -> Self {
        Self(tempfile::tempdir().expect("a temporary directory"))
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap_or_default()
    }

    /// Waits until a command has written a whole line into the file `name`, and returns it.
    #[track_caller]
    pub fn line(&self, name: &str) -> String {
        soon(&format!("a line in {name}"), || self.read(name).ends_with('\n'));
        self.read(name).trim().to_owned()
    }

    /// The words of a command: a shell that notes its process id, and then runs the script `then`.
    pub fn script(&self, then: &str) -> [String; 3] {
        ["sh", "-c", &format!("echo $$ > {}; {then}", self.path("pid").display())].map(str::to_owned)
    }

    /// The process id that the shell of `script` has noted, once it runs.
    #[track_caller]
    pub fn pid(&self) -> i32 {
        self.line("pid").parse().expect("a process id")
    }
}

/// Whether a process runs: a zombie does not, and a process that does not exist counts as dead (`X`).
pub fn alive(pid: i32) -> bool {
    let state = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = state.rsplit(')').next().and_then(|rest| rest.split_whitespace().next()).unwrap_or("X").to_owned();
    state != "X" && state != "Z"
}
