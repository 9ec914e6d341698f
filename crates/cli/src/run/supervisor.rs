//! The command while it runs, its signals, and its lock.

use std::collections::HashSet;
use std::io;
use std::process::ExitStatus;
use std::time::{Duration, Instant};

use dlock_client::{Error, Guard};
use nix::sys::prctl::set_child_subreaper;
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};
use nix::unistd::Pid;
use tokio::process::Child;
use tokio::time::{sleep, sleep_until, timeout};

use super::descendants;
use super::options::Run;
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
    /// Until when the lock is held, as far as was last seen.
    end: Instant,
    /// When `--max-time` ends it, however often it is renewed, or a little later.
    latest: Option<Instant>,
    ending: Ending,
    /// A signal asked the command to end now.
    interrupted: bool,
}

/// Whether the command has been asked to end because of the lock.
#[derive(Clone, Copy)]
enum Ending {
    No,
    /// The command got TERM, and gets KILL then.
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

    /// Hands signals on and watches the lock, until the command has ended.
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

    /// Checks at a time when the lock should have been renewed, or the command should have ended.
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

    /// Asks the command to end, with what it has started, and leaves it what time there is.
    fn end(&mut self, why: &str) {
        fail(0, &format!("{}: {why}, ending the command", shown(self.guard.name())));
        // From now on, a process whose parent ends is still found below this one.
        let _ = set_child_subreaper(true);
        self.signal_all(Signal::SIGTERM);
        // Should it be stopped: a stopped process ends by nothing but KILL.
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
                if self.stands_still() {
                    stop();
                }
                // Continued. Nothing was renewed meanwhile: if that was for too long, the command must not go on.
                self.look();
            }
            (Signal::SIGCONT, _) | (_, From::Process) => {
                self.look();
                self.signal(signal);
            }
            (_, From::Kernel) => {}
        }
    }

    /// Returns whether the command has stopped, for which it gets a moment. One that goes on, because it ignores the
    /// signal or belongs to no job of a shell, has to have its lock kept.
    fn stands_still(&self) -> bool {
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

    /// Waits for the processes that are left by a command which was ended because of its lock. They get KILL when the
    /// command would have got it.
    pub async fn end_the_rest(&self) {
        let kill_at = match self.ending {
            Ending::No => return,
            Ending::By(kill) => kill,
            Ending::Killed => Instant::now(),
        };
        let mut told = HashSet::new();
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
                } else if told.insert(process) {
                    // Processes that were started meanwhile have not heard of it.
                    let _ = kill(process, Signal::SIGTERM).and_then(|()| kill(process, Signal::SIGCONT));
                }
            }
            sleep(PAUSE).await;
        }
    }

    /// Returns the command's id, which is its own until it is waited for.
    fn id(&self) -> Option<Pid> {
        self.child.id().and_then(|id| i32::try_from(id).ok()).map(Pid::from_raw)
    }

    /// Gives the lock up although it is not known how the command ended: another part of the system has waited for it.
    /// The code to exit with.
    pub async fn lost_sight(self, error: &io::Error, run: &Run) -> u8 {
        // An id that is no child's any more may be another process.
        if let Some(id) = self.id().filter(|id| waitid(Id::Pid(*id), LOOK).is_ok()) {
            let _ = kill(id, Signal::SIGKILL);
        }
        let _ = run.once.end(self.guard, self.began, false).await;
        fail(exit::SYSTEM, &format!("{}: how the command ended is not known: {error}", run.shown()))
    }

    /// Gives the lock up. The code to exit with.
    pub async fn finish(self, status: ExitStatus, run: &Run) -> u8 {
        let is_lost = !matches!(self.ending, Ending::No);
        let releasing = run.once.end(self.guard, self.began, status.success() && !is_lost);
        let released = if is_lost || self.interrupted {
            let released = timeout(CLEANUP, releasing).await;
            released.unwrap_or_else(|_| Err(Error::Unreachable("no reply in time".into())))
        } else {
            releasing.await
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
            // The lock was held to the end, and the lease ends it.
            (Ending::No, Err(error)) => fail(exit::of_command(status), &format!("not released: {error}")),
        }
    }
}

/// Returns when the lease or `--max-time` ends. The clock is read first: whatever comes between makes it earlier, not
/// later.
fn end_of(guard: &Guard, latest: Option<Instant>) -> Instant {
    let now = Instant::now();
    let end = now + guard.remaining();
    latest.map_or(end, |latest| latest.min(end))
}

/// Looks whether a process is a child that has ended, without waiting for it.
const LOOK: WaitPidFlag = WaitPidFlag::WEXITED.union(WaitPidFlag::WNOHANG).union(WaitPidFlag::WNOWAIT);

/// The signals that are sent to end a process.
const ENDS: [Signal; 4] = [Signal::SIGHUP, Signal::SIGINT, Signal::SIGQUIT, Signal::SIGTERM];

/// By how much the end of the lock may seem to be before `--max-time` is over: the answer to the grant takes a moment.
const NEAR: Duration = Duration::from_secs(1);

/// How long a command may take to stop, and how often that is looked at.
const STOPPING: Duration = Duration::from_millis(200);
const PAUSE: Duration = Duration::from_millis(5);

/// How long processes may take to be gone after KILL.
const MOST: Duration = Duration::from_millis(500);
