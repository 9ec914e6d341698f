//! The tables of `docs/comparison.md` and `docs/quorum.md`. People write the sentences around them.

use crate::figures::Figures;
use crate::systems::{ALL, System};
use dlock_plots::tables::{grouped, put, table};

/// The page, below `docs/`.
pub const PAGE: &str = "comparison.md";

/// The page of the quorum, below `docs/`.
pub const QUORUM_PAGE: &str = "quorum.md";

/// Returns the page of the comparison with its tables put in. A table has systems that were measured in one run.
///
/// # Errors
/// A table has no place in the page.
pub fn comparison(figures: &Figures, page: &str) -> Result<String, String> {
    let of = |names: &[&str], columns: &[Column], shows_kept: bool| {
        let systems = names.iter().filter_map(|name| ALL.iter().find(|system| system.name == *name));
        systems_table(figures, systems, columns, shows_kept)
    };
    let fails_over: Vec<&str> = ALL.iter().filter(|system| system.fails_over()).map(|system| system.name).collect();
    let tables = [
        ("facts", facts(figures)),
        ("one", of(&ONE, &COSTS, true)),
        ("several", of(&SEVERAL, &COSTS, true)),
        ("holder", of(&HOLDERS, &HOLDER, false)),
        ("failover", of(&fails_over, &FAILOVER, false)),
    ];
    put(page, &tables)
}

/// Returns the page of the quorum with its figures beside Redlock's.
///
/// # Errors
/// The table has no place in the page.
pub fn quorum(figures: &Figures, page: &str) -> Result<String, String> {
    let rows = QUORUM.iter().map(|Column { figure, head }| {
        let value = |system| figures.median(system, figure);
        let (ours, theirs) = (value("dlock-quorum"), value("redlock"));
        let ratio = ours.zip(theirs).map(|(ours, theirs)| format!("{:.2}", ours / theirs));
        let cell = |value: Option<f64>| value.map_or_else(|| "–".to_owned(), number);
        vec![(*head).to_owned(), cell(ours), cell(theirs), ratio.unwrap_or_else(|| "–".to_owned())]
    });
    put(page, &[("quorum", table(&["", "quorum", "Redlock", "ratio"], rows.collect()))])
}

/// The versions and the machine. Parts that were measured again have their own dates.
fn facts(figures: &Figures) -> String {
    let versions: Vec<&str> = SERVERS.iter().map(|system| figures.fact(&format!("version/{system}"))).collect();
    let fsync = figures.fact("fsync");
    let mut rows = vec![
        ("servers", versions.join(", ")),
        ("machine", figures.fact("machine").to_owned()),
        ("system", format!("{}, Linux {}", figures.fact("system"), figures.fact("kernel"))),
        ("one `fdatasync`", format!("{fsync} µs")),
        ("measured on", format!("{}, {} rounds", figures.fact("date"), figures.fact("rounds"))),
    ];
    let mut again: Vec<(&str, Vec<&str>)> = Vec::new();
    for (name, when) in &figures.facts {
        let Some(part) = name.strip_prefix("again/") else { continue };
        match again.iter_mut().find(|(other, _)| *other == when.as_str()) {
            Some((_, parts)) => parts.push(part),
            None => again.push((when.as_str(), vec![part])),
        }
    }
    let again = again.into_iter().map(|(when, parts)| ("measured again", format!("{}: {when}", parts.join(", "))));
    rows.extend(again);
    table(&["", ""], rows.into_iter().map(|(name, fact)| vec![name.to_owned(), fact]).collect())
}

/// A system of each server.
const SERVERS: [&str; 4] = ["set-nx", "etcd-1", "zookeeper-1", "postgresql"];

struct Column {
    figure: &'static str,
    head: &'static str,
}

const fn column(figure: &'static str, head: &'static str) -> Column {
    Column { figure, head }
}

const ONE: [&str; 8] =
    ["dlock", "postgresql", "set-nx", "dlock-fsync", "etcd-1", "zookeeper-1", "etcd-3", "zookeeper-3"];

const SEVERAL: [&str; 5] = ["dlock-replica", "dlock-quorum", "redlock", "dlock-quorum-fsync", "redlock-fsync"];

/// Systems that differ only in where a grant is kept are the same here: a holder dies, not a server.
const HOLDERS: [&str; 7] = ["dlock", "dlock-quorum", "redlock", "set-nx", "postgresql", "etcd-1", "zookeeper-1"];

const COSTS: [Column; 5] = [
    column("alone/median", "one client, µs"),
    column("pairs/64/rate", "64 clients, a second"),
    column("hand-off/64/median", "hand-off, µs"),
    column("hand-off/64/order", "out of order"),
    column("waiters/packets", "packets a second of 1,000 waiters"),
];

const HOLDER: [Column; 4] = [
    column("holder/killed", "killed, s"),
    column("holder/stopped", "stopped, s"),
    column("holder/cut", "cut off, s"),
    column("holder/named-stopped", "stopped, with a named session, s"),
];

const FAILOVER: [Column; 4] = [
    column("failover/gap", "nobody gets in, s"),
    column("failover/grants", "grants in 6 s"),
    column("failover/doubled", "two inside"),
    column("failover/lost", "lost writes"),
];

const QUORUM: [Column; 6] = [
    column("alone/median", "acquire and release, one client, median, µs"),
    column("hand-off/64/median", "hand-off with 64 waiters, median, µs"),
    column("pairs/64/rate", "pairs a second, 64 clients on 64 locks"),
    column("pairs/64/clients", "the clients' CPU for one of these pairs, µs"),
    column("pairs/64/servers", "the servers' CPU for it, µs"),
    column("waiters/packets", "packets a second of 1,000 waiting clients"),
];

/// Returns a table with a row for each system and its medians, and where it keeps a grant. A dash: the system has no such
/// figure.
fn systems_table<'a>(
    figures: &Figures,
    systems: impl Iterator<Item = &'a System>,
    columns: &[Column],
    shows_kept: bool,
) -> String {
    let kept_head = shows_kept.then_some("a grant is in the");
    let head: Vec<&str> = [""].into_iter().chain(kept_head).chain(columns.iter().map(|column| column.head)).collect();
    let rows = systems.map(|system| {
        let label = if system.made.is_ours() { format!("**{}**", system.label) } else { system.label.to_owned() };
        let cells = columns.iter().map(|column| {
            let none = if figures.has_failed(system.name, column.figure) { "failed" } else { "–" };
            figures.median(system.name, column.figure).map_or_else(|| none.to_owned(), number)
        });
        let kept = shows_kept.then(|| system.kept.label().to_owned());
        [label].into_iter().chain(kept).chain(cells).collect()
    });
    table(&head, rows.collect())
}

/// Returns the number with as many digits as were measured.
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
    let grouped = grouped(whole);
    if fraction.is_empty() { grouped } else { format!("{grouped}.{fraction}") }
}

#[cfg(test)]
mod tests {
    use super::number;

    #[test]
    fn numbers_have_as_many_digits_as_were_measured() {
        let shown = [0.0, 0.0123, 0.25, 1.5, 42.12, 321.4, 12_345.6, -1_234.0, f64::INFINITY].map(number).join(" ");
        assert_eq!(shown, "0 0.012 0.25 1.50 42.1 321 12,346 -1,234 never");
    }
}
