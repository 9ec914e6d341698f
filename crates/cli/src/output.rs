//! Output for people and for programs: tables, JSON, times and names.

use std::fmt;
use std::io::{self, IsTerminal, Write};
use std::os::fd::AsFd;
use std::sync::OnceLock;
use std::thread;
use std::time::Duration;

use clap::Args;
use dlock_client::{Error, HoldInfo, LockInfo, WaiterInfo};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use serde_json::{Value, json};
use tokio::sync::oneshot;

use crate::os::closed_output;
use crate::period::next_run;
use crate::{exit, fail};

/// How to print one thing.
#[derive(Args)]
pub struct Output {
    /// Print JSON on a terminal, too (elsewhere, JSON is always printed)
    #[arg(long)]
    pub json: bool,
}

/// How to print something that can be a table.
#[derive(Args, Clone, Copy)]
pub struct Format {
    /// Print JSON on a terminal, too (elsewhere it is the default)
    #[arg(long, conflicts_with = "table")]
    pub json: bool,
    /// Print a table in a pipe, too
    #[arg(long)]
    pub table: bool,
}

impl Format {
    /// Returns whether to print for people.
    pub fn table(self) -> bool {
        self.table || for_people(self.json)
    }
}

/// Formats a lock as JSON. Times are in milliseconds; bytes that are not UTF-8 are escaped as in [`text`].
pub fn lock(lock: &LockInfo) -> Value {
    json!({
        "name": text(&lock.name),
        "mode": lock.mode.to_string(),
        "holders": lock.holders,
        "count": lock.count,
        "token": lock.token,
        "ttl": millis(lock.ttl),
        "waiters": lock.waiters,
        "holds": lock.holds.iter().map(hold).collect::<Vec<_>>(),
        "queue": lock.queue.iter().map(waiter).collect::<Vec<_>>(),
        "next_run": next_run(lock).map(millis),
    })
}

fn hold(hold: &HoldInfo) -> Value {
    json!({
        "owner": text(&hold.owner),
        "mode": hold.mode.to_string(),
        "count": hold.count,
        "token": hold.token,
        "age": millis(hold.age),
        "ttl": millis(hold.ttl),
        "session": hold.session.map(Value::from).or_else(|| hold.named_session.as_deref().map(|id| text(id).into())),
        "cap": hold.cap.map(millis),
        "slot": hold.slot,
    })
}

fn waiter(waiter: &WaiterInfo) -> Value {
    json!({
        "owner": text(&waiter.owner),
        "mode": waiter.mode.to_string(),
        "waiting": millis(waiter.waiting),
        "client": waiter.client,
        "addr": waiter.addr,
        "client_name": waiter.name.as_deref().map(text),
        "permits": waiter.permits,
        "limit": waiter.limit,
        "keys": waiter.keys,
    })
}

/// The first error of standard output.
static BROKEN: OnceLock<io::Error> = OnceLock::new();

/// Prints a line. [`finish`] reports an error.
pub fn print(line: &str) {
    // JSON allows DEL and the C1 controls, and a terminal may obey them. For people, `shown` removes them.
    match line.contains(is_del_or_c1) {
        false => write(|out| writeln!(out, "{line}")),
        true => write(|out| writeln!(out, "{}", escaped_json(line))),
    }
}

/// Escapes the control characters that JSON allows unescaped.
fn escaped_json(json: &str) -> String {
    let mut text = String::with_capacity(json.len());
    for c in json.chars() {
        if is_del_or_c1(c) {
            let _ = fmt::Write::write_fmt(&mut text, format_args!("\\u{:04x}", u32::from(c)));
        } else {
            text.push(c);
        }
    }
    text
}

fn is_del_or_c1(c: char) -> bool {
    matches!(c, '\u{7f}'..='\u{9f}')
}

