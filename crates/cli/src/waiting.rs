//! Acquires the lock of `dlock run` and `dlock acquire`: waits, handles signals, and prints who holds the lock.

use std::io::{self, IsTerminal};
use std::time::Duration;

use dlock_client::{Acquire, Client, Error, Guard, HoldMode, LockInfo};
use nix::sys::signal::Signal;
use nix::unistd::gethostname;
use tokio::time::{sleep, timeout};

use crate::output::{moment, say, shown, time};
use crate::signals::{Children, Signals, reap, stop};
use crate::{exit, fail};

/// Prints whom an acquisition waits for, and why it fails.
pub struct Reporter<'a> {
    pub client: &'a Client,
    pub names: Vec<&'a [u8]>,
    /// The label of the owner.
    pub label: &'a str,
    /// The limit of a semaphore.
    pub limit: Option<u32>,
    /// With `--once`, a refusal means that the command has run in this period.
    pub is_once: bool,
    pub is_quiet: bool,
    /// The readers of messages during the wait.
    pub audience: Audience,
    /// The exit code after a refusal.
    pub conflict: u8,
    /// How much longer a release may take because of replicas.
    pub replicas_take: Duration,
}

/// The readers of messages during a wait.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Audience {
    /// A person at a terminal. Cron would mail messages.
    Terminal,
    /// The log of a pipeline, too.
    Everybody,
}

/// Acquires the lock. Returns the exit code if that fails.
pub async fn acquired(
    acquire: Acquire,
    reporter: &Reporter<'_>,
    signals: &mut Signals,
    children: &mut Children,
) -> Result<Guard, u8> {
    reap(None);
    let mut acquiring = acquire.into_future();
    let notice = async {
        sleep(NOTICE).await;
        reporter.report_wait().await;
        std::future::pending::<()>().await;
    };
    tokio::pin!(notice);
    loop {
        let signal = tokio::select! {
            outcome = &mut acquiring => {
                return match outcome {
                    Ok(guard) => Ok(guard),
                    Err(error) => Err(reporter.report_failure(&error).await),
                };
            }
            () = &mut notice => continue,
            () = children.ended() => {
                reap(None);
                continue;
            }
            (signal, _) = signals.next() => signal,
        };
        match signal {
            Signal::SIGTSTP => stop(),
            Signal::SIGCONT => {}
            signal => {
                // Leaves the queue, and releases what may have been granted.
                drop(acquiring);
                let _ = timeout(CLEANUP, reporter.client.settled()).await;
                let _ = signals.die_of(signal);
                return Err(128_u8.saturating_add(u8::try_from(signal as i32).unwrap_or(0)));
            }
        }
    }
}

