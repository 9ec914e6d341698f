//! The screen of `dlock top`: sorted, filtered, scrolled, and one lock opened.

use std::cmp::Reverse;

use crossterm::event::KeyCode;
use dlock_client::{Error, LockInfo};

use super::columns::{of_locks, of_log};
use super::data::{Data, Id, Lock, Look};
use crate::list::describe;
use crate::output::{counted, cut, shown, wrapped};
use crate::top::style::Style;

#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Sort {
    Name,
    #[default]
    Waiters,
    Wait,
    Hold,
}

impl Sort {
    fn name(self) -> &'static str {
        match self {
            Self::Name => "name",
            Self::Waiters => "waiters",
            Self::Wait => "wait",
            Self::Hold => "hold",
        }
    }
}

/// The reaction to a key.
pub enum Next {
    Go,
    End,
    /// The question was answered with yes: take this lock from these holders.
    Take(Box<LockInfo>),
}

#[derive(Default)]
pub struct View {
    data: Data,
    error: Option<String>,
    sort: Sort,
    filter: String,
    is_typing: bool,
    shows_log: bool,
    shows_help: bool,
    /// The row that is selected, among those that fit the filter.
    selected: usize,
    /// The lock in that row, which stays selected when rows move.
    follows: Option<Id>,
    /// The first row that is shown, and how many rows fit the screen.
    offset: usize,
    page: usize,
    /// The lock that is opened.
    open: Option<Id>,
    /// Asks whether to break the opened lock, as soon as it has been read.
    wants_break: bool,
    /// The lock as it was shown with the question.
    question: Option<Box<LockInfo>>,
    /// The outcome of the last action.
    message: Option<String>,
}

/// A line of the screen.
pub struct Line {
    pub text: String,
    pub style: Style,
}

impl View {
    /// Takes new data. An error is shown, and the old data stays.
    pub fn show(&mut self, data: Result<Data, Error>) {
        match data {
            Ok(data) => (self.data, self.error) = (data, None),
            Err(error) => self.error = Some(error.to_string()),
        }
        self.arrange();
        if self.wants_break
            && let Some(lock) = self.opened()
        {
            if lock.holders > 0 {
                self.question = Some(Box::new(lock.clone()));
            } else {
                self.message = Some(format!("{} is free", shown(&lock.name)));
            }
            self.wants_break = false;
        }
    }

    /// Takes the outcome of an action.
    pub fn tell(&mut self, message: String) {
        self.message = Some(message);
    }

    /// Returns what the screen needs, besides locks.
    pub fn look(&self) -> Look {
        Look { log: self.shows_log, addresses: self.filter.contains("addr:"), open: self.open.clone() }
    }

    fn opened(&self) -> Option<&LockInfo> {
        let opened = self.data.opened.as_ref().filter(|opened| Some(&opened.id) == self.open.as_ref())?;
        opened.info.as_ref()
    }

    pub fn press(&mut self, key: KeyCode) -> Next {
        if self.is_typing {
            self.type_filter(key);
            return Next::Go;
        }
        if let Some(lock) = self.question.take() {
            if key == KeyCode::Char('y') {
                return Next::Take(lock);
            }
            self.message = Some(format!("{} was left alone", shown(&lock.name)));
            return Next::Go;
        }
        self.message = None;
        match key {
            KeyCode::Char('q') => return Next::End,
            KeyCode::Char('h' | '?') => self.shows_help = !self.shows_help,
            KeyCode::Esc if self.shows_help => self.shows_help = false,
            KeyCode::Esc if self.open.is_some() => (self.open, self.wants_break) = (None, false),
            KeyCode::Esc => self.filter.clear(),
            KeyCode::Char('b') => {
                self.shows_help = false;
                self.open = self.open.take().or_else(|| self.selected_id());
                self.wants_break = self.open.is_some();
            }
            KeyCode::Enter => {
                self.shows_help = false;
                self.open = self.open.take().or_else(|| self.selected_id());
            }
            _ if self.open.is_none() => self.press_in_list(key),
            _ => {}
        }
        Next::Go
    }

    fn type_filter(&mut self, key: KeyCode) {
        match key {
            KeyCode::Char(c) => self.filter.push(c),
            KeyCode::Backspace => _ = self.filter.pop(),
            KeyCode::Enter => self.is_typing = false,
            KeyCode::Esc => {
                self.filter.clear();
                self.is_typing = false;
            }
            _ => {}
        }
        (self.selected, self.offset, self.follows) = (0, 0, None);
    }

