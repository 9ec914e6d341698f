//! The faults and their times: drawn from the seed alone, so that a run can be repeated.

use std::fmt;

use dlock_testkit::random::Random;

/// A part of a run. Each part has servers, workers and counters of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Scenario {
    /// A server with `appendfsync always` is killed and started again. Nothing may be lost.
    Restart,
    /// A primary and a replica that change places by `FAILOVER`. Nothing may be lost.
    Failover,
    /// A primary that is killed while its replica takes over. What `WAIT` has acknowledged may not be lost.
    Promotion,
    /// The clock of a server jumps, forth and back.
    Clock,
    /// Two nodes of a cluster, between which the slot of all locks travels back and forth. Nothing may be lost.
    Slots,
}

impl Scenario {
    pub const ALL: [Scenario; 5] =
        [Scenario::Restart, Scenario::Failover, Scenario::Promotion, Scenario::Clock, Scenario::Slots];

    pub fn name(self) -> &'static str {
        match self {
            Scenario::Restart => "restart",
            Scenario::Failover => "failover",
            Scenario::Promotion => "promotion",
            Scenario::Clock => "clock",
            Scenario::Slots => "slots",
        }
    }

    /// Returns the faults of this scenario, each with the ms between two of them.
    fn faults(self) -> [(Kind, u64); 7] {
        let own = match self {
            Scenario::Restart => (Kind::ServerKilled, 3000),
            Scenario::Failover => (Kind::Failover, 3500),
            Scenario::Promotion => (Kind::Promotion, 4000),
            Scenario::Clock => (Kind::ClockJump, 2000),
            Scenario::Slots => (Kind::SlotMoved, 2500),
        };
        let others = 4000;
        [
            own,
            (Kind::ClientKilled, others),
            (Kind::ClientStopped, others),
            (Kind::NetworkCut, others),
            (Kind::WritesPaused, others),
            (Kind::MemoryFull, others),
            (Kind::KeyDeleted, 2000),
        ]
    }
}

/// The kinds of faults.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    ServerKilled,
    Failover,
    Promotion,
    ClockJump,
    ClientKilled,
    ClientStopped,
    NetworkCut,
    WritesPaused,
    MemoryFull,
    /// By a thread of another module.
    KeyDeleted,
    SlotMoved,
}

impl Kind {
    pub const ALL: [Kind; 11] = [
        Kind::ServerKilled,
        Kind::Failover,
        Kind::Promotion,
        Kind::ClockJump,
        Kind::ClientKilled,
        Kind::ClientStopped,
        Kind::NetworkCut,
        Kind::WritesPaused,
        Kind::MemoryFull,
        Kind::KeyDeleted,
        Kind::SlotMoved,
    ];
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Kind::ServerKilled => "server killed",
            Kind::Failover => "failover",
            Kind::Promotion => "promotion",
            Kind::ClockJump => "clock jump",
            Kind::ClientKilled => "client killed",
            Kind::ClientStopped => "client stopped",
            Kind::NetworkCut => "network cut",
            Kind::WritesPaused => "writes paused",
            Kind::MemoryFull => "memory full",
            Kind::KeyDeleted => "key deleted",
            Kind::SlotMoved => "slot moved",
        })
    }
}

/// A fault to come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Planned {
    /// When, in ms after the beginning of the scenario. One that is late makes the scenario longer.
    pub at_ms: u64,
    pub kind: Kind,
    /// A number for the other choices (which client, how long, how far).
    pub choice: u64,
}

/// The faults of a scenario that lasts `ms` milliseconds, in order.
pub fn plan(seed: u64, scenario: Scenario, ms: u64) -> Vec<Planned> {
    let mut random = Random::of(seed, scenario.name());
    let mut planned = Vec::new();
    for (kind, every) in scenario.faults() {
        let count = (ms / every).max(1);
        let slot = ms / count;
        for number in 0..count {
            let at_ms = number * slot + random.below(slot);
            planned.push(Planned { at_ms, kind, choice: random.number() });
        }
    }
    planned.sort_by_key(|planned| (planned.at_ms, planned.kind));
    planned
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_seed_has_one_plan() {
        for scenario in Scenario::ALL {
            assert_eq!(plan(7, scenario, 30_000), plan(7, scenario, 30_000));
            assert_ne!(plan(7, scenario, 30_000), plan(8, scenario, 30_000));
        }
    }

    #[test]
    fn two_minutes_have_every_kind_of_fault_four_times_and_more() {
        let all: Vec<Planned> = Scenario::ALL.iter().flat_map(|scenario| plan(1, *scenario, 24_000)).collect();
        for kind in Kind::ALL {
            let count = all.iter().filter(|planned| planned.kind == kind).count();
            assert!(count >= 4, "{kind}: {count}");
        }
    }
}
