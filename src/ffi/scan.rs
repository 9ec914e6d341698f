//! Looks for a lock among the keys of a database that is about to be flushed.

use std::ffi::{c_int, c_void};

use dlock_core::{Lock, UnixMs};
use redis_module::raw;

use super::context::{Context, machine_time};
use super::data_type::{self, DISTRLOCK};
use super::hooks::detached;

/// How many keys, and how many places of the server's table, are looked at. The limit keeps the search short: even a
/// flush in the background waits for it.
const MOST: u32 = 10_000;

struct Search {
    now: UnixMs,
    keys: u32,
    places: u32,
    is_found: bool,
}

impl Search {
    fn is_over(&self) -> bool {
        self.is_found || self.keys >= MOST || self.places >= MOST
    }
}

/// Returns whether a database has a lock with a live hold; `None` as the database: any of them. `None`: too many keys
/// to tell.
pub fn has_lock(db: Option<c_int>) -> Option<bool> {
    if data_type::locks() == 0 {
        return Some(false);
    }
    let mut search = Search { now: machine_time().ms(), keys: 0, places: 0, is_found: false };
    // SAFETY: the context is kept since the load.
    let context = &mut unsafe { Context::new(detached()) };
    let before = context.db();
    for db in db.map_or(0..c_int::MAX, |db| db..db + 1) {
        if search.is_over() || !context.select_db(db) {
            break;
        }
        scan(context, &mut search);
    }
    context.select_db(before);
    (search.is_found || !search.is_over()).then_some(search.is_found)
}

fn scan(context: &Context<'_>, search: &mut Search) {
    // SAFETY: the cursor is made, used and freed here; the search outlives the scan, which calls `look` with it.
    unsafe {
        let cursor = api!(RedisModule_ScanCursorCreate());
        let data = std::ptr::from_mut(search).cast::<c_void>();
        while !(*data.cast::<Search>()).is_over() && api!(RedisModule_Scan(context.raw, cursor, Some(look), data)) != 0
        {
            (*data.cast::<Search>()).places += 1;
        }
        api!(RedisModule_ScanCursorDestroy(cursor));
    }
}

unsafe extern "C" fn look(
    _context: *mut raw::RedisModuleCtx,
    _name: *mut raw::RedisModuleString,
    key: *mut raw::RedisModuleKey,
    data: *mut c_void,
) {
    // SAFETY: `data` is that of `scan`. The key is open for the call; its value is asked for only if it is of our type.
    unsafe {
        let search = &mut *data.cast::<Search>();
        search.keys += 1;
        if !key.is_null() && api!(RedisModule_ModuleTypeGetType(key)) == *DISTRLOCK.raw_type.borrow() {
            let lock = api!(RedisModule_ModuleTypeGetValue(key)).cast::<Lock>();
            let is_live = lock.as_ref().is_some_and(|lock| lock.last_deadline().is_some_and(|at| search.now < at));
            // The server may not have removed it yet.
            let expiry = u64::try_from(api!(RedisModule_GetAbsExpire(key))).ok();
            search.is_found |= is_live && expiry.is_none_or(|at| search.now < UnixMs::new(at));
        }
    }
}
