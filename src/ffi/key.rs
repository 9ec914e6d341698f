//! An open key, and the lock in it.
//!
//! An open key borrows its context mutably. Everything that may run a command, expire a key or call the module back takes
//! the context mutably, too, or needs no context and is in a function that takes one: the compiler refuses it while a key
//! is open, and the pointer to the lock stays valid.

use std::ffi::{c_char, c_int};
use std::marker::PhantomData;
use std::ptr::null_mut;

use dlock_core::{Lock, UnixMs};
use redis_module::raw;

use super::context::{CanWrite, Context};
use super::data_type::{self, DISTRLOCK, Unlinking};
use super::strings::KeyName;

/// What a key is open for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// To be read. If the key had expired, the engine hears of it as of any other removal.
    Read,
    /// To be looked at without counting as a use of the key. The server may have removed it if it had expired.
    Peek,
    /// To be changed; the server has removed it if it had expired.
    Write,
}

/// The key holds another type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WrongType;

/// An open key that holds a lock or nothing. It is closed when dropped.
pub struct Key<'k> {
    raw: *mut raw::RedisModuleKey,
    context: *mut raw::RedisModuleCtx,
    name: KeyName<'k>,
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
    /// [`WrongType`] if it holds another type.
    pub fn open(context: &'k mut Context<'_>, name: KeyName<'k>, access: Access) -> Result<Key<'k>, WrongType> {
        let mode = match access {
            Access::Read => raw::REDISMODULE_READ,
            Access::Peek => raw::REDISMODULE_READ | raw::REDISMODULE_OPEN_KEY_NOTOUCH,
            Access::Write => raw::REDISMODULE_READ | raw::REDISMODULE_WRITE,
        };
        let context = context.raw;
        // SAFETY: context and name are live for 'k, and so for the handle. If the server removes an expired key, its
        // callback only notes that.
        let open = || unsafe { api!(RedisModule_OpenKey(context, name.raw(), mode.cast_signed())) };
        let (raw, was_removed) =
            if access == Access::Read { (open(), false) } else { data_type::unlinking(Unlinking::Opening, open) };
        let mut key = Key { raw, context, name, lock: null_mut(), was_removed, life: PhantomData };
        key.lock = key.value()?;
        Ok(key)
    }

    /// The lock in the key; `None` if there is no key.
    #[inline]
    pub fn lock(&self) -> Option<&Lock> {
        // SAFETY: a value of our type is a live `Lock` made by `into_value`. The server frees it when the key is removed:
        // by `delete`, which forgets it, or by a command or an expiry, which need the context that this key borrows.
        // Nobody else refers to it meanwhile.
        unsafe { self.lock.as_ref() }
    }

    /// The lock in the key, to be changed; `None` if there is no key.
    #[inline]
    pub fn lock_mut(&mut self) -> Option<&mut Lock> {
        // SAFETY: as in `lock`, and `&mut self` keeps a second reference through this handle from existing.
        unsafe { self.lock.as_mut() }
    }

    /// Its name.
    pub fn name(&self) -> &[u8] {
        self.name.bytes()
    }

    /// The database it is in.
    pub fn db(&self) -> c_int {
        // SAFETY: the context is live while the key is open, and stays in the key's database.
        unsafe { api!(RedisModule_GetSelectedDb(self.context)) }
    }

    /// Whether opening removed an expired key.
    pub fn was_removed(&self) -> bool {
        self.was_removed
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
    pub fn set_lock(&mut self, lock: Box<Lock>) {
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

    /// Removes the key, which must be open for writing.
    pub fn delete(&mut self) {
        self.lock = null_mut();
        if !self.raw.is_null() {
            // SAFETY: the handle is open for writing. The type's callback knows that the module itself removes the key.
            let delete = || unsafe { api!(RedisModule_DeleteKey(self.raw)) };
            data_type::unlinking(Unlinking::Module, delete);
        }
    }

    /// When the key expires; `None`: never, or there is no key.
    pub fn expiry(&self) -> Option<UnixMs> {
        if self.lock.is_null() {
            return None;
        }
        // SAFETY: the handle is open.
        let expiry = unsafe { api!(RedisModule_GetAbsExpire(self.raw)) };
        u64::try_from(expiry).ok().map(UnixMs::new)
    }

    /// Sets when the key expires. It must be open for writing.
    pub fn set_expiry(&mut self, at: UnixMs) {
        if !self.raw.is_null() {
            // SAFETY: the handle is open for writing; `UnixMs` fits the integer.
            unsafe { api!(RedisModule_SetAbsExpire(self.raw, at.get().cast_signed())) };
        }
    }

    /// Replicates `DLOCK.APPLY key effect`, to replicas and to the AOF. Touches no key.
    pub fn replicate_effect(&mut self, effect: &[u8]) {
        let (command, format) = (c"DLOCK.APPLY".as_ptr(), c"sb".as_ptr());
        // SAFETY: the format announces a module string, then a buffer with its length; both outlive the call.
        unsafe {
            let (effect, len) = (effect.as_ptr().cast::<c_char>(), effect.len());
            api!(RedisModule_Replicate(self.context, command, format, self.name.raw(), effect, len))
        };
    }

    /// Replicates the running command as it came. Touches no key.
    pub fn replicate_verbatim(&mut self) {
        // SAFETY: the context is live while the key is open.
        unsafe { api!(RedisModule_ReplicateVerbatim(self.context)) };
    }

    /// Tells `WATCH` and `CLIENT TRACKING` that the key changed, and closes it.
    pub fn close_modified(mut self) {
        self.close();
        // SAFETY: context and name are live for 'k.
        unsafe { api!(RedisModule_SignalModifiedKey(self.context, self.name.raw())) };
    }

    fn close(&mut self) {
        if !self.raw.is_null() {
            // SAFETY: opened by `open`, closed once, since the handle is forgotten.
            unsafe { api!(RedisModule_CloseKey(self.raw)) };
            self.raw = null_mut();
            self.lock = null_mut();
        }
    }
}

impl Drop for Key<'_> {
    fn drop(&mut self) {
        self.close();
    }
}

/// Asks whether the server accepts writes to this key from a client now. Returns that, and whether asking removed the key:
/// it had expired, and no hook tells.
pub fn ask_whether_writable(context: &mut Context<'_>, name: &KeyName<'_>) -> (CanWrite, bool) {
    data_type::unlinking(Unlinking::Opening, || context.can_write(name))
}
