//! `dlock serve` as a process.

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};

use crate::client::Client;
use crate::process::{die_with_the_tests, hear_all_signals, signal, spawn};
use crate::wait::soon;

/// A process of `dlock serve`. The process is killed when this value is dropped.
pub struct Serve {
    program: PathBuf,
    options: Vec<String>,
    child: Child,
    port: u16,
    log: Arc<Mutex<String>>,
}

impl Serve {
    /// Starts the program `dlock` with these options of `serve`, on a free port.
    #[track_caller]
    pub fn start(program: &Path, options: &[&str]) -> Self {
        Self::at(program, options, 0)
    }

    /// Starts the program on this port, for a test that starts it again: see [`free_port`](crate::process::free_port).
    #[track_caller]
    pub fn at(program: &Path, options: &[&str], port: u16) -> Self {
        let options: Vec<_> = options.iter().map(|option| (*option).to_owned()).collect();
        let (child, port, log) = boot(program, &options, port);
        Self { program: program.to_owned(), options, child, port, log }
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    #[track_caller]
    pub fn client(&self) -> Client {
        Client::connect(self.port).expect("dlock serve")
    }

    /// Returns what the process has written to its standard error so far.
    pub fn log(&self) -> String {
        self.log.lock().unwrap().clone()
    }

    pub fn kill9(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Starts the program again, on the same port and without locks.
    #[track_caller]
    pub fn boot(&mut self) {
        (self.child, _, self.log) = boot(&self.program, &self.options, self.port);
    }

    /// Sends `SIGTERM`, waits for the end of the process, and returns its exit code.
    #[track_caller]
    pub fn stop(&mut self) -> Option<i32> {
        signal(&self.child, libc::SIGTERM);
        let mut code = None;
        soon("dlock serve ends", || {
            code = self.child.try_wait().unwrap();
            code.is_some()
        });
        code.and_then(|code| code.code())
    }

    /// Returns the resident memory of the process, in bytes.
    pub fn memory(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid())).expect("its status");
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("its memory");
        line.trim().trim_end_matches(" kB").trim().parse::<u64>().expect("a number") * 1024
    }
}

impl Drop for Serve {
    fn drop(&mut self) {
        self.kill9();
    }
}

/// Starts `dlock serve`. Returns the process, its port, and its log, which a thread reads.
#[track_caller]
fn boot(program: &Path, options: &[String], port: u16) -> (Child, u16, Arc<Mutex<String>>) {
    let mut command = Command::new(program);
    command.env_remove("DLOCK_URL").args(["serve", "--port", &port.to_string(), "--print-port"]).args(options);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    die_with_the_tests(&mut command);
    hear_all_signals(&mut command);
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
    let mut line = String::new();
    BufReader::new(child.stdout.take().expect("a pipe")).read_line(&mut line).expect("readable output");
    let port = line.trim().parse();
    let port = port.unwrap_or_else(|_| panic!("dlock serve does not start: {}", log.lock().unwrap()));
    (child, port, log)
}
