//! A network namespace in which a test can drop packets, so that neither side of a connection gets a FIN or RST.

use std::cell::RefCell;
use std::fs::File;
use std::io::{Error, Result};
use std::net::Ipv4Addr;
use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt;
use std::process::Command;

thread_local! {
    /// The network of this thread, if it has entered one.
    static ENTERED: RefCell<Option<File>> = const { RefCell::new(None) };
}

/// A network namespace with only a loopback device (127.0.0.0/8). The kernel removes it with its last thread or process.
pub struct Network(());

impl Network {
    /// Moves the calling thread into a new network. The threads and servers that it starts are in it, too.
    ///
    /// # Errors
    /// The process lacks `CAP_SYS_ADMIN` or `CAP_NET_ADMIN`, or the command `ip` of iproute2 is missing. The thread then
    /// stays in its network.
    pub fn enter() -> Result<Self> {
        let before = File::open(MINE)?;
        // SAFETY: changes nothing but the network of this thread.
        succeeded(unsafe { libc::unshare(libc::CLONE_NEWNET) })?;
        if let Err(error) = Self::set_up() {
            join(&before)?;
            return Err(error);
        }
        Ok(Self(()))
    }

    fn set_up() -> Result<()> {
        ip("link set lo up")?;
        // The rule for local addresses moves from 0 to 1, so that rules of `cut` come before it.
        ip("rule add pref 1 lookup local")?;
        ip("rule del pref 0")?;
        ENTERED.set(Some(File::open(MINE)?));
        Ok(())
    }

    /// Drops all packets from and to this address until [`Network::heal`].
    pub fn cut(&self, address: Ipv4Addr) -> Result<()> {
        BOTH_WAYS.iter().try_for_each(|way| ip(&format!("rule add pref 0 {way} {address} blackhole")))
    }

    /// Lets packets through again. The kernel then sends the dropped packets of open connections again.
    pub fn heal(&self, address: Ipv4Addr) -> Result<()> {
        BOTH_WAYS.iter().try_for_each(|way| ip(&format!("rule del pref 0 {way} {address} blackhole")))
    }
}

/// Lets a process start in the network of the calling thread, even if another thread starts it.
pub(crate) fn enter_with(command: &mut Command) {
    let Some(network) = ENTERED.with_borrow(|network| network.as_ref().map(|file| file.try_clone().expect("a file")))
    else {
        return;
    };
    // SAFETY: `setns` is async-signal-safe and touches nothing of the parent.
    unsafe {
        command.pre_exec(move || join(&network));
    }
}

fn join(network: &File) -> Result<()> {
    // SAFETY: the descriptor is open, and only the network of this thread changes.
    succeeded(unsafe { libc::setns(network.as_raw_fd(), libc::CLONE_NEWNET) })
}

fn succeeded(result: libc::c_int) -> Result<()> {
    if result == 0 { Ok(()) } else { Err(Error::last_os_error()) }
}

/// Runs `ip` of iproute2.
fn ip(line: &str) -> Result<()> {
    let output = Command::new("ip").args(line.split(' ')).output()?;
    let problem = || Error::other(format!("ip {line}: {}", String::from_utf8_lossy(&output.stderr).trim()));
    output.status.success().then_some(()).ok_or_else(problem)
}

const MINE: &str = "/proc/thread-self/ns/net";
const BOTH_WAYS: [&str; 2] = ["from", "to"];
