//! The key's time to live belongs to the leases: what `PERSIST`, a later `EXPIRE` or `RESTORE` made of it is put back.

use std::cell::Cell;
use std::ffi::CStr;

use dlock_core::{Change, Effect};

use crate::ffi::MainThread;
use crate::ffi::context::{Context, Now, log_warning};
use crate::ffi::hooks::after;
use crate::ffi::key::{Access, Key, Name};
use crate::store::{Replication, decide};

/// A key whose time to live is to be put back.
struct Astray {
    db: i32,
    key: Box<[u8]>,
}

static ASTRAY: MainThread<Cell<Vec<Astray>>> = MainThread::new(Cell::new(Vec::new()));

/// Called for keyspace events of class `g`. A hook writes nothing: it notes the key and starts a timer, which runs in
/// the same turn of the event loop, after the command.
pub fn on_generic_event(context: &Context, event: &CStr, name: &Name) {
    if !matches!(event.to_bytes(), b"expire" | b"persist" | b"restore") {
        return;
    }
    let flags = context.flags();
    if !flags.is_primary() || flags.is_loading() || !is_astray(&Key::open(context, name, Access::Peek)) {
        return;
    }
    let mut astray = ASTRAY.take();
    if astray.is_empty() {
        after(context, 0, put_back);
    }
    astray.push(Astray { db: context.db(), key: name.bytes().into() });
    ASTRAY.set(astray);
}

/// Whether the key is a lock that would outlive its last deadline.
fn is_astray(key: &Key) -> bool {
    let last = key.lock().ok().flatten().and_then(|lock| lock.last_deadline());
    last.is_some_and(|last| key.expiry().is_none_or(|expiry| expiry > last))
}

fn put_back(context: &Context) {
    if context.is_held_still() {
        after(context, RETRY_MS, put_back);
        return;
    }
    let astray = ASTRAY.take();
    if !context.flags().is_primary() {
        return;
    }
    let clock = Now::read().millis();
    for Astray { db, key: name } in astray {
        context.select_db(db);
        let name = Name::new(&name);
        let mut key = Key::open(context, &name, Access::Write);
        if !is_astray(&key) {
            continue;
        }
        let sweep = Effect { clock, change: Change::Sweep };
        if let Err(error) = decide(context, &name, &mut key, sweep, Replication::Effect) {
            log_warning(&format!("dlock: a time to live could not be put back: {error:?}"));
        }
    }
}

const RETRY_MS: u32 = 20;
