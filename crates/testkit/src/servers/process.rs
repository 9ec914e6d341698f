//! The paths of the module and the server's program, and the processes and ports of servers.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::fs;
use std::net::{TcpListener, UdpSocket};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{LazyLock, Mutex, mpsc};

use crate::network;

/// Returns the path of the release build of the module.
pub fn module_path() -> PathBuf {
    built("DLOCK_MODULE", "target/release/libdlock.so")
}

/// Returns the path in an environment variable, or a default in the repository. Fails if there is no such file.
pub fn built(variable: &str, default: &str) -> PathBuf {
    let path = match std::env::var_os(variable).filter(|path| !path.is_empty()) {
        Some(path) => PathBuf::from(path),
        None => Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(default),
    };
    assert!(path.exists(), "no module at {}: `make build` or `make hooks`, or set {variable}", path.display());
    path.canonicalize().expect("a path that exists")
}

/// Returns the server's program: the value of `DLOCK_SERVER`, or `redis-server`.
pub fn server_program() -> PathBuf {
    let named = std::env::var_os("DLOCK_SERVER").filter(|name| !name.is_empty());
    named.map_or_else(|| PathBuf::from("redis-server"), PathBuf::from)
}

/// Returns the command that starts the server's program with the `redis.conf` in `home`.
pub fn server_command(home: &Path) -> Command {
    command_of(&server_program(), &[], home)
}

/// Returns the command that starts `binary` as a server with the `redis.conf` in `home`. The command `wrapper` starts
/// it, unless that is empty. The server's standard error goes to the file `stderr` in `home`.
pub fn command_of(binary: &Path, wrapper: &[OsString], home: &Path) -> Command {
    let mut words = wrapper.iter().map(OsString::as_os_str).chain([binary.as_os_str()]);
    let mut command = Command::new(words.next().unwrap_or_default());
    command.args(words);
    let stderr = fs::File::create(home.join("stderr")).expect("a writable directory");
    // An operator may set this variable, so the tests run with it.
    command.env("RUST_BACKTRACE", "1");
    command.arg(home.join("redis.conf")).stdin(Stdio::null()).stdout(Stdio::null()).stderr(stderr);
    die_with_the_tests(&mut command);
    hear_all_signals(&mut command);
    // The process ignores the signal for a file over its limit (`limit_files`). The write then fails, as on a full
    // disk, and the process continues.
    // SAFETY: `signal` is async-signal-safe.
    unsafe {
        command.pre_exec(|| match libc::signal(libc::SIGXFSZ, libc::SIG_IGN) {
            libc::SIG_ERR => Err(std::io::Error::last_os_error()),
            _ => Ok(()),
        });
    }
    command
}

/// Returns the command that starts the server's program as a Sentinel, which keeps its state in its configuration file.
pub fn sentinel_command(home: &Path) -> Command {
    let mut command = server_command(home);
    command.arg("--sentinel");
    command
}

/// Lets the kernel kill the process when the thread that starts it ends: use [`spawn`], whose thread does not end.
pub fn die_with_the_tests(command: &mut Command) {
    // SAFETY: `prctl` is async-signal-safe and touches nothing of the parent.
    unsafe {
        command.pre_exec(|| match libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) {
            0 => Ok(()),
            _ => Err(std::io::Error::last_os_error()),
        });
    }
}

/// Lets the process start with the default actions of `INT`, `QUIT`, `HUP`, `TERM` and `TSTP`. A shell that starts the
/// tests in the background makes them ignore `INT` and `QUIT`. The process would inherit that, and no shell that it
/// starts could trap these signals.
pub fn hear_all_signals(command: &mut Command) {
    let hear = || {
        for number in [libc::SIGINT, libc::SIGQUIT, libc::SIGHUP, libc::SIGTERM, libc::SIGTSTP] {
            // SAFETY: `signal` is async-signal-safe and touches nothing of the parent.
            if unsafe { libc::signal(number, libc::SIG_DFL) } == libc::SIG_ERR {
                return Err(std::io::Error::last_os_error());
            }
        }
        Ok(())
    };
    // SAFETY: the closure calls only what may be called between fork and exec.
    unsafe {
        command.pre_exec(hear);
    }
}

/// The state of the signal `CHLD` that a program inherits from its parent.
#[derive(Clone, Copy, Debug)]
pub enum Children {
    /// The process ignores the signal, so the kernel drops the exit codes of its children.
    Ignored,
    /// The process has set `SA_NOCLDWAIT`, so the kernel drops the exit codes of its children.
    Forgotten,
    /// The process blocks the signal.
    Blocked,
}

