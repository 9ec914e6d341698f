//! The callbacks of the type `distrlock`: RDB, AOF rewrite, memory, digest, free.

use std::cell::Cell;
use std::ffi::{c_char, c_int, c_void};
use std::ptr::{null, null_mut};
use std::sync::atomic::{AtomicUsize, Ordering};

use dlock_core::{
    Change, DecodeError, Effect, Expiry, Lock, Token, UnixMs, decode_lock, encode_effect, encode_lock, encode_put,
};
use redis_module::native_types::RedisType;
use redis_module::raw;

use super::context::{Context, log_warning};
use super::guard::{caught, guarded};
use super::hooks::{self, Origin};
use super::strings::{bytes_of, c_string};
use super::under_lock::UnderLock;

/// The type of a lock key, as `TYPE` prints it.
///
/// `copy` is missing, so the server refuses `COPY`: a lock must not exist twice. On servers without `aux_save2` the
/// token clock is not saved; `aux_save`, which they have, would make every RDB file unloadable without the module.
pub static DISTRLOCK: RedisType = RedisType::new(
    "distrlock",
    ENCODING_VERSION,
    raw::RedisModuleTypeMethods {
        version: raw::REDISMODULE_TYPE_METHOD_VERSION as u64,
        rdb_load: Some(rdb_load),
        rdb_save: Some(rdb_save),
        aof_rewrite: Some(aof_rewrite),
        mem_usage: Some(mem_usage),
        digest: Some(digest),
        free: Some(free),
        aux_load: Some(aux_load),
        aux_save: None,
        aux_save_triggers: super::constant(raw::REDISMODULE_AUX_BEFORE_RDB),
        free_effort: Some(free_effort),
        unlink: None,
        copy: None,
        defrag: None,
        mem_usage2: None,
        free_effort2: None,
        unlink2: Some(unlink2),
        copy2: None,
        aux_save2: Some(aux_save2),
    },
);

/// The version of the RDB encoding. The bytes inside have a version of their own.
const ENCODING_VERSION: i32 = 1;

extern "C" fn rdb_load(io: *mut raw::RedisModuleIO, version: c_int) -> *mut c_void {
    guarded("rdb_load", null_mut(), || load_lock(io, version))
}

fn load_lock(io: *mut raw::RedisModuleIO, version: c_int) -> *mut c_void {
    let refuse = |reason: &str| {
        log_io(io, &format!("dlock: a lock could not be loaded: {reason}"));
        null_mut()
    };
    if version != ENCODING_VERSION {
        return refuse("it was saved by a newer version of the module");
    }
    let Some(bytes) = load_bytes(io) else { return refuse("the data ends too early") };
    let lock = match decode_lock(&bytes) {
        Ok(lock) => lock,
        Err(error) => return refuse(&error.to_string()),
    };
    // SAFETY: the server gives every load a context; it lives for the call.
    let flags = unsafe { Context::new(api!(RedisModule_GetContextFromIO(io))) }.flags();
    let is_trusted = !flags.is_primary() || flags.is_loading();
    // SAFETY: the name is live for the call, or null where the value belongs to no key.
    let key = unsafe {
        let name = api!(RedisModule_GetKeyNameFromIO(io));
        if name.is_null() { None } else { Some(bytes_of(name)) }
    };
    let origin = if is_trusted { Origin::Trusted } else { Origin::Restored(key) };
    if let Err(reason) = (hooks::hooks().loaded)(&lock, origin) {
        return refuse(&reason);
    }
    if let Origin::Restored(Some(key)) = origin {
        // SAFETY: the server passes a live context of the load.
        let db = unsafe { api!(RedisModule_GetDbIdFromIO(io)) };
        (hooks::hooks().restored)(db, key);
    }
    into_value(Box::new(lock)).cast()
}

extern "C" fn rdb_save(io: *mut raw::RedisModuleIO, value: *mut c_void) {
    on_lock("rdb_save", (), value, |lock| save_bytes(io, |bytes| encode_lock(lock, bytes)));
}

