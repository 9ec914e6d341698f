//! `dlock log`: what happened to locks.

use std::collections::HashMap;
use std::time::Duration;

use clap::Args;
use dlock_client::{Client, Error, HoldMode, LogEntry};
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::exit;
use crate::output::Format;
use crate::output::{Reader, columns, complain, counted, is_broken, millis, moment, print, say, shown, text, time};

/// `dlock log`.
#[derive(Args)]
pub struct LogOptions {
    /// Wait for more; ended by Ctrl-C
    #[arg(short, long)]
    pub follow: bool,

    /// How many entries to begin with
    #[arg(short = 'n', long, value_name = "N", default_value_t = 10)]
    pub count: u64,

    /// Only these events
    #[arg(short, long = "event", value_name = "EVENT", value_delimiter = ',', value_parser = EVENTS)]
    pub events: Vec<String>,

    #[command(flatten)]
    pub format: Format,
}

/// The events that a server logs.
const EVENTS: [&str; 10] =
    ["wait", "timeout", "hold", "lapse", "cap", "session-end", "break", "delete", "flush", "deadlock"];

impl LogOptions {
    /// Returns whether to print this entry.
    pub fn wants(&self, entry: &LogEntry) -> bool {
        self.events.is_empty() || self.events.iter().any(|event| event == entry.event.as_str())
    }
}

/// An entry in columns.
pub type Row = [String; COLUMNS];

/// An entry, and the server that has it.
type Entry = (String, LogEntry);

pub async fn log(clients: &[Client], options: &LogOptions) -> Result<u8, Error> {
    let people = options.format.table();
    let mut seen = Seen::default();
    // The wanted events may be rare among all entries.
    let newest = if options.events.is_empty() { options.count } else { NEWEST };
    let Read { mut entries, missing, is_seen } = read(clients, newest).await?;
    // `follow` prints none of these, whether or not they are printed here.
    for entry in &entries {
        seen.is_new(entry);
    }
    entries.retain(|(_, entry)| options.wants(entry));
    // The newest entry is the last one, next to the prompt.
    entries.sort_by_key(|(_, entry)| (entry.time, entry.id));
    let shown = usize::try_from(options.count).unwrap_or(usize::MAX);
    entries.drain(..entries.len().saturating_sub(shown));
    if !is_seen && !missing.is_empty() {
        // No server answered. An empty list would say that nothing happened.
    } else if people {
        let rows: Vec<_> = std::iter::once(HEADING.map(str::to_owned)).chain(entries.iter().map(row)).collect();
        columns(&rows).iter().for_each(|line| print(line));
    } else if options.follow {
        entries.iter().for_each(|entry| print(&as_json(entry).to_string()));
    } else {
        print(&Value::Array(entries.iter().map(as_json).collect()).to_string());
    }
    complain(&missing);
    if options.follow { follow(clients, options, seen, people).await } else { Ok(exit_code(missing.is_empty())) }
}

/// Returns the newest entries of all servers for the pane of `dlock top`, newest first; with a name, of this lock.
pub async fn newest(client: &Client, count: u64, name: Option<&[u8]>) -> Result<Vec<Row>, Error> {
    let Read { mut entries, missing, .. } = read(std::slice::from_ref(client), count).await?;
    // A user who may not read the log must not believe that it is empty.
    if let Some((_, error)) = missing.into_iter().next() {
        return Err(error);
    }
    entries.retain(|(_, entry)| name.is_none_or(|name| entry.key.as_deref() == Some(name)));
    entries.sort_by_key(|(_, entry)| std::cmp::Reverse((entry.time, entry.id)));
    Ok(entries.iter().map(row).collect())
}

/// Prints new entries until a signal ends the process or nobody reads.
async fn follow(clients: &[Client], options: &LogOptions, mut seen: Seen, people: bool) -> Result<u8, Error> {
    let mut was_missing = Vec::new();
    let mut reader = Reader::watch();
    while !is_broken() {
        let next = async {
            sleep(INTERVAL).await;
            read(clients, NEWEST).await
        };
        let read = tokio::select! {
            read = next => read,
            () = reader.gone() => return Ok(0),
        };
        let (mut entries, missing) = match (read, clients) {
            (Ok(read), _) => (read.entries, read.missing),
            (Err(error), [client, ..]) => (Vec::new(), vec![(client.place()?, error)]),
            (Err(error), []) => return Err(error),
        };
        let names: Vec<_> = missing.iter().map(|(server, _)| server.clone()).collect();
        if names != was_missing {
            complain(&missing);
            was_missing = names;
        }
        // `is_new` expects the ids of a server in ascending order.
        entries.sort_by_key(|(server, entry)| (server.clone(), entry.id));
        seen.gaps(&entries).iter().for_each(|gap| say(&format!("dlock: {gap}")));
        entries.retain(|entry| seen.is_new(entry));
        entries.retain(|(_, entry)| options.wants(entry));
        entries.sort_by_key(|(_, entry)| (entry.time, entry.id));
        for entry in &entries {
            print(&if people { line(entry) } else { as_json(entry).to_string() });
        }
    }
    Ok(0)
}

/// The next id to expect from each server. Ids begin at 0.
#[derive(Default)]
struct Seen(HashMap<String, u64>);

impl Seen {
    /// Records an entry. Returns whether it was not recorded before.
    fn is_new(&mut self, (server, entry): &Entry) -> bool {
        let next = self.0.entry(server.clone()).or_default();
        let is_new = entry.id >= *next;
        *next = (*next).max(entry.id + 1);
        is_new
    }

