//! The sections of the page about what is no single lock.

use super::sections::table;
use crate::contenders::{LOCKS_AT_ONCE, OTHER_COMMANDS, SEMAPHORES, SEVERAL, TAKEN};
use crate::instr::grouped;
use crate::ledger::Ledger;
use crate::times::attacks::{self, ATTACKS, Attack};
use crate::times::freedom::{self, ENDS, TIES, Tie};
use crate::times::kept::{self, KEEPINGS, Keeping};
use crate::times::several::Means;
use crate::times::stalls::CASES;
use crate::times::{SEVERAL_COLUMNS, spread};

/// Median instructions without persistence.
fn count(ledger: &Ledger, name: &str) -> Option<f64> {
    ledger.figure(&format!("instructions/none/{name}")).map(|figure| figure.median)
}

pub fn other_keys(ledger: &Ledger) -> String {
    let row = |(name, label): (&str, &str)| {
        let plain = count(ledger, name)?;
        let cell = |background: &str| {
            let beside = count(ledger, &format!("{name}-{background}"));
            beside.map_or("–".to_owned(), |beside| format!("{} ({:.3})", grouped(beside), beside / plain))
        };
        let cells = ["loaded", "busy", "blpop"].map(cell);
        Some([vec![label.to_owned(), grouped(plain)], cells.into()].concat())
    };
    let rows: Vec<_> = OTHER_COMMANDS.into_iter().filter_map(row).collect();
    if rows.is_empty() {
        return String::new();
    }
    format!(
        "## Other keys on the same server\n\n\
         Instructions for commands on keys that are no locks. In brackets: the ratio to a server without the module.\n\n\
         While a client waits for a lock, the server itself looks up each list, sorted set and stream that is\n\
         created. It does the same for lists while a client waits in `BLPOP`. The last column shows that.\n\n{}",
        table(&["commands", "no module", "module loaded", "busy server", "no module, a client in BLPOP"], rows)
    )
}

pub fn semaphores(ledger: &Ledger, plot: &str) -> String {
    let rows = sized(ledger, &SEMAPHORES, TAKEN);
    if rows.is_empty() {
        return String::new();
    }
    format!(
        "## Semaphores\n\n{plot}\
         Instructions to acquire and release one permit while others hold N. `RSemaphore` has no leases: a\n\
         permit is lost with its holder. In brackets: `SACQUIRE` as a ratio to it.\n\n{}",
        table(&["operation", "1 permit", "100 permits", "10,000 permits"], rows)
    )
}

pub fn several(ledger: &Ledger, plot: &str) -> String {
    let rows = sized(ledger, &SEVERAL, LOCKS_AT_ONCE);
    let mut text = String::new();
    if !rows.is_empty() {
        text.push_str(&format!(
            "## Several locks\n\n{plot}\
             Instructions to acquire and release N free locks. Each lock of `MACQUIRE` is released by a request\n\
             of its own; the script that releases has all keys. In brackets: `MACQUIRE` as a ratio to it.\n\n{}",
            table(&["operation", "2 locks", "8 locks", "64 locks"], rows)
        ));
    }
    let row = |means: Means| {
        let cell = |(sort, _): (&str, &str)| ledger.figure(&format!("{sort}/{}", means.name())).map(spread);
        let cells = SEVERAL_COLUMNS.map(cell);
        cells[0]
            .is_some()
            .then(|| [vec![means.label().to_owned()], cells.map(Option::unwrap_or_default).into()].concat())
    };
    let rows: Vec<_> = Means::ALL.into_iter().filter_map(row).collect();
    if !rows.is_empty() {
        let head = [&[""][..], &SEVERAL_COLUMNS.map(|(_, label)| label)].concat();
        text.push_str(&format!(
            "### Contention for several locks\n\n\
             32 clients need 2 of 16 locks each, chosen at random, for 1 ms, again and again. A client that backs off\n\
             waits for 1 to 10 ms. Median (lowest to highest of the rounds).\n\n{}\
             A request for both locks keeps its place in both queues, so one lock may be free while the request waits\n\
             for the other. In a model whose server takes no time, this order alone gives {:.2} of the rate of ordered\n\
             locks (`lab/bench/src/order.rs`). The model leaves out that ordered locks send two requests.\n\n",
            table(&head, rows),
            crate::order::rate_against_ordered()
        ));
    }
    text
}

