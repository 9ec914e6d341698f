//! Figures as they are kept: for each system and each figure what each round measured.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// All of one run.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Figures {
    /// The machine and the versions.
    pub facts: BTreeMap<String, String>,
    /// By system and figure; one value a round, null for what did not happen while the round waited for it.
    pub systems: BTreeMap<String, BTreeMap<String, Vec<Option<f64>>>>,
    /// Parts that could not be measured.
    pub failed: Vec<Failure>,
}

/// A part of a round that has no figures.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Failure {
    /// The name of the system.
    pub system: String,
    /// The beginning of all its figures' names, before the last `/`; [`START`] if the servers did not start.
    pub part: String,
    /// Counted from 1.
    pub round: usize,
    /// The error.
    pub why: String,
}

/// The part that comes before all others.
pub const START: &str = "start";

/// The part of a round in which this figure is measured.
pub fn part(figure: &str) -> &str {
    figure.rsplit_once('/').map_or(figure, |(part, _)| part)
}

/// A figure over all rounds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Spread {
    /// The middle one.
    pub median: f64,
    /// The lowest.
    pub least: f64,
    /// The highest; infinite if it did not happen in some round.
    pub most: f64,
}

impl Figures {
    /// Adds what a round has measured.
    pub fn note(&mut self, system: &str, figure: &str, value: Option<f64>) {
        let figures = self.systems.entry(system.to_owned()).or_default();
        figures.entry(figure.to_owned()).or_default().push(value.map(rounded));
    }

    /// Returns the median of all rounds that have measured it, with the least and the most; `None` if none has. The
    /// median of an even number is the mean of the middle two.
    pub fn spread(&self, system: &str, figure: &str) -> Option<Spread> {
        let rounds = self.systems.get(system)?.get(figure)?;
        let mut values: Vec<f64> = rounds.iter().map(|value| value.unwrap_or(f64::INFINITY)).collect();
        values.sort_by(f64::total_cmp);
        let [low, high] = [values.len().checked_sub(1)? / 2, values.len() / 2].map(|at| values.get(at).copied());
        Some(Spread { median: f64::midpoint(low?, high?), least: *values.first()?, most: *values.last()? })
    }

    /// Returns whether this figure is missing because a part of each round failed.
    pub fn has_failed(&self, system: &str, figure: &str) -> bool {
        let failed = |failure: &Failure| failure.system == system && [part(figure), START].contains(&&*failure.part);
        self.spread(system, figure).is_none() && self.failed.iter().any(failed)
    }

    /// Returns the median over all rounds.
    pub fn median(&self, system: &str, figure: &str) -> Option<f64> {
        Some(self.spread(system, figure)?.median)
    }

    /// Replaces the figures of these parts, or of all if none is named, for the systems that were measured.
    pub fn replace(&mut self, parts: &[String], measured: &Figures) {
        let is_measured = |figure: &str| parts.is_empty() || parts.iter().any(|name| name == part(figure));
        for (system, figures) in &measured.systems {
            let all = self.systems.entry(system.clone()).or_default();
            all.retain(|figure, _| !is_measured(figure));
            all.extend(figures.clone());
            self.failed.retain(|failure| failure.system != *system || !is_measured(&format!("{}/", failure.part)));
        }
        self.failed.extend(measured.failed.iter().cloned());
        if parts.is_empty() {
            self.facts.clone_from(&measured.facts);
        } else {
            let (rounds, date) = (measured.fact("rounds"), measured.fact("date"));
            let systems: Vec<&str> = measured.systems.keys().map(String::as_str).collect();
            let of =
                if systems.len() < self.systems.len() { format!(": {}", systems.join(", ")) } else { String::new() };
            let fact = format!("{date}, {rounds} rounds{of}");
            self.facts.extend(parts.iter().map(|part| (format!("again/{part}"), fact.clone())));
        }
    }

    /// Reads the file of all figures.
    ///
    /// # Errors
    /// The text is not such a file.
    pub fn from_json(text: &str) -> Result<Figures, serde_json::Error> {
        serde_json::from_str(text)
    }

    /// As the file of all figures: one line a figure.
    pub fn to_json(&self) -> String {
        let facts: Vec<String> =
            self.facts.iter().map(|(name, fact)| format!("    {}: {}", json(name), json(fact))).collect();
        let systems = self.systems.iter().map(|(system, figures)| {
            let rows: Vec<String> =
                figures.iter().map(|(name, rounds)| format!("      {}: {}", json(name), json(rounds))).collect();
            format!("    {}: {{\n{}\n    }}", json(system), rows.join(",\n"))
        });
        let systems: Vec<String> = systems.collect();
        let failed: Vec<String> = self.failed.iter().map(|failure| format!("    {}", json(failure))).collect();
        format!(
            "{{\n  \"facts\": {{\n{}\n  }},\n  \"systems\": {{\n{}\n  }},\n  \"failed\": [\n{}\n  ]\n}}\n",
            facts.join(",\n"),
            systems.join(",\n"),
            failed.join(",\n")
        )
    }

    /// Returns a fact; empty if unknown.
    pub fn fact(&self, name: &str) -> &str {
        self.facts.get(name).map_or("", String::as_str)
    }
}

fn json(value: &impl Serialize) -> String {
    // Texts and numbers always have a form.
    serde_json::to_string(value).unwrap_or_default()
}

/// Rounded to four significant digits: more would say more than was measured.
fn rounded(value: f64) -> f64 {
    if value == 0.0 || !value.is_finite() {
        return value;
    }
    format!("{value:.3e}").parse().unwrap_or(value)
}
