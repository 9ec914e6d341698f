//! `docs/comparison.md`.

use crate::figures::{Failure, Figures, Spread, part};
use crate::plots;
use crate::systems::{ALL, Kept, Made, System};
use crate::targets::{self, Bound, Profile, Verdict};
use crate::{texts, why};
use dlock_plots::tables::{grouped, put, table};

/// Returns the page with its tables put in, and its plots, by their path below `docs/`.
///
/// # Errors
/// A table has no place in the page.
pub fn files(figures: &Figures, page: &str) -> Result<Vec<(String, String)>, String> {
    let tables = [
        ("facts", facts(figures)),
        ("systems", systems(figures)),
        ("targets", judged(figures)),
        ("missed targets", missed(figures)),
        ("alone", classes(figures, &ALONE)),
        ("pairs", classes(figures, &PAIRS)),
        ("hand-off", classes(figures, &HAND_OFF)),
        ("waiters", classes(figures, &WAITERS)),
        ("holder", holder(figures)),
        ("failover", failover(figures)),
    ];
    let page = put(page, &tables)?;
    let plots = plots::all(figures).into_iter().map(|plot| (format!("comparison/{}", plot.file), plot.svg));
    Ok([(PAGE.to_owned(), page)].into_iter().chain(plots).collect())
}

/// The page, below `docs/`.
pub const PAGE: &str = "comparison.md";

/// Returns the page of the quorum with its figures beside Redlock's.
///
/// # Errors
/// The table has no place in the page.
pub fn quorum(figures: &Figures, page: &str) -> Result<String, String> {
    let rows = QUORUM.iter().map(|Column { figure, head, .. }| {
        let value = |system| figures.median(system, figure);
        let (ours, theirs) = (value("dlock-quorum"), value("redlock"));
        let ratio = ours.zip(theirs).map(|(ours, theirs)| format!("{:.2}", ours / theirs));
        let cell = |value: Option<f64>| value.map_or_else(|| "–".to_owned(), number);
        vec![(*head).to_owned(), cell(ours), cell(theirs), ratio.unwrap_or_else(|| "–".to_owned())]
    });
    put(page, &[("quorum", table(&["", "quorum", "Redlock", "ratio"], rows.collect()))])
}

/// The page of the quorum, below `docs/`.
pub const QUORUM_PAGE: &str = "quorum.md";

const QUORUM: [Column; 6] = [
    column("alone/median", "acquire and release, one client, median, µs"),
    column("hand-off/64/median", "hand-off with 64 waiters, median, µs"),
    column("pairs/64/rate", "pairs a second, 64 clients on 64 locks"),
    column("pairs/64/clients", "the clients' CPU for one of these pairs, µs"),
    column("pairs/64/servers", "the servers' CPU for it, µs"),
    column("waiters/packets", "packets a second of 1,000 waiting clients"),
];

struct Column {
    figure: &'static str,
    head: &'static str,
    /// From the kept unit to the shown one.
    times: f64,
}

const fn column(figure: &'static str, head: &'static str) -> Column {
    Column { figure, head, times: 1.0 }
}

const ALONE: [Column; 5] = [
    column("alone/median", "median, µs"),
    column("alone/p99", "p99, µs"),
    column("alone/servers", "servers' CPU, µs"),
    column("alone/clients", "client's CPU, µs"),
    Column { figure: "alone/written", head: "to disk, kB", times: 1.0 / 1024.0 },
];

const PAIRS: [Column; 5] = [
    column("alone/rate", "1 client"),
    column("pairs/16/rate", "16 clients"),
    column("pairs/64/rate", "64 clients"),
    column("pairs/64/servers", "servers' CPU, µs"),
    column("pairs/64/clients", "clients' CPU, µs"),
];

const HAND_OFF: [Column; 5] = [
    column("hand-off/2/median", "2 waiters, µs"),
    column("hand-off/64/median", "64 waiters, µs"),
    column("hand-off/64/p99", "64, p99"),
    column("hand-off/512/median", "512 waiters, µs"),
    column("hand-off/64/order", "out of order"),
];

const WAITERS: [Column; 3] = [
    column("waiters/cpu", "CPU, % of a core"),
    column("waiters/packets", "packets a second"),
    column("waiters/memory", "memory of a waiter, kB"),
];

const HOLDER: [Column; 3] =
    [column("holder/killed", "killed, s"), column("holder/stopped", "stopped, s"), column("holder/cut", "cut off, s")];

