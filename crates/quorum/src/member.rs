//! Whether a server may count.
//!
//! A server that has forgotten its locks would grant locks that are still held elsewhere. A server whose uptime is shorter
//! than the longest lease therefore counts as down, unless it keeps its locks on disk. A server that was a replica may
//! lack locks that its primary granted, and never counts.

use std::time::Duration;

use crate::drift_bound;

/// A server's description of itself, read from `INFO` on every connect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Facts {
    /// `run_id`, which changes with every start. Two members with the same `run_id` are the same server.
    pub run_id: String,
    /// `uptime_in_seconds`, by the server's clock. Up to a second too much.
    pub uptime: Duration,
    /// `second_repl_offset`: -1 unless the server was a replica and was promoted.
    pub second_repl_offset: i64,
    /// `role`: whether the server is a primary.
    pub is_primary: bool,
    /// `aof_enabled`.
    pub is_aof_enabled: bool,
}

impl Facts {
    /// Parses `INFO server replication persistence`. Returns `None` if a field is missing.
    pub fn parse(info: &str) -> Option<Facts> {
        let field =
            |name: &str| info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map(str::trim);
        Some(Facts {
            run_id: field("run_id")?.to_owned(),
            uptime: Duration::from_secs(field("uptime_in_seconds")?.parse().ok()?),
            second_repl_offset: field("second_repl_offset")?.parse().ok()?,
            is_primary: field("role")? == "master",
            is_aof_enabled: field("aof_enabled")? == "1",
        })
    }
}

/// Whether a server's locks outlive its process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keeping {
    /// Servers keep locks in memory only, or nothing is known about it.
    InMemory,
    /// The user has declared that servers keep locks on disk: `appendonly yes` and `appendfsync always`.
    OnDisk,
}

/// Whether a server may count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// The server counts.
    Counts,
    /// The server does not count for this much longer: it may have forgotten locks that are held.
    Young(Duration),
    /// The server is a replica.
    Replica,
    /// The server was a replica, and was promoted.
    Promoted,
    /// The server was declared to keep its locks on disk, and does not.
    NotOnDisk,
}

/// Decides whether a server may count by its facts, which were received `ago` on the connection that is still in use.
pub fn standing(facts: &Facts, keeping: Keeping, longest_lease: Duration, ago: Duration) -> Standing {
    if !facts.is_primary {
        return Standing::Replica;
    }
    if facts.second_repl_offset != -1 {
        return Standing::Promoted;
    }
    match keeping {
        Keeping::OnDisk if facts.is_aof_enabled => Standing::Counts,
        Keeping::OnDisk => Standing::NotOnDisk,
        Keeping::InMemory => {
            // The uptime is in whole seconds, up to one too many, by a clock that may be set.
            let grown = longest_lease + Duration::from_secs(1);
            let left = (grown + drift_bound(grown)).saturating_sub(facts.uptime + ago);
            if left.is_zero() { Standing::Counts } else { Standing::Young(left) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INFO: &str = "# Server\r\nredis_version:7.0.15\r\nrun_id:abc\r\nuptime_in_seconds:12\r\n\
                        # Persistence\r\naof_enabled:0\r\n# Replication\r\nrole:master\r\nsecond_repl_offset:-1\r\n";
    const LONGEST: Duration = Duration::from_secs(20);

    fn facts() -> Facts {
        Facts::parse(INFO).unwrap()
    }

    #[test]
    fn facts_are_parsed_from_info() {
        let facts = facts();
        assert_eq!(
            (facts.run_id.as_str(), facts.uptime, facts.second_repl_offset),
            ("abc", Duration::from_secs(12), -1)
        );
        assert!(facts.is_primary && !facts.is_aof_enabled);
        assert_eq!(Facts::parse(&INFO.replace("run_id", "no_id")), None);
    }

    #[test]
    fn a_young_server_does_not_count_until_every_lease_has_ended() {
        let standing = |ago| super::standing(&facts(), Keeping::InMemory, LONGEST, Duration::from_millis(ago));
        // 20 s, the second that the server may count too much, and the drift.
        assert_eq!(standing(0), Standing::Young(Duration::from_millis(9212)));
        assert_eq!(standing(9211), Standing::Young(Duration::from_millis(1)));
        assert_eq!(standing(9212), Standing::Counts);
    }

    #[test]
    fn a_server_with_its_locks_on_disk_counts_at_once() {
        let standing = |facts| super::standing(&facts, Keeping::OnDisk, LONGEST, Duration::ZERO);
        assert_eq!(standing(facts()), Standing::NotOnDisk);
        assert_eq!(standing(Facts { is_aof_enabled: true, ..facts() }), Standing::Counts);
    }

    #[test]
    fn replicas_and_promoted_replicas_never_count() {
        let standing = |facts| super::standing(&facts, Keeping::InMemory, LONGEST, LONGEST * 10);
        assert_eq!(standing(Facts { is_primary: false, ..facts() }), Standing::Replica);
        assert_eq!(standing(Facts { second_repl_offset: 1, ..facts() }), Standing::Promoted);
    }
}
