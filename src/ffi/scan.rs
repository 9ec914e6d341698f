//! A walk over all keys of the server, in steps.

use std::ffi::{c_int, c_void};

use redis_module::raw;

use super::context::Context;
use super::guard::guarded;
use super::key::Name;

/// A walk over the keys of all databases. Keys that are there all the time are visited at least once.
pub struct Scan {
    db: c_int,
    cursor: *mut raw::RedisModuleScanCursor,
}

/// Whether a walk is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// There is more.
    More,
    /// It is over.
    Done,
}

impl Scan {
    /// A walk that has not begun.
    pub fn new() -> Scan {
        Scan { db: 0, cursor: new_cursor() }
    }

    /// Visits a few more keys. `visit` writes nothing.
    pub fn step(&mut self, context: &Context, visit: fn(&Context, &Name)) -> Step {
        if !context.select_db(self.db) {
            return Step::Done;
        }
        // SAFETY: the cursor is ours; the data carries a function, which `visited` turns back.
        let is_more = unsafe { api!(RedisModule_Scan(context.raw, self.cursor, Some(visited), visit as *mut c_void)) };
        if is_more == 0 {
            drop(std::mem::replace(self, Scan { db: self.db + 1, cursor: new_cursor() }));
        }
        Step::More
    }
}

impl Drop for Scan {
    fn drop(&mut self) {
        // SAFETY: made by `new_cursor`, destroyed once.
        unsafe { api!(RedisModule_ScanCursorDestroy(self.cursor)) };
    }
}

fn new_cursor() -> *mut raw::RedisModuleScanCursor {
    // SAFETY: the function takes nothing.
    unsafe { api!(RedisModule_ScanCursorCreate()) }
}

unsafe extern "C" fn visited(
    context: *mut raw::RedisModuleCtx,
    name: *mut raw::RedisModuleString,
    _key: *mut raw::RedisModuleKey,
    visit: *mut c_void,
) {
    // SAFETY: context and name are live for the call; `Scan::step` put a function of this type in.
    let (context, name, visit) = unsafe {
        (Context::new(context), Name::borrowed(name), std::mem::transmute::<*mut c_void, fn(&Context, &Name)>(visit))
    };
    guarded("scan", || visit(&context, &name), || ());
}
