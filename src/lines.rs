//! All lines of this server, found by key, by owner, and by the time of the next alarm.
//!
//! A command looks its line up once and holds on to it ([`LockLine`] is shared); what happens to a line it holds needs no
//! second look.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;

use dlock_core::{Line, Owner, Place, UnixMs};
use foldhash::fast::RandomState;
use smallvec::SmallVec;

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

    /// Where it is when two databases have changed places.
    pub fn swapped(&self, first: i32, second: i32) -> LockName {
        let db = match self.db {
            db if db == first => second,
            db if db == second => first,
            db => db,
        };
        LockName::new(db, &self.key)
    }
}

/// The line of one lock. When its last waiter leaves it is forgotten, and a new one is made for the next.
pub struct LockLine {
    /// Where the lock is.
    pub name: LockName,
    number: u64,
    waiting: RefCell<Line<Rc<Waiter>>>,
    alarm: Cell<Option<UnixMs>>,
}

impl LockLine {
    /// Lets `body` see and change who waits. It calls nothing of the server: callbacks of the server come here too.
    pub fn with<T>(&self, body: impl FnOnce(&mut Line<Rc<Waiter>>) -> T) -> T {
        body(&mut self.waiting.borrow_mut())
    }

    /// Whether nobody waits any more.
    pub fn is_empty(&self) -> bool {
        self.with(|line| line.is_empty())
    }

    /// Whether there is nothing to be done for it at `now`: it was served, and since then neither a lease nor the key
    /// has ended, and nothing has stirred it. What a command has done meanwhile is not known here.
    pub fn is_settled(&self, now: UnixMs) -> bool {
        self.alarm.get().is_some_and(|at| now < at)
    }
}

/// All lines.
#[derive(Default)]
pub struct Lines {
    by_key: BTreeMap<i32, ByKey>,
    waits: HashMap<Owner, Waits, RandomState>,
    alarms: BTreeMap<(UnixMs, u64), Rc<LockLine>>,
    stirred: Vec<Rc<LockLine>>,
    /// How many lines there ever were.
    made: u64,
}

/// The lines of one database.
type ByKey = HashMap<Box<[u8]>, Rc<LockLine>, RandomState>;

/// Where an owner waits: mostly in one place.
pub type Waits = SmallVec<[(Rc<LockLine>, Place); 1]>;

/// How many wait on this server: most servers, most of the time, have nobody waiting, and find that out here.
static WAITERS: MainThread<Cell<usize>> = MainThread::new(Cell::new(0));

/// Whether nobody waits on this server.
pub fn is_nobody_waiting() -> bool {
    WAITERS.get() == 0
}

/// How many wait on this server.
pub fn waiters() -> usize {
    WAITERS.get()
}

/// Lets `body` see and change the lines. It calls nothing of the server: callbacks of the server come here too.
pub fn with_lines<T>(body: impl FnOnce(&mut Lines) -> T) -> T {
    static LINES: MainThread<RefCell<Option<Lines>>> = MainThread::new(RefCell::new(None));
    body(LINES.borrow_mut().get_or_insert_default())
}

/// The line of a lock, if somebody waits for it.
pub fn find(db: i32, key: &[u8]) -> Option<Rc<LockLine>> {
    with_lines(|lines| lines.by_key.get(&db)?.get(key).cloned())
}

impl Lines {
    /// How many lines there are.
    pub fn len(&self) -> usize {
        self.by_key.values().map(HashMap::len).sum()
    }

    /// The line of a lock, made if nobody waits yet. Somebody has to join it.
    pub fn find_or_make(&mut self, db: i32, key: &[u8]) -> Rc<LockLine> {
        let of_db = self.by_key.entry(db).or_default();
        if let Some(line) = of_db.get(key) {
            return Rc::clone(line);
        }
        self.made += 1;
        let line = Rc::new(LockLine {
            name: LockName::new(db, key),
            number: self.made,
            waiting: RefCell::default(),
            alarm: Cell::new(None),
        });
        of_db.insert(key.into(), Rc::clone(&line));
        line
    }