/// Writes a lock as one effect per hold. The clock of the effects is 0, so that loading them drops nothing; the server
/// writes the TTL.
extern "C" fn aof_rewrite(io: *mut raw::RedisModuleIO, key: *mut raw::RedisModuleString, value: *mut c_void) {
    on_lock("aof_rewrite", (), value, |lock| {
        let mut bytes = Vec::new();
        for hold in lock.stored_holds() {
            bytes.clear();
            let change = Change::Put { hold: hold.clone(), expiry: Expiry::Leave };
            encode_effect(&Effect { clock: UnixMs::ZERO, change }, &mut bytes);
            let (command, format) = (c"DLOCK.APPLY".as_ptr(), c"sb".as_ptr());
            // SAFETY: the format announces a module string, then a buffer with its length; both outlive the call.
            unsafe {
                api!(RedisModule_EmitAOF(io, command, format, key, bytes.as_ptr().cast::<c_char>(), bytes.len()))
            };
        }
    });
}

extern "C" fn mem_usage(value: *const c_void) -> usize {
    on_lock("mem_usage", 0, value, |lock| size_of::<Lock>() + lock.heap_bytes())
}

/// Covers every stored field of every hold; the order of the holds does not matter.
extern "C" fn digest(digest: *mut raw::RedisModuleDigest, value: *mut c_void) {
    on_lock("digest", (), value, |lock| {
        let mut bytes = Vec::new();
        for hold in lock.stored_holds() {
            bytes.clear();
            encode_put(UnixMs::ZERO, hold, &mut bytes);
            // SAFETY: the server reads the bytes during the call.
            unsafe {
                api!(RedisModule_DigestAddStringBuffer(digest, bytes.as_ptr().cast(), bytes.len()));
                api!(RedisModule_DigestEndSequence(digest));
            }
        }
    });
}

/// How many locks the server has, those included that it has not freed yet.
static LOCKS: AtomicUsize = AtomicUsize::new(0);

pub(super) fn locks() -> usize {
    LOCKS.load(Ordering::Relaxed)
}

/// Hands a lock to the server.
pub(super) fn into_value(lock: Box<Lock>) -> *mut Lock {
    LOCKS.fetch_add(1, Ordering::Relaxed);
    Box::into_raw(lock)
}

/// Frees a lock. May run on another thread: touches nothing but the value and the number of locks.
pub(super) extern "C" fn free(value: *mut c_void) {
    LOCKS.fetch_sub(1, Ordering::Relaxed);
    // SAFETY: made by `into_value`; the server frees it once and forgets it.
    caught("free", (), || drop(unsafe { Box::from_raw(value.cast::<Lock>()) }));
}

extern "C" fn free_effort(_key: *mut raw::RedisModuleString, value: *const c_void) -> usize {
    on_lock("free_effort", 1, value, Lock::free_effort)
}

/// The key that a running call may remove because it has expired. Another key that goes meanwhile is removed by others,
/// such as a callback of another module. The pointers are live until the call returns, and then the call is forgotten.
struct Running {
    /// The context is in the key's database.
    context: *mut raw::RedisModuleCtx,
    name: *mut raw::RedisModuleString,
    has_removed: Cell<bool>,
}

/// The innermost running call; null if there is none.
static RUNNING: UnderLock<Cell<*const Running>> = UnderLock::new(Cell::new(null()));

/// Forgets a call when it ends, even by a panic: the call around it, if any, is the innermost again.
struct Forgotten<'a>(&'a Cell<*const Running>, *const Running);

impl Drop for Forgotten<'_> {
    fn drop(&mut self) {
        self.0.set(self.1);
    }
}

/// Runs a call that removes this key of the context's database if the key has expired. Returns the result of the call,
/// and whether it removed the key.
///
/// # Safety
/// `context` and `name` must be live, and the context stay in its database, until `call` returns.
pub(super) unsafe fn unlinking<T>(
    context: *mut raw::RedisModuleCtx,
    name: *mut raw::RedisModuleString,
    call: impl FnOnce() -> T,
) -> (T, bool) {
    let running = Running { context, name, has_removed: Cell::new(false) };
    let place: &Cell<_> = &RUNNING;
    let _forgotten = Forgotten(place, place.replace(&raw const running));
    let result = call();
    (result, running.has_removed.get())
}

/// Tells the engine that a lock's key is removed or replaced. Those who wait for it are served after the running
/// command.
extern "C" fn unlink2(key: *mut raw::RedisModuleKeyOptCtx, value: *const c_void) {
    // SAFETY: the server passes a value of our type, which is a live `Lock`, and does not change it during the
    // callback.
    let lock = unsafe { &*value.cast::<Lock>() };
    // A lock that has no hold any more is removed by the module itself, which knows. The test needs no guard: it
    // compares what the lock keeps, and reaches no state.
    if !lock.is_empty() {
        removed(key, lock);
    }
}

