//! Signals that `dlock run` passes on to its command, signals that the command has got already, and children to reap.
//!
//! The command stays in our process group, so that it can use the terminal. The kernel gives a signal of the terminal
//! (`Ctrl-C`, `Ctrl-Z`) to both. A signal that `kill` sends to us does not reach the command, so we pass it on.

use std::fs;
use std::io;
use std::thread;

use nix::sys::signal::{SigSet, SigmaskHow, Signal, raise};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::wait::{Id, WaitPidFlag, waitid};
use nix::unistd::{Pid, getpid};
use tokio::signal::unix;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

/// Where a signal came from.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum From {
    /// The terminal: the command got it too.
    Kernel,
    /// A process, which sent it to us.
    Process,
}

/// The signals of this process, read instead of handled.
pub struct Signals {
    queue: UnboundedReceiver<(Signal, From)>,
    /// The mask of this process before it blocked the signals.
    before: SigSet,
}

impl Signals {
    /// Blocks the signals, and reads them from now on. Call this first: an earlier thread would not block them.
    pub fn take() -> io::Result<Self> {
        // Signals that this process was started to ignore stay ignored.
        let ignored = ignored();
        let ours: SigSet = HANDED_ON.into_iter().filter(|signal| ignored & (1 << (*signal as u32 - 1)) == 0).collect();
        let before = ours.thread_swap_mask(SigmaskHow::SIG_BLOCK)?;
        let source = SignalFd::with_flags(&ours, SfdFlags::SFD_CLOEXEC)?;
        let (sink, queue) = unbounded_channel();
        thread::Builder::new().name("signals".to_owned()).spawn(move || {
            while let Ok(Some(info)) = source.read_signal() {
                let signal = i32::try_from(info.ssi_signo).ok().and_then(|number| Signal::try_from(number).ok());
                let from = if info.ssi_code == SI_KERNEL { From::Kernel } else { From::Process };
                if signal.is_some_and(|signal| sink.send((signal, from)).is_err()) {
                    return;
                }
            }
        })?;
        Ok(Self { queue, before })
    }

    /// Returns the mask that we were started with.
    pub fn mask_before(&self) -> SigSet {
        self.before
    }

    /// Returns the next signal. May be dropped without losing any.
    pub async fn next(&mut self) -> (Signal, From) {
        match self.queue.recv().await {
            Some(next) => next,
            // The thread that reads signals has failed, so there are none.
            None => std::future::pending().await,
        }
    }

    /// Waits until the process is asked to end. Every other signal is ignored.
    pub async fn asked_to_end(mut self) {
        while !matches!(self.next().await.0, Signal::SIGTERM | Signal::SIGINT) {}
    }

    /// Ends this process by the signal, as if it was never blocked: the parent sees which signal it was.
    pub fn die_of(&self, signal: Signal) -> io::Result<()> {
        let mut only = SigSet::empty();
        only.add(signal);
        only.thread_unblock()?;
        Ok(raise(signal)?)
    }
}

/// Waits for children to end.
///
/// A parent that ignores `CHLD` passes that on to this process, and the kernel would discard how children ended. A
/// handler prevents that, and the command does not inherit it.
pub struct Children(unix::Signal);

impl Children {
    /// Handles `CHLD` from now on. Call this before there is another thread.
    pub fn take() -> io::Result<Self> {
        let mut only = SigSet::empty();
        only.add(Signal::SIGCHLD);
        only.thread_unblock()?;
        Ok(Self(unix::signal(unix::SignalKind::child())?))
    }

    /// Waits until a child may have ended. May be dropped and called again.
    pub async fn ended(&mut self) {
        if self.0.recv().await.is_none() {
            std::future::pending().await
        }
    }
}

/// Reaps children that have ended, up to the command, whose supervisor waits for it. The first process of a container
/// gets the orphans of all other processes as children.
pub fn reap(command: Option<Pid>) {
    let look = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
    while let Ok(status) = waitid(Id::All, look) {
        let Some(id) = status.pid().filter(|id| Some(*id) != command) else { return };
        let _ = waitid(Id::Pid(id), WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG);
    }
}

/// Reaps in the background the children that this process did not start: orphans, and children of the program that
/// became this one by `exec`.
pub fn reap_in_background() -> io::Result<()> {
    let mut children = Children::take()?;
    tokio::spawn(async move {
        loop {
            reap(None);
            children.ended().await;
        }
    });
    Ok(())
}

/// Lets signals end this process if it is the first of a container: without handlers, the kernel ignores them.
pub fn end_as_first_process() -> io::Result<()> {
    if getpid().as_raw() != 1 {
        return Ok(());
    }
    for kind in [Signal::SIGHUP, Signal::SIGINT, Signal::SIGQUIT, Signal::SIGTERM] {
        let mut signal = unix::signal(unix::SignalKind::from_raw(kind as i32))?;
        tokio::spawn(async move {
            if signal.recv().await.is_some() {
                std::process::exit(128 + kind as i32);
            }
        });
    }
    Ok(())
}

/// Stops this process, as the terminal expects of a suspended job. Returns when it continues.
pub fn stop() {
    let _ = raise(Signal::SIGSTOP);
}

/// Returns the signals that this process was started to ignore (`nohup`), as a mask. The command will ignore them as
/// well.
fn ignored() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}

/// The signals that are read, and passed on to the command.
const HANDED_ON: [Signal; 8] = [
    Signal::SIGHUP,
    Signal::SIGINT,
    Signal::SIGQUIT,
    Signal::SIGTERM,
    Signal::SIGUSR1,
    Signal::SIGUSR2,
    Signal::SIGTSTP,
    Signal::SIGCONT,
];

/// `si_code` of a signal that no process sent.
const SI_KERNEL: i32 = 0x80;