pub fn stalls(ledger: &Ledger) -> String {
    let row = |case: &crate::times::stalls::Case| {
        let figure = ledger.figure(&format!("stall/{}", case.name))?;
        Some(vec![case.label.to_owned(), spread(figure), case.one_piece.to_owned()])
    };
    let rows: Vec<_> = CASES.iter().filter_map(row).collect();
    if rows.is_empty() {
        return String::new();
    }
    format!(
        "## Longest stall\n\n\
         The longest that a `PING` of another client waits, in milliseconds, while the server does what a client has\n\
         made large: median (lowest to highest). The last column says why something is done in one piece.\n\n{}",
        table(&["", "ms", ""], rows)
    )
}

pub fn attacks(ledger: &Ledger) -> String {
    let row = |attack: &Attack| {
        let figure = |sort: &str| ledger.figure(&format!("{sort}/{}", attack.name)).map(spread);
        Some(vec![attack.label.to_owned(), figure("attack-held")?, figure("attack-ping")?])
    };
    let rows: Vec<_> = ATTACKS.iter().filter_map(row).collect();
    if rows.is_empty() {
        return String::new();
    }
    format!(
        "## A session under attack\n\n\
         One idle client holds {}, by `SESSION`.\n\
         Others make as much work as they can for 5 s: how many of the locks are held to the end, and the longest that a\n\
         `PING` takes, in milliseconds. Median (lowest to highest).\n\n{}",
        attacks::victims(),
        table(&["", "held", "`PING`"], rows)
    )
}

pub fn kept(ledger: &Ledger) -> String {
    let row = |keeping: &Keeping| {
        let cell = |(sort, _): (&str, &str)| ledger.figure(&format!("{sort}/{}", keeping.name)).map(spread);
        let [commands, bytes, cpu] = kept::COLUMNS.map(cell);
        Some(vec![keeping.label.to_owned(), commands?, bytes?, cpu?])
    };
    let rows: Vec<_> = KEEPINGS.iter().filter_map(row).collect();
    if rows.is_empty() {
        return String::new();
    }
    let head = [&[""][..], &kept::COLUMNS.map(|(_, label)| label)].concat();
    format!(
        "## Locks that are kept alive\n\n\
         One client keeps {} locks with a lease of 30 s. The table shows what it sends each second, and what the server\n\
         spends. A lease is renewed when a third of it has passed. `SESSION` and `SESSIONID` have the server extend\n\
         the leases. Bytes are those of requests and replies. Median (lowest to highest).\n\n{}",
        crate::instr::grouped(kept::LOCKS as f64),
        table(&head, rows)
    )
}

pub fn freedom(ledger: &Ledger) -> String {
    let row = |tie: &Tie| {
        let cell = |(end, _): (&str, &str)| ledger.figure(&format!("freedom/{}/{end}", tie.name)).map(freedom::shown);
        let cells = ENDS.map(cell);
        cells[0].is_some().then(|| [vec![tie.label.to_owned()], cells.map(Option::unwrap_or_default).into()].concat())
    };
    let rows: Vec<_> = TIES.iter().filter_map(row).collect();
    if rows.is_empty() {
        return String::new();
    }
    let head = [&[""][..], &ENDS.map(|(_, label)| label)].concat();
    format!(
        "## Time to freedom\n\n\
         A holder goes while another client waits for its lock: the time until that client has it, in seconds. The holder\n\
         is killed, or stopped as a process that hangs is, or nothing reaches the server from it any more, not even the\n\
         end of its connection. It goes at another time between two heartbeats in each round. Median (lowest to highest).\n\n{}\
         The server finds a connection that is cut after twice `tcp-keepalive`, 600 s by default. [Sessions](sessions.md)\n\
         describes how to choose.\n\n",
        table(&head, rows)
    )
}

/// Rows of contenders whose names end with a size. In brackets: the first row as a ratio to it.
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