impl Reporter<'_> {
    /// Prints whom the acquisition waits for. Without a terminal, too, if the owner of its environment holds the lock.
    async fn report_wait(&self) {
        let is_nested = self.is_nested();
        let is_heard = self.audience == Audience::Everybody || io::stderr().is_terminal();
        if self.is_quiet || !(is_nested || is_heard) {
            return;
        }
        let lock = self.look(NOTICE).await;
        if is_nested && lock.as_ref().is_none_or(is_held_by_environment) {
            say(&format!("dlock: {}: waits for itself: {}", self.shown(), held_by_environment()));
        } else if is_heard {
            let behind = lock.map_or_else(String::new, |lock| self.behind(&lock));
            say(&format!("dlock: waiting for {}{behind}", self.shown()));
        }
    }

    /// Returns who holds the lock, and how many requests are ahead of this one.
    fn behind(&self, lock: &LockInfo) -> String {
        let mut text = String::new();
        if let Some(first) = lock.holds.first() {
            text += &format!(", held by {} for {}", holders(lock), time(first.age));
        }
        let is_ours =
            |owner: &[u8]| owner.strip_prefix(self.label.as_bytes()).is_some_and(|rest| rest.starts_with(b":"));
        match lock.queue.iter().position(|waiter| is_ours(&waiter.owner)) {
            None | Some(0) => {}
            Some(ahead) => text += &format!(", {ahead} ahead"),
        }
        text
    }

    /// Prints why the lock was not acquired. Returns the exit code.
    async fn report_failure(&self, error: &Error) -> u8 {
        // The client releases a lock that may have been granted without a reply. The process must not end before that.
        let settled = timeout(RELEASE + self.replicas_take.min(RELEASE_ON_REPLICAS), self.client.settled()).await;
        match error {
            Error::Contention if self.is_quiet => self.conflict,
            Error::Contention => {
                // A server that leaves the release unanswered would not say who holds the lock either.
                let patience = if settled.is_ok() { LOOK } else { Duration::ZERO };
                let lock = self.look(patience).await.filter(|lock| lock.holders > 0);
                fail(self.conflict, &format!("{}: {}", self.shown(), self.refusal(lock.as_ref())))
            }
            error => fail(exit::of(error), &error.to_string()),
        }
    }

    fn refusal(&self, lock: Option<&LockInfo>) -> String {
        let first = lock.and_then(|lock| lock.holds.first());
        let began = first.map(|hold| moment(Duration::from_micros(hold.token)));
        let began = began.as_deref().and_then(|began| began.get(..SECONDS)).unwrap_or_default();
        match (lock, first) {
            (Some(lock), Some(first)) if self.is_once => {
                let (who, age, rest) = (shown(&first.owner), time(first.age), time(lock.ttl));
                let next = format!("the next run can begin in {rest}");
                format!("{HAS_RUN}: it began {age} ago ({began} UTC), as {who}; {next}")
            }
            _ if self.is_once => HAS_RUN.to_owned(),
            (lock, _) if self.is_nested() && lock.is_none_or(is_held_by_environment) => held_by_environment(),
            (Some(lock), Some(_)) if self.limit.is_some() && lock.holds.iter().all(is_permit) => {
                format!("{} permits are taken, by {}", lock.count, holders(lock))
            }
            (Some(lock), Some(first)) => {
                format!("the lock is held by {} for {}, since {began} UTC", holders(lock), time(first.age))
            }
            _ => Error::Contention.to_string(),
        }
    }

    /// Reads the lock; of several locks, the first one that is held.
    async fn look(&self, patience: Duration) -> Option<LockInfo> {
        let looking = async {
            for name in &self.names {
                if let Ok(Some(lock)) = self.client.info(name).await
                    && (lock.holders > 0 || self.names.len() == 1)
                {
                    return Some(lock);
                }
            }
            None
        };
        timeout(patience, looking).await.ok().flatten()
    }

    /// Returns whether the environment names this lock: a `dlock run` around this process or a `dlock acquire` set it.
    fn is_nested(&self) -> bool {
        let outer = std::env::var_os("DLOCK_NAME").unwrap_or_default();
        let outer = outer.as_encoded_bytes();
        let is_there = |name: &&[u8]| outer == *name || outer.split(|byte| *byte == b' ').any(|word| word == *name);
        std::env::var_os("DLOCK_OWNER").is_some() && self.names.iter().any(is_there)
    }

    pub fn shown(&self) -> String {
        self.names.iter().map(|name| shown(name)).collect::<Vec<_>>().join(" ")
    }
}

/// Returns the message that the owner in the environment holds the lock. `dlock run` and `dlock acquire` set the same
/// variable.
fn held_by_environment() -> String {
    let outer = std::env::var_os("DLOCK_OWNER").unwrap_or_default();
    let outer = shown(outer.as_encoded_bytes());
    format!("the lock is held by {outer}, the owner of this environment (of the `dlock run` or `dlock acquire` around)")
}

/// Returns whether the owner in the environment has all holds that were read.
fn is_held_by_environment(lock: &LockInfo) -> bool {
    let outer = std::env::var_os("DLOCK_OWNER").unwrap_or_default();
    !lock.holds.is_empty() && lock.holds.iter().all(|hold| hold.owner == outer.as_encoded_bytes())
}

fn is_permit(hold: &dlock_client::HoldInfo) -> bool {
    hold.mode == HoldMode::Shared
}

/// Names the first holder, and counts the others.
pub fn holders(lock: &LockInfo) -> String {
    let first = lock.holds.first().map_or("nobody".to_owned(), |hold| shown(&hold.owner));
    match lock.holders.saturating_sub(1) {
        0 => first,
        1 => format!("{first} and 1 other"),
        more => format!("{first} and {more} others"),
    }
}

/// Returns the default label of an owner: the name of the host and the id of this process.
pub fn label() -> String {
    let host = gethostname().unwrap_or_default();
    let plain = |c: char| if c.is_ascii_alphanumeric() || "-._".contains(c) { c } else { '-' };
    let host: String = host.to_string_lossy().chars().map(plain).take(MAX_HOST).collect();
    format!("{host}:{}", std::process::id())
}

pub const HAS_RUN: &str = "it has run in this period, or runs now";

/// How long to wait before a message says so.
const NOTICE: Duration = Duration::from_secs(1);

/// How long to ask who holds the lock after a refusal: the process has to end within 250 ms after the limit of the
/// wait.
const LOOK: Duration = Duration::from_millis(100);

/// The characters of a moment without its milliseconds.
pub const SECONDS: usize = "2026-11-22 07:05:21".len();

/// The longest name that Linux gives a host.
const MAX_HOST: usize = 64;

/// How long a release may take after a signal or a loss: the process has to end within 100 ms.
pub const CLEANUP: Duration = Duration::from_millis(60);

/// How long a release may take after an acquisition that has failed: the process has to end within 250 ms after the
/// limit of the wait.
const RELEASE: Duration = Duration::from_millis(40);

/// The most of [`Reporter::replicas_take`] that a failed acquisition waits for.
const RELEASE_ON_REPLICAS: Duration = Duration::from_secs(1);
