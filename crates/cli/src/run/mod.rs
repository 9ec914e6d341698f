//! `dlock run`: a command under a lock.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::process::ExitStatus;
use std::time::{Duration, Instant};

use dlock_client::{Acquire, Client, Error, Guard};
use nix::sys::signal::{Signal, kill, raise};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};
use nix::unistd::{Pid, gethostname};
use tokio::process::{Child, Command};
use tokio::time::{sleep_until, timeout};

use crate::args::Run;
use crate::deadline::Deadline;
use crate::output::shown;
use crate::parent_death::die_with_us;
use crate::signals::{From, Signals};
use crate::{exit, fail};

pub async fn run(client: &Client, run: Run) -> u8 {
    let mut signals = match Signals::take() {
        Ok(signals) => signals,
        Err(error) => return fail(exit::UNAVAILABLE, &error.to_string()),
    };
    let guard = match acquire(client, &run, &mut signals).await {
        Ok(guard) => guard,
        Err(code) => return code,
    };
    let began = Instant::now();
    let begun = match run.once.begin(&guard, run.lease).await {
        // The first lease over a quorum is short: the command begins when the lock has its whole lease.
        Ok(()) if guard.remaining() < run.lease / 3 * 2 && run.max_time.is_none() => guard.renew().await,
        begun => begun,
    };
    if let Err(error) = begun {
        let _ = guard.release().await;
        return fail(exit::of(&error), &error.to_string());
    }
    let child = match start(&run, &guard, &signals) {
        Ok(child) => child,
        Err(error) => {
            let code = if error.kind() == io::ErrorKind::NotFound { exit::NOT_FOUND } else { exit::CANNOT_RUN };
            // It did not run, so it does not count.
            let _ = if run.once.stays().is_some() {
                guard.release_after(Duration::ZERO).await
            } else {
                guard.release().await
            };
            let program = run.program().map_or(String::new(), |(program, _)| program.display().to_string());
            return fail(code, &format!("{program}: {error}"));
        }
    };
    let mut supervisor = Supervisor::new(child, guard, began, &run);
    match supervisor.watch(&mut signals).await {
        Ok(status) => supervisor.finish(status, &run).await,
        Err(error) => fail(exit::UNAVAILABLE, &error.to_string()),
    }
}

impl Run {
    /// Returns the acquisition that the options describe.
    pub fn acquire(&self, client: &Client) -> Acquire {
        let name = self.name.as_bytes();
        match self.limit {
            _ if !self.keys.is_empty() => client.acquire_all(self.keys.iter().map(|key| key.as_bytes())),
            Some(limit) if self.slot => client.semaphore(name, limit).acquire_slot(),
            Some(limit) => client.semaphore(name, limit).acquire_many(self.permits),
            None if self.shared => client.read(name),
            None => client.acquire(name),
        }
    }

    /// Returns the program and its arguments.
    pub fn program(&self) -> Option<(&OsString, &[OsString])> {
        match self.keys.as_slice() {
            [] => self.command.split_first(),
            // There is no name, so the first word is the program.
            _ => Some((&self.name, &self.command)),
        }
    }

    /// Returns the locks, for messages.
    pub fn shown(&self) -> String {
        let names = if self.keys.is_empty() { std::slice::from_ref(&self.name) } else { &self.keys };
        names.iter().map(|name| shown(name.as_bytes())).collect::<Vec<_>>().join(" ")
    }
}

/// Acquires the lock. Returns the code to exit with if that fails.
async fn acquire(client: &Client, run: &Run, signals: &mut Signals) -> Result<Guard, u8> {
    let acquire =
        run.acquire(client).lease(run.lease).replicas(run.replicas, run.replicas_timeout).owner_label(label());
    let acquire = match run.outage {
        Some(limit) => acquire.outage(limit),
        None => acquire,
    };
    let acquire = run.once.apply(acquire, run.lease);
    let acquire = match run.max_time {
        Some(most) => acquire.max_hold(run.once.stays().map_or(most, |time| time.max(most))),
        None => acquire,
    };
    let acquire = match (run.no_wait || run.once.once.is_some(), run.wait) {
        (_, Some(wait)) => acquire.wait(wait),
        (true, None) => acquire.no_wait(),
        (false, None) => acquire,
    };
    let mut acquiring = acquire.into_future();
    loop {
        let signal = tokio::select! {
            outcome = &mut acquiring => {
                if outcome.is_err() {
                    // It may have been granted without an answer. The end of this process would end the release.
                    let more = if run.replicas > 0 { run.replicas_timeout.min(MOST_BEHIND) } else { Duration::ZERO };
                    let _ = timeout(BEHIND + more, client.settled()).await;
                }
                return outcome.map_err(|error| match error {
                    Error::Contention if run.quiet => run.conflict(),
                    Error::Contention if run.once.once.is_some() => {
                        fail(run.conflict(), &format!("{}: it has run in this period, or runs now", run.shown()))
                    }
                    Error::Contention => fail(run.conflict(), &format!("{}: {error}", run.shown())),
                    error => fail(exit::of(&error), &error.to_string()),
                });
            }
            (signal, _) = signals.next() => signal,
        };
        match signal {
            Signal::SIGTSTP => stop(),
            Signal::SIGCONT => {}
            signal => {
                // Leaves the queue, and releases what may have been granted.
                drop(acquiring);
                let _ = timeout(CLEANUP, client.settled()).await;
                let _ = signals.die_of(signal);
                return Err(128_u8.saturating_add(u8::try_from(signal as i32).unwrap_or(0)));
            }
        }
    }
}

