//! The promised costs of dlock, as data: each row of figures is judged wherever it is measured.

use std::fmt;

use crate::ledger::Ledger;

/// A row of the promise. It is met if all its targets are.
pub struct Row {
    pub what: &'static str,
    pub targets: &'static [Target],
}

pub struct Target {
    /// The rest of the label, behind the row's `what`; empty: nothing.
    pub case: &'static str,
    pub measure: Measure,
    pub bound: Bound,
}

/// Names of figures in a [`Ledger`].
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Measure {
    /// A figure divided by another.
    Quotient(&'static str, &'static str),
    /// A figure that is a ratio by itself: the median of the ratios of the rounds.
    Ratio(&'static str),
    /// All instructions of a command, divided by those of the server: all but the module's own.
    OverServer { all: &'static str, own: &'static str },
}

impl Measure {
    /// Returns the names of the figures.
    #[cfg(test)]
    pub fn names(self) -> Vec<&'static str> {
        match self {
            Self::Quotient(subject, reference) => vec![subject, reference],
            Self::Ratio(name) => vec![name],
            Self::OverServer { all, own } => vec![all, own],
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Bound {
    AtMost(f64),
    AtLeast(f64),
}

impl fmt::Display for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AtMost(bound) => write!(f, "at most {bound}"),
            Self::AtLeast(bound) => write!(f, "at least {bound}"),
        }
    }
}

/// A target beside what was measured.
pub struct Verdict {
    pub row: &'static Row,
    pub target: &'static Target,
    pub value: f64,
}

impl Verdict {
    pub fn is_met(&self) -> bool {
        self.missed_by() <= 0.0
    }

    /// Returns by which share of its bound a value misses: 0.1 is ten per cent worse than promised, a negative share is
    /// better. NaN, the figure of a measurement without values, misses by infinity.
    pub fn missed_by(&self) -> f64 {
        let by = match self.target.bound {
            Bound::AtMost(bound) => self.value / bound - 1.0,
            Bound::AtLeast(bound) => 1.0 - self.value / bound,
        };
        if by.is_nan() { f64::INFINITY } else { by }
    }

    /// `met` or `missed by 3.1 %`.
    pub fn outcome(&self) -> String {
        if self.is_met() { "met".to_owned() } else { format!("missed by {:.1} %", self.missed_by() * 100.0) }
    }

    /// `ACQUIRE + RELEASE / SET NX PX + script, AOF`.
    pub fn label(&self) -> String {
        match self.target.case {
            "" => self.row.what.to_owned(),
            case => format!("{}, {case}", self.row.what),
        }
    }
}

/// The verdicts on all targets whose figures are there.
pub fn judge(rows: &'static [Row], ledger: &Ledger) -> Vec<Verdict> {
    let value = |measure| match measure {
        Measure::Quotient(subject, reference) => {
            Some(ledger.figure(subject)?.median / ledger.figure(reference)?.median)
        }
        Measure::Ratio(name) => Some(ledger.figure(name)?.median),
        Measure::OverServer { all, own } => {
            let (all, own) = (ledger.figure(all)?.median, ledger.figure(own)?.median);
            Some(all / (all - own))
        }
    };
    rows.iter()
        .flat_map(|row| row.targets.iter().map(move |target| (row, target)))
        .filter_map(|(row, target)| Some(Verdict { row, target, value: value(target.measure)? }))
        .collect()
}

pub const fn at_most(case: &'static str, subject: &'static str, reference: &'static str, bound: f64) -> Target {
    Target { case, measure: Measure::Quotient(subject, reference), bound: Bound::AtMost(bound) }
}

pub const fn over_server(case: &'static str, all: &'static str, own: &'static str) -> Target {
    Target { case, measure: Measure::OverServer { all, own }, bound: Bound::AtMost(1.14) }
}

pub const fn ratio(case: &'static str, name: &'static str, bound: Bound) -> Target {
    Target { case, measure: Measure::Ratio(name), bound }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contenders;
    use crate::ledger::Figure;
    use crate::mode::Mode;
    use crate::rows::ROWS;

    static SAMPLE: [Row; 1] =
        [Row { what: "a / b", targets: &[at_most("", "a", "b", 0.5), ratio("more", "c", Bound::AtLeast(2.0))] }];

    fn judged(figures: &[(&str, f64)]) -> Vec<String> {
        let mut ledger = Ledger::default();
        for (name, value) in figures {
            ledger.note((*name).to_owned(), Figure::once(*value));
        }
        judge(&SAMPLE, &ledger).iter().map(|verdict| format!("{}: {}", verdict.label(), verdict.outcome())).collect()
    }

    #[test]
    fn a_figure_beyond_its_bound_is_missed() {
        assert_eq!(judged(&[("a", 50.0), ("b", 100.0), ("c", 2.0)]), ["a / b: met", "a / b, more: met"]);
        assert_eq!(
            judged(&[("a", 55.0), ("b", 100.0), ("c", 1.9)]),
            ["a / b: missed by 10.0 %", "a / b, more: missed by 5.0 %"]
        );
    }

    #[test]
    fn what_was_not_measured_is_not_judged_and_what_failed_is_missed() {
        assert_eq!(judged(&[("a", 1.0)]), [""; 0]);
        assert_eq!(judged(&[("c", f64::NAN)]), ["a / b, more: missed by inf %"]);
    }

    #[test]
    fn every_count_that_a_target_names_is_made() {
        let counts = ROWS.iter().flat_map(|row| row.targets).flat_map(|target| target.measure.names());
        for name in counts.filter(|name| name.starts_with("instructions/")) {
            let made = contenders::all().into_iter().any(|contender| {
                Mode::ALL.into_iter().any(|mode| {
                    contender.runs_in(mode) && name == format!("instructions/{}/{}", mode.name(), contender.name)
                })
            });
            assert!(made, "{name}");
        }
    }
}
