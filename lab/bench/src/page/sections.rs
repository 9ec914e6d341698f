//! The text of the page.

use super::more;
use super::plots::Plot;
use crate::contenders::{self, Contender, Kind, RunsOn, SET_DEL, SET_SCRIPT};
use crate::instr::grouped;
use crate::ledger::Ledger;
use crate::server::Mode;
use crate::targets::{self, Measure, ROWS, Target, Verdict};
use crate::times::{Keys, MEMORY_ROWS, PIPELINES, READER_ROWS, WAITERS, Way, short, spread};

pub fn page(main: &Ledger, others: &[Ledger], plots: &[Plot]) -> String {
    let plot = |file: &str| {
        let found = plots.iter().find(|plot| plot.file == file);
        found.map_or(String::new(), |plot| format!("![{}](benchmarks/{})\n\n", plot.title, plot.file))
    };
    let mut text = head(main);
    text.push_str(&judged(main, true));
    text.push_str(&counted(main, &plot("instructions.svg")));
    text.push_str(&more::other_keys(main));
    text.push_str(&more::semaphores(main, &plot("semaphores.svg")));
    text.push_str(&more::several(main, &plot("several.svg")));
    text.push_str(&pairs(main, &plot("pairs.svg")));
    text.push_str(&readers(main, &plot("readers.svg")));
    text.push_str(&contended(main, &[plot("hand-off.svg"), plot("commands.svg")].concat()));
    text.push_str(&more::stalls(main));
    text.push_str(&more::attacks(main));
    text.push_str(&more::kept(main));
    text.push_str(&more::freedom(main));
    text.push_str(&memory(main));
    for other in others {
        let server = other.fact("server");
        text.push_str(&format!("## Results on {server}\n\n"));
        text.push_str(&described(other));
        let counted = [judged(other, false), counted(other, ""), more::other_keys(other), more::semaphores(other, "")];
        let timed = [more::several(other, ""), pairs(other, ""), contended(other, ""), more::stalls(other)];
        for section in counted.into_iter().chain(timed) {
            text.push_str(&below(&section, server));
        }
    }
    text.truncate(text.trim_end().len());
    text.push('\n');
    text
}

/// Returns a section as a part of the results on another server: its headings are a level lower, and name that server.
fn below(section: &str, server: &str) -> String {
    let line = |line: &str| match line.starts_with("##") {
        true => format!("#{line} on {server}\n"),
        false => format!("{line}\n"),
    };
    section.lines().map(line).collect()
}

fn head(ledger: &Ledger) -> String {
    format!(
        "# Benchmarks\n\n\
         This page shows what dlock costs the server, compared with other locks on Redis. `make bench` and\n\
         `make bench-instr-keep` write this page and its plots from the figures in `lab/bench/figures/`. No figure is entered\nby hand.\n\n\
         The scripts of the other locks are our own implementations of what they do on the server:\n\
         [`lab/bench/src/contenders/lua`](../lab/bench/src/contenders/lua). The operations of Redisson include the request \
         that\ndeletes the latch of an unlock.\n\n\
         {}",
        described(ledger)
    )
}

