//! Figures as they are kept: for each system and each figure what each round measured.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// All of one run.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Figures {
    /// What was measured where.
    pub facts: BTreeMap<String, String>,
    /// By system and figure; one value a round, null for what did not happen while the round waited for it.
    pub systems: BTreeMap<String, BTreeMap<String, Vec<Option<f64>>>>,
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

    /// None: not measured.
    pub fn spread(&self, system: &str, figure: &str) -> Option<Spread> {
        let rounds = self.systems.get(system)?.get(figure)?;
        let mut values: Vec<f64> = rounds.iter().map(|value| value.unwrap_or(f64::INFINITY)).collect();
        values.sort_by(f64::total_cmp);
        let middle = *values.get(values.len().checked_sub(1)? / 2)?;
        Some(Spread { median: middle, least: *values.first()?, most: *values.last()? })
    }

    /// The median over all rounds.
    pub fn median(&self, system: &str, figure: &str) -> Option<f64> {
        Some(self.spread(system, figure)?.median)
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
        format!(
            "{{\n  \"facts\": {{\n{}\n  }},\n  \"systems\": {{\n{}\n  }}\n}}\n",
            facts.join(",\n"),
            systems.join(",\n")
        )
    }

    /// A fact; empty if unknown.
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
