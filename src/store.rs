//! How a change reaches the key, the replicas and those who watch.

use std::cell::Cell;
use std::rc::Rc;

use dlock_core::{Effect, Lock, UnixMs, Waiters, encode_effect};

use crate::ffi::MainThread;
use crate::ffi::context::Context;
use crate::ffi::key::{Access, Key, Name, WrongType};
use crate::lines::{self, LockLine};
use crate::state::state;

/// How a change is replicated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Replication {
    /// As its effect.
    Effect,
    /// As the command that came: it says the same to whoever has the same lock.
    Verbatim,
}

/// A lock in a key that is open for writing: it is changed by effects only.
///
/// The lock and the replicas change with each effect; the key (that there is one, and its time to live) when
/// [`OpenLock::finish`] is called. So a lock that is freed and taken in one go keeps its key.
pub struct OpenLock<'a> {
    /// The call in which it is open.
    pub context: &'a Context<'a>,
    /// Its name.
    pub name: &'a Name<'a>,
    /// Those who wait for it, if anybody did when it was opened, or has joined since.
    pub line: Option<Rc<LockLine>>,
    key: Key<'a>,
    /// The lock, while there is no key to keep it in.
    fresh: Option<Box<Lock>>,
    changes: Changes,
}

/// What the effects so far come to.
#[derive(Clone, Copy, Default)]
pub struct Changes {
    /// Whether there are any.
    is_any: bool,
    /// When the key ends by them.
    end: Option<UnixMs>,
    lapsed: u64,
    /// By the end of a session.
    released: u64,
    is_visible: bool,
}

/// Lends the bytes of the effect that is being replicated, empty: they are kept to be used again.
pub fn with_bytes(body: impl FnOnce(&mut Vec<u8>)) {
    static BYTES: MainThread<Cell<Vec<u8>>> = MainThread::new(Cell::new(Vec::new()));
    let mut bytes = BYTES.take();
    bytes.clear();
    body(&mut bytes);
    BYTES.set(bytes);
}

impl<'a> OpenLock<'a> {
    /// Opens the lock in a key; it is empty if there is no key.
    pub fn open(context: &'a Context, name: &'a Name) -> Result<OpenLock<'a>, WrongType> {
        Ok(Self::of(context, name, Key::open(context, name, Access::Write)?))
    }

    /// The lock in a key that is open for writing.
    pub fn of(context: &'a Context, name: &'a Name, key: Key<'a>) -> OpenLock<'a> {
        let line = if lines::is_nobody_waiting() { None } else { lines::find(context.db(), name.bytes()) };
        OpenLock { context, name, line, key, fresh: None, changes: Changes::default() }
    }

    /// Opens the lock in a key to do what a primary has decided: nobody who waits here has a say.
    pub fn open_for_effect(context: &'a Context, name: &'a Name) -> Result<OpenLock<'a>, WrongType> {
        let key = Key::open(context, name, Access::Write)?;
        Ok(OpenLock { context, name, line: None, key, fresh: None, changes: Changes::default() })
    }

    /// The lock as it is now.
    pub fn lock(&self) -> &Lock {
        static EMPTY: Lock = Lock::EMPTY;
        self.key.lock().or(self.fresh.as_deref()).unwrap_or(&EMPTY)
    }

    /// When the key ends, as the effects so far have it; `None`: never, or there is none.
    pub fn end(&self) -> Option<UnixMs> {
        if self.changes.is_any { self.changes.end } else { self.key.expiry() }
    }

    /// Whether somebody waits for it.
    pub fn waiters(&self) -> Waiters {
        match &self.line {
            Some(line) if !line.is_empty() => Waiters::Some,
            Some(_) | None => Waiters::None,
        }
    }

    /// Whether an effect was applied since it was opened.
    pub fn is_changed(&self) -> bool {
        self.changes.is_any
    }

    /// Takes note that an effect was a release which no command asked for: it is announced when the lock is closed.
    pub fn count_release(&mut self) {
        self.changes.released += 1;
    }

    /// Applies and replicates an effect, with a word on whether somebody waits.
    pub fn apply(&mut self, mut effect: Effect, replication: Replication) {
        if self.waiters() == Waiters::Some {
            effect.waiters = Waiters::Some;
        }
        match replication {
            Replication::Effect => with_bytes(|bytes| {
                encode_effect(&effect, bytes);
                self.change(effect);
                self.context.replicate_effect(self.name, bytes);
            }),
            Replication::Verbatim => {
                self.change(effect);
                self.context.replicate_verbatim();
            }
        }
    }

    fn change(&mut self, effect: Effect) {
        let before = self.changes;
        let lock = match self.key.lock_mut() {
            Some(lock) => lock,
            None => self.fresh.get_or_insert_default(),
        };
        let applied = state().with_tokens(|tokens| lock.apply(effect, tokens));
        let last = lock.last_deadline();
        let current = || if before.is_any { before.end } else { self.key.expiry() };
        let end = last.map(|last| applied.expiry.key_deadline(current, last, applied.waiters));
        self.changes = Changes {
            is_any: true,
            end,
            lapsed: before.lapsed + applied.lapsed,
            is_visible: before.is_visible || applied.is_visible,
            ..before
        };
    }

    /// Brings the key up to date, and tells `WATCH` and `CLIENT TRACKING` if holders or counts changed. A key without
    /// a hold goes.
    pub fn finish(&mut self) -> Changes {
        let changes = std::mem::take(&mut self.changes);
        if !changes.is_any {
            self.key.close();
            return changes;
        }
        let has_key = self.key.lock().is_some();
        match changes.end {
            None if has_key => self.key.delete(),
            None => {}
            Some(end) => {
                if let Some(fresh) = self.fresh.take() {
                    self.key.set_lock(fresh);
                }
                self.key.set_expiry(end);
            }
        }
        self.key.close();
        if changes.is_visible {
            self.context.signal_modified(self.name);
        }
        changes
    }
}

/// Finishes what this primary decided: counts and announces the leases that had run out, and announces what was
/// released without a command.
pub fn close(open: &mut OpenLock) {
    let (context, name) = (open.context, open.name);
    let Changes { lapsed, released, .. } = open.finish();
    if lapsed > 0 {
        state().stats.lapses.add(lapsed);
        context.notify(c"dlock.lapse", name);
    }
    for _ in 0..released {
        context.notify(c"dlock.release", name);
    }
}
