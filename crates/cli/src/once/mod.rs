//! `--once` and `--at-least`: a lock that stays after its command has ended.
//!
//! With `--once`, the held lock records that the command has run. It stays until nine tenths of the period have passed
//! since the grant, by the clock of the server. The clocks of the machines decide only when they start the command.
//!
//! ```text
//! |------------------------------- period -------------------------------|
//! | command |  the lock stays                                     | free |  the next run
//! grant                                                    nine tenths
//! ```

use std::time::{Duration, Instant};

use clap::Args;
use dlock_client::{Acquire, Error, Guard};
use tokio::time::sleep;

use crate::deadline::MIN_LEASE;
use crate::servers::Servers;
use crate::values::duration;

/// How long the lock of `dlock run` stays.
#[derive(Args)]
pub struct Once {
    /// Run at most once in each period, such as 1d
    ///
    /// Keeps the lock for nine tenths of the period, counted from the start. Does not wait, unless --wait is given. Exit
    /// code 0 if it has run in this period, or runs now (another code with -E).
    #[arg(long, value_name = "PERIOD", value_parser = period, conflicts_with_all = ["shared", "limit", "at_least"])]
    #[arg(help_heading = "How often")]
    pub once: Option<Duration>,

    /// With --once: a command that fails or is killed does not count
    ///
    /// A later run may follow in the same period.
    #[arg(long, requires = "once", conflicts_with = "at_least", help_heading = "How often")]
    pub retry_failed: bool,

    /// Keep the lock for at least this time, counted from the start, even if the command ends earlier
    #[arg(long, value_name = "TIME", value_parser = duration, help_heading = "How often")]
    pub at_least: Option<Duration>,
}

impl Once {
    /// Returns how long the lock stays, counted from the grant.
    pub fn stays(&self) -> Option<Duration> {
        self.once.map(kept).or(self.at_least).filter(|time| !time.is_zero())
    }

    /// Returns the lease that is renewed. The lock of a process that dies must be free in the next period.
    pub fn lease(&self, lease: Duration) -> Duration {
        self.once.map_or(lease, |period| lease.min(kept(period).max(MIN_LEASE)))
    }

    /// Refuses these options over a quorum, before anything runs.
    pub fn check(&self, servers: &Servers) -> Result<(), Error> {
        if self.stays().is_some() && servers.are_several() {
            let why = "--once and --at-least need one server: a quorum does not keep a lock after its release";
            return Err(Error::Invalid(why.to_owned()));
        }
        Ok(())
    }

    /// Adds these options to an acquisition. With `--retry-failed`, the lock stays only after a success. The first
    /// lease is that long all the same, to show that the server allows it.
    pub fn apply(&self, acquire: Acquire, lease: Duration) -> Acquire {
        match self.stays() {
            Some(time) if self.retry_failed => acquire.lease(time.max(lease)),
            Some(time) => acquire.at_least(time),
            None => acquire,
        }
    }

    /// Shortens the lease to the one that is renewed, if the lock is kept only after success.
    pub async fn begin(&self, guard: &Guard, lease: Duration) -> Result<(), Error> {
        if !self.retry_failed {
            return Ok(());
        }
        match guard.extend(lease).await {
            // The server may still have the longer lease, and the guard goes on to renew the lock.
            Err(Error::Unreachable(_)) => Ok(()),
            outcome => outcome,
        }
    }

    /// Gives up the lock after the command, which began at `began`: at once, or when its time is over.
    pub async fn end(&self, guard: Guard, began: Instant, succeeded: bool) -> Result<(), Error> {
        let Some(time) = self.stays().filter(|_| self.retry_failed && succeeded) else { return guard.release().await };
        let left = || time.saturating_sub(began.elapsed());
        // Renews the lock until a server answers: it must stay after a success. A copy that is executed late must not
        // end it earlier.
        while let Err(Error::Unreachable(_)) = guard.extend(left().max(MIN_LEASE)).await {
            sleep(PAUSE).await;
        }
        guard.release_after(left()).await
    }
}

/// Returns how long the lock of a run stays: nine tenths of the period.
///
/// The last tenth is free for a next run that starts early, because clocks differ, the machine was busy or a day has 23
/// hours. All machines must start within the nine tenths, which leaves them plenty of time.
pub fn kept(period: Duration) -> Duration {
    period / 10 * 9
}

fn period(text: &str) -> Result<Duration, String> {
    match duration(text)? {
        period if period < SHORTEST => Err(format!("at least {SHORTEST:?}")),
        period => Ok(period),
    }
}

/// The shortest period: to start a command takes a moment.
const SHORTEST: Duration = Duration::from_secs(1);

/// The pause between two attempts to reach the server after the command.
const PAUSE: Duration = Duration::from_millis(200);

#[cfg(test)]
#[allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    reason = "a test that panics has failed, which is what it is for"
)]
mod week;
