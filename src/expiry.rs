//! The key's time to live belongs to the leases: what `PERSIST`, a later `EXPIRE` or `RESTORE` made of it is put back.
//!
//! An event names the key. Where there was none on this primary (a file that was saved in between, a replica that is
//! promoted, `SWAPDB`) a patrol walks over all keys, a little at a time.

use std::cell::Cell;
use std::ffi::CStr;

use dlock_core::{Change, Effect, Waiters};

use crate::alarm::{Alarm, Turn};
use crate::ended;
use crate::ffi::MainThread;
use crate::ffi::context::{Context, Now};
use crate::ffi::data_type::is_any_lock;
use crate::ffi::key::{Access, Key, Name};
use crate::ffi::scan::{Scan, Step};
use crate::lines::{self, LockName};
use crate::store::{OpenLock, Replication};
use crate::waiting::{Grants, close_and_tell, serve, stir};

static ASTRAY: MainThread<Cell<Vec<LockName>>> = MainThread::new(Cell::new(Vec::new()));
/// Where the key of the running `MOVE` comes from.
static MOVED_FROM: MainThread<Cell<i32>> = MainThread::new(Cell::new(0));

static PUTTING_BACK: MainThread<Alarm> = MainThread::new(Alarm::new(put_back));

static PATROL: MainThread<Cell<Option<Scan>>> = MainThread::new(Cell::new(None));
static PATROLLING: MainThread<Alarm> = MainThread::new(Alarm::new(walk_on));

/// Called for keyspace events of class `g`. A hook writes nothing: it notes the key and sets an alarm, which rings in
/// the same turn of the event loop, after the command.
pub fn on_generic_event(context: &Context, event: &CStr, name: &Name) {
    match event.to_bytes() {
        b"move_from" => MOVED_FROM.set(context.db()),
        b"move_to" => {
            look_at(context, event, name);
            // On Valkey 8.1.1 the context is the client itself, which an event for another database leaves in that
            // database: the MOVE is replicated as if sent there, and the client goes on there.
            context.select_db(MOVED_FROM.get());
        }
        _ => look_at(context, event, name),
    }
}

fn look_at(context: &Context, event: &CStr, name: &Name) {
    if !matches!(event.to_bytes(), b"expire" | b"persist" | b"restore" | b"rename_to" | b"move_to") || !is_any_lock() {
        return;
    }
    if matches!(event.to_bytes(), b"rename_to" | b"move_to") {
        ended::on_renamed(context.db(), name.bytes());
    }
    // The key of a lock may end earlier now: those who wait are served then.
    stir(context.db(), name.bytes());
    let flags = context.flags();
    if flags.is_primary() && !flags.is_loading() {
        note_if_astray(context, name);
    }
}

/// Two databases changed places: so did the keys that are to be seen to.
pub fn on_swap(first: i32, second: i32) {
    ASTRAY.set(ASTRAY.take().iter().map(|name| name.swapped(first, second)).collect());
}

/// Has all keys looked at: they were loaded, or were another primary's until now.
pub fn patrol() {
    if is_any_lock() {
        PATROL.set(Some(Scan::new()));
        PATROLLING.wake_in(0);
    }
}

fn walk_on(context: &Context) {
    if !PATROLLING.rings(context) || !context.flags().is_primary() {
        return;
    }
    let Some(mut scan) = PATROL.take() else { return };
    let mut turn = Turn::begin();
    while scan.step(context, note_if_astray) == Step::More {
        if turn.is_over() {
            PATROL.set(Some(scan));
            PATROLLING.wake_in(PATROL_PAUSE_MS);
            return;
        }
    }
}

fn note_if_astray(context: &Context, name: &Name) {
    if is_astray(context, name) {
        look_again(LockName::new(context.db(), name.bytes()));
    }
}

/// Has a key looked at in this turn of the event loop, after the running command: the last who waited for it has left.
pub fn look_again(lock: LockName) {
    let mut astray = ASTRAY.take();
    astray.push(lock);
    ASTRAY.set(astray);
    PUTTING_BACK.wake_in(0);
}

/// Whether the key is a lock that would outlive its last deadline.
fn is_astray(context: &Context, name: &Name) -> bool {
    let Ok(key) = Key::open(context, name, Access::Peek) else { return false };
    let line = lines::find(context.db(), name.bytes());
    let waiters = if line.is_some() { Waiters::Some } else { Waiters::None };
    key.lock().is_some_and(|lock| lock.is_outlived(key.expiry(), waiters))
}

fn put_back(context: &Context) {
    if !PUTTING_BACK.rings(context) {
        return;
    }
    let astray = ASTRAY.take();
    if !context.flags().is_primary() {
        return;
    }
    let now = Now::of_the_machine();
    for LockName { db, key: name } in astray {
        context.select_db(db);
        let name = Name::new(&name);
        if !is_astray(context, &name) {
            continue;
        }
        let Ok(mut open) = OpenLock::open(context, &name) else { continue };
        let sweep = Effect { clock: now.millis(), change: Change::Sweep, waiters: Waiters::None };
        open.apply(sweep, Replication::Effect);
        let mut grants = Grants::default();
        serve(&mut open, now, &mut grants);
        close_and_tell(open, grants);
    }
}

const PATROL_PAUSE_MS: u32 = 5;