/// Writes to standard output, unless that has failed before.
pub fn write(into: impl FnOnce(&mut io::StdoutLock<'_>) -> io::Result<()>) {
    if closed_output::was_closed() {
        check(Err(Errno::EBADF.into()));
    }
    if BROKEN.get().is_none() {
        let mut out = io::stdout().lock();
        check(into(&mut out).and_then(|()| out.flush()));
    }
}

/// Keeps the first error of the output.
pub fn check(written: io::Result<()>) {
    if let Err(error) = written {
        let _ = BROKEN.set(error);
    }
}

/// Returns whether nothing more can be printed.
pub fn is_broken() -> bool {
    BROKEN.get().is_some()
}

/// Returns the exit code: `code`, or another one if the output could not be written. A reader that has closed the pipe
/// (`head`) is no failure.
pub fn finish(code: u8) -> u8 {
    match BROKEN.get() {
        Some(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            fail(exit::OUTPUT, &format!("standard output: {error}"))
        }
        _ => code,
    }
}

/// Prints a line on standard error. An error is ignored: nobody may read standard error any more.
pub fn say(line: &str) {
    let _ = writeln!(io::stderr(), "{line}");
}

/// The reader of our output.
pub struct Reader(oneshot::Receiver<()>);

impl Reader {
    /// Begins to watch whether the other end of the pipe is closed. Without this, a command that follows changes would
    /// notice only when it prints the next change.
    pub fn watch() -> Self {
        let (gone, heard) = oneshot::channel();
        // The thread ends with the process. Without a thread, the next line that is printed fails.
        // `poll` reports an end that is closed even if it is asked for no event.
        let _ = thread::Builder::new().name("reader".to_owned()).spawn(move || {
            let out = io::stdout();
            let mut ends = [PollFd::new(out.as_fd(), PollFlags::empty())];
            while matches!(poll(&mut ends, PollTimeout::NONE), Err(Errno::EINTR)) {}
            let is_gone = ends.iter().any(|end| end.any() == Some(true));
            if is_gone {
                let _ = gone.send(());
            }
        });
        Self(heard)
    }

    /// Waits until nobody reads any more. May be dropped and called again.
    pub async fn gone(&mut self) {
        if (&mut self.0).await.is_err() {
            std::future::pending().await
        }
    }
}

/// Prints which servers did not answer.
pub fn complain(missing: &[(String, Error)]) {
    for (server, error) in missing {
        say(&format!("dlock: missing: {server}: {error}"));
    }
}

/// Returns whether to print for people.
pub fn for_people(json: bool) -> bool {
    !json && io::stdout().is_terminal()
}

/// Returns the bytes as text for people. Control characters and invisible characters are escaped, too.
pub fn shown(bytes: &[u8]) -> String {
    escaped(bytes, |c| !c.is_control() && !is_invisible(c))
}

/// Returns whether a character is invisible. Many of these hide, join or reverse the characters beside them.
fn is_invisible(c: char) -> bool {
    matches!(c,
        '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}' | '\u{180b}'..='\u{180f}'
        | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{3164}'
        | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{ffa0}' | '\u{fff0}'..='\u{fffb}' | '\u{1bca0}'..='\u{1bca3}'
        | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e0fff}')
}

/// Returns the bytes as text. Different bytes are different texts.
pub fn text(bytes: &[u8]) -> String {
    escaped(bytes, |_| true)
}

/// Escapes each byte that is not UTF-8 or not plain as U+FFFD and two hexadecimal digits. U+FFFD itself is escaped,
/// too, so that no two names become the same text.
fn escaped(bytes: &[u8], is_plain: impl Fn(char) -> bool) -> String {
    let mut text = String::with_capacity(bytes.len());
    let escape = |text: &mut String, bytes: &[u8]| {
        bytes.iter().for_each(|byte| _ = fmt::Write::write_fmt(text, format_args!("\u{fffd}{byte:02x}")));
    };
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            if c == '\u{fffd}' || !is_plain(c) {
                escape(&mut text, c.encode_utf8(&mut [0; 4]).as_bytes());
            } else {
                text.push(c);
            }
        }
        escape(&mut text, chunk.invalid());
    }
    text
}

/// Names the connection of a waiter: its id, and its address and name as far as this user may see them.
pub fn place(waiter: &WaiterInfo) -> String {
    let addr = waiter.addr.as_ref().map(|addr| shown(addr.as_bytes()));
    let name = waiter.name.as_deref().map(shown);
    [Some(waiter.client.to_string()), addr, name].into_iter().flatten().collect::<Vec<_>>().join(" ")
}

/// Cuts a text to this length, with `…` as its last character.
pub fn cut(text: &str, most: usize) -> String {
    if text.chars().count() <= most {
        return text.to_owned();
    }
    text.chars().take(most.saturating_sub(1)).chain(['…']).collect()
}

pub fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// Formats a time: `850ms`, `12.3s`, `4m05s`, `3h07m`, `2d04h`.
pub fn time(duration: Duration) -> String {
    let (ms, s) = (duration.as_millis(), duration.as_secs());
    match s {
        0 => format!("{ms}ms"),
        1..60 => format!("{}.{}s", s, ms % 1000 / 100),
        60..3600 => format!("{}m{:02}s", s / 60, s % 60),
        3600..86400 => format!("{}h{:02}m", s / 3600, s % 3600 / 60),
        _ => format!("{}d{:02}h", s / 86400, s % 86400 / 3600),
    }
}

