//! What `dlock top` shows: sorted, filtered, scrolled.

use std::cmp::Reverse;
use std::collections::HashMap;

use crossterm::event::KeyCode;
use dlock_client::{Error, LockInfo, PerServer};

use crate::output::{shown, table};

/// The answers of the servers.
#[derive(Default)]
pub struct Data {
    locks: Vec<Lock>,
    missing: Vec<String>,
    log: Vec<String>,
}

struct Lock {
    info: LockInfo,
    /// Of the first holder's session, and of the first waiter.
    addresses: Vec<String>,
}

/// The questions to the servers, besides locks.
#[derive(Clone, Copy, Default)]
pub struct Look {
    pub log: bool,
    pub addresses: bool,
}

impl Data {
    pub fn new(
        found: PerServer<Vec<LockInfo>>,
        log: Vec<String>,
        addresses: Vec<(String, HashMap<i64, String>)>,
    ) -> Self {
        let addresses: HashMap<_, _> = addresses.into_iter().collect();
        let locks = found.answers.into_iter().flat_map(|(server, locks)| {
            let known = addresses.get(&server);
            locks.into_iter().map(move |info| {
                let session = info.holds.first().and_then(|hold| hold.session);
                let ids = session.into_iter().chain(info.queue.first().map(|waiter| waiter.client));
                let addresses = ids.filter_map(|id| known?.get(&id).cloned()).collect();
                Lock { info, addresses }
            })
        });
        Self { locks: locks.collect(), missing: found.missing.into_iter().map(|(server, _)| server).collect(), log }
    }
}

#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Sort {
    #[default]
    Name,
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

#[derive(Default)]
pub struct View {
    data: Data,
    error: Option<String>,
    sort: Sort,
    filter: String,
    is_typing: bool,
    shows_log: bool,
    shows_keys: bool,
    /// The first row that is shown, and how many are.
    offset: usize,
    page: usize,
}

/// A line of the screen.
pub struct Line {
    pub text: String,
    pub is_title: bool,
}

impl View {
    /// Takes new data, or the reason why there is none: then the old data stays.
    pub fn show(&mut self, data: Result<Data, Error>) {
        match data {
            Ok(data) => (self.data, self.error) = (data, None),
            Err(error) => self.error = Some(error.to_string()),
        }
        self.arrange();
    }

    /// Returns the questions whose answers it shows.
    pub fn look(&self) -> Look {
        Look { log: self.shows_log, addresses: self.filter.contains("addr:") }
    }

    /// Returns false if the key ends it.
    pub fn press(&mut self, key: KeyCode) -> bool {
        if self.is_typing {
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
            return true;
        }
        let page = self.page.max(1);
        match key {
            KeyCode::Char('q') | KeyCode::Esc => return false,
            KeyCode::Char('n') => self.sort_by(Sort::Name),
            KeyCode::Char('w') => self.sort_by(Sort::Waiters),
            KeyCode::Char('t') => self.sort_by(Sort::Wait),
            KeyCode::Char('o') => self.sort_by(Sort::Hold),
            KeyCode::Char('l') => self.shows_log = !self.shows_log,
            KeyCode::Char('h' | '?') => self.shows_keys = !self.shows_keys,
            KeyCode::Char('/') => self.is_typing = true,
            KeyCode::Down | KeyCode::Char('j') => self.offset += 1,
            KeyCode::Up | KeyCode::Char('k') => self.offset = self.offset.saturating_sub(1),
            KeyCode::PageDown | KeyCode::Char(' ') => self.offset += page,
            KeyCode::PageUp => self.offset = self.offset.saturating_sub(page),
            KeyCode::Home | KeyCode::Char('g') => self.offset = 0,
            KeyCode::End | KeyCode::Char('G') => self.offset = usize::MAX,
            _ => {}
        }
        true
    }

    fn sort_by(&mut self, sort: Sort) {
        (self.sort, self.offset) = (sort, 0);
        self.arrange();
    }

    fn arrange(&mut self) {
        let locks = &mut self.data.locks;
        locks.sort_by(|one, other| one.info.name.cmp(&other.info.name));
        // Sorting is stable, so that equal ones stay in the order of their names.
        match self.sort {
            Sort::Name => {}
            Sort::Waiters => locks.sort_by_key(|lock| Reverse(lock.info.waiters)),
            Sort::Wait => locks.sort_by_key(|lock| Reverse(lock.info.queue.first().map(|waiter| waiter.waiting))),
            Sort::Hold => locks.sort_by_key(|lock| Reverse(lock.info.holds.first().map(|hold| hold.age))),
        }
    }

    /// Draws all lines of the screen, from its top.
    pub fn lines(&mut self, height: usize) -> Vec<Line> {
        let log = if self.shows_log { (height / 3).max(2) } else { 0 };
        // Two lines of state, the heading, and the log.
        self.page = height.saturating_sub(3 + log);
        let fits: Vec<_> = self.data.locks.iter().filter(|lock| matches(&self.filter, lock)).collect();
        self.offset = self.offset.min(fits.len().saturating_sub(self.page));
        let mut lines = vec![plain(self.summary()), plain(self.prompt())];
        let rows: Vec<_> = fits.iter().skip(self.offset).take(self.page).map(|lock| &lock.info).collect();
        for (row, text) in table(rows).into_iter().enumerate() {
            lines.push(Line { text, is_title: row == 0 });
        }
        lines.resize_with(height.saturating_sub(log), || plain(String::new()));
        if log > 0 {
            lines.push(Line { text: "LOG, newest first".to_owned(), is_title: true });
            lines.extend(self.data.log.iter().take(log - 1).cloned().map(plain));
            lines.resize_with(height, || plain(String::new()));
        }
        lines.truncate(height);
        lines
    }

    fn summary(&self) -> String {
        if let Some(error) = &self.error {
            return format!("dlock top: {error} (q: quit)");
        }
        let waiters: u64 = self.data.locks.iter().map(|lock| lock.info.waiters).sum();
        let missing = match self.data.missing.as_slice() {
            [] => String::new(),
            missing => format!(", missing: {}", missing.join(" ")),
        };
        format!("dlock top: {} locks, {waiters} waiting{missing} (q: quit, h: keys)", self.data.locks.len())
    }

    fn prompt(&self) -> String {
        if self.is_typing {
            return format!("filter (name, owner:NAME, addr:ADDRESS): {}_", shown(self.filter.as_bytes()));
        }
        if self.shows_keys {
            return "sort: n name, w waiters, t wait, o hold; /: filter; l: log; arrows, PgUp, PgDn, Home, End"
                .to_owned();
        }
        let mut state = Vec::new();
        if self.sort != Sort::Name {
            state.push(format!("sorted by {}", self.sort.name()));
        }
        if !self.filter.is_empty() {
            state.push(format!("only {}", shown(self.filter.as_bytes())));
        }
        if self.offset > 0 {
            state.push(format!("from row {}", self.offset + 1));
        }
        state.join(", ")
    }
}

/// Returns whether a lock has everything that the filter names: parts of its name, of its owner, of an address.
fn matches(filter: &str, lock: &Lock) -> bool {
    filter.split_whitespace().all(|word| match word.split_once(':') {
        Some(("owner", part)) => lock.info.holds.iter().any(|hold| shown(&hold.owner).contains(part)),
        Some(("addr", part)) => lock.addresses.iter().any(|address| address.contains(part)),
        _ => shown(&lock.info.name).contains(word),
    })
}

fn plain(text: String) -> Line {
    Line { text, is_title: false }
}
