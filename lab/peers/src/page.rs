//! `docs/comparison.md`.

use crate::figures::{Figures, Spread};
use crate::systems::{ALL, Kept, System};
use crate::targets::{self, Bound, Verdict};
use crate::texts;

/// The page as these figures have it.
pub fn write(figures: &Figures) -> String {
    let parts = [
        texts::HEAD.to_owned(),
        facts(figures),
        texts::SYSTEMS.to_owned(),
        systems(figures),
        judged(figures),
        texts::ALONE.to_owned(),
        classes(figures, &ALONE),
        texts::PAIRS.to_owned(),
        classes(figures, &PAIRS),
        texts::HAND_OFF.to_owned(),
        classes(figures, &HAND_OFF),
        texts::WAITERS.to_owned(),
        classes(figures, &WAITERS),
        texts::HOLDER.to_owned(),
        classes(figures, &HOLDER),
        texts::FAILOVER.to_owned(),
        failover(figures),
        texts::CHOICE.to_owned(),
        texts::REPEAT.to_owned(),
        texts::SOURCES.to_owned(),
    ];
    parts.join("\n")
}

struct Column {
    figure: &'static str,
    head: &'static str,
    /// From the kept unit to the shown one.
    times: f64,
}

const fn column(figure: &'static str, head: &'static str, times: f64) -> Column {
    Column { figure, head, times }
}

const ALONE: [Column; 4] = [
    column("alone/median", "median, µs", 1.0),
    column("alone/p99", "p99, µs", 1.0),
    column("cpu", "servers' CPU, µs", 1.0),
    column("written", "to disk, kB", 1.0 / 1024.0),
];

const PAIRS: [Column; 5] = [
    column("pairs/1", "1 client", 1.0),
    column("pairs/16", "16 clients", 1.0),
    column("pairs/64", "64 clients", 1.0),
    column("busy/servers", "servers busy, %", 1.0),
    column("busy/clients", "clients busy, %", 1.0),
];

const HAND_OFF: [Column; 5] = [
    column("hand-off/2/median", "2 waiters, µs", 1.0),
    column("hand-off/64/median", "64 waiters, µs", 1.0),
    column("hand-off/64/p99", "64, p99", 1.0),
    column("hand-off/512/median", "512 waiters, µs", 1.0),
    column("order", "out of order", 1.0),
];

const WAITERS: [Column; 2] =
    [column("waiters/cpu", "CPU, % of a core", 1.0), column("waiters/memory", "memory of a waiter, kB", 1.0)];

const HOLDER: [Column; 2] = [column("holder/killed", "killed, s", 1.0), column("holder/stopped", "stopped, s", 1.0)];

const FAILOVER: [Column; 6] = [
    column("failover/gap", "nobody gets in, s", 1.0),
    column("failover/grants", "grants in 6 s", 1.0),
    column("failover/doubled", "two inside", 1.0),
    column("failover/lost", "lost", 1.0),
    column("failover/lost-fenced", "lost with fencing", 1.0),
    column("failover/refused", "refused by it", 1.0),
];

fn facts(figures: &Figures) -> String {
    let rows = [
        ("machine", figures.fact("machine").to_owned()),
        ("system", format!("{}, Linux {}", figures.fact("system"), figures.fact("kernel"))),
        ("one `fdatasync` of 100 bytes", format!("{} µs", figures.fact("fsync"))),
        ("clients", figures.fact("clients").to_owned()),
        ("measured on", figures.fact("date").to_owned()),
        ("rounds", figures.fact("rounds").to_owned()),
    ];
    let mut text = table(&["", ""], rows.map(|(name, fact)| vec![name.to_owned(), fact]).into());
    if !figures.fact("missing").is_empty() {
        text += &wrapped(&format!("\n**Missing:** {}.", figures.fact("missing")));
    }
    text
}

fn systems(figures: &Figures) -> String {
    let rows = ALL.iter().map(|system| {
        let version = figures.fact(&format!("version/{}", system.name)).to_owned();
        let settings = texts::settings(system.made, system.kept);
        vec![system.label.to_owned(), version, system.kept.label().to_owned(), settings.to_owned()]
    });
    table(&["", "version", "a grant is in the", "settings"], rows.collect())
}

