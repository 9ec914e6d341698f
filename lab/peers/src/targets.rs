//! The promises of dlock beside its peers, in each class.

use crate::figures::{Figures, part};
use crate::systems::{ALL, Kept, System};

/// A figure, and how the best peer's is compared with it.
pub struct Target {
    pub figure: &'static str,
    pub what: &'static str,
    pub bound: Bound,
}

#[derive(Clone, Copy)]
pub enum Bound {
    AtMost(f64),
    AtLeast(f64),
}

pub const TARGETS: [Target; 3] = [
    Target { figure: "alone/median", what: "acquire and release, median", bound: Bound::AtMost(0.5) },
    Target { figure: "hand-off/64/median", what: "hand-off with 64 waiters, median", bound: Bound::AtMost(0.5) },
    Target { figure: "pairs/64/rate", what: "pairs a second with 64 clients", bound: Bound::AtLeast(1.5) },
];

/// One of ours beside the best peer of its class.
pub struct Verdict {
    pub ours: &'static System,
    pub peer: &'static System,
    pub target: &'static Target,
    pub ratio: f64,
}

impl Verdict {
    pub fn is_met(&self) -> bool {
        match self.target.bound {
            Bound::AtMost(bound) => self.ratio <= bound,
            Bound::AtLeast(bound) => self.ratio >= bound,
        }
    }
}

/// The cost of a pair or a hand-off, in µs: time, and CPU on both sides.
pub struct Profile {
    /// How long it is from one to the next.
    pub time: f64,
    pub clients: f64,
    pub clients_kernel: f64,
    pub servers: f64,
    pub servers_kernel: f64,
}

impl Profile {
    /// None: not measured.
    pub fn of(figures: &Figures, system: &System, part: &str) -> Option<Self> {
        let median = |what: &str| figures.median(system.name, &format!("{part}/{what}"));
        Some(Self {
            time: 1e6 / median("rate")?,
            clients: median("clients")?,
            clients_kernel: median("clients-kernel")?,
            servers: median("servers")?,
            servers_kernel: median("servers-kernel")?,
        })
    }

    /// Returns the resource that is busy nearly all the time.
    pub fn limit(&self) -> &'static str {
        match (self.clients >= BUSY * self.time, self.servers >= BUSY * self.time) {
            (true, true) => "both cores",
            (true, false) => "the clients' core",
            (false, true) => "the servers' core",
            (false, false) => "neither core",
        }
    }
}

/// The share of the time that counts as all of it.
const BUSY: f64 = 0.9;

impl Verdict {
    /// Returns the ratio that there would be if our servers took no CPU and everything else stayed.
    pub fn at_best(&self, figures: &Figures, ours: &Profile) -> Option<f64> {
        let theirs = Profile::of(figures, self.peer, part(self.target.figure))?;
        Some(match self.target.bound {
            // One after the other.
            Bound::AtMost(_) => (ours.time - ours.servers).max(0.0) / theirs.time,
            // Side by side: the clients alone are the limit.
            Bound::AtLeast(_) => theirs.time / ours.clients,
        })
    }
}

/// All that can be said from these figures.
pub fn judge(figures: &Figures) -> Vec<Verdict> {
    all().filter_map(|(ours, target)| verdict(figures, ours, target)).collect()
}

/// The targets for which figures are missing.
pub fn unjudged(figures: &Figures) -> impl Iterator<Item = (&'static System, &'static Target)> {
    all().filter(|(ours, target)| verdict(figures, ours, target).is_none())
}

fn all() -> impl Iterator<Item = (&'static System, &'static Target)> {
    let ours = ALL.iter().filter(|system| system.made.is_ours());
    ours.flat_map(|ours| TARGETS.iter().map(move |target| (ours, target)))
}

fn verdict(figures: &Figures, ours: &'static System, target: &'static Target) -> Option<Verdict> {
    let value = |system: &System| figures.median(system.name, target.figure);
    let (peer, best) = peers(ours.kept).filter_map(|peer| Some((peer, value(peer)?))).reduce(|one, other| {
        let is_better = match target.bound {
            Bound::AtMost(_) => other.1 < one.1,
            Bound::AtLeast(_) => other.1 > one.1,
        };
        if is_better { other } else { one }
    })?;
    Some(Verdict { ours, peer, target, ratio: value(ours)? / best })
}

fn peers(kept: Kept) -> impl Iterator<Item = &'static System> {
    ALL.iter().filter(move |system| system.kept == kept && !system.made.is_ours())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ours_is_judged_by_the_best_peer_of_its_class() {
        let mut figures = Figures::default();
        let medians = [("dlock", 4.0), ("postgresql", 8.0), ("set-nx", 10.0), ("etcd-1", 1.0)];
        for (system, median) in medians {
            figures.note(system, "alone/median", Some(median));
            figures.note(system, "pairs/64/rate", Some(median));
        }
        let verdicts: Vec<_> = judge(&figures)
            .iter()
            .map(|verdict| (verdict.peer.name, verdict.target.figure, verdict.ratio, verdict.is_met()))
            .collect();
        assert_eq!(verdicts, [("postgresql", "alone/median", 0.5, true), ("set-nx", "pairs/64/rate", 0.4, false)]);
    }
}
