//! The commands of the module over a quorum.
//!
//! The servers do not know the owner that a client names, but one that is drawn for each attempt. For this reason the
//! agent has a table of the locks of its clients. For other locks it asks the servers.

mod acquire;
mod commands;
mod hold;
mod inspect;
mod members;
mod sessions;
mod table;
mod waiting;

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use dlock_client::{Client, Error};
use dlock_core::args::{Limits, Malformed};
use dlock_core::{Command, Lease};

use crate::resp::{Reply, Request};
use crate::stats::Stats;
pub(crate) use hold::{Anchor, AnchorId};
use members::Members;
use sessions::Sessions;
use table::Table;
use waiting::Waiting;

/// Locks that a majority of servers decides on.
pub(crate) struct Quorum {
    client: Client,
    members: Members,
    default_lease: Duration,
    max_lease: Lease,
    /// The most holds that the table takes.
    max_holds: usize,
    table: Table,
    sessions: Sessions,
    waiting: Waiting,
}

impl Quorum {
    /// Returns the commands over a quorum. `members` has one client for each server. `longest` is the longest
    /// lease that a server is asked for.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] if `longest` is too short for any lease of a client.
    pub fn new(
        client: Client,
        members: &[Client],
        longest: Duration,
        max_holds: usize,
        stats: Arc<Stats>,
    ) -> Result<Self, Error> {
        let ms = u64::try_from(hold::of_clients(longest).as_millis()).unwrap_or(u64::MAX).min(Lease::MAX.get());
        let max_lease = Lease::new(ms).ok_or_else(|| Error::Invalid("the longest lease is too short".to_owned()))?;
        let default_lease = DEFAULT_LEASE.min(Duration::from_millis(ms));
        let members = Members::new(members)?;
        let (table, sessions, waiting) = (Table::new(stats), Sessions::default(), Waiting::default());
        Ok(Self { client, members, default_lease, max_lease, max_holds, table, sessions, waiting })
    }

    /// Answers a command whose name begins with `DLOCK.`. `None`: the client is gone.
    pub async fn answer(
        &self,
        request: &Request,
        connection: &Arc<Anchor>,
        gone: impl Future<Output = ()>,
    ) -> Option<Reply> {
        let name = request.name();
        match Command::acquiring(&name) {
            Some(command @ (Command::Acquire | Command::Racquire | Command::Rlock | Command::Wlock)) => {
                self.acquire(command, request, connection, gone).await
            }
            _ => self.answer_at_once(&name, request, connection).await,
        }
    }

    async fn answer_at_once(&self, name: &str, request: &Request, connection: &Arc<Anchor>) -> Option<Reply> {
        Some(match name {
            "DLOCK.RELEASE" => self.release(request).await,
            "DLOCK.RENEW" => return self.renew(request, connection).await,
            "DLOCK.CHECK" => self.check(request).await,
            "DLOCK.INFO" => self.info(request).await,
            "DLOCK.SESSION" => self.session(request),
            "DLOCK.SACQUIRE" => not_offered("semaphores: its servers together would admit more than the limit"),
            "DLOCK.MACQUIRE" => not_offered("several locks at once: its servers have a queue of their own each"),
            "DLOCK.LOG" => not_offered("DLOCK.LOG: each server has its own, see dlock log"),
            _ => Reply::error(format!("ERR unknown command '{}'", name.escape_default())),
        })
    }

    /// Releases what is bound to a connection that has ended.
    pub fn disconnect(&self, connection: &Arc<Anchor>) {
        self.table.end(connection);
    }

    /// Ends each named session when its time is over. Runs forever.
    pub async fn watch_sessions(&self) {
        self.sessions.watch(&self.table).await;
    }

    /// Releases all locks, and waits until the servers know.
    pub async fn release_all(&self) {
        let guards = self.table.clear().await;
        self.table.stats.log(&format!("gives up {} locks", guards.len()));
        // A guard that is dropped releases its lock in the background.
        drop(guards);
        self.table.settled().await;
        self.client.settled().await;
    }

    /// Leaves all locks to their leases.
    pub async fn leave(&self) {
        let guards = self.table.clear().await;
        self.table.stats.log(&format!("leaves {} locks to their leases", guards.len()));
        // A guard that is dropped releases its lock. The process ends now.
        guards.into_iter().for_each(std::mem::forget);
        self.client.settled().await;
    }

    /// Returns how many locks are held, and how many named sessions are open.
    pub fn sizes(&self) -> (usize, usize) {
        (self.table.len(), self.sessions.len())
    }

    /// Returns the bounds of arguments at this moment.
    fn limits(&self) -> Limits {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let now_us = u64::try_from(now.as_micros()).unwrap_or(u64::MAX);
        Limits { now_us, max_lease: self.max_lease, max_hold: None, max_token_lead: LEAD_MS }
    }
}

/// How far ahead of the clock a `MINTOKEN` may be, in ms: a bound that the parser needs. The agent refuses all of them.
const LEAD_MS: u64 = 10_000;

/// The error that the client of `command` gets for its arguments.
fn malformed(what: &Malformed, command: &str) -> Reply {
    match what {
        // The agent's own limit, which differs from `dlock.max-lease` of the servers.
        Malformed::LeaseTooLong(option, max) => {
            let ms = max.get();
            Reply::error(format!("ERR lease is longer than the agent's --longest-lease allows ({ms} ms): {option}"))
        }
        what => Reply::error(what.text(command)),
    }
}

fn not_offered(what: &str) -> Reply {
    Reply::error(format!("ERR not offered over a quorum: {what}"))
}

/// Returns the reply to a command that too few servers answered, or that they refused.
fn outage(stats: &Stats, error: &Error) -> Reply {
    match error {
        Error::Refused(cause) => Reply::error(cause.message().to_owned()),
        Error::Invalid(what) => Reply::error(format!("ERR {what}")),
        error => {
            Stats::count(&stats.outages);
            Reply::error(format!("LOADING {error}"))
        }
    }
}

/// The lease of a command that names none.
const DEFAULT_LEASE: Duration = Duration::from_secs(30);
