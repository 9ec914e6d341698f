//! The agent's counters and its log.

use std::fmt::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// Counters since the start, and present numbers.
pub(crate) struct Stats {
    began: Instant,
    log: Box<dyn Fn(&str) + Send + Sync>,
    pub connections: AtomicU64,
    pub rejected_connections: AtomicU64,
    pub connected: AtomicU64,
    pub commands: AtomicU64,
    pub protocol_errors: AtomicU64,
    pub wrong_passwords: AtomicU64,
    pub grants: AtomicU64,
    pub refusals: AtomicU64,
    pub outages: AtomicU64,
    pub releases: AtomicU64,
    pub renewals: AtomicU64,
    pub lapses: AtomicU64,
    pub session_ends: AtomicU64,
    pub lost: AtomicU64,
    pub waiting: AtomicU64,
    pub reconnections: AtomicU64,
}

/// Adds one to a number of [`Stats`] until it is dropped.
pub(crate) struct Present<'a>(&'a AtomicU64);

impl Stats {
    pub fn new(log: Box<dyn Fn(&str) + Send + Sync>) -> Self {
        let zero = || AtomicU64::new(0);
        Self {
            began: Instant::now(),
            log,
            connections: zero(),
            rejected_connections: zero(),
            connected: zero(),
            commands: zero(),
            protocol_errors: zero(),
            wrong_passwords: zero(),
            grants: zero(),
            refusals: zero(),
            outages: zero(),
            releases: zero(),
            renewals: zero(),
            lapses: zero(),
            session_ends: zero(),
            lost: zero(),
            waiting: zero(),
            reconnections: zero(),
        }
    }

    pub fn count(counter: &AtomicU64) {
        counter.fetch_add(1, Ordering::Relaxed);
    }

    pub fn present(counter: &AtomicU64) -> Present<'_> {
        Self::count(counter);
        Present(counter)
    }

    /// Writes a line to the log.
    pub fn log(&self, line: &str) {
        (self.log)(line);
    }

    /// Returns the name, the help text and the value of each number. Names that end in `_total` are counters.
    pub fn numbers(&self, holds: usize, sessions: usize) -> Vec<(&'static str, &'static str, u64)> {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let size = |size: usize| u64::try_from(size).unwrap_or(u64::MAX);
        vec![
            ("uptime_seconds", "For how long the agent has run.", self.began.elapsed().as_secs()),
            ("connected_clients", "Clients that are connected.", get(&self.connected)),
            ("connections_total", "Connections of clients.", get(&self.connections)),
            ("rejected_connections_total", "Connections over the limit.", get(&self.rejected_connections)),
            ("commands_total", "Commands of clients.", get(&self.commands)),
            ("protocol_errors_total", "Connections closed for bytes that were no request.", get(&self.protocol_errors)),
            ("wrong_passwords_total", "Logins that were refused.", get(&self.wrong_passwords)),
            ("holds", "Locks that the agent holds for clients (quorum).", size(holds)),
            ("named_sessions", "Named sessions that are open (quorum).", size(sessions)),
            ("waiters", "Requests that wait.", get(&self.waiting)),
            ("grants_total", "Locks that were granted (quorum).", get(&self.grants)),
            ("refusals_total", "Requests that were not granted in time (quorum).", get(&self.refusals)),
            ("outages_total", "Commands without an answer of enough servers.", get(&self.outages)),
            ("releases_total", "Locks that were released (quorum).", get(&self.releases)),
            ("renewals_total", "Renewals by command (quorum).", get(&self.renewals)),
            ("lapses_total", "Leases that ran out (quorum).", get(&self.lapses)),
            ("session_ends_total", "Locks released at the end of their session (quorum).", get(&self.session_ends)),
            ("lost_total", "Locks that the servers did not have any more (quorum).", get(&self.lost)),
            ("reconnections_total", "Commands sent again because a server gave no reply.", get(&self.reconnections)),
        ]
    }

    /// Returns the section of `INFO`.
    pub fn section(&self, mode: &str, holds: usize, sessions: usize) -> String {
        let mut text = format!("# Agent\r\nagent_version:{}\r\nagent_mode:{mode}\r\n", env!("CARGO_PKG_VERSION"));
        for (name, _, value) in self.numbers(holds, sessions) {
            let _ = write!(text, "agent_{}:{value}\r\n", name.trim_end_matches("_total"));
        }
        text
    }

    /// Returns the page for Prometheus.
    pub fn page(&self, holds: usize, sessions: usize) -> String {
        let mut text = String::new();
        for (name, help, value) in self.numbers(holds, sessions) {
            let kind = if name.ends_with("_total") { "counter" } else { "gauge" };
            let _ = writeln!(text, "# HELP dlock_agent_{name} {help}");
            let _ = writeln!(text, "# TYPE dlock_agent_{name} {kind}\ndlock_agent_{name} {value}");
        }
        text
    }
}

impl Drop for Present<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