/// The same with a named session, where the system has them.
const NAMED: [Column; 3] = [
    column("holder/named-killed", "killed, s"),
    column("holder/named-stopped", "stopped, s"),
    column("holder/named-cut", "cut off, s"),
];

const FAILOVER: [Column; 6] = [
    column("failover/gap", "nobody gets in, s"),
    column("failover/grants", "grants in 6 s"),
    column("failover/doubled", "two inside"),
    column("failover/lost", "lost"),
    column("failover/lost-fenced", "lost with fencing"),
    column("failover/refused", "refused by it"),
];

fn facts(figures: &Figures) -> String {
    let rows = [
        ("machine", figures.fact("machine").to_owned()),
        ("system", format!("{}, Linux {}", figures.fact("system"), figures.fact("kernel"))),
        ("one `fdatasync` of 100 bytes", format!("{} µs", figures.fact("fsync"))),
        ("clients", figures.fact("clients").to_owned()),
        ("measured on", figures.fact("date").to_owned()),
        ("rounds", figures.fact("rounds").to_owned()),
        ("all of it took", format!("{} minutes", figures.fact("minutes"))),
    ];
    let again = figures.facts.iter().filter_map(|(name, fact)| {
        let part = name.strip_prefix("again/")?;
        Some(vec![format!("of it, `{part}` once more on"), fact.clone()])
    });
    let rows = rows.map(|(name, fact)| vec![name.to_owned(), fact]).into_iter().chain(again);
    table(&["", ""], rows.collect()) + &failed(figures)
}

/// Lists the parts that could not be measured.
fn failed(figures: &Figures) -> String {
    if figures.failed.is_empty() {
        return String::new();
    }
    let items = figures.failed.iter().map(|Failure { system, part, round, why }| {
        let label = ALL.iter().find(|known| known.name == system).map_or(system.as_str(), |system| system.label);
        let why = why.replace(['`', '|'], " ");
        wrapped(&format!("- {label}, `{part}`, round {round}: {why}"))
    });
    format!("\n{}\n{}", texts::FAILED, items.collect::<String>())
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
        let outcome =
            if verdict.is_met() { "met".to_owned() } else { format!("missed by a factor of {}", number(over)) };
        let theirs = format!("{} ({})", value(peer), peer.label);
        vec![ours.label.to_owned(), target.what.to_owned(), value(ours), theirs, number(*ratio), bound, outcome]
    });
    let head = ["", "", "dlock", "best peer of the class", "ratio", "target", ""];
    let mut text = format!("{met} of {} targets are met.\n\n{}", verdicts.len(), table(&head, rows.collect()));
    for (ours, target) in targets::unjudged(figures) {
        text += &format!("\nNot judged, for lack of figures: {}, {}.\n", ours.label, target.what);
    }
    text
}

/// Returns where the time goes, and the reason, for each target that is missed.
fn missed(figures: &Figures) -> String {
    let verdicts = targets::judge(figures);
    format!("{}\n{}", profiles(figures, &verdicts), reasons(figures, &verdicts))
}

/// Returns where the time goes, for each target that is missed: ours and the peer's.
fn profiles(figures: &Figures, verdicts: &[Verdict]) -> String {
    let missed = verdicts.iter().filter(|verdict| !verdict.is_met());
    let rows = missed.flat_map(|verdict| {
        [(verdict.ours, true), (verdict.peer, false)].map(|(system, is_ours)| {
            let Some(profile) = Profile::of(figures, system, part(verdict.target.figure)) else {
                return vec![String::new(), label(system), "–".to_owned()];
            };
            let Profile { time, clients, clients_kernel, servers, servers_kernel } = profile;
            let share = |cpu: f64| format!("{:.0} %", cpu / time * 100.0);
            vec![
                if is_ours { verdict.target.what.to_owned() } else { String::new() },
                label(system),
                number(time),
                format!("{} ({})", number(clients), number(clients_kernel)),
                format!("{} ({})", number(servers), number(servers_kernel)),
                share(clients),
                share(servers),
                profile.limit().to_owned(),
                if is_ours {
                    verdict.at_best(figures, &profile).map_or("–".to_owned(), number)
                } else {
                    String::new()
                },
            ]
        })
    });
    let head = [
        "",
        "",
        "time for one, µs",
        "clients' CPU, µs (in the kernel)",
        "servers' CPU, µs (in the kernel)",
        "clients busy",
        "servers busy",
        "limit",
        "ratio at best",
    ];
    table(&head, rows.collect())
}

