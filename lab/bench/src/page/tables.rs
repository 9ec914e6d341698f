//! The tables of docs/benchmarks.md. A table without rows is an empty text.

use dlock_plots::tables::table;

use crate::contenders::TAKEN;
use crate::contenders::{self, Contender, Kind, LOCKS_AT_ONCE, OTHER_COMMANDS, SEMAPHORES, SET_DEL, SEVERAL};
use crate::ledger::Ledger;
use crate::mode::Mode;
use crate::order;
use crate::server::RunsOn;
use crate::shown::{grouped, short, spread};
use crate::times::attacks::{ATTACKS, Attack};
use crate::times::freedom::{self, ENDS, TIES, Tie};
use crate::times::growth::{GROWTHS, Growth};
use crate::times::kept::{self, KEEPINGS, Keeping};
use crate::times::several::Means;
use crate::times::stalls::{CASES, Case};
use crate::times::{Keys, PIPELINES, Way};

/// Returns all tables, each with the name of the mark behind which it stands on the page.
pub fn all(main: &Ledger, others: &[Ledger]) -> Vec<(&'static str, String)> {
    vec![
        ("facts", facts(main)),
        ("instructions", counted(main)),
        ("other keys", other_keys(main)),
        ("semaphores", semaphores(main)),
        ("several locks", several(main)),
        ("contention for several locks", contention(main)),
        ("model of several locks", model()),
        ("pairs", pairs(main)),
        ("readers", readers(main)),
        ("hand-off CPU", hand_off_cpu(main)),
        ("contended", contended(main)),
        ("stalls", stalls(main)),
        ("attacks", attacks(main)),
        ("kept", kept(main)),
        ("freedom", freedom(main)),
        ("memory", memory(main)),
        ("growth", growth(main)),
        ("other servers", on_other_servers(others)),
    ]
}

/// Returns a table with a column for each server.
fn on_other_servers(ledgers: &[Ledger]) -> String {
    let cell = |ledger: &Ledger, name: &str| over_set_del(ledger, Mode::NoPersistence, name).unwrap_or_default();
    let row = |contender: &Contender| {
        let cells: Vec<String> = ledgers.iter().map(|ledger| cell(ledger, contender.name)).collect();
        let is_counted = cells.iter().any(|cell| !cell.is_empty());
        is_counted.then(|| [vec![label(contender)], cells].concat())
    };
    let servers = ledgers.iter().map(|ledger| ledger.fact("server"));
    let head: Vec<&str> = ["operation"].into_iter().chain(servers).collect();
    table(&head, contenders::all().iter().filter(of_a_lock).filter_map(row).collect())
}

fn facts(ledger: &Ledger) -> String {
    let facts = [
        ("server", "server"),
        ("dlock", "dlock"),
        ("machine", "machine"),
        ("kernel", "Linux"),
        ("date", "timed on"),
        ("rounds", "rounds"),
    ];
    let known = facts.iter().filter(|(name, _)| !ledger.fact(name).is_empty());
    table(&["", ""], known.map(|(name, label)| vec![(*label).to_owned(), ledger.fact(name).to_owned()]).collect())
}

fn counted(ledger: &Ledger) -> String {
    let row = |contender: &Contender| {
        let sent = ledger.figure(&format!("replicated/{}", contender.name)).map(|f| grouped(f.median));
        let cells = Mode::ALL.map(|mode| over_set_del(ledger, mode, contender.name).unwrap_or_default());
        [vec![label(contender)], cells.into(), vec![sent.unwrap_or_default()]].concat()
    };
    let all = contenders::all();
    let is_counted = |contender: &&Contender| count(ledger, contender.name).is_some();
    let rows = all.iter().filter(of_a_lock).filter(is_counted).map(row).collect();
    table(&["operation", "no persistence", "AOF everysec", "one replica", "bytes replicated"], rows)
}

/// Returns whether a contender is in the tables of one lock. Other kinds have sections of their own.
fn of_a_lock(contender: &&Contender) -> bool {
    let is_elsewhere =
        matches!(contender.kind, Kind::OtherKeys | Kind::Permits(_) | Kind::Several(_) | Kind::Beside(_));
    !is_elsewhere && !LIKE_ANOTHER.contains(&contender.name)
}