    fn press_in_list(&mut self, key: KeyCode) {
        let page = self.page.max(1);
        match key {
            KeyCode::Char('n') => self.sort_by(Sort::Name),
            KeyCode::Char('w') => self.sort_by(Sort::Waiters),
            KeyCode::Char('t') => self.sort_by(Sort::Wait),
            KeyCode::Char('o') => self.sort_by(Sort::Hold),
            KeyCode::Char('l') => self.shows_log = !self.shows_log,
            KeyCode::Char('/') => self.is_typing = true,
            KeyCode::Down | KeyCode::Char('j') => self.select(self.selected + 1, self.offset),
            KeyCode::Up | KeyCode::Char('k') => self.select(self.selected.saturating_sub(1), self.offset),
            KeyCode::PageDown | KeyCode::Char(' ') => self.select(self.selected + page, self.offset + page),
            KeyCode::PageUp => self.select(self.selected.saturating_sub(page), self.offset.saturating_sub(page)),
            KeyCode::Home | KeyCode::Char('g') => self.select(0, 0),
            KeyCode::End | KeyCode::Char('G') => self.select(usize::MAX, usize::MAX),
            _ => {}
        }
    }

    fn fits(&self) -> Vec<&Lock> {
        self.data.locks.iter().filter(|lock| lock.matches(&self.filter)).collect()
    }

    fn selected_id(&self) -> Option<Id> {
        self.fits().get(self.selected).map(|lock| lock.id())
    }

    fn select(&mut self, row: usize, offset: usize) {
        let count = self.fits().len();
        self.selected = row.min(count.saturating_sub(1));
        self.offset = offset;
        self.follows = self.selected_id();
    }

    fn sort_by(&mut self, sort: Sort) {
        (self.sort, self.selected, self.offset, self.follows) = (sort, 0, 0, None);
        self.arrange();
    }

    fn arrange(&mut self) {
        let locks = &mut self.data.locks;
        locks.sort_by(|one, other| one.info.name.cmp(&other.info.name));
        // Sorting is stable, so that equal locks stay in the order of their names.
        match self.sort {
            Sort::Name => {}
            Sort::Waiters => locks.sort_by_key(|lock| Reverse(lock.info.waiters)),
            Sort::Wait => locks.sort_by_key(|lock| Reverse(lock.wait())),
            Sort::Hold => locks.sort_by_key(|lock| Reverse(lock.info.holds.first().map(|hold| hold.age))),
        }
        let row = self.follows.as_ref().and_then(|id| self.fits().iter().position(|lock| lock.id() == *id));
        if let Some(row) = row.filter(|row| *row != self.selected) {
            self.selected = row;
        }
    }

    /// Draws all lines of the screen, from its top.
    pub fn lines(&mut self, width: usize, height: usize) -> Vec<Line> {
        let [summary, prompt] = [self.summary(width), self.prompt()];
        let mut lines: Vec<_> = [summary, prompt].into_iter().flat_map(|line| fitting(line, width)).collect();
        if self.shows_help {
            lines.extend(help(width).iter().map(|line| plain(line)));
        } else if let Some(id) = self.open.clone() {
            lines.extend(self.opened_lines(&id, width));
        } else {
            self.list(&mut lines, width, height);
        }
        lines.truncate(height);
        lines.resize_with(height, || plain(""));
        lines
    }

    fn list(&mut self, lines: &mut Vec<Line>, width: usize, height: usize) {
        let log = if self.shows_log { (height / 3).max(3) } else { 0 };
        // The rows get what the lines of state, the heading and the log leave.
        self.page = height.saturating_sub(lines.len() + 1 + log);
        let count = self.fits().len();
        self.selected = self.selected.min(count.saturating_sub(1));
        let last = self.offset.min(count.saturating_sub(self.page));
        self.offset = last.min(self.selected).max((self.selected + 1).saturating_sub(self.page));
        let shown: Vec<_> = self.fits().into_iter().skip(self.offset).take(self.page).collect();
        let (heading, rows) = of_locks(shown.iter().map(|lock| &lock.info), width);
        lines.push(Line { text: heading, style: Style::Title });
        for (row, (text, lock)) in rows.into_iter().zip(&shown).enumerate() {
            let style = if self.offset + row == self.selected { Style::Selected } else { lock.style() };
            lines.push(Line { text, style });
        }
        if shown.is_empty() {
            lines.push(plain(&self.nothing()));
        }
        lines.resize_with(height.saturating_sub(log), || plain(""));
        if log > 0 {
            lines.push(Line { text: "LOG, newest first".to_owned(), style: Style::Head });
            lines.extend(log_lines(&self.data.log, width).into_iter().take(log - 1));
        }
    }

    /// Returns why there is no row.
    fn nothing(&self) -> String {
        match (self.data.locks.len(), self.filter.as_str()) {
            (0, _) | (_, "") => "no locks".to_owned(),
            (count, filter) => {
                let locks = counted(count, "lock", "locks");
                format!("none of {locks} fits {}: Esc removes the filter", shown(filter.as_bytes()))
            }
        }
    }

    /// Draws the lock that is opened: its holders, its queue, and its entries in the log.
    fn opened_lines(&self, id: &Id, width: usize) -> Vec<Line> {
        let read = self.data.opened.as_ref().filter(|opened| opened.id == *id);
        let mut lines = vec![plain("")];
        let Some(opened) = read else { return lines };
        match &opened.info {
            Some(lock) => lines.extend(describe(lock, width).iter().flat_map(|line| fitting(plain(line), width))),
            None => lines.push(plain(&format!("{} is free", shown(&id.1)))),
        }
        lines.push(plain(""));
        lines.push(Line { text: "LOG of this lock, newest first".to_owned(), style: Style::Head });
        lines.extend(log_lines(&opened.log, width));
        lines
    }