/// Lets the process start with `CHLD` in this state.
pub fn inherit_children(command: &mut Command, how: Children) {
    let prepare = move || {
        // SAFETY: all of these are async-signal-safe, and the structures are plain data of this frame.
        let done = unsafe {
            match how {
                Children::Ignored => libc::signal(libc::SIGCHLD, libc::SIG_IGN) != libc::SIG_ERR,
                Children::Forgotten => {
                    let mut action: libc::sigaction = std::mem::zeroed();
                    action.sa_flags = libc::SA_NOCLDWAIT;
                    libc::sigaction(libc::SIGCHLD, &raw const action, std::ptr::null_mut()) == 0
                }
                Children::Blocked => {
                    let mut set: libc::sigset_t = std::mem::zeroed();
                    libc::sigemptyset(&raw mut set);
                    libc::sigaddset(&raw mut set, libc::SIGCHLD);
                    libc::sigprocmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut()) == 0
                }
            }
        };
        if done { Ok(()) } else { Err(std::io::Error::last_os_error()) }
    };
    // SAFETY: the closure calls only what may be called between fork and exec.
    unsafe {
        command.pre_exec(prepare);
    }
}

/// Makes the process the new parent of orphans among its descendants, like the first process of a container (PID 1).
pub fn adopt_orphans(command: &mut Command) {
    // SAFETY: `prctl` is async-signal-safe and touches nothing of the parent.
    unsafe {
        command.pre_exec(|| match libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1) {
            0 => Ok(()),
            _ => Err(std::io::Error::last_os_error()),
        });
    }
}

/// Sends a signal to a child.
pub fn signal(child: &Child, signal: i32) {
    let pid = i32::try_from(child.id()).expect("a process id");
    // SAFETY: the process is a child that has not been waited for, so the id is still its own.
    let done = unsafe { libc::kill(pid, signal) };
    assert_eq!(done, 0, "signal {signal}");
}

/// Limits the size of files that a child writes.
pub fn limit_files(child: &Child, bytes: u64) {
    let limit = libc::rlimit { rlim_cur: bytes, rlim_max: libc::RLIM_INFINITY };
    let pid = i32::try_from(child.id()).expect("a process id");
    // SAFETY: the process is a child that has not been waited for; the limit is read, nothing is written.
    let done = unsafe { libc::prlimit(pid, libc::RLIMIT_FSIZE, &raw const limit, std::ptr::null_mut()) };
    assert_eq!(done, 0, "{}", std::io::Error::last_os_error());
}

/// Starts a process from a thread that lives as long as the test process. The death signal of [`die_with_the_tests`]
/// comes at the end of the *thread* that started the process, and the thread of a test ends before a server that
/// several tests share.
pub fn spawn(mut command: Command) -> Child {
    type Order = (Command, mpsc::Sender<std::io::Result<Child>>);
    static SPAWNER: LazyLock<mpsc::Sender<Order>> = LazyLock::new(|| {
        let (orders, inbox) = mpsc::channel::<Order>();
        std::thread::spawn(move || {
            for (mut command, reply) in inbox {
                let _ = reply.send(command.spawn());
            }
        });
        orders
    });
    network::enter_with(&mut command);
    let program = command.get_program().to_owned();
    let (reply, child) = mpsc::channel();
    SPAWNER.send((command, reply)).expect("the spawner runs");
    let child = child.recv().expect("the spawner answers");
    child.unwrap_or_else(|e| panic!("cannot start {}: {e} (set DLOCK_SERVER)", program.display()))
}

/// Builds a shared library from C source in `dir`, with the compiler `CC`, or `cc`, which also links Rust programs.
///
/// # Errors
/// A file cannot be written, or the compiler is missing or fails.
pub fn shared_library(dir: &Path, name: &str, code: &str) -> std::io::Result<PathBuf> {
    let [source, library] = ["c", "so"].map(|end| dir.join(format!("{name}.{end}")));
    std::fs::write(&source, code)?;
    let compiler = std::env::var_os("CC").unwrap_or_else(|| "cc".into());
    let mut command = Command::new(&compiler);
    let output = command.args(["-shared", "-fPIC", "-pthread", "-O1", "-o"]).arg(&library).arg(&source).output()?;
    if !output.status.success() {
        return Err(std::io::Error::other(format!("{name}.c: {}", String::from_utf8_lossy(&output.stderr))));
    }
    Ok(library)
}

/// Returns a free port, outside of the range for outgoing connections and with room for the cluster bus (port + 10,000).
/// No test suite takes the same port while this process holds its UDP socket, even while the server is down.
/// CONTRIBUTING.md has the rule.
pub fn free_port() -> u16 {
    // The search of processes with adjacent ids starts far apart (97 ports).
    static NEXT: LazyLock<AtomicU16> =
        LazyLock::new(|| AtomicU16::new((std::process::id() % 10_000 * 97 % 10_000) as u16));
    static HELD: Mutex<VecDeque<UdpSocket>> = Mutex::new(VecDeque::new());
    loop {
        let port = 11_000 + NEXT.fetch_add(1, Ordering::Relaxed) % 10_000;
        let at = ("127.0.0.1", port);
        if let (Ok(held), Ok(_)) = (UdpSocket::bind(at), TcpListener::bind(at)) {
            let mut all = HELD.lock().expect("no panic");
            // Keeps the sockets of the last 50 ports only, since open files are limited. Running servers hold their ports.
            if all.len() == 50 {
                all.pop_front();
            }
            all.push_back(held);
            return port;
        }
    }
}