/// Returns the instructions of an operation, and their ratio to those of the plainest lock.
fn over_set_del(ledger: &Ledger, mode: Mode, name: &str) -> Option<String> {
    let count = |name: &str| Some(ledger.figure(&format!("instructions/{}/{name}", mode.name()))?.median);
    let own = count(name)?;
    Some(format!("{} ({:.2})", grouped(own), own / count(SET_DEL)?))
}

fn other_keys(ledger: &Ledger) -> String {
    let row = |(name, label): (&str, &str)| {
        let plain = count(ledger, name)?;
        let cell = |background: &str| {
            let beside = count(ledger, &format!("{name}-{background}"));
            beside.map_or("–".to_owned(), |beside| format!("{} ({:.3})", grouped(beside), beside / plain))
        };
        let cells = ["loaded", "busy", "blpop"].map(cell);
        Some([vec![label.to_owned(), grouped(plain)], cells.into()].concat())
    };
    let head = ["commands", "no module", "module loaded", "busy server", "no module, a client in BLPOP"];
    table(&head, OTHER_COMMANDS.into_iter().filter_map(row).collect())
}

fn semaphores(ledger: &Ledger) -> String {
    let head = ["operation", "1 permit", "100 permits", "10,000 permits"];
    table(&head, sized(ledger, &SEMAPHORES, TAKEN))
}

fn several(ledger: &Ledger) -> String {
    table(&["operation", "2 locks", "8 locks", "64 locks"], sized(ledger, &SEVERAL, LOCKS_AT_ONCE))
}

/// Returns rows of contenders whose names end with a size. The number in brackets is the first row's count divided by
/// this one.
fn sized(ledger: &Ledger, rows: &[(&str, &str)], sizes: [usize; 3]) -> Vec<Vec<String>> {
    let figure = |name: &str, size: usize| count(ledger, &format!("{name}-{size}"));
    let own = rows.first().map_or("", |(name, _)| *name);
    let cell = |name: &str, size: usize| {
        let ratio = |count: f64| figure(own, size).map_or(f64::NAN, |own| own / count);
        figure(name, size).map(|count| match name == own {
            true => grouped(count),
            false => format!("{} ({:.2})", grouped(count), ratio(count)),
        })
    };
    let row = |(name, label): &(&str, &str)| {
        let cells = sizes.map(|size| cell(name, size));
        let label = if *name == own { format!("**{label}**") } else { (*label).to_owned() };
        cells[0].is_some().then(|| [vec![label], cells.map(Option::unwrap_or_default).into()].concat())
    };
    rows.iter().filter_map(row).collect()
}

pub fn contention(ledger: &Ledger) -> String {
    let columns = [
        ("several-rate", "per second"),
        ("several-rate-ratio", "rate / ordered"),
        ("several-longest", "longest wait, ms"),
        ("several-longest-ratio", "longest wait / back off"),
    ];
    let row = |means: Means| {
        let cells = columns.map(|(sort, _)| ledger.figure(&format!("{sort}/{}", means.name())).map(spread));
        filled(means.label(), cells)
    };
    table(&headed(&columns), Means::ALL.into_iter().filter_map(row).collect())
}

fn model() -> String {
    format!(
        "In a model whose server takes no time, this order alone gives {:.2} of the rate of ordered locks\n\
         (`lab/bench/src/order.rs`). The model leaves out that ordered locks send two requests.\n",
        order::rate_against_ordered()
    )
}

