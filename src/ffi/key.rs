//! An open key, and the lock in it.
//!
//! An open key borrows its context mutably. Everything that may run a command, expire a key or call the module back takes
//! the context mutably, too, or needs no context and is in a function that takes one: the compiler refuses it while a key
//! is open, and the pointer to the lock stays valid.

use std::ffi::c_char;
use std::marker::PhantomData;
use std::ptr::null_mut;

use dlock_core::engine::{KeyEnd, NotOpen, OpenKey, Permission, Signal, WrongType};
use dlock_core::{Effect, Lock, Name, UnixMs, with_encoded_effect};
use redis_module::raw;

use super::context::Context;
use super::data_type::{self, DISTRLOCK};
use super::strings::KeyName;

/// The purpose for which a key is open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// To be read. If the key had expired, the engine hears of it as of any other removal.
    Read,
    /// To be looked at without counting as a use of the key. The server may have removed it if it had expired.
    Peek,
    /// To be changed; the server has removed it if it had expired.
    Write,
    /// To be changed. The key has to be open now: the module asks until the server opens it.
    WriteAtLast,
}

/// An open key that holds a lock or nothing. It is closed when dropped.
pub struct Key<'k> {
    raw: *mut raw::RedisModuleKey,
    context: *mut raw::RedisModuleCtx,
    name: &'k KeyName<'k>,
    /// The value: null if there is none.
    lock: *mut Lock,
    was_removed: bool,
    /// The context stays borrowed while the key is open.
    life: PhantomData<&'k mut ()>,
}

impl<'k> Key<'k> {
    /// Opens a key of the context's database.
    ///
    /// # Errors
    /// [`NotOpen::WrongType`], or [`NotOpen::NotNow`] if the server takes no change of it for now.
    pub fn open(context: &'k mut Context<'_>, name: &'k KeyName<'_>, access: Access) -> Result<Key<'k>, NotOpen> {
        let mode = match access {
            Access::Read => raw::REDISMODULE_READ,
            // A peek sends no `keymiss` (from Redis 7.2 on): another module could change a lock in the callback.
            Access::Peek => {
                raw::REDISMODULE_READ | raw::REDISMODULE_OPEN_KEY_NOTOUCH | raw::REDISMODULE_OPEN_KEY_NONOTIFY
            }
            Access::Write | Access::WriteAtLast => raw::REDISMODULE_READ | raw::REDISMODULE_WRITE,
        };
        let context = context.raw;
        #[cfg(debug_assertions)]
        if access == Access::Write {
            super::planned::panic_if_planned("open");
        }
        // SAFETY: context and name are live for 'k, and so for the handle. If the server removes an expired key, its
        // callback only notes that.
        let open = || unsafe {
            #[cfg(debug_assertions)]
            if matches!(access, Access::Write | Access::WriteAtLast) && super::meddler::refuses() {
                return null_mut();
            }
            api!(RedisModule_OpenKey(context, name.raw(), mode.cast_signed()))
        };
        let (raw, was_removed) = if access == Access::Read {
            (open(), false)
        } else {
            // SAFETY: as above; nobody else has the context while the key is opened.
            unsafe { data_type::unlinking(context, name.raw(), open) }
        };
        let (raw, was_removed) = if raw.is_null() && access == Access::WriteAtLast {
            insist(|| {
                // SAFETY: as above; nobody else has the context while the key is opened.
                unsafe { data_type::unlinking(context, name.raw(), open) }
            })
        } else {
            (raw, was_removed)
        };
        // A key that does not exist has a handle, too, if it is opened for writing: null is a refusal.
        if raw.is_null() && matches!(access, Access::Write | Access::WriteAtLast) {
            return Err(NotOpen::NotNow);
        }
        let mut key = Key { raw, context, name, lock: null_mut(), was_removed, life: PhantomData };
        key.lock = key.value()?;
        Ok(key)
    }

    fn value(&self) -> Result<*mut Lock, WrongType> {
        if self.raw.is_null() {
            return Ok(null_mut());
        }
        // SAFETY: the handle is open; the value is asked for only if it is of our type.
        unsafe {
            if api!(RedisModule_KeyType(self.raw)) == super::constant(raw::REDISMODULE_KEYTYPE_EMPTY) {
                Ok(null_mut())
            } else if api!(RedisModule_ModuleTypeGetType(self.raw)) == *DISTRLOCK.raw_type.borrow() {
                Ok(api!(RedisModule_ModuleTypeGetValue(self.raw)).cast())
            } else {
                Err(WrongType)
            }
        }
    }

    /// Puts a lock into the key, which must be open for writing and hold none.
    fn set_lock(&mut self, lock: Box<Lock>) {
        if self.raw.is_null() {
            return;
        }
        let value = data_type::into_value(lock);
        // SAFETY: the server owns the value from here on and frees it by the type's `free`; on failure we do.
        unsafe {
            let kind = *DISTRLOCK.raw_type.borrow();
            if api!(RedisModule_ModuleTypeSetValue(self.raw, kind, value.cast())) == super::OK {
                self.lock = value;
            } else {
                data_type::free(value.cast());
            }
        }
    }

    /// Removes the key, which must be open for writing; its lock is empty.
    fn delete(&mut self) {
        self.lock = null_mut();
        if !self.raw.is_null() {
            // SAFETY: the handle is open for writing. The type's callback knows that the module removes an empty lock.
            unsafe { api!(RedisModule_DeleteKey(self.raw)) };
        }
    }

    /// Sets when the key expires. It must be open for writing.
    fn set_expiry(&mut self, at: UnixMs) {
        if !self.raw.is_null() {
            // SAFETY: the handle is open for writing; `UnixMs` fits the integer.
            unsafe { api!(RedisModule_SetAbsExpire(self.raw, at.get().cast_signed())) };
        }
    }

    fn shut(&mut self) {
        if !self.raw.is_null() {
            // SAFETY: opened by `open`, closed once, since the handle is forgotten.
            unsafe { api!(RedisModule_CloseKey(self.raw)) };
            self.raw = null_mut();
            self.lock = null_mut();
        }
    }
}