fn described(ledger: &Ledger) -> String {
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

/// On another server than the main one, only what was measured.
fn judged(ledger: &Ledger, is_main: bool) -> String {
    let verdicts = targets::judge(&ROWS, ledger);
    let (met, judged) = targets::rows_met(&verdicts);
    let rows = ROWS.iter().flat_map(|row| row.targets.iter().map(move |target| (row, target)));
    // Without one of its commands a server has no such figure.
    let is_known = |target: &Target| {
        let verdict = verdicts.iter().any(|verdict| std::ptr::eq(verdict.target, target));
        verdict || is_main && !target.measure.names().iter().any(|name| contenders::may_lack(name))
    };
    let rows = rows.filter(|(_, target)| is_known(target)).map(|(row, target)| {
        let verdict = verdicts.iter().find(|verdict| std::ptr::eq(verdict.target, target));
        let measured = verdict.map_or(String::new(), |verdict| format!("{:.3}", verdict.value));
        let outcome = verdict.map_or("not measured".to_owned(), Verdict::outcome);
        let calls = calls_alone(ledger, target).map_or(String::new(), |calls| format!("{calls:.3}"));
        vec![row.what.to_owned(), target.case.to_owned(), measured, target.bound.to_string(), outcome, calls]
    });
    format!(
        "## Targets\n\n{met} of {judged} targets are met in every case. The last column shows the result that would be measured \
         if the module's own\ncode cost nothing: what the server needs for the command and for the calls that the module \
         makes.\n\n{}",
        table(&["what", "case", "measured", "target", "", "the server's part"], rows.collect())
    )
}

/// A target's ratio of instructions if the module's own code had none, where the other side is no command of ours.
fn calls_alone(ledger: &Ledger, target: &Target) -> Option<f64> {
    let Measure::Quotient(subject, reference) = target.measure else { return None };
    let own = |figure: &str| ledger.figure(&format!("own/{}", figure.strip_prefix("instructions/")?));
    match (own(subject), own(reference)) {
        (Some(own), None) => Some((ledger.figure(subject)?.median - own.median) / ledger.figure(reference)?.median),
        _ => None,
    }
}

/// The text above the table of instructions.
const COUNTED: &str = "\
Instructions of the server process for one operation (callgrind, pipeline 16, 64 locks). In brackets: the ratio to
`SET NX PX` + `DEL`, which checks no owner. The last column shows the bytes that a replica receives. The counts do not
depend on the load of the machine. Every server holds 100 other keys.

A busy server also has a client that waits for a lock, and a lock that is bound to a connection.

Locks have the lease of `dlock.default-lease`, and `RENEW` uses the lease of the hold. Rows with `PX` give a lease in
the command, as the other locks must. `make bench-instr` counts again and fails if a ratio differs by more than 5 %.

";

fn counted(ledger: &Ledger, plot: &str) -> String {
    let count = |mode: &str, name: &str| ledger.figure(&format!("instructions/{mode}/{name}")).map(|f| f.median);
    let cell = |mode: Mode, name: &str| {
        let own = count(mode.name(), name)?;
        Some(format!("{} ({:.2})", grouped(own), own / count(mode.name(), SET_DEL)?))
    };
    let row = |contender: &Contender| {
        let sent = ledger.figure(&format!("replicated/{}", contender.name)).map(|f| grouped(f.median));
        let cells = Mode::ALL.map(|mode| cell(mode, contender.name).unwrap_or_default());
        [vec![label(contender)], cells.into(), vec![sent.unwrap_or_default()]].concat()
    };
    let all = contenders::all();
    // Those have a section of their own.
    let is_here = |kind| !matches!(kind, Kind::OtherKeys | Kind::Permits(_) | Kind::Several(_));
    let is_counted = |contender: &&Contender| is_here(contender.kind) && count("none", contender.name).is_some();
    let counted = all.iter().filter(is_counted);
    let rows: Vec<_> = counted.map(row).collect();
    if rows.is_empty() {
        return String::new();
    }
    // On another server than the main one there is no plot, and the same words do not come again.
    let about = if plot.is_empty() { "" } else { COUNTED };
    format!(
        "## Instructions\n\n{plot}{about}{}",
        table(&["operation", "no persistence", "AOF everysec", "one replica", "bytes replicated"], rows)
    )
}

fn pairs(ledger: &Ledger, plot: &str) -> String {
    let mut text = String::new();
    let cases: Vec<(Keys, usize)> =
        Keys::ALL.into_iter().flat_map(|keys| PIPELINES.map(|pipeline| (keys, pipeline))).collect();
    for mode in Mode::ALL {
        let name = |sort: &str, (keys, pipeline): (Keys, usize), contender: &str| {
            format!("{sort}/{}/{pipeline}/{}/{contender}", mode.name(), keys.name())
        };
        let row = |contender: Contender| {
            let cells = cases.iter().map(|case| ledger.figure(&name("pairs-ratio", *case, contender.name)));
            let cells: Vec<String> = cells.map(|figure| figure.map_or(String::new(), spread)).collect();
            let rate = ledger.figure(&name("pairs", (Keys::Hot, PIPELINES[0]), contender.name))?;
            Some([vec![label(&contender), grouped(rate.median)], cells].concat())
        };
        let rows: Vec<_> = contenders::all().into_iter().filter(|c| c.is_timed).filter_map(row).collect();
        if rows.is_empty() {
            continue;
        }
        let columns = cases.iter().map(|(keys, pipeline)| format!("{}, pipeline {pipeline}", keys.label()));
        let head: Vec<String> =
            ["operation", "per second (hot key, pipeline 16)"].map(str::to_owned).into_iter().chain(columns).collect();
        let head: Vec<&str> = head.iter().map(String::as_str).collect();
        text.push_str(&format!("### {}\n\n{}", mode.label(), table(&head, rows)));
    }
    if text.is_empty() {
        return text;
    }
    format!(
        "## Pairs per second\n\n{plot}\
         50 clients keep the server busy through its Unix socket, because for loopback TCP the kernel does more work than \
         the\nserver. The server has one processor, the clients have the other. Ratios compare with `{SET_SCRIPT}` of the same \
         round:\nmedian (lowest to highest of the rounds).\n\n\
         With a million keys, each pair uses another of a million names, beside a million locks that are held. Without\n\
         pipelining, each client has its own hot key; otherwise the clients would refuse each other.\n\n{text}"
    )
}

fn readers(ledger: &Ledger, plot: &str) -> String {
    let row = |(name, label): (&str, &str)| {
        let figure = |others: usize| ledger.figure(&format!("readers/{name}/{others}"));
        let ratio = |others: usize| ledger.figure(&format!("readers-ratio/{name}/{others}"));
        let cell = |others: usize| Some(format!("{} ({:.2})", short(figure(others)?.median), ratio(others)?.median));
        let cells = [1, 100, 10_000].map(|others| cell(others).unwrap_or_default());
        figure(1).map(|_| [vec![label.to_owned()], cells.into()].concat())
    };
    let rows: Vec<_> = READER_ROWS.into_iter().filter_map(row).collect();
    if rows.is_empty() {
        return String::new();
    }
    format!(
        "## Readers\n\n{plot}Microseconds per operation beside readers that stay (one client, pipeline 16). In brackets: the \
         ratio to the same\noperation beside one reader.\n\n{}",
        table(&["operation", "1 other", "100 others", "10,000 others"], rows)
    )
}

fn contended(ledger: &Ledger, plots: &str) -> String {
    let mut text = String::new();
    for waiters in WAITERS {
        let row = |way: Way| {
            let figure = |sort: &str| ledger.figure(&format!("hand-off-{sort}/{waiters}/{}", way.name()));
            let cell = |sort: &str| figure(sort).map_or("–".to_owned(), |figure| short(figure.median));
            let ratio = figure("ratio").map_or("–".to_owned(), spread);
            let cells = ["p50", "p99", "p99.9", "rate", "commands", "bytes"].map(cell);
            figure("rate").map(|_| [vec![way.label().to_owned(), ratio], cells.into()].concat())
        };
        let rows: Vec<_> = Way::ALL.into_iter().filter_map(row).collect();
        if !rows.is_empty() {
            let head =
                ["", "median / BLPOP", "p50, us", "p99, us", "p99.9, us", "hand-offs per second", "commands", "bytes"];
            text.push_str(&format!("### {} waiters\n\n{}", grouped(waiters as f64), table(&head, rows)));
        }
    }
    if text.is_empty() {
        return text;
    }
    let cpu = ledger.figure("hand-off-cpu-ratio/10000").map_or(String::new(), |figure| {
        format!("Server CPU per hand-off with 10,000 waiters, as a ratio to 10 waiters: {}.\n\n", spread(figure))
    });
    format!(
        "## One contended lock\n\n{plots}\
         Every client is a thread that sleeps in the kernel until its reply or its time comes. A client that releases the \
         lock\nrequests it again when another client holds it. That client releases it when all others wait.\n\n\
         - Times are from sending the release to receiving the grant. The holder keeps the lock for 200 us.\n\
         - Hand-offs per second, commands and bytes (sent and received, per hand-off) are from holders that release at once.\n\
         - `BLPOP` has neither owner nor lease: it is the lower bound. To unblock a client for a module, the server writes \
         a byte\n  to a pipe of its own (0.5 us), and reads it later. From the release to the next grant it executes about \
         7,000\n  instructions more than for `BLPOP`.\n\
         - In the tables below, the clients' threads (513 for 512 waiters) share two processors. `make bench-waiting` \
         serves all\n  clients from one thread. There, on a calm machine (Redis 7.0, load below 1, four runs), the ratio \
         to `BLPOP` was\n  1.02 with 2, 64 and 512 waiters (1.014 to 1.023): about 1 us more than 43 to 56.\n\
         - A dash (–) means that there were too few hand-offs to tell.\n\n{cpu}{text}"
    )
}

fn memory(ledger: &Ledger) -> String {
    let row = |(name, label): (&str, &str)| {
        let figure = ledger.figure(&format!("memory/{name}"))?;
        Some(vec![label.to_owned(), grouped(figure.median)])
    };
    let rows: Vec<_> = MEMORY_ROWS.into_iter().filter_map(row).collect();
    if rows.is_empty() { String::new() } else { format!("## Memory\n\n{}", table(&["", "bytes"], rows)) }
}

/// dlock's own stand out.
fn label(contender: &Contender) -> String {
    match contender.runs_on {
        RunsOn::Module => format!("**{}**", contender.label),
        RunsOn::PlainServer => contender.label.to_owned(),
    }
}

pub fn table(head: &[&str], rows: Vec<Vec<String>>) -> String {
    let line = |cells: Vec<&str>| format!("| {} |\n", cells.join(" | "));
    let mut text = line(head.to_vec());
    text.push_str(&line(head.iter().map(|_| "---").collect()));
    for row in &rows {
        text.push_str(&line(row.iter().map(String::as_str).collect()));
    }
    text.push('\n');
    text
}