/// Returns the rates without persistence. The ledgers have those of the other modes, too.
pub fn pairs(ledger: &Ledger) -> String {
    let cases: Vec<(Keys, usize)> =
        Keys::ALL.into_iter().flat_map(|keys| PIPELINES.map(|pipeline| (keys, pipeline))).collect();
    let name = |sort: &str, (keys, pipeline): (Keys, usize), contender: &str| {
        format!("{sort}/{}/{pipeline}/{}/{contender}", Mode::NoPersistence.name(), keys.name())
    };
    let row = |contender: Contender| {
        let cells = cases.iter().map(|case| ledger.figure(&name("pairs-ratio", *case, contender.name)));
        let cells: Vec<String> = cells.map(|figure| figure.map_or(String::new(), |it| short(it.median))).collect();
        let rate = ledger.figure(&name("pairs", (Keys::Hot, PIPELINES[0]), contender.name))?;
        Some([vec![label(&contender), grouped(rate.median)], cells].concat())
    };
    let columns = cases.iter().map(|(keys, pipeline)| format!("{}, pipeline {pipeline}", keys.label()));
    let head: Vec<String> =
        ["operation", "per second (hot key, pipeline 16)"].map(str::to_owned).into_iter().chain(columns).collect();
    let head: Vec<&str> = head.iter().map(String::as_str).collect();
    table(&head, contenders::timed().filter(|it| !LIKE_ANOTHER.contains(&it.name)).filter_map(row).collect())
}

/// Contenders that the tables leave out, because they differ little from the row above. Ledgers and plots have them.
const LIKE_ANOTHER: [&str; 7] =
    ["acquire-px-no-log", "racquire", "racquire-px-busy", "renew-px-busy", "rlock", "wlock", "reentrant-fcall"];

pub fn readers(ledger: &Ledger) -> String {
    let row = |(name, label): (&str, &str)| {
        let figure = |others: usize| ledger.figure(&format!("readers/{name}/{others}"));
        let ratio = |others: usize| ledger.figure(&format!("readers-ratio/{name}/{others}"));
        let cell = |others: usize| Some(format!("{} ({:.2})", short(figure(others)?.median), ratio(others)?.median));
        filled(label, [1, 100, 10_000].map(cell))
    };
    let head = ["operation", "1 other", "100 others", "10,000 others"];
    table(&head, READER_ROWS.into_iter().filter_map(row).collect())
}

pub const READER_ROWS: [(&str, &str); 3] =
    [("rlock", "RLOCK + RELEASE"), ("renew", "RENEW"), ("redisson-read", "Redisson read lock")];

pub fn hand_off_cpu(ledger: &Ledger) -> String {
    ledger.figure("hand-off-cpu-ratio/10000").map_or(String::new(), |figure| {
        format!("Server CPU per hand-off with 10,000 waiters, as a ratio to 10 waiters: {}.\n", spread(figure))
    })
}

pub fn contended(ledger: &Ledger) -> String {
    let head = ["", "median / BLPOP", "p50, us", "p99, us", "hand-offs per second", "commands"];
    one_below_the_other(SHOWN_WAITERS.map(|waiters| {
        let row = |way: Way| {
            let figure = |sort: &str| ledger.figure(&format!("hand-off-{sort}/{waiters}/{}", way.name()));
            let cell = |sort: &str| figure(sort).map_or("–".to_owned(), |figure| short(figure.median));
            let cells = ["ratio", "p50", "p99", "rate", "commands"].map(cell);
            figure("rate").map(|_| [vec![way.label().to_owned()], cells.into()].concat())
        };
        let rows = Way::ALL.into_iter().filter_map(row).collect();
        (format!("{} waiters", grouped(waiters as f64)), table(&head, rows))
    }))
}

/// The numbers of waiters that the page shows. The plots have more.
const SHOWN_WAITERS: [usize; 3] = [2, 64, 512];

pub fn stalls(ledger: &Ledger) -> String {
    let row = |case: &Case| {
        let figure = ledger.figure(&format!("stall/{}", case.name))?;
        Some(vec![case.label.to_owned(), spread(figure), case.remark.to_owned()])
    };
    table(&["", "ms", ""], CASES.iter().filter_map(row).collect())
}

pub fn attacks(ledger: &Ledger) -> String {
    let row = |attack: &Attack| {
        let cells = ["attack-held", "attack-ping"];
        filled(attack.label, cells.map(|sort| ledger.figure(&format!("{sort}/{}", attack.name)).map(spread)))
    };
    table(&["", "held", "`PING`"], ATTACKS.iter().filter_map(row).collect())
}