/// Tells the engine that a lock is removed. If a running call removes it by opening an expired key, tells that call,
/// too.
#[inline(never)]
fn removed(key: *mut raw::RedisModuleKeyOptCtx, lock: &Lock) {
    guarded("unlink", (), || note_removal(key, lock));
}

fn note_removal(key: *mut raw::RedisModuleKeyOptCtx, lock: &Lock) {
    // SAFETY: the server passes a live context of the key for the call, and with it a live name.
    let (raw_name, db) =
        unsafe { (api!(RedisModule_GetKeyNameFromOptCtx(key)), api!(RedisModule_GetDbIdFromOptCtx(key))) };
    // SAFETY: as above.
    let name = unsafe { bytes_of(raw_name) };
    // SAFETY: the pointers are those of a running call, which keeps them live.
    let is_its_key = |call: &&Running| unsafe {
        (std::ptr::eq(call.name, raw_name) || bytes_of(call.name) == name)
            && api!(RedisModule_GetSelectedDb(call.context)) == db
    };
    // SAFETY: null, or a call that has not returned.
    let call = unsafe { RUNNING.get().as_ref() }.filter(is_its_key);
    call.inspect(|call| call.has_removed.set(true));
    (hooks::hooks().removed)(db, name, lock, call.is_none());
}

/// Saves the token clock, if it matters after a restart: an idle server's file stays loadable without the module.
extern "C" fn aux_save2(io: *mut raw::RedisModuleIO, _when: c_int) {
    guarded("aux_save", (), || {
        if let Some(last) = (hooks::hooks().token_to_save)() {
            save_bytes(io, |bytes| bytes.extend_from_slice(&last.to_le_bytes()));
        }
    });
}

extern "C" fn aux_load(io: *mut raw::RedisModuleIO, _version: c_int, _when: c_int) -> c_int {
    let loaded = guarded("aux_load", Err(DecodeError::Invalid("content")), || {
        let bytes = load_bytes(io).ok_or(DecodeError::Truncated)?;
        let last = bytes.try_into().map(u64::from_le_bytes).map_err(|_| DecodeError::Invalid("length"))?;
        (hooks::hooks().token_loaded)(Token::new(last).ok_or(DecodeError::Invalid("token"))?);
        Ok(())
    });
    if let Err(error) = loaded {
        log_io(io, &format!("dlock: the token clock could not be loaded: {error}"));
        return super::ERR;
    }
    super::OK
}

/// Runs the `body` of a callback on the lock that the callback is about. The `body` uses no state of the module: the
/// server may save on another thread.
fn on_lock<T>(entry: &str, fallback: T, value: *const c_void, body: impl FnOnce(&Lock) -> T) -> T {
    // SAFETY: the server passes a value of our type, which is a live `Lock`, and does not change it during the
    // callback.
    caught(entry, fallback, || body(unsafe { &*value.cast::<Lock>() }))
}

fn save_bytes(io: *mut raw::RedisModuleIO, write: impl FnOnce(&mut Vec<u8>)) {
    let mut bytes = Vec::new();
    write(&mut bytes);
    // SAFETY: the server copies the bytes during the call.
    unsafe { api!(RedisModule_SaveStringBuffer(io, bytes.as_ptr().cast(), bytes.len())) };
}

/// Returns the next string of the file or payload; `None` on an I/O error, which the module has promised to handle.
fn load_bytes(io: *mut raw::RedisModuleIO) -> Option<Vec<u8>> {
    let mut len = 0;
    // SAFETY: the server answers with `len` bytes that are ours to free, or with null.
    unsafe {
        let start = api!(RedisModule_LoadStringBuffer(io, &raw mut len));
        if start.is_null() || api!(RedisModule_IsIOError(io)) != 0 {
            return None;
        }
        let bytes = std::slice::from_raw_parts(start.cast::<u8>(), len).to_vec();
        api!(RedisModule_Free(start.cast()));
        Some(bytes)
    }
}

fn log_io(io: *mut raw::RedisModuleIO, message: &str) {
    let text = c_string(message);
    let is_logged = caught("log", false, || {
        // SAFETY: the message is an argument, never the format.
        unsafe { api!(RedisModule_LogIOError(io, c"warning".as_ptr(), c"%s".as_ptr(), text.as_ptr())) };
        true
    });
    if !is_logged {
        log_warning(message);
    }
}