/// Formats a time of the server, since the Unix epoch: `2026-11-22 07:05:21.123` (UTC).
pub fn moment(since_epoch: Duration) -> String {
    let (days, seconds) = (since_epoch.as_secs() / 86400, since_epoch.as_secs() % 86400);
    // Years begin in March here, so that a leap day is the last one. Day 0 is 1 March of the year 0, 719,468 days
    // before the epoch. An era is 400 years.
    let day = days + 719_468;
    let (era, day) = (day / 146_097, day % 146_097);
    let year = (day - day / 1460 + day / 36524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let (day, month) = (day - (153 * month + 2) / 5 + 1, if month < 10 { month + 3 } else { month - 9 });
    let year = era * 400 + year + u64::from(month <= 2);
    let (hours, minutes) = (seconds / 3600, seconds / 60 % 60);
    let millis = since_epoch.subsec_millis();
    format!("{year:04}-{month:02}-{day:02} {hours:02}:{minutes:02}:{:02}.{millis:03}", seconds % 60)
}

/// Formats rows in columns that are as wide as they need, with two blanks between.
pub fn columns<const N: usize>(rows: &[[String; N]]) -> Vec<String> {
    columns_within(rows, usize::MAX)
}

/// Formats rows in columns within a width. If they do not fit, columns that only have `-` are left out, and the last
/// columns follow in an indented line.
pub fn columns_within<const N: usize>(rows: &[[String; N]], most: usize) -> Vec<String> {
    let cells = |column: usize| rows.iter().filter_map(move |row| row.get(column));
    let wide = |column: usize| cells(column).map(|cell| cell.chars().count().min(WIDEST)).max().unwrap_or(0);
    let total: usize = (0..N).map(wide).filter(|width| *width > 0).map(|width| width + GAP.len()).sum();
    let is_left_out =
        |column: usize| total > most.saturating_add(GAP.len()) && cells(column).skip(1).all(|cell| cell == "-");
    let width = |column: usize| if is_left_out(column) { 0 } else { wide(column) };
    let mut lines: Vec<Vec<(usize, usize)>> = vec![Vec::new()];
    let mut used = 0;
    for (column, width) in (0..N).map(|column| (column, width(column))).filter(|(_, width)| *width > 0) {
        if used > 0 && used + width > most {
            lines.push(Vec::new());
            used = INDENT.len();
        }
        used += width + GAP.len();
        lines.iter_mut().last().into_iter().for_each(|line| line.push((column, width)));
    }
    let line = |row: &[String; N], (at, columns): (usize, &Vec<(usize, usize)>)| {
        let cells = columns.iter().filter_map(|(column, width)| Some(padded(row.get(*column)?, *width)));
        let indent = if at == 0 { "" } else { INDENT };
        format!("{indent}{}", cells.collect::<Vec<_>>().join(GAP)).trim_end().to_owned()
    };
    rows.iter().flat_map(|row| lines.iter().enumerate().map(move |part| line(row, part))).collect()
}

/// Returns a cell as wide as its column, at least.
fn padded(cell: &str, width: usize) -> String {
    let missing = width.saturating_sub(cell.chars().count());
    cell.chars().chain(std::iter::repeat_n(' ', missing)).collect()
}

/// Breaks a text into lines of this width, between words if possible.
pub fn wrapped(text: &str, most: usize) -> Vec<String> {
    let (most, mut lines) = (most.max(1), Vec::new());
    let text: Vec<char> = text.chars().collect();
    let mut rest = text.as_slice();
    while rest.len() > most {
        let blank = rest.iter().take(most + 1).rposition(|c| *c == ' ').filter(|at| *at > 0);
        let (line, next) = rest.split_at(blank.unwrap_or(most));
        lines.push(line.iter().collect::<String>().trim_end().to_owned());
        rest = next.strip_prefix(&[' ']).unwrap_or(next);
    }
    lines.push(rest.iter().collect());
    lines
}

/// The widest column, in characters. A longer cell sticks out: names may have megabytes.
const WIDEST: usize = 200;

const GAP: &str = "  ";
const INDENT: &str = "    ";

/// Formats a table: one lock in each line, with a heading.
pub fn table<'a>(locks: impl IntoIterator<Item = &'a LockInfo>) -> Vec<String> {
    let heading = ["NAME", "MODE", "OWNER", "AGE", "TTL", "WAITERS", "WAIT", "PERMITS"].map(str::to_owned);
    let rows: Vec<_> = std::iter::once(heading).chain(locks.into_iter().map(row)).collect();
    columns(&rows)
}

