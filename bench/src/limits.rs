//! What a command may cost, as a ratio to something measured in the same run.

use crate::contenders::{ACQUIRE, BASELINE, RENEW_FEW, RENEW_MANY, RLOCK_FEW, RLOCK_MANY};
use crate::instr::Cost;

pub struct Limit {
    subject: &'static str,
    reference: &'static str,
    at_most: f64,
}

pub const LIMITS: [Limit; 3] = [
    Limit { subject: ACQUIRE, reference: BASELINE, at_most: 0.70 },
    Limit { subject: RLOCK_MANY, reference: RLOCK_FEW, at_most: 2.0 },
    Limit { subject: RENEW_MANY, reference: RENEW_FEW, at_most: 2.0 },
];

/// How a limit was met.
pub struct Verdict<'a> {
    pub subject: &'a Cost,
    pub reference: &'a Cost,
    pub ratio: f64,
    pub at_most: f64,
}

impl Verdict<'_> {
    pub fn is_met(&self) -> bool {
        self.ratio <= self.at_most
    }
}

/// What a contender is compared with, by name.
pub fn references(name: &str) -> impl Iterator<Item = &'static str> {
    LIMITS.iter().filter(move |limit| limit.subject == name).map(|limit| limit.reference)
}

/// The verdicts on all limits of which both sides were measured.
pub fn judge<'a>(limits: &[Limit], costs: &'a [Cost]) -> Vec<Verdict<'a>> {
    let find = |name: &str| costs.iter().find(|cost| cost.name == name);
    limits
        .iter()
        .filter_map(|limit| {
            let (subject, reference) = (find(limit.subject)?, find(limit.reference)?);
            Some(Verdict { subject, reference, ratio: subject.ratio_to(reference), at_most: limit.at_most })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cost(name: &'static str, instructions: u64) -> Cost {
        Cost { name, label: name, requests: 2, instructions }
    }

    #[test]
    fn a_ratio_over_its_limit_is_not_met() {
        let limits = [Limit { subject: "a", reference: "b", at_most: 0.7 }];
        let met = |a, b| judge(&limits, &[cost("a", a), cost("b", b)]).first().map(Verdict::is_met);
        assert_eq!(met(70, 100), Some(true));
        assert_eq!(met(71, 100), Some(false));
        assert_eq!(met(1, 0), Some(false), "a reference that costs nothing was not measured");
    }

    #[test]
    fn a_limit_with_a_side_missing_is_not_judged() {
        let limits = [Limit { subject: "a", reference: "b", at_most: 0.7 }];
        assert!(judge(&limits, &[cost("a", 1)]).is_empty());
    }

    #[test]
    fn every_limit_names_contenders() {
        let all = crate::contenders::all();
        for name in LIMITS.iter().flat_map(|limit| [limit.subject, limit.reference]) {
            assert!(all.iter().any(|contender| contender.name == name), "{name}");
        }
    }
}
