//! Figures by name, kept in a file that people can read: what was measured last.
//!
//! ```text
//! server: redis 7.0.15
//! instructions/none/set-del 12725
//! pairs-ratio/none/16/hot/acquire 1.52 1.49 1.55
//! ```
//!
//! A line has a fact (`NAME: TEXT`), or the name of a figure and a number, or its name and the median, the least and
//! the most of the rounds. Lines that begin with `#` are comments.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

use crate::error::Error;
use crate::figures::Sample;

/// A figure: of one measurement, or of several rounds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Figure {
    pub median: f64,
    pub least: f64,
    pub most: f64,
}

impl Figure {
    pub fn once(value: f64) -> Self {
        Self { median: value, least: value, most: value }
    }

    pub fn of_rounds(rounds: &Sample) -> Self {
        Self { median: rounds.median(), least: rounds.per_mille(0), most: rounds.most() }
    }

    fn parse(text: &str) -> Option<Self> {
        let numbers: Vec<f64> = text.split_whitespace().map(|word| word.parse().ok()).collect::<Option<_>>()?;
        match numbers[..] {
            [value] => Some(Self::once(value)),
            [median, least, most] => Some(Self { median, least, most }),
            _ => None,
        }
    }

    fn is_of_rounds(self) -> bool {
        self != Self::once(self.median)
    }
}

#[derive(Debug, Clone, Default, PartialEq)]
pub struct Ledger {
    /// The facts that a reader should know beside the figures, by name: `server`, such as `redis 7.0.15`, or `date`.
    facts: BTreeMap<String, String>,
    figures: BTreeMap<String, Figure>,
}

impl Ledger {
    pub fn fact(&self, name: &str) -> &str {
        self.facts.get(name).map_or("", String::as_str)
    }

    pub fn note_fact(&mut self, name: &str, text: &str) {
        self.facts.insert(name.to_owned(), text.to_owned());
    }

    pub fn figure(&self, name: &str) -> Option<Figure> {
        self.figures.get(name).copied()
    }

    pub fn note(&mut self, name: String, figure: Figure) {
        self.figures.insert(name, figure);
    }

    pub fn figures(&self) -> impl Iterator<Item = (&str, Figure)> {
        self.figures.iter().map(|(name, figure)| (name.as_str(), *figure))
    }

    /// Adds the facts and figures of the other ledger, which replace those of the same name.
    pub fn update(&mut self, other: &Self) {
        self.facts.extend(other.facts.clone());
        self.figures.extend(other.figures.clone());
    }

    pub fn parse(text: &str) -> Result<Self, Error> {
        let mut ledger = Self::default();
        for line in text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
            if let Some((name, fact)) = line.split_once(": ") {
                ledger.note_fact(name, fact);
                continue;
            }
            let parsed = line.split_once(' ').and_then(|(name, numbers)| Some((name, Figure::parse(numbers)?)));
            let (name, figure) = parsed.ok_or_else(|| Error::Usage(format!("no figure: {line}")))?;
            ledger.note(name.to_owned(), figure);
        }
        Ok(ledger)
    }

    pub fn text(&self) -> String {
        let mut text = String::new();
        // Writing to a string cannot fail.
        for (name, fact) in &self.facts {
            let _ = writeln!(text, "{name}: {fact}");
        }
        for (name, figure) in &self.figures {
            let _ = match figure.is_of_rounds() {
                true => writeln!(
                    text,
                    "{name} {} {} {}",
                    rounded(figure.median),
                    rounded(figure.least),
                    rounded(figure.most)
                ),
                false => writeln!(text, "{name} {}", rounded(figure.median)),
            };
        }
        text
    }

    /// Reads the ledger at `path`, if there is one.
    pub fn read(path: &Path) -> Result<Option<Self>, Error> {
        if !path.exists() {
            return Ok(None);
        }
        let text = fs::read_to_string(path).map_err(Error::io(format!("reading {}", path.display())))?;
        Self::parse(&text).map(Some)
    }

    /// Writes these figures to the file. Figures of other names stay in it.
    pub fn keep(&self, path: &Path) -> Result<(), Error> {
        let mut kept = Self::read(path)?.unwrap_or_default();
        kept.update(self);
        fs::create_dir_all(folder()).map_err(Error::io(format!("creating {}", folder().display())))?;
        fs::write(path, kept.text()).map_err(Error::io(format!("writing {}", path.display())))
    }
}

/// Returns where figures of a sort (`instr`, `times`) and a server are kept in the checkout.
pub fn path(sort: &str, server: &str) -> PathBuf {
    folder().join(format!("{sort}-{}.txt", server.replace(' ', "-")))
}

pub fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("figures")
}

/// Rounds to four significant digits, large numbers to whole ones, and leaves out zeros at the end.
fn rounded(value: f64) -> String {
    if value.abs() >= 1000.0 || value == value.trunc() { format!("{value:.0}") } else { significant(value) }
}

fn significant(value: f64) -> String {
    let digits_before = value.abs().log10().floor();
    let decimals = (3.0 - digits_before).clamp(0.0, 9.0);
    let text = (0_u8..=9)
        .find(|count| f64::from(*count) >= decimals)
        .map_or_else(|| value.to_string(), |count| format!("{value:.*}", usize::from(count)));
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_is_read_again() {
        let mut ledger = Ledger::default();
        ledger.note_fact("server", "redis 7.0.15");
        ledger.note("a/b".into(), Figure::once(12_725.0));
        ledger.note("c".into(), Figure { median: 1.5, least: 1.25, most: 0.000_123_4 });
        assert_eq!(Ledger::parse(&format!("# a comment\n\n{}", ledger.text())).ok(), Some(ledger));
    }

    #[test]
    fn four_digits_are_kept() {
        for (value, text) in
            [(0.0, "0"), (20_119.6, "20120"), (999.96, "1000"), (12.344, "12.34"), (0.655_37, "0.6554"), (0.5, "0.5")]
        {
            assert_eq!(rounded(value), text);
        }
    }

    #[test]
    fn a_line_without_numbers_is_an_error() {
        for line in ["a", "a b", "a 1 2", "a 1 2 3 4"] {
            assert!(Ledger::parse(line).is_err(), "{line}");
        }
    }
}