fn row(lock: &LockInfo) -> [String; 8] {
    let first = lock.holds.first();
    let owner = first.map_or("-".to_owned(), |hold| shown(&hold.owner));
    let owner = if lock.holders > 1 { format!("{owner} +{}", lock.holders - 1) } else { owner };
    let age = first.map_or("-".to_owned(), |hold| time(hold.age));
    let wait = lock.queue.first().map_or("-".to_owned(), |waiter| time(waiter.waiting));
    let (mode, permits) = (mode(lock), lock.count.to_string());
    [shown(&lock.name), mode, owner, age, time(lock.ttl), lock.waiters.to_string(), wait, permits]
}

/// The mode that is shown for a lock of `dlock run --once`.
pub const ONCE: &str = "once";

/// Returns the mode of a lock for a column: `once` for a lock of `dlock run --once`, whose TTL is the time until the
/// next run.
pub fn mode(lock: &LockInfo) -> String {
    if next_run(lock).is_some() { ONCE.to_owned() } else { lock.mode.to_string() }
}

/// Returns a number and its noun.
pub fn counted(count: impl fmt::Display, one: &str, more: &str) -> String {
    let count = count.to_string();
    format!("{count} {}", if count == "1" { one } else { more })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn longer_times_have_larger_units() {
        let shown = [850, 12_340, 245_000, 11_220_000, 187_200_000].map(|ms| time(Duration::from_millis(ms)));
        assert_eq!(shown, ["850ms", "12.3s", "4m05s", "3h07m", "2d04h"]);
    }

    #[test]
    fn a_moment_is_a_date_and_a_time_of_day() {
        for (seconds, date) in [
            (0, "1970-01-01 00:00:00.000"),
            (951_782_399, "2000-02-28 23:59:59.000"),
            (951_782_400, "2000-02-29 00:00:00.000"),
            (4_107_542_400, "2100-03-01 00:00:00.000"),
            (1_795_331_096, "2026-11-22 07:04:56.000"),
        ] {
            assert_eq!(moment(Duration::from_secs(seconds)), date);
        }
    }

    #[test]
    fn control_and_invisible_characters_are_escaped_and_different_names_stay_different() {
        assert_eq!(shown(b"a\x1b[2J\n\xff"), "a\u{fffd}1b[2J\u{fffd}0a\u{fffd}ff");
        assert_eq!(text(b"a\n\xff"), "a\n\u{fffd}ff");
        // U+202E reverses the characters beside it, and U+200B is invisible.
        assert_eq!(
            shown("a\u{202e}b\u{200b}".as_bytes()),
            "a\u{fffd}e2\u{fffd}80\u{fffd}aeb\u{fffd}e2\u{fffd}80\u{fffd}8b"
        );
        assert_eq!(escaped_json("{\"name\":\"a\u{9b}2J\u{7f}é\"}"), r#"{"name":"a\u009b2J\u007fé"}"#);
        let names: [&[u8]; 5] =
            [b"\xff", b"\xfe", "\u{fffd}".as_bytes(), "\u{fffd}ff".as_bytes(), "\u{fffd}ef\u{fffd}bf".as_bytes()];
        let texts: std::collections::HashSet<_> = names.iter().map(|name| text(name)).collect();
        assert_eq!(texts.len(), names.len(), "{texts:?}");
    }

    #[test]
    fn columns_that_do_not_fit_follow_in_the_next_line() {
        let rows = [["OWNER", "TTL", "TOKEN"], ["alice", "9.8s", "17"]].map(|row| row.map(str::to_owned));
        assert_eq!(columns(&rows), ["OWNER  TTL   TOKEN", "alice  9.8s  17"]);
        assert_eq!(columns_within(&rows, 18), columns(&rows));
        assert_eq!(columns_within(&rows, 14), ["OWNER  TTL", "    TOKEN", "alice  9.8s", "    17"]);
    }

    #[test]
    fn columns_without_a_value_are_left_out_where_there_is_no_room() {
        let rows = [["OWNER", "SESSION", "TTL"], ["alice", "-", "9.8s"]].map(|row| row.map(str::to_owned));
        assert_eq!(columns_within(&rows, 14), ["OWNER  TTL", "alice  9.8s"]);
        assert_eq!(columns(&rows), ["OWNER  SESSION  TTL", "alice  -        9.8s"]);
    }

    #[test]
    fn a_text_is_broken_between_words() {
        assert_eq!(wrapped("take it from alice? [y/N]", 12), ["take it from", "alice? [y/N]"]);
        assert_eq!(wrapped("alice:8a19685554eee661", 10), ["alice:8a19", "685554eee6", "61"]);
        assert_eq!(wrapped("", 10), [""]);
        assert_eq!(wrapped(" a b", 2), [" a", "b"]);
    }

    #[test]
    fn one_is_singular() {
        assert_eq!([0_u64, 1, 2].map(|count| counted(count, "lock", "locks")), ["0 locks", "1 lock", "2 locks"]);
    }
}