/// Each missed target with its reason.
fn reasons(figures: &Figures, verdicts: &[Verdict]) -> String {
    let missed = verdicts.iter().filter(|verdict| !verdict.is_met());
    let items = missed.filter_map(|verdict| {
        let why = why::sentence(figures, verdict)?;
        Some(wrapped(&format!("- {}, {}: {why}", label(verdict.ours), verdict.target.what)))
    });
    items.collect()
}

/// Returns a table with the systems of each class under each other.
fn classes(figures: &Figures, columns: &[Column]) -> String {
    with_named_sessions(figures, columns, &[])
}

fn holder(figures: &Figures) -> String {
    with_named_sessions(figures, &HOLDER, &NAMED)
}

/// Such a table. A system that has the figures of `named` has another row for them.
fn with_named_sessions(figures: &Figures, columns: &[Column], named: &[Column]) -> String {
    let mut head = vec!["a grant is in the", ""];
    head.extend(columns.iter().map(|column| column.head));
    let rows = Kept::ALL.iter().flat_map(|kept| {
        let systems = ALL.iter().filter(move |system| system.kept == *kept);
        systems.enumerate().flat_map(move |(at, system)| {
            let class = if at == 0 { kept.label() } else { "" };
            let row = |class: &str, label: String, columns: &[Column]| {
                let cells = columns.iter().map(|column| cell(figures, system, column));
                [class.to_owned(), label].into_iter().chain(cells).collect::<Vec<_>>()
            };
            let has_named = named.iter().any(|column| figures.spread(system.name, column.figure).is_some());
            let beside = has_named.then(|| row("", format!("**{}, named session**", system.label), named));
            [Some(row(class, label(system), columns)), beside].into_iter().flatten()
        })
    });
    table(&head, rows.collect())
}

fn failover(figures: &Figures) -> String {
    let mut head = vec![""];
    head.extend(FAILOVER.iter().map(|column| column.head));
    let [gap, ..] = &FAILOVER;
    let rows = ALL.iter().filter(|system| system.fails_over()).map(|system| {
        let mut row = vec![label(system)];
        row.extend(FAILOVER.iter().map(|column| cell(figures, system, column)));
        row
    });
    let text = table(&head, rows.collect());
    let has_failed = |system: &System| system.fails_over() && figures.has_failed(system.name, gap.figure);
    let failed = ALL.iter().any(has_failed).then(|| format!("\n{}", texts::FAILOVER_FAILED));
    let etcd = ALL.iter().find(|system| system.made == Made::Etcd && system.fails_over());
    let is_long = |system: &&System| figures.median(system.name, gap.figure).is_some_and(|gap| gap > ETCD_IS_LONG);
    let why = etcd.filter(is_long).map(|system| cell(figures, system, gap));
    let why = why.map(|gap| format!("\n{}", texts::FAILOVER_OF_ETCD.replace("GAP", &gap)));
    [Some(text), failed, why].into_iter().flatten().collect()
}

/// In seconds: an election alone does not take as long, a request that is lost takes longer.
const ETCD_IS_LONG: f64 = 5.0;

/// Ours in bold.
fn label(system: &System) -> String {
    if system.made.is_ours() { format!("**{}**", system.label) } else { system.label.to_owned() }
}

/// Returns the median, with the least and the most where they differ.
fn cell(figures: &Figures, system: &System, column: &Column) -> String {
    let Some(Spread { median, least, most }) = figures.spread(system.name, column.figure) else {
        return if figures.has_failed(system.name, column.figure) { "failed" } else { "–" }.to_owned();
    };
    let [median, least, most] = [median, least, most].map(|value| number(value * column.times));
    if least == most { median } else { format!("{median} ({least}–{most})") }
}

/// With as many digits as say something.
pub(crate) fn number(value: f64) -> String {
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

/// Returns the text with its words in lines of at most 120 columns, those of a list after the first one indented.
fn wrapped(text: &str) -> String {
    let mut lines = String::new();
    let mut width = 0;
    for word in text.split_whitespace() {
        let length = word.chars().count();
        if width > 0 {
            let fits = width + 1 + length <= 120;
            lines += if fits { " " } else { "\n  " };
            width = if fits { width + 1 } else { 2 };
        }
        lines += word;
        width += length;
    }
    lines + "\n"
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