fn start(run: &Run, guard: &Guard, signals: &Signals) -> io::Result<Child> {
    let (program, arguments) = run.program().ok_or(io::ErrorKind::InvalidInput)?;
    let mut command = Command::new(program);
    command.args(arguments);
    let names: Vec<_> = guard.names().collect();
    command.env("DLOCK_NAME", OsStr::from_bytes(&names.join(&b' ')));
    command.env("DLOCK_OWNER", guard.owner()).env("DLOCK_TOKEN", guard.token().to_string());
    match guard.slot() {
        Some(slot) => command.env("DLOCK_SLOT", slot.to_string()),
        // That of a run around this one.
        None => command.env_remove("DLOCK_SLOT"),
    };
    die_with_us(&mut command, signals.mask_before());
    command.spawn()
}

/// The command while it runs.
struct Supervisor {
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
    /// It got TERM, and gets KILL then.
    By(Instant),
    Killed,
}

impl Supervisor {
    fn new(child: Child, guard: Guard, began: Instant, run: &Run) -> Self {
        let lease = run.max_time.map_or(run.lease, |most| run.lease.min(most));
        let latest = run.max_time.map(|most| began + most);
        let (deadline, end) = (Deadline::of(lease), end_of(&guard, latest));
        Self { child, guard, began, deadline, end, latest, ending: Ending::No, interrupted: false }
    }

    /// Hands signals on and watches the lock, until the command has ended.
    async fn watch(&mut self, signals: &mut Signals) -> io::Result<ExitStatus> {
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
                self.signal(Signal::SIGKILL);
                self.ending = Ending::Killed;
            }
            Ending::By(_) | Ending::Killed => {}
        }
    }

    /// Asks the command to end, and leaves it what time there is.
    fn end(&mut self, why: &str) {
        fail(0, &format!("{}: {why}, ending the command", String::from_utf8_lossy(self.guard.name())));
        self.signal(Signal::SIGTERM);
        // Should it be stopped: a stopped process ends by nothing but KILL.
        self.signal(Signal::SIGCONT);
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

    /// Returns the command's id, which is its own until it is waited for.
    fn id(&self) -> Option<Pid> {
        self.child.id().and_then(|id| i32::try_from(id).ok()).map(Pid::from_raw)
    }

    /// Gives the lock up. The code to exit with.
    async fn finish(self, status: ExitStatus, run: &Run) -> u8 {
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
            // It was held to the end, and the lease ends it.
            (Ending::No, Err(error)) => fail(exit::of_command(status), &format!("not released: {error}")),
        }
    }
}

/// Returns the beginning of the owner: the name of the host and the id of this process.
fn label() -> String {
    let host = gethostname().unwrap_or_default();
    let plain = |c: char| if c.is_ascii_alphanumeric() || "-._".contains(c) { c } else { '-' };
    let host: String = host.to_string_lossy().chars().map(plain).take(MAX_HOST).collect();
    format!("{host}:{}", std::process::id())
}

/// Returns when the lease or `--max-time` ends. The clock is read first: whatever comes between makes it earlier, not
/// later.
fn end_of(guard: &Guard, latest: Option<Instant>) -> Instant {
    let now = Instant::now();
    let end = now + guard.remaining();
    latest.map_or(end, |latest| latest.min(end))
}

/// Stops this process, as the terminal expects of a suspended job. Returns when it continues.
fn stop() {
    let _ = raise(Signal::SIGSTOP);
}

/// The longest name that Linux gives a host.
const MAX_HOST: usize = 64;

/// How long the lock is released when nobody wants to wait for that: the end of this process is 100 ms away.
const CLEANUP: Duration = Duration::from_millis(60);

/// How long this process waits for a release behind an acquisition that has failed. The limit of the wait is over, and
/// the end of this process may be 250 ms after it. Replicas have their own time in addition.
const BEHIND: Duration = Duration::from_millis(40);
const MOST_BEHIND: Duration = Duration::from_secs(1);

/// The signals that are sent to end a process.
const ENDS: [Signal; 4] = [Signal::SIGHUP, Signal::SIGINT, Signal::SIGQUIT, Signal::SIGTERM];

/// By how much the end of the lock may seem to be before `--max-time` is over: the answer to the grant takes a moment.
const NEAR: Duration = Duration::from_secs(1);

/// How long a command may take to stop, and how often that is looked at.
const STOPPING: Duration = Duration::from_millis(200);
const PAUSE: Duration = Duration::from_millis(5);
