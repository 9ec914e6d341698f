//! Server processes: started on one processor, measured by what the kernel counts for them, killed when dropped.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::result::{Result, failed};

/// A server, and all that it forks.
pub struct Process {
    child: Child,
    log: std::path::PathBuf,
}

impl Process {
    /// Starts it on the servers' processor, with its output in a file. It dies with this program, however that ends.
    pub fn start(command: &[String], user: Option<&str>, log: &Path) -> Result<Self> {
        let mut line: Vec<String> = ["setpriv", "--pdeathsig", "KILL"].map(str::to_owned).into();
        if let Some(user) = user {
            line.extend([format!("--reuid={user}"), format!("--regid={user}"), "--init-groups".to_owned()]);
        }
        line.extend(["taskset".to_owned(), "--cpu-list".to_owned(), servers_processor()?.to_string()]);
        line.extend_from_slice(command);
        let Some((first, rest)) = line.split_first() else { return failed("no command") };
        let output = File::options().create(true).append(true).open(log)?;
        let child = Command::new(first)
            .args(rest)
            // A folder that every user may enter.
            .current_dir("/")
            .stdin(Stdio::null())
            .stdout(output.try_clone()?)
            .stderr(output)
            .spawn()?;
        Ok(Self { child, log: log.to_owned() })
    }

    /// An error with the end of its log, if it has ended.
    pub fn must_run(&mut self) -> Result<()> {
        match self.child.try_wait()? {
            None => Ok(()),
            Some(status) => {
                let log = fs::read_to_string(&self.log).unwrap_or_default();
                let lines: Vec<&str> = log.lines().collect();
                let tail = lines.get(lines.len().saturating_sub(8)..).unwrap_or_default().join("\n  ");
                failed(format!("the server ended with {status}:\n  {tail}"))
            }
        }
    }

    /// `kill -9`.
    pub fn kill(&mut self) -> Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }

    /// Sends it a signal, and waits for its end.
    pub fn end_by(&mut self, signal: Signal) {
        // A process that has ended has no pid any more.
        if matches!(self.child.try_wait(), Ok(None)) {
            let _ = kill(self.pid(), signal);
            let _ = self.child.wait();
        }
    }

    pub fn pid(&self) -> Pid {
        Pid::from_raw(self.child.id().cast_signed())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Errors mean that it has already ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The kernel's counters of processes and their descendants.
#[derive(Clone, Copy, Default)]
pub struct Usage {
    pub cpu_seconds: f64,
    /// The part of `cpu_seconds` in the kernel.
    pub kernel_seconds: f64,
    /// Sent to the disk.
    pub written: f64,
}

impl Usage {
    pub fn of<'a>(processes: impl IntoIterator<Item = &'a Process>) -> Self {
        let mut usage = Self::default();
        descendants(processes).into_iter().for_each(|pid| usage.add(pid));
        usage
    }

    /// Returns the usage of this program alone.
    pub fn own() -> Self {
        let mut usage = Self::default();
        usage.add(std::process::id().cast_signed());
        usage
    }

    fn add(&mut self, pid: i32) {
        let read = |file: &str| fs::read_to_string(format!("/proc/{pid}/{file}")).unwrap_or_default();
        let stat = read("stat");
        let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
        // utime and stime: fields 14 and 15 of the whole line.
        let [user, kernel] = [11, 12].map(|at| fields.get(at).and_then(|ticks| ticks.parse().ok()).unwrap_or(0.0));
        self.cpu_seconds += (user + kernel) / TICKS_PER_SECOND;
        self.kernel_seconds += kernel / TICKS_PER_SECOND;
        self.written += field(&read("io"), "write_bytes:");
    }
}

/// The cost of a load: begun before it, noted after it.
pub struct Cost {
    began: Instant,
    servers: Usage,
    clients: Usage,
}

impl Cost {
    pub fn begin(servers: Usage) -> Self {
        Self { began: Instant::now(), servers, clients: Usage::own() }
    }

