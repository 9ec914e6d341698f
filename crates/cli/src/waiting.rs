//! The way to a lock: the wait in the queue, what is told meanwhile, and who held it if it was refused.

use std::io::{self, IsTerminal};
use std::time::Duration;

use dlock_client::{Acquire, Client, Error, Guard, HoldMode, LockInfo};
use nix::sys::signal::Signal;
use nix::unistd::gethostname;
use tokio::time::{sleep, timeout};

use crate::output::{moment, say, shown, time};
use crate::signals::{Children, Signals, reap, stop};
use crate::{exit, fail};

/// An acquisition as a person sees it.
pub struct Told<'a> {
    pub client: &'a Client,
    pub names: Vec<&'a [u8]>,
    /// The beginning of the owner.
    pub label: &'a str,
    /// The limit of a semaphore.
    pub limit: Option<u32>,
    /// A refusal means that it has run.
    pub is_once: bool,
    pub is_quiet: bool,
    /// The readers of what it waits for.
    pub audience: Audience,
    /// The code to exit with if it was refused.
    pub conflict: u8,
    /// How much longer replicas may make a release take.
    pub replicas_take: Duration,
}

/// The readers of what is told during a wait.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Audience {
    /// A person at a terminal. Cron would mail it.
    Terminal,
    /// The log of a pipeline, too.
    Everybody,
}

/// Acquires the lock. Returns the code to exit with if that fails.
pub async fn acquired(
    acquire: Acquire,
    told: &Told<'_>,
    signals: &mut Signals,
    children: &mut Children,
) -> Result<Guard, u8> {
    reap(None);
    let mut acquiring = acquire.into_future();
    let notice = async {
        sleep(NOTICE).await;
        told.waits().await;
        std::future::pending::<()>().await;
    };
    tokio::pin!(notice);
    loop {
        let signal = tokio::select! {
            outcome = &mut acquiring => {
                return match outcome {
                    Ok(guard) => Ok(guard),
                    Err(error) => Err(told.failed(&error).await),
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
                let _ = timeout(CLEANUP, told.client.settled()).await;
                let _ = signals.die_of(signal);
                return Err(128_u8.saturating_add(u8::try_from(signal as i32).unwrap_or(0)));
            }
        }
    }
}

impl Told<'_> {
    /// Says whom it waits for, and to everybody that it waits for itself.
    async fn waits(&self) {
        let is_nested = self.is_nested();
        let is_heard = self.audience == Audience::Everybody || io::stderr().is_terminal();
        if self.is_quiet || !(is_nested || is_heard) {
            return;
        }
        let lock = self.look(NOTICE).await;
        if is_nested && lock.as_ref().is_none_or(is_around) {
            say(&format!("dlock: {}: waits for itself: {}", self.shown(), around()));
        } else if is_heard {
            let behind = lock.map_or_else(String::new, |lock| self.behind(&lock));
            say(&format!("dlock: waiting for {}{behind}", self.shown()));
        }
    }

    /// Returns who is before this request.
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

    /// Says why the lock was not acquired. Returns the code for it.
    async fn failed(&self, error: &Error) -> u8 {
        // The lock may have been granted without an answer. The end of this process would end the release.
        let settled = timeout(BEHIND + self.replicas_take.min(MOST_BEHIND), self.client.settled()).await;
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
            (lock, _) if self.is_nested() && lock.is_none_or(is_around) => around(),
            (Some(lock), Some(_)) if self.limit.is_some() && lock.holds.iter().all(is_permit) => {
                format!("{} permits are taken, by {}", lock.count, holders(lock))
            }
            (Some(lock), Some(first)) => {
                format!("the lock is held by {} for {}, since {began} UTC", holders(lock), time(first.age))
            }
            _ => Error::Contention.to_string(),
        }
    }

    /// Reads the lock, or that one of several which is held.
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

    /// Returns whether the environment has a lock of this name: of a `dlock run` around this one, or of a `dlock acquire`.
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

/// Says that the lock is that of the environment. A variable does not tell which command has set it.
fn around() -> String {
    let outer = std::env::var_os("DLOCK_OWNER").unwrap_or_default();
    let outer = shown(outer.as_encoded_bytes());
    format!("the lock is held by {outer}, the owner of this environment (of the `dlock run` or `dlock acquire` around)")
}

/// Returns whether all holds, of those that are shown, are one's of the environment.
fn is_around(lock: &LockInfo) -> bool {
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

/// Returns the beginning of the owner: the name of the host and the id of this process.
pub fn label() -> String {
    let host = gethostname().unwrap_or_default();
    let plain = |c: char| if c.is_ascii_alphanumeric() || "-._".contains(c) { c } else { '-' };
    let host: String = host.to_string_lossy().chars().map(plain).take(MAX_HOST).collect();
    format!("{host}:{}", std::process::id())
}

pub const HAS_RUN: &str = "it has run in this period, or runs now";

/// How long it waits in silence.
const NOTICE: Duration = Duration::from_secs(1);

/// How long to ask who holds a lock that was refused: the end of this process may be 250 ms after the limit.
const LOOK: Duration = Duration::from_millis(100);

/// The characters of a moment without its milliseconds.
pub const SECONDS: usize = "2026-11-22 07:05:21".len();

/// The longest name that Linux gives a host.
const MAX_HOST: usize = 64;

/// How long the lock is released when nobody wants to wait for that: the end of this process is 100 ms away.
pub const CLEANUP: Duration = Duration::from_millis(60);

/// How long this process waits for a release behind an acquisition that has failed. The limit of the wait is over, and
/// the end of this process may be 250 ms after it. Replicas have their own time in addition.
const BEHIND: Duration = Duration::from_millis(40);
const MOST_BEHIND: Duration = Duration::from_secs(1);