fn judged(figures: &Figures) -> String {
    let verdicts = targets::judge(figures);
    let met = verdicts.iter().filter(|verdict| verdict.is_met()).count();
    let rows = verdicts.iter().map(|verdict| {
        let Verdict { ours, peer, target, ratio } = verdict;
        let value = |system: &System| number(figures.median(system.name, target.figure).unwrap_or(f64::NAN));
        let (bound, over) = match target.bound {
            Bound::AtMost(bound) => (format!("≤ {bound}"), ratio / bound),
            Bound::AtLeast(bound) => (format!("≥ {bound}"), bound / ratio),
        };
        let outcome = if verdict.is_met() { "met".to_owned() } else { format!("missed {} times over", number(over)) };
        let theirs = format!("{} ({})", value(peer), peer.label);
        vec![ours.label.to_owned(), target.what.to_owned(), value(ours), theirs, number(*ratio), bound, outcome]
    });
    let head = ["", "", "dlock", "best peer of the class", "ratio", "target", ""];
    format!(
        "{}\n{met} of {} targets are met.\n\n{}\n{}",
        texts::TARGETS,
        verdicts.len(),
        table(&head, rows.collect()),
        texts::MISSED
    )
}

/// A table with the systems of each class under each other.
fn classes(figures: &Figures, columns: &[Column]) -> String {
    let mut head = vec!["a grant is in the", ""];
    head.extend(columns.iter().map(|column| column.head));
    let rows = Kept::ALL.iter().flat_map(|kept| {
        let systems = ALL.iter().filter(move |system| system.kept == *kept);
        systems.enumerate().map(move |(at, system)| {
            let mut row = vec![if at == 0 { kept.label().to_owned() } else { String::new() }, label(system)];
            row.extend(columns.iter().map(|column| cell(figures, system, column)));
            row
        })
    });
    table(&head, rows.collect())
}

fn failover(figures: &Figures) -> String {
    let mut head = vec![""];
    head.extend(FAILOVER.iter().map(|column| column.head));
    let rows = ALL.iter().filter(|system| system.fails_over()).map(|system| {
        let mut row = vec![label(system)];
        row.extend(FAILOVER.iter().map(|column| cell(figures, system, column)));
        row
    });
    table(&head, rows.collect())
}

/// Ours in bold.
fn label(system: &System) -> String {
    if system.made.is_ours() { format!("**{}**", system.label) } else { system.label.to_owned() }
}

/// The median, with the least and the most where they differ.
fn cell(figures: &Figures, system: &System, column: &Column) -> String {
    let Some(Spread { median, least, most }) = figures.spread(system.name, column.figure) else {
        return "–".to_owned();
    };
    let [median, least, most] = [median, least, most].map(|value| number(value * column.times));
    if least == most { median } else { format!("{median} ({least}–{most})") }
}

/// With as many digits as say something.
fn number(value: f64) -> String {
    if value.is_infinite() {
        return "never".to_owned();
    }
    let text = match value.abs() {
        0.0 => return "0".to_owned(),
        size if size >= 100.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        size if size >= 0.095 => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    };
    let (whole, fraction) = text.split_once('.').unwrap_or((&text, ""));
    let mut grouped = String::new();
    for (at, digit) in whole.chars().enumerate() {
        let left = whole.len() - at;
        if at > 0 && left.is_multiple_of(3) && !grouped.ends_with('-') {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    if fraction.is_empty() { grouped } else { format!("{grouped}.{fraction}") }
}

/// The text with its words in lines of at most 120 columns.
fn wrapped(text: &str) -> String {
    let mut lines = String::from("\n");
    let mut width = 0;
    for word in text.split_whitespace() {
        let length = word.chars().count();
        if width > 0 {
            let fits = width + 1 + length <= 120;
            lines.push(if fits { ' ' } else { '\n' });
            width = if fits { width + 1 } else { 0 };
        }
        lines += word;
        width += length;
    }
    lines + "\n"
}

fn table(head: &[&str], rows: Vec<Vec<String>>) -> String {
    let line = |cells: Vec<&str>| format!("| {} |\n", cells.join(" | ")).replace("|  |", "| |");
    let rule: Vec<&str> = head.iter().map(|_| "---").collect();
    let mut text = line(head.to_vec()) + &line(rule);
    for row in &rows {
        text += &line(row.iter().map(String::as_str).collect());
    }
    text
}

#[cfg(test)]
mod tests {
    use super::number;

    #[test]
    fn numbers_have_as_many_digits_as_say_something() {
        let shown = [0.0, 0.0123, 0.25, 1.5, 42.12, 321.4, 12_345.6, -1_234.0, f64::INFINITY].map(number).join(" ");
        assert_eq!(shown, "0 0.012 0.25 1.50 42.1 321 12,346 -1,234 never");
    }
}
