//! The counts, as tables.

use std::fmt::Write;

use crate::contenders::{Contender, SET_DEL, SET_SCRIPT};
use crate::ledger::Ledger;
use crate::load::PIPELINE;
use crate::mode::Mode;
use crate::rows;
use crate::shown::grouped;
use crate::targets::Verdict;

pub fn text(ledger: &Ledger, contenders: &[Contender], verdicts: &[Verdict]) -> String {
    let server = ledger.fact("server");
    let mut text = String::new();
    for mode in Mode::ALL {
        let title = format!("Instructions an operation ({server}, {}, pipeline {PIPELINE})", mode.label());
        push_table(&mut text, &title, ledger, contenders, &format!("instructions/{}", mode.name()));
    }
    push_table(&mut text, &format!("Bytes replicated an operation ({server})"), ledger, contenders, "replicated");
    text.push_str("Targets\n\n");
    text.push_str(&rows::text(verdicts));
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
