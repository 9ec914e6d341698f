//! All waiting lines of the server, and what finds a line: its key, its owners, its alarm.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeSet, HashMap};
use std::rc::Rc;

use dlock_core::{Line, Owner, Place, UnixMs, Waiting};

use crate::ffi::MainThread;
use crate::waiter::Waiter;

/// Where a lock is.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LockName {
    /// The database.
    pub db: i32,
    /// The name of the key.
    pub key: Box<[u8]>,
}

impl LockName {
    /// A lock in a database.
    pub fn new(db: i32, key: &[u8]) -> LockName {
        LockName { db, key: key.into() }
    }
}

/// The line of one lock.
pub struct LockLine {
    /// Its name.
    pub name: Rc<LockName>,
    /// Who waits.
    pub line: Line<Rc<Waiter>>,
    alarm: Option<UnixMs>,
}

/// All lines.
#[derive(Default)]
pub struct Lines {
    by_key: HashMap<i32, HashMap<Box<[u8]>, LockLine>>,
    waits: HashMap<Owner, Vec<(Rc<LockName>, Place)>>,
    alarms: BTreeSet<(UnixMs, Rc<LockName>)>,
    stirred: Vec<Rc<LockName>>,
}

/// How many wait on this server: most servers, most of the time, have nobody waiting, and find that out here.
static WAITERS: MainThread<Cell<usize>> = MainThread::new(Cell::new(0));

/// Whether nobody waits on this server.
pub fn is_nobody_waiting() -> bool {
    WAITERS.get() == 0
}

/// Lets `body` see and change the lines. It calls nothing of the server: callbacks of the server come here too.
pub fn with_lines<T>(body: impl FnOnce(&mut Lines) -> T) -> T {
    static LINES: MainThread<RefCell<Option<Lines>>> = MainThread::new(RefCell::new(None));
    body(LINES.borrow_mut().get_or_insert_default())
}

impl Lines {
    /// How many wait on this server.
    pub fn waiters(&self) -> usize {
        WAITERS.get()
    }

    /// How many lines there are.
    pub fn len(&self) -> usize {
        self.by_key.values().map(HashMap::len).sum()
    }

    /// The line of a lock, if somebody waits.
    pub fn get(&mut self, db: i32, key: &[u8]) -> Option<&mut LockLine> {
        self.by_key.get_mut(&db)?.get_mut(key)
    }

    /// The line of a lock, made if nobody waits yet.
    pub fn get_or_add(&mut self, db: i32, key: &[u8]) -> &mut LockLine {
        self.by_key.entry(db).or_default().entry(key.into()).or_insert_with(|| LockLine {
            name: Rc::new(LockName::new(db, key)),
            line: Line::default(),
            alarm: None,
        })
    }

    /// Takes note that a waiter has joined.
    pub fn joined(&mut self, owner: &Owner, name: &Rc<LockName>, place: Place) {
        WAITERS.set(WAITERS.get() + 1);
        self.waits.entry(owner.clone()).or_default().push((Rc::clone(name), place));
    }

    /// Takes note that a waiter has left the line it was in. A line without waiters goes.
    pub fn left(&mut self, owner: &Owner, name: &Rc<LockName>, place: Place) {
        WAITERS.set(WAITERS.get() - 1);
        if let Some(waits) = self.waits.get_mut(owner) {
            waits.retain(|(line, at)| *at != place || line != name);
            if waits.is_empty() {
                self.waits.remove(owner);
            }
        }
        let Some(of_db) = self.by_key.get_mut(&name.db) else { return };
        if of_db.get(&name.key).is_some_and(|line| line.line.is_empty()) {
            if let Some(LockLine { alarm: Some(alarm), .. }) = of_db.remove(&name.key) {
                self.alarms.remove(&(alarm, Rc::clone(name)));
            }
            if of_db.is_empty() {
                self.by_key.remove(&name.db);
            }
        }
    }

    /// Takes a waiter out of its line, if it is still there; whether it was the head.
    pub fn take(&mut self, name: &Rc<LockName>, place: Place) -> Option<(Waiting<Rc<Waiter>>, bool)> {
        let line = &mut self.get(name.db, &name.key)?.line;
        let was_head = line.is_head(place);
        let waiting = line.leave(place)?;
        self.left(&waiting.owner, name, place);
        Some((waiting, was_head))
    }

    /// How many times an owner waits.
    pub fn waits_of(&self, owner: &Owner) -> &[(Rc<LockName>, Place)] {
        self.waits.get(owner).map_or(&[], Vec::as_slice)
    }

    /// Sets when a line is looked at next.
    pub fn set_alarm(&mut self, name: &Rc<LockName>, at: Option<UnixMs>) {
        let Some(line) = self.by_key.get_mut(&name.db).and_then(|lines| lines.get_mut(&name.key)) else { return };
        if line.alarm == at {
            return;
        }
        if let Some(old) = std::mem::replace(&mut line.alarm, at) {
            self.alarms.remove(&(old, Rc::clone(name)));
        }
        if let Some(at) = at {
            self.alarms.insert((at, Rc::clone(name)));
        }
    }

    /// The first alarm.
    pub fn next_alarm(&self) -> Option<UnixMs> {
        self.alarms.first().map(|(at, _)| *at)
    }

    /// Takes note that a line is to be looked at as soon as the running command is over.
    pub fn stir(&mut self, name: &Rc<LockName>) {
        self.stirred.push(Rc::clone(name));
    }

    /// Takes note that all lines, or those of one database, are to be looked at.
    pub fn stir_all(&mut self, db: Option<i32>) {
        let lines = self.by_key.iter().filter(|(of, _)| db.is_none_or(|db| db == **of)).flat_map(|(_, lines)| lines);
        self.stirred.extend(lines.map(|(_, line)| Rc::clone(&line.name)));
    }

    /// Whether a line is to be looked at as soon as the running command is over.
    pub fn is_stirred(&self) -> bool {
        !self.stirred.is_empty()
    }

    /// The next line to be looked at by `now`. It may have lost its waiters.
    pub fn next_due(&mut self, now: UnixMs) -> Option<Rc<LockName>> {
        if let Some(name) = self.stirred.pop() {
            return Some(name);
        }
        let (_, name) = self.alarms.first().filter(|(at, _)| *at <= now)?;
        let name = Rc::clone(name);
        self.set_alarm(&name, None);
        Some(name)
    }
}
