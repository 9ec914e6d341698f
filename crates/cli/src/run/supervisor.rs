//! Watches the running command and its lock, and passes signals on.

use std::collections::HashSet;
use std::io;
use std::process::ExitStatus;
use std::time::{Duration, Instant};

use dlock_client::{Client, Error, Guard};
use nix::sys::prctl::set_child_subreaper;
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};
use nix::unistd::Pid;
use tokio::process::Child;
use tokio::time::{sleep, sleep_until, timeout};

use super::options::Run;
use super::{descendants, for_good};
use crate::deadline::Deadline;
use crate::output::shown;
use crate::signals::{Children, From, Signals, reap, stop};
use crate::waiting::CLEANUP;
use crate::{exit, fail};

/// The command while it runs.
pub struct Supervisor {
    child: Child,
    guard: Guard,
    /// When the lock was granted, or a little later.
    began: Instant,
    deadline: Deadline,
    /// Until when the lock is held, by the last renewal that was seen.
    end: Instant,
    /// When `--max-time` ends the lock, however often it is renewed, or a little later.
    latest: Option<Instant>,
    ending: Ending,
    /// A signal asked the command to end now.
    interrupted: bool,
}

/// Whether the command has been asked to end because of the lock.
#[derive(Clone, Copy)]
enum Ending {
    No,
    /// The command got TERM, and gets KILL at this time.
    By(Instant),
    Killed,
}

impl Supervisor {
    pub fn new(child: Child, guard: Guard, began: Instant, run: &Run) -> Self {
        let lease = run.max_time.map_or(run.lease, |most| run.lease.min(most));
        let latest = run.max_time.map(|most| began + most);
        let (deadline, end) = (Deadline::of(lease), end_of(&guard, latest));
        Self { child, guard, began, deadline, end, latest, ending: Ending::No, interrupted: false }
    }

