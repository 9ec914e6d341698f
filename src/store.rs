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
    fresh: Lock,
    changes: Option<Changes>,
}

/// What the effects so far come to.
#[derive(Default)]
pub struct Changes {
    /// When the key ends by them.
    end: Option<UnixMs>,
    lapsed: u64,
    /// By the end of a session.
    released: u64,
    is_visible: bool,
}

/// The bytes of the effect that is being replicated, kept to be used again.
static BYTES: MainThread<Cell<Vec<u8>>> = MainThread::new(Cell::new(Vec::new()));

impl<'a> OpenLock<'a> {
    /// Opens the lock in a key; it is empty if there is no key.
    pub fn open(context: &'a Context, name: &'a Name) -> Result<OpenLock<'a>, WrongType> {
        let key = Key::open(context, name, Access::Write)?;
        let line = if lines::is_nobody_waiting() { None } else { lines::find(context.db(), name.bytes()) };
        Ok(OpenLock { context, name, line, key, fresh: Lock::default(), changes: None })
    }

    /// Opens the lock in a key to do what a primary has decided: nobody who waits here has a say.
    pub fn open_for_effect(context: &'a Context, name: &'a Name) -> Result<OpenLock<'a>, WrongType> {
        let key = Key::open(context, name, Access::Write)?;
        Ok(OpenLock { context, name, line: None, key, fresh: Lock::default(), changes: None })
    }

    /// The lock as it is now.
    pub fn lock(&self) -> &Lock {
        self.key.lock().unwrap_or(&self.fresh)
    }

    /// When the key ends, as the effects so far have it; `None`: never, or there is none.
    pub fn end(&self) -> Option<UnixMs> {
        self.changes.as_ref().map_or_else(|| self.key.expiry(), |changes| changes.end)
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
        self.changes.is_some()
    }

    /// Takes note that an effect was a release which no command asked for: it is announced when the lock is closed.
    pub fn count_release(&mut self) {
        self.changes.get_or_insert_default().released += 1;
    }

    /// Applies and replicates an effect, with a word on whether somebody waits.
    pub fn apply(&mut self, mut effect: Effect, replication: Replication) {
        if self.waiters() == Waiters::Some {
            effect.waiters = Waiters::Some;
        }
        let mut bytes = BYTES.take();
        bytes.clear();
        if replication == Replication::Effect {
            encode_effect(&effect, &mut bytes);
        }
        let lock = self.key.lock_mut().unwrap_or(&mut self.fresh);
        let applied = state().with_tokens(|tokens| lock.apply(effect, tokens));
        let last = lock.last_deadline();
        let current = || self.changes.as_ref().map_or_else(|| self.key.expiry(), |changes| changes.end);
        let end = last.map(|last| applied.expiry.key_deadline(current, last, applied.waiters));
        let changes = self.changes.get_or_insert_default();
        changes.end = end;
        changes.lapsed += applied.lapsed;
        changes.is_visible |= applied.is_visible;
        match replication {
            Replication::Effect => self.context.replicate_effect(self.name, &bytes),
            Replication::Verbatim => self.context.replicate_verbatim(),
        }
        BYTES.set(bytes);
    }

    /// Brings the key up to date, and tells `WATCH` and `CLIENT TRACKING` if holders or counts changed. A key without
    /// a hold goes.
    pub fn finish(self) -> Changes {
        let OpenLock { context, name, mut key, fresh, changes, .. } = self;
        let Some(changes) = changes else { return Changes::default() };
        let has_key = key.lock().is_some();
        match changes.end {
            None if has_key => key.delete(),
            None => {}
            Some(end) => {
                if !has_key {
                    key.set_lock(fresh);
                }
                key.set_expiry(end);
            }
        }
        drop(key);
        if changes.is_visible {
            context.signal_modified(name);
        }
        changes
    }
}

/// Finishes what this primary decided: counts and announces the leases that had run out, and announces what was
/// released without a command.
pub fn close(open: OpenLock) {
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