impl OpenKey for Key<'_> {
    fn name(&self) -> Name<'_> {
        // SAFETY: the context is live while the key is open, and stays in the key's database.
        Name { db: unsafe { api!(RedisModule_GetSelectedDb(self.context)) }, key: self.name.bytes() }
    }

    #[inline]
    fn lock(&self) -> Option<&Lock> {
        // SAFETY: a value of our type is a live `Lock` made by `into_value`. The server frees it when the key is removed:
        // by `delete`, which forgets it, or by a command or an expiry, which need the context that this key borrows.
        // Nobody else refers to it meanwhile.
        unsafe { self.lock.as_ref() }
    }

    #[inline]
    fn lock_mut(&mut self) -> Option<&mut Lock> {
        // SAFETY: as in `lock`, and `&mut self` keeps a second reference through this handle from existing.
        unsafe { self.lock.as_mut() }
    }

    fn expiry(&self) -> Option<UnixMs> {
        if self.lock.is_null() {
            return None;
        }
        // SAFETY: the handle is open.
        let expiry = unsafe { api!(RedisModule_GetAbsExpire(self.raw)) };
        u64::try_from(expiry).ok().map(UnixMs::new)
    }

    fn was_removed(&self) -> bool {
        self.was_removed
    }

    /// Replicates `DLOCK.APPLY key effect`, to replicas and to the AOF. Touches no key.
    #[inline(always)]
    fn replicate(&mut self, effect: &Effect) {
        let (context, key) = (self.context, self.name.raw());
        with_encoded_effect(effect, move |bytes| {
            let (command, format) = (c"DLOCK.APPLY".as_ptr(), c"sb".as_ptr());
            // SAFETY: the format announces a module string, then a buffer with its length; both outlive the call.
            unsafe {
                let (effect, len) = (bytes.as_ptr().cast::<c_char>(), bytes.len());
                api!(RedisModule_Replicate(context, command, format, key, effect, len))
            };
        });
    }

    /// Touches no key.
    fn replicate_verbatim(&mut self) {
        // SAFETY: the context is live while the key is open.
        unsafe { api!(RedisModule_ReplicateVerbatim(self.context)) };
    }

    #[inline(always)]
    fn close(&mut self, end: KeyEnd, signal: Signal) {
        match end {
            KeyEnd::Untouched => {}
            KeyEnd::Deleted => {
                if self.lock().is_some() {
                    self.delete();
                }
            }
            KeyEnd::At(at) => self.set_expiry(at),
            KeyEnd::Created(lock, at) => {
                self.set_lock(lock);
                if let Some(at) = at {
                    self.set_expiry(at);
                }
            }
        }
        if signal == Signal::Modified {
            self.shut();
            // SAFETY: context and name are live for 'k.
            unsafe { api!(RedisModule_SignalModifiedKey(self.context, self.name.raw())) };
        }
    }
}

impl Drop for Key<'_> {
    fn drop(&mut self) {
        self.shut();
    }
}

/// How often the module asks for a key that has to be open now, and how often without a pause of a millisecond.
const INSISTS: u32 = 1100;
const AT_ONCE: u32 = 100;

/// Asks until the server opens the key. Returns its handle, and whether the server has removed an expired key.
#[cold]
fn insist(mut open: impl FnMut() -> (*mut raw::RedisModuleKey, bool)) -> (*mut raw::RedisModuleKey, bool) {
    let mut has_removed = false;
    for attempt in 0..INSISTS {
        if attempt >= AT_ONCE {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        let (raw, was_removed) = open();
        has_removed |= was_removed;
        if !raw.is_null() {
            return (raw, has_removed);
        }
    }
    (null_mut(), has_removed)
}

/// Returns whether this server may refuse to open a key for writing, for now. One that saves without a fork does (Valkey 9.2),
/// if the module agrees to such saves, and the module does not do that yet.
pub fn may_refuse() -> bool {
    #[cfg(debug_assertions)]
    return super::meddler::may_refuse();
    #[cfg(not(debug_assertions))]
    false
}

/// Asks which access the server gives a client to this key now. Returns that, and whether asking removed the key: it
/// had expired, and no hook tells.
pub fn permission(context: &mut Context<'_>, name: &KeyName<'_>) -> (Permission, bool) {
    // SAFETY: both are borrowed for the call, which selects no database in this context.
    unsafe { data_type::unlinking(context.raw, name.raw(), || context.permission(name)) }
}