    /// Returns the first line: the number of locks, and as much of servers, time and keys as fits.
    fn summary(&self, width: usize) -> Line {
        if let Some(error) = &self.error {
            return Line { text: format!("dlock top: {error} (q: quit)"), style: Style::Alert };
        }
        let waiters: u64 = self.data.locks.iter().map(|lock| lock.info.waiters).sum();
        let missing = match self.data.missing.as_slice() {
            [] => String::new(),
            missing => format!(", missing: {}", missing.join(" ")),
        };
        let (servers, clock) = (self.data.servers(), &self.data.clock);
        let locks = counted(self.data.locks.len(), "lock", "locks");
        let begin = format!("dlock top: {locks}, {waiters} waiting{missing}");
        let ways = [
            format!("{begin}  {servers}  {clock} UTC  (?: help, q: quit)"),
            format!("{begin}  {servers}  (?: help, q: quit)"),
            format!("{begin}  {servers}  (?: help)"),
        ];
        let text = ways.into_iter().find(|text| text.chars().count() <= width);
        Line { text: text.unwrap_or_else(|| format!("{begin}  (?: help)")), style: Style::Head }
    }

    fn prompt(&self) -> Line {
        if self.is_typing {
            let filter = shown(self.filter.as_bytes());
            return plain(&format!("filter (name, owner:NAME, addr:ADDRESS): {filter}_"));
        }
        if let Some(lock) = &self.question {
            let (name, holders) = (cut(&shown(&lock.name), LONGEST / 8), crate::waiting::holders(lock));
            let text = format!("take {name} from {holders}? It is not stopped, it learns of it when it renews. [y/N]");
            return Line { text, style: Style::Alert };
        }
        if let Some(message) = &self.message {
            return Line { text: message.clone(), style: Style::Head };
        }
        if self.shows_help || self.open.is_some() {
            return plain(if self.shows_help { "Esc: back" } else { "b: break, Esc: back" });
        }
        let mut state = vec![format!("sorted by {}", self.sort.name())];
        if !self.filter.is_empty() {
            state.push(format!("only {} (Esc: all)", shown(self.filter.as_bytes())));
        }
        let count = self.fits().len();
        if count > self.page {
            state.push(format!("row {} of {count}", self.selected + 1));
        }
        plain(&state.join(", "))
    }
}

fn log_lines(log: &Result<Vec<crate::log::Row>, String>, width: usize) -> Vec<Line> {
    match log {
        Err(why) => fitting(Line { text: format!("the log cannot be read: {why}"), style: Style::Alert }, width),
        Ok(rows) => {
            let style = |row| if row == 0 { Style::Title } else { Style::Plain };
            let lines = of_log(rows, width).into_iter().enumerate();
            lines.map(|(row, text)| Line { text, style: style(row) }).collect()
        }
    }
}

fn plain(text: &str) -> Line {
    Line { text: text.to_owned(), style: Style::Plain }
}

/// Breaks a line that is too long: a question or an owner that is cut cannot be answered or copied.
fn fitting(line: Line, width: usize) -> Vec<Line> {
    let style = line.style;
    wrapped(&cut(&line.text, LONGEST), width).into_iter().map(|text| Line { text, style }).collect()
}

/// Returns the keys and what they do.
fn help(width: usize) -> Vec<String> {
    let most = width.saturating_sub(KEYS).max(KEYS / 2);
    let line = |(keys, what): &(&str, &str)| {
        let parts = wrapped(what, most).into_iter().enumerate();
        parts.map(|(at, part)| format!("{:<KEYS$}{part}", if at == 0 { keys } else { "" })).collect::<Vec<_>>()
    };
    std::iter::once(String::new()).chain(HELP.iter().flat_map(line)).collect()
}

/// The most characters of a line, which is more than any owner has.
const LONGEST: usize = 4096;

/// The width of the column of keys.
const KEYS: usize = "arrows, PgUp, PgDn, Home, End   ".len();

const HELP: [(&str, &str); 10] = [
    ("arrows, PgUp, PgDn, Home, End", "select a lock"),
    ("Enter", "open it: all holders, its queue, its log"),
    ("b", "break it, after a question"),
    ("w, t, o, n", "sort by waiters, wait, age of the hold, name"),
    ("/", "filter: parts of the name, owner:NAME, addr:ADDRESS"),
    ("l", "the newest entries of the log"),
    ("Esc", "back: close what is open, then remove the filter"),
    ("?, h", "this help"),
    ("q, Ctrl-C", "quit"),
    ("MODE once", "of dlock run --once: it has run, or runs now. TTL is the time until the next run"),
];
