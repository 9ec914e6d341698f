//! What was measured, as a table for people and as JSON for programs.

use std::fmt::Write;

use crate::instr::Cost;
use crate::limits::Verdict;
use crate::server::Mode;

pub struct Report<'a> {
    pub server: &'a str,
    pub mode: Mode,
    pub pipeline: usize,
    /// The two numbers of operations that were subtracted.
    pub operations: [usize; 2],
    /// Name of the contender that ratios are given to.
    pub baseline: &'a str,
    pub costs: &'a [Cost],
    pub verdicts: &'a [Verdict<'a>],
}

impl Report<'_> {
    fn baseline(&self) -> Option<&Cost> {
        self.costs.iter().find(|cost| cost.name == self.baseline)
    }

    fn ratio(&self, cost: &Cost) -> f64 {
        self.baseline().map_or(f64::NAN, |baseline| cost.ratio_to(baseline))
    }
}

pub fn table(report: &Report) -> String {
    let [few, many] = report.operations;
    let baseline = report.baseline().map_or("", |cost| cost.label);
    let mut text = format!(
        "Server instructions an operation ({}, {}, pipeline {}, {many} minus {few} operations)\n\n",
        report.server,
        report.mode.label(),
        report.pipeline
    );
    push_row(&mut text, ["operation", "requests", "instructions", "ratio"], "name");
    for cost in report.costs {
        let cells = [
            cost.label,
            &cost.requests.to_string(),
            &grouped(cost.instructions),
            &format!("{:.3}", report.ratio(cost)),
        ];
        push_row(&mut text, cells, cost.name);
    }
    text.push_str(&format!("\nratio: to {baseline}\n"));
    for verdict in report.verdicts {
        let outcome = if verdict.is_met() { "ok" } else { "OVER" };
        text.push_str(&format!(
            "{outcome:<4}  {} / {}: {:.3}, at most {:.2}\n",
            verdict.subject.label, verdict.reference.label, verdict.ratio, verdict.at_most
        ));
    }
    text
}

fn push_row(text: &mut String, [label, requests, instructions, ratio]: [&str; 4], name: &str) {
    // Writing to a string cannot fail.
    let _ = writeln!(text, "{label:<38}{requests:>9}{instructions:>14}{ratio:>8}  {name}");
}

/// `12345` as `12,345`.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

pub fn json(report: &Report) -> String {
    let [few, many] = report.operations;
    let costs: Vec<String> = report.costs.iter().map(|cost| json_cost(report, cost)).collect();
    let verdicts: Vec<String> = report.verdicts.iter().map(json_verdict).collect();
    format!(
        "{{\n  \"server\": {},\n  \"mode\": {},\n  \"pipeline\": {},\n  \"operations\": [{few}, {many}],\n  \
         \"baseline\": {},\n  \"costs\": [\n{}\n  ],\n  \"limits\": [\n{}\n  ]\n}}\n",
        string(report.server),
        string(report.mode.label()),
        report.pipeline,
        string(report.baseline),
        costs.join(",\n"),
        verdicts.join(",\n")
    )
}

fn json_cost(report: &Report, cost: &Cost) -> String {
    format!(
        "    {{\"name\": {}, \"requests\": {}, \"instructions\": {}, \"ratio\": {:.4}}}",
        string(cost.name),
        cost.requests,
        cost.instructions,
        report.ratio(cost)
    )
}

fn json_verdict(verdict: &Verdict) -> String {
    format!(
        "    {{\"name\": {}, \"reference\": {}, \"ratio\": {:.4}, \"at_most\": {}, \"met\": {}}}",
        string(verdict.subject.name),
        string(verdict.reference.name),
        verdict.ratio,
        verdict.at_most,
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
        for (number, text) in [(0, "0"), (999, "999"), (1_000, "1,000"), (1_234_567, "1,234,567")] {
            assert_eq!(grouped(number), text);
        }
    }

    #[test]
    fn json_strings_are_escaped() {
        assert_eq!(string("a\"b\\c\n"), r#""a\"b\\c ""#);
    }
}
