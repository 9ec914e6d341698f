//! Holds whose connection has ended: they are released in the same turn of the event loop, and before any later command
//! sees their lock.
//!
//! The server tells of the end in a hook, which must not write. A timer releases them, outside any command. A command
//! that comes first releases those of its own lock ([`settle`]), and one that only reads sees the lock without them
//! ([`settled`]).

use std::borrow::Cow;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use dlock_core::{Binding, Effect, Lock, TokenClock, UnixMs, Waiters};

use crate::alarm::{Alarm, Turn};
use crate::ffi::MainThread;
use crate::ffi::context::{CanWrite, Context, Now};
use crate::ffi::key::Name;
use crate::lines::LockName;
use crate::state::state;
use crate::store::{OpenLock, Replication};
use crate::waiting::{self, Grants, close_and_tell, serve};

/// Holds that are still to be released, by lock. Nothing of the server is called while it is borrowed.
static ENDED: MainThread<RefCell<Ended>> = MainThread::new(RefCell::new(BTreeMap::new()));
type Ended = BTreeMap<Rc<LockName>, Vec<Bound>>;
type Bound = Binding<Rc<LockName>>;

static ENDING: MainThread<Alarm> = MainThread::new(Alarm::new(end_all));

/// The lock among them whose key was removed last: the running command may give it another name.
static REMOVED: MainThread<Cell<Option<LockName>>> = MainThread::new(Cell::new(None));

/// Whether any hold is still to be released.
pub fn is_any() -> bool {
    !ENDED.borrow().is_empty()
}

/// Takes note of holds whose client is gone. Called by hooks.
pub fn note(gone: Vec<Bound>) {
    for binding in gone {
        ENDED.borrow_mut().entry(Rc::clone(&binding.lock)).or_default().push(binding);
    }
    if is_any() {
        ENDING.wake_in(0);
    }
}

/// Takes note that a key was removed or replaced. Called by hooks.
pub fn on_removed(db: i32, key: &[u8]) {
    if is_any() {
        REMOVED.set(Some(LockName::new(db, key)));
    }
}

/// A key has another name now (`RENAME`, `MOVE`): that of the one removed last. Called by hooks.
pub fn on_renamed(db: i32, key: &[u8]) {
    let mut ended = ENDED.borrow_mut();
    if let Some(bindings) = REMOVED.take().and_then(|removed| ended.remove(&removed)) {
        ended.insert(Rc::new(LockName::new(db, key)), bindings);
    }
}

/// Two databases changed places. Called by hooks.
pub fn on_swap(first: i32, second: i32) {
    let mut ended = ENDED.borrow_mut();
    let swapped = |(lock, bindings): (Rc<LockName>, _)| (Rc::new(lock.swapped(first, second)), bindings);
    *ended = std::mem::take(&mut *ended).into_iter().map(swapped).collect();
}

/// Releases what has ended of a lock that is open. O(log n) for each, and nothing if nothing has.
pub fn settle(open: &mut OpenLock, now: Now) {
    if !is_any() {
        return;
    }
    let lock = LockName::new(open.context.db(), open.name.bytes());
    let ended = ENDED.borrow_mut().remove(&lock).unwrap_or_default();
    for binding in ended {
        end(open, &binding, now);
    }
}

/// The lock of a key as it will be when what has ended is released: a copy, if any has.
pub fn settled<'a>(context: &Context, name: &Name, lock: &'a Lock, now: UnixMs) -> Cow<'a, Lock> {
    if !is_any() {
        return Cow::Borrowed(lock);
    }
    let mut lock = Cow::Borrowed(lock);
    if let Some(bindings) = ENDED.borrow().get(&LockName::new(context.db(), name.bytes())) {
        for binding in bindings {
            if let Some(effect) = effect(&lock, binding, now) {
                lock.to_mut().apply(effect, &mut TokenClock::new());
            }
        }
    }
    lock
}

/// `None`: the hold is gone. One of the same owner that was made since has another token.
fn effect(lock: &Lock, binding: &Bound, now: UnixMs) -> Option<Effect> {
    let Binding { owner, mode, token, .. } = binding;
    lock.end_session(now, owner, *mode, *token, state().settings.session_grace())
}

fn end(open: &mut OpenLock, binding: &Bound, now: Now) {
    let Some(effect) = effect(open.lock(), binding, now.millis()) else { return };
    open.apply(effect, Replication::Effect);
    state().stats.session_ends.count();
    if state().settings.session_grace().is_none() {
        state().stats.releases.count();
        open.count_release();
    }
}

/// Releases all that is still to be released, a turn at a time.
fn end_all(context: &Context) {
    if !ENDING.rings(context) {
        return;
    }
    if !context.flags().is_primary() {
        ENDED.borrow_mut().clear();
        return;
    }
    let mut turn = Turn::begin();
    while let Some((lock, bindings)) = next() {
        end_of_lock(context, &lock, &bindings, Now::of_the_machine());
        if turn.is_over() {
            break;
        }
    }
    if is_any() {
        ENDING.wake_in(1);
    }
}

/// Some of what is to be released, of one lock.
fn next() -> Option<(Rc<LockName>, Vec<Bound>)> {
    let mut ended = ENDED.borrow_mut();
    let mut first = ended.first_entry()?;
    let lock = Rc::clone(first.key());
    let left = first.get().len().saturating_sub(AT_ONCE);
    let some = first.get_mut().split_off(left);
    if left == 0 {
        first.remove();
    }
    Some((lock, some))
}

fn end_of_lock(context: &Context, lock: &LockName, bindings: &[Bound], now: Now) {
    context.select_db(lock.db);
    let name = Name::new(&lock.key);
    let Ok(mut open) = OpenLock::open(context, &name) else { return };
    for binding in bindings {
        end(&mut open, binding, now);
    }
    let mut grants = Grants::default();
    // Releasing is always right; granting is not while the server takes no writes.
    if open.is_changed() && open.waiters() == Waiters::Some {
        if context.can_write(&name) == CanWrite::Yes {
            serve(&mut open, now, &mut grants);
        } else {
            waiting::stir(lock.db, &lock.key);
        }
    }
    close_and_tell(open, grants);
}

/// Of one lock, before the turn is looked at.
const AT_ONCE: usize = 64;
