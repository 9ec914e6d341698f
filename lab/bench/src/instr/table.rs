//! The counts, as tables for people and as JSON for programs.

use std::fmt::Write;

use crate::contenders::{Contender, SET_DEL, SET_SCRIPT};
use crate::ledger::Ledger;
use crate::load::PIPELINE;
use crate::server::Mode;
use crate::targets::{self, Verdict};

pub fn text(ledger: &Ledger, contenders: &[Contender], verdicts: &[Verdict]) -> String {
    let server = ledger.fact("server");
    let mut text = String::new();
    for mode in Mode::ALL {
        let title = format!("Instructions an operation ({server}, {}, pipeline {PIPELINE})", mode.label());
        push_table(&mut text, &title, ledger, contenders, &format!("instructions/{}", mode.name()));
    }
    push_table(&mut text, &format!("Bytes replicated an operation ({server})"), ledger, contenders, "replicated");
    text.push_str("Targets\n\n");
    text.push_str(&targets::text(verdicts));
    text
}

/// The figures of that sort, if there are any.
fn push_table(text: &mut String, title: &str, ledger: &Ledger, contenders: &[Contender], sort: &str) {
    let value = |name: &str| ledger.figure(&format!("{sort}/{name}")).map(|figure| figure.median);
    let rows: Vec<_> = contenders.iter().filter_map(|contender| Some((contender, value(contender.name)?))).collect();
    if rows.is_empty() {
        return;
    }
    let ratio = |figure: f64, name: &str| value(name).map_or(String::new(), |other| format!("{:.3}", figure / other));
    let _ = writeln!(text, "{title}\n\n{:<42}{:>12}{:>10}{:>10}  name", "operation", "", "/ DEL", "/ script");
    for (contender, figure) in rows {
        let _ = writeln!(
            text,
            "{:<42}{:>12}{:>10}{:>10}  {}",
            contender.label,
            grouped(figure),
            ratio(figure, SET_DEL),
            ratio(figure, SET_SCRIPT),
            contender.name
        );
    }
    text.push('\n');
}

/// `12345.4` as `12,345`.
pub fn grouped(number: f64) -> String {
    let digits = format!("{number:.0}");
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

pub fn json(ledger: &Ledger, verdicts: &[Verdict]) -> String {
    let figures: Vec<String> =
        ledger.figures().map(|(name, figure)| format!("    {}: {:.1}", string(name), figure.median)).collect();
    let targets: Vec<String> = verdicts.iter().map(json_verdict).collect();
    format!(
        "{{\n  \"server\": {},\n  \"pipeline\": {PIPELINE},\n  \"figures\": {{\n{}\n  }},\n  \"targets\": [\n{}\n  ]\n}}\n",
        string(ledger.fact("server")),
        figures.join(",\n"),
        targets.join(",\n")
    )
}

fn json_verdict(verdict: &Verdict) -> String {
    format!(
        "    {{\"what\": {}, \"ratio\": {:.4}, \"bound\": {}, \"met\": {}}}",
        string(&verdict.label()),
        verdict.value,
        string(&verdict.target.bound.to_string()),
        verdict.is_met()
    )
}

fn string(text: &str) -> String {
    let escaped: String = text
        .chars()
        .flat_map(|c| match c {
            '"' | '\\' => vec!['\\', c],
            _ if c.is_control() => vec![' '],
            _ => vec![c],
        })
        .collect();
    format!("\"{escaped}\"")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_are_grouped_by_threes() {
        for (number, text) in [(0.0, "0"), (999.4, "999"), (1_000.0, "1,000"), (1_234_567.0, "1,234,567")] {
            assert_eq!(grouped(number), text);
        }
    }

    #[test]
    fn json_strings_are_escaped() {
        assert_eq!(string("a\"b\\c\n"), r#""a\"b\\c ""#);
    }
}