    /// Takes note that a waiter has joined. Returns whether its owner waits elsewhere too.
    pub fn joined(&mut self, owner: &Owner, line: &Rc<LockLine>, place: Place) -> bool {
        WAITERS.set(WAITERS.get() + 1);
        let waits = self.waits.entry(owner.clone()).or_default();
        waits.push((Rc::clone(line), place));
        waits.len() > 1
    }

    /// Takes note that a waiter has left the line it was in. A line without waiters goes.
    pub fn left(&mut self, owner: &Owner, line: &Rc<LockLine>, place: Place) {
        WAITERS.set(WAITERS.get() - 1);
        if let Some(waits) = self.waits.get_mut(owner) {
            waits.retain(|(at, stands)| *stands != place || !Rc::ptr_eq(at, line));
            if waits.is_empty() {
                self.waits.remove(owner);
            }
        }
        if line.is_empty() {
            self.forget(line);
        }
    }

    /// A line without waiters goes, unless it has gone before.
    pub fn forget(&mut self, line: &Rc<LockLine>) {
        let LockName { db, key } = &line.name;
        let Some(of_db) = self.by_key.get_mut(db) else { return };
        if of_db.get(key).is_some_and(|known| Rc::ptr_eq(known, line)) {
            of_db.remove(key);
            if of_db.is_empty() {
                self.by_key.remove(db);
            }
            self.set_alarm(line, None);
        }
    }

    /// Takes a waiter out of its line, if it is still there; whether it was the head.
    pub fn take(&mut self, line: &Rc<LockLine>, place: Place) -> Option<bool> {
        let (waiting, was_head) = line.with(|line| {
            let was_head = line.is_head(place);
            line.leave(place).map(|waiting| (waiting, was_head))
        })?;
        self.left(&waiting.owner, line, place);
        Some(was_head)
    }

    /// Where an owner waits.
    pub fn waits_of(&self, owner: &Owner) -> &[(Rc<LockLine>, Place)] {
        self.waits.get(owner).map_or(&[], SmallVec::as_slice)
    }

    /// Sets when a line is looked at next.
    pub fn set_alarm(&mut self, line: &Rc<LockLine>, at: Option<UnixMs>) {
        let old = line.alarm.replace(at);
        if old == at {
            return;
        }
        if let Some(old) = old {
            self.alarms.remove(&(old, line.number));
        }
        if let Some(at) = at {
            self.alarms.insert((at, line.number), Rc::clone(line));
        }
    }

    /// The first alarm.
    pub fn next_alarm(&self) -> Option<UnixMs> {
        self.alarms.first_key_value().map(|((at, _), _)| *at)
    }

    /// Takes note that a line is to be looked at as soon as the running command is over.
    pub fn stir(&mut self, line: &Rc<LockLine>) {
        self.set_alarm(line, None);
        self.stirred.push(Rc::clone(line));
    }

    /// Takes note that all lines, or those of one database, are to be looked at.
    pub fn stir_all(&mut self, db: Option<i32>) {
        let of_db = self.by_key.iter().filter(|(of, _)| db.is_none_or(|db| db == **of));
        let lines: Vec<_> = of_db.flat_map(|(_, lines)| lines.values().cloned()).collect();
        for line in lines {
            self.stir(&line);
        }
    }

    /// Whether a line is to be looked at as soon as the running command is over.
    pub fn is_stirred(&self) -> bool {
        !self.stirred.is_empty()
    }

    /// The next line to be looked at by `now`, which then has no alarm. It may have lost its waiters.
    pub fn next_due(&mut self, now: UnixMs) -> Option<Rc<LockLine>> {
        let alarmed =
            || self.alarms.first_key_value().filter(|((at, _), _)| *at <= now).map(|(_, line)| Rc::clone(line));
        let line = self.stirred.pop().or_else(alarmed)?;
        self.set_alarm(&line, None);
        Some(line)
    }
}