    /// Returns a message for each gap: entries that were overwritten before they were read, and servers that were
    /// restarted, whose ids begin at 0 again.
    fn gaps(&mut self, entries: &[Entry]) -> Vec<String> {
        let mut ids: HashMap<&String, (u64, u64)> = HashMap::new();
        for (server, entry) in entries {
            let (oldest, newest) = ids.entry(server).or_insert((entry.id, entry.id));
            (*oldest, *newest) = ((*oldest).min(entry.id), (*newest).max(entry.id));
        }
        let mut gaps = Vec::new();
        for (server, (oldest, newest)) in ids {
            let Some(next) = self.0.get_mut(server) else { continue };
            if newest + 1 < *next {
                gaps.push(format!("{server} was started again, its log is new"));
                *next = 0;
            } else if oldest > *next {
                const ONE: &str = "entry was overwritten before it was read";
                const MORE: &str = "entries were overwritten before they were read";
                gaps.push(format!("{server}: {}", counted(oldest - *next, ONE, MORE)));
            }
        }
        gaps
    }
}

/// The entries of all servers that answered.
struct Read {
    entries: Vec<Entry>,
    missing: Vec<(String, Error)>,
    /// Whether a server answered.
    is_seen: bool,
}

/// Reads the entries of all servers, and notes which servers did not answer.
async fn read(clients: &[Client], count: u64) -> Result<Read, Error> {
    let (mut entries, mut missing, mut is_seen) = (Vec::new(), Vec::new(), false);
    for client in clients {
        let answers = match client.log(count).await {
            Ok(answers) => answers,
            // The entries of the other servers are still useful.
            Err(error) if clients.len() > 1 => {
                missing.push((client.place()?, error));
                continue;
            }
            Err(error) => return Err(error),
        };
        is_seen |= !answers.answers.is_empty();
        let tagged = |(server, entries): (String, Vec<LogEntry>)| entries.into_iter().map(move |e| (server.clone(), e));
        entries.extend(answers.answers.into_iter().flat_map(tagged));
        missing.extend(answers.missing);
    }
    Ok(Read { entries, missing, is_seen })
}

fn as_json((server, entry): &Entry) -> Value {
    json!({
        "server": server,
        "id": entry.id,
        "time": millis(entry.time),
        "event": entry.event.as_str(),
        "db": entry.db,
        "key": entry.key.as_deref().map(text),
        "owner": entry.owner.as_deref().map(text),
        "mode": entry.mode.map(HoldMode::as_str),
        "token": entry.token,
        "waited": entry.waited.map(millis),
        "held": entry.held.map(millis),
        "client": entry.client,
        "addr": entry.addr,
        "name": entry.name.as_deref().map(text),
    })
}

fn row((_, entry): &Entry) -> Row {
    let or_dash = |cell: Option<String>| cell.filter(|cell| !cell.is_empty()).unwrap_or_else(|| "-".to_owned());
    let addr = entry.addr.as_ref().map(|addr| shown(addr.as_bytes()));
    let from = match (addr, entry.name.as_deref().map(shown).filter(|name| !name.is_empty())) {
        (Some(addr), Some(name)) => Some(format!("{addr} {name}")),
        (addr, name) => addr.or(name),
    };
    [
        moment(entry.time),
        entry.event.to_string(),
        or_dash(entry.key.as_deref().map(shown)),
        or_dash(entry.owner.as_deref().map(shown)),
        or_dash(entry.waited.map(time)),
        or_dash(entry.held.map(time)),
        or_dash(entry.token.map(|token| token.to_string())),
        or_dash(from),
    ]
}

/// Formats a row with fixed widths, since the next rows are unknown.
fn line(entry: &Entry) -> String {
    let cells = row(entry).into_iter().zip(WIDTHS).map(|(cell, width)| format!("{cell:<width$}"));
    cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
}

fn exit_code(complete: bool) -> u8 {
    if complete { 0 } else { exit::UNAVAILABLE }
}

pub const COLUMNS: usize = 8;
const HEADING: [&str; COLUMNS] = ["TIME (UTC)", "EVENT", "LOCK", "OWNER", "WAITED", "HELD", "TOKEN", "CLIENT"];
/// The least widths of the columns in lines that are printed one by one.
const WIDTHS: [usize; COLUMNS] = [23, 11, 20, 20, 6, 6, 16, 0];

/// The pause between two reads of new entries.
const INTERVAL: Duration = Duration::from_millis(500);
/// How many entries are read to find new or wanted ones.
const NEWEST: u64 = 1000;

#[cfg(test)]
mod tests {
    use dlock_client::LogEvent;

    use super::*;

    fn entries(ids: std::ops::Range<u64>) -> Vec<Entry> {
        ids.map(|id| ("s".to_owned(), LogEntry::new(id, Duration::ZERO, LogEvent::Hold))).collect()
    }

    #[test]
    fn entries_are_new_once_and_gaps_are_reported() {
        let mut seen = Seen::default();
        let mut new = |ids: std::ops::Range<u64>| {
            let entries = entries(ids);
            let gaps = seen.gaps(&entries);
            (entries.iter().filter(|entry| seen.is_new(entry)).count(), gaps)
        };
        let gap = |gap: &str| vec![gap.to_owned()];
        assert_eq!(new(0..2), (2, vec![]));
        assert_eq!(new(0..5), (3, vec![]));
        assert_eq!(new(8..9), (1, gap("s: 3 entries were overwritten before they were read")));
        assert_eq!(new(0..3), (3, gap("s was started again, its log is new")));
    }
}