pub fn kept(ledger: &Ledger) -> String {
    let row = |keeping: &Keeping| {
        let cell = |(sort, _): (&str, &str)| ledger.figure(&format!("{sort}/{}", keeping.name)).map(spread);
        filled(keeping.label, kept::COLUMNS.map(cell))
    };
    table(&headed(&kept::COLUMNS), KEEPINGS.iter().filter_map(row).collect())
}

pub fn freedom(ledger: &Ledger) -> String {
    let row = |tie: &Tie| {
        let cell = |(end, _): (&str, &str)| ledger.figure(&format!("freedom/{}/{end}", tie.name)).map(freedom::shown);
        filled(tie.label, ENDS.map(cell))
    };
    table(&headed(&ENDS), TIES.iter().filter_map(row).collect())
}

pub fn memory(ledger: &Ledger) -> String {
    let rows = [
        ("set-del", "string key with a UUID, of a million"),
        ("acquire", "held lock with the same owner, of a million"),
        ("reader", "one more reader of a lock"),
        ("session", "what a session adds to a held lock"),
        ("waiter-used", "waiter, used_memory"),
        ("waiter-resident", "waiter, resident"),
        ("blpop-used", "client in BLPOP, used_memory"),
        ("blpop-resident", "client in BLPOP, resident"),
    ];
    let row = |(name, label): (&str, &str)| {
        let figure = ledger.figure(&format!("memory/{name}"))?;
        Some(vec![label.to_owned(), grouped(figure.median)])
    };
    table(&["", "bytes"], rows.into_iter().filter_map(row).collect())
}

/// Returns the median of the instructions without persistence.
fn count(ledger: &Ledger, name: &str) -> Option<f64> {
    ledger.figure(&format!("instructions/none/{name}")).map(|figure| figure.median)
}

/// Returns a row, if its first cell was measured.
fn filled<const N: usize>(label: &str, cells: [Option<String>; N]) -> Option<Vec<String>> {
    let is_measured = cells.first().is_some_and(Option::is_some);
    is_measured.then(|| [vec![label.to_owned()], cells.map(Option::unwrap_or_default).into()].concat())
}

pub fn growth(ledger: &Ledger) -> String {
    let row = |growth: &Growth| {
        let figure = |size: usize| ledger.figure(&format!("growth/{}/{size}", growth.name));
        let [first, .., last] = growth.sizes.map(figure);
        let sizes = growth.sizes.map(|size| grouped(size as f64)).join(" / ");
        let times = growth.sizes.map(|size| figure(size).map_or("–".to_owned(), |time| short(time.median)));
        let own = |sort: &str| ledger.figure(&format!("growth-{sort}/{}", growth.name));
        let rest = [
            format!("{:.2}", last?.median / first?.median),
            own("bytes").map_or(String::new(), |bytes| grouped(bytes.median)),
            own("stall").map_or(String::new(), |stall| short(stall.median)),
        ];
        let label =
            if growth.runs_on == RunsOn::Module { format!("**{}**", growth.label) } else { growth.label.into() };
        Some([vec![label, sizes], times.into(), rest.into()].concat())
    };
    let times = ["smallest n, us", "middle n, us", "largest n, us", "largest / smallest"];
    let head = [&["", "n"][..], &times, &["bytes each", "longest stall, ms"]].concat();
    table(&head, GROWTHS.iter().filter_map(row).collect())
}

/// Returns the heads of columns, after an empty one for the label.
fn headed<'a>(columns: &[(&str, &'a str)]) -> Vec<&'a str> {
    [""].into_iter().chain(columns.iter().map(|(_, label)| *label)).collect()
}

fn one_below_the_other<const N: usize>(tables: [(String, String); N]) -> String {
    let tables = tables.into_iter().filter(|(_, table)| !table.is_empty());
    tables.map(|(title, table)| format!("### {title}\n\n{table}\n")).collect()
}

/// Returns the label of a contender, in bold for dlock's own commands.
fn label(contender: &Contender) -> String {
    match contender.runs_on {
        RunsOn::Module => format!("**{}**", contender.label),
        RunsOn::PlainServer => contender.label.to_owned(),
    }
}