    /// Passes signals on and watches the lock, until the command has ended.
    pub async fn watch(&mut self, signals: &mut Signals, children: &mut Children) -> io::Result<ExitStatus> {
        let lost = self.guard.lost();
        tokio::pin!(lost);
        loop {
            let next = match self.ending {
                Ending::No => Some(self.deadline.term_at(self.end)),
                Ending::By(kill) => Some(kill),
                Ending::Killed => None,
            };
            let alarm = async {
                match next {
                    Some(next) => sleep_until(next.into()).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                status = self.child.wait() => return status,
                () = &mut lost, if matches!(self.ending, Ending::No) => self.end("the lock was lost"),
                () = alarm => self.look(),
                (signal, from) = signals.next() => self.hand_on(signal, from),
                () = children.ended() => reap(self.id()),
            }
        }
    }

    /// Ends the command if the lock was not renewed in time, and kills it if it did not end in time.
    fn look(&mut self) {
        match self.ending {
            Ending::No => {
                self.end = self.end.max(end_of(&self.guard, self.latest));
                if Instant::now() >= self.deadline.term_at(self.end) {
                    let is_over = self.latest.is_some_and(|latest| latest < self.end + NEAR);
                    self.end(if is_over { "its time is over" } else { "the lock cannot be renewed" });
                }
            }
            Ending::By(kill) if Instant::now() >= kill => {
                self.signal_all(Signal::SIGKILL);
                self.ending = Ending::Killed;
            }
            Ending::By(_) | Ending::Killed => {}
        }
    }

    /// Sends TERM to the command and its descendants, and sets the time for KILL.
    fn end(&mut self, why: &str) {
        fail(0, &format!("{}: {why}, ending the command", shown(self.guard.name())));
        // From now on, a descendant whose parent ends becomes a child of this process.
        let _ = set_child_subreaper(true);
        self.signal_all(Signal::SIGTERM);
        // A stopped process handles TERM only after CONT.
        self.signal_all(Signal::SIGCONT);
        self.ending = Ending::By(self.deadline.kill_at(self.end, Instant::now()));
        self.look();
    }

    fn hand_on(&mut self, signal: Signal, from: From) {
        self.interrupted |= ENDS.contains(&signal);
        match (signal, from) {
            (Signal::SIGTSTP, from) => {
                if from == From::Process {
                    self.signal(signal);
                }
                if self.has_stopped() {
                    stop();
                }
                // Nothing was renewed while this process was stopped, so the command may have to end.
                self.look();
            }
            (Signal::SIGCONT, _) | (_, From::Process) => {
                self.look();
                self.signal(signal);
            }
            (_, From::Kernel) => {}
        }
    }

    /// Gives the command a moment to stop, and returns whether it has. The lock of a command that goes on, because it
    /// ignores the signal or belongs to no job of a shell, must be renewed.
    fn has_stopped(&self) -> bool {
        let Some(id) = self.id() else { return false };
        let look = WaitPidFlag::WSTOPPED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
        (0..STOPPING.as_millis() / PAUSE.as_millis()).any(|_| {
            let stopped = matches!(waitid(Id::Pid(id), look), Ok(WaitStatus::Stopped(..)));
            if !stopped {
                std::thread::sleep(PAUSE);
            }
            stopped
        })
    }

    /// Sends a signal to the command, if it still runs.
    fn signal(&self, signal: Signal) {
        if let Some(id) = self.id() {
            let _ = kill(id, signal);
        }
    }

    /// Sends a signal to the command and to the processes that it has started.
    fn signal_all(&self, signal: Signal) {
        self.signal(signal);
        for process in descendants::of_this_process().into_iter().filter(|id| Some(*id) != self.id()) {
            let _ = kill(process, signal);
        }
    }

    /// Waits for the descendants of a command that was ended because of its lock. They get KILL at the time that was
    /// set for the command.
    pub async fn end_the_rest(&self) {
        let kill_at = match self.ending {
            Ending::No => return,
            Ending::By(kill) => kill,
            Ending::Killed => Instant::now(),
        };
        let mut signaled = HashSet::new();
        loop {
            reap(None);
            let left = descendants::of_this_process();
            let now = Instant::now();
            if left.is_empty() || now >= kill_at + MOST {
                return;
            }
            for process in left {
                if now >= kill_at {
                    let _ = kill(process, Signal::SIGKILL);
                } else if signaled.insert(process) {
                    // Processes that were started meanwhile have not got TERM.
                    let _ = kill(process, Signal::SIGTERM).and_then(|()| kill(process, Signal::SIGCONT));
                }
            }
            sleep(PAUSE).await;
        }
    }

    /// Returns the process id of the command, unless the command has been waited for.
    fn id(&self) -> Option<Pid> {
        self.child.id().and_then(|id| i32::try_from(id).ok()).map(Pid::from_raw)
    }

    /// Gives up the lock if it is unknown how the command ended, since something else has waited for it. Returns the
    /// exit code.
    pub async fn lost_sight(self, error: &io::Error, run: &Run, client: &Client) -> u8 {
        // If the command is no child any more, another process may have its id.
        if let Some(id) = self.id().filter(|id| waitid(Id::Pid(*id), LOOK).is_ok()) {
            let _ = kill(id, Signal::SIGKILL);
        }
        let _ = for_good(client, run.once.end(self.guard, self.began, false)).await;
        fail(exit::SYSTEM, &format!("{}: how the command ended is not known: {error}", run.shown()))
    }

    /// Gives up the lock, and returns the exit code.
    pub async fn finish(self, status: ExitStatus, run: &Run, client: &Client) -> u8 {
        let is_lost = !matches!(self.ending, Ending::No);
        let releasing = run.once.end(self.guard, self.began, status.success() && !is_lost);
        let released = if is_lost || self.interrupted {
            let released = timeout(CLEANUP, releasing).await;
            released.unwrap_or_else(|_| Err(Error::Unreachable("no reply in time".into())))
        } else {
            for_good(client, releasing).await
        };
        match (self.ending, released) {
            (Ending::By(_) | Ending::Killed, _) => exit::LOST,
            (Ending::No, Ok(())) => exit::of_command(status),
            (Ending::No, Err(Error::Lost)) => {
                fail(exit::LOST, &format!("{}: the lock was lost while the command ran", run.shown()))
            }
            (Ending::No, Err(error)) if run.once.retry_failed && status.success() => {
                let why = format!("the lock does not stay, so another run may follow in this period: {error}");
                fail(exit::of_command(status), &format!("{}: {why}", run.shown()))
            }
            // The lock was held until the command ended. Its lease will end it.
            (Ending::No, Err(error)) => fail(exit::of_command(status), &format!("not released: {error}")),
        }
    }
}

/// Returns when the lease or `--max-time` ends. The clock is read first: a delay makes the result earlier, not later.
fn end_of(guard: &Guard, latest: Option<Instant>) -> Instant {
    let now = Instant::now();
    let end = now + guard.remaining();
    latest.map_or(end, |latest| latest.min(end))
}

/// Looks whether a process is a child that has ended, without waiting for it.
const LOOK: WaitPidFlag = WaitPidFlag::WEXITED.union(WaitPidFlag::WNOHANG).union(WaitPidFlag::WNOWAIT);

/// The signals that are sent to end a process.
const ENDS: [Signal; 4] = [Signal::SIGHUP, Signal::SIGINT, Signal::SIGQUIT, Signal::SIGTERM];

/// `--max-time` has ended a lock even if the lease seems to end this much earlier: the reply to the grant takes a
/// moment.
const NEAR: Duration = Duration::from_secs(1);

/// How long a command may take to stop, and how often to look.
const STOPPING: Duration = Duration::from_millis(200);
const PAUSE: Duration = Duration::from_millis(5);

/// How long processes may take to be gone after KILL.
const MOST: Duration = Duration::from_millis(500);