    /// Returns figures, each with the end of its name: the operations per second, and the µs of CPU time and the bytes
    /// written per operation.
    pub fn of_each(&self, done: f64, servers: impl FnOnce() -> Usage) -> [(&'static str, f64); 6] {
        // To ask the kernel takes a while, too.
        let (elapsed, clients, servers) = (self.began.elapsed(), Usage::own(), servers());
        let micros_each = |after: f64, before: f64| (after - before) * 1e6 / done;
        [
            ("rate", done / elapsed.as_secs_f64()),
            ("servers", micros_each(servers.cpu_seconds, self.servers.cpu_seconds)),
            ("servers-kernel", micros_each(servers.kernel_seconds, self.servers.kernel_seconds)),
            ("clients", micros_each(clients.cpu_seconds, self.clients.cpu_seconds)),
            ("clients-kernel", micros_each(clients.kernel_seconds, self.clients.kernel_seconds)),
            ("written", (servers.written - self.servers.written) / done),
        ]
    }
}

/// Bytes of memory of processes and their descendants; pages that several of them share are divided among them. The
/// kernel looks at each page for that, so it takes a while.
pub fn memory<'a>(processes: impl IntoIterator<Item = &'a Process>) -> f64 {
    let rollup = |pid: i32| fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap_or_default();
    descendants(processes).into_iter().map(|pid| field(&rollup(pid), "Pss:") * 1024.0).sum()
}

/// The processes, and all that they have started.
fn descendants<'a>(processes: impl IntoIterator<Item = &'a Process>) -> Vec<i32> {
    let parents = parents();
    let mut found: Vec<i32> = processes.into_iter().map(|process| process.pid().as_raw()).collect();
    let mut at = 0;
    while let Some(&pid) = found.get(at) {
        found.extend(parents.iter().filter(|(_, parent)| **parent == pid).map(|(child, _)| *child));
        at += 1;
    }
    found
}

/// Returns the parent of each process.
fn parents() -> BTreeMap<i32, i32> {
    let pids = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = pids.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    pids.filter_map(|pid| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        Some((pid, stat.rsplit(')').next()?.split_whitespace().nth(1)?.parse().ok()?))
    })
    .collect()
}

fn field(text: &str, name: &str) -> f64 {
    let value = text.lines().find_map(|line| line.strip_prefix(name)?.split_whitespace().next()?.parse().ok());
    value.unwrap_or(0.0)
}

/// The value of `sysconf(_SC_CLK_TCK)` on every Linux.
const TICKS_PER_SECOND: f64 = 100.0;

/// Moves this process, and the clients that it starts, to the last processor that it may use.
pub fn move_clients() -> Result<()> {
    let mut set = CpuSet::new();
    set.set(processors()?.1)?;
    sched_setaffinity(Pid::from_raw(0), &set)?;
    Ok(())
}

/// The first and the last processor that this process was allowed at its start.
fn processors() -> Result<(usize, usize)> {
    static ALLOWED: std::sync::OnceLock<Option<(usize, usize)>> = std::sync::OnceLock::new();
    let found = ALLOWED.get_or_init(|| {
        let set = sched_getaffinity(Pid::from_raw(0)).ok()?;
        let has = |at: &usize| set.is_set(*at).unwrap_or(false);
        Some(((0..CpuSet::count()).find(has)?, (0..CpuSet::count()).rfind(has)?))
    });
    found.ok_or_else(|| "no processor to run on".into())
}

fn servers_processor() -> Result<usize> {
    Ok(processors()?.0)
}

/// Ports of 127.0.0.1 that nobody has at this moment.
pub fn free_ports<const N: usize>() -> Result<[u16; N]> {
    let mut listeners = Vec::new();
    let mut ports = [0; N];
    for port in &mut ports {
        let listener = TcpListener::bind(("127.0.0.1", 0))?;
        *port = listener.local_addr()?.port();
        listeners.push(listener);
    }
    Ok(ports)
}
