//! An open key and the lock in it.

use std::marker::PhantomData;
use std::ptr::null_mut;

use dlock_core::{Lock, UnixMs};
use redis_module::raw;

use super::context::{Context, bytes_of};
use super::data_type::{DISTRLOCK, free, into_value};

/// The name of a key.
pub struct Name<'a> {
    raw: *mut raw::RedisModuleString,
    owned: bool,
    life: PhantomData<&'a ()>,
}

impl Name<'_> {
    /// # Safety
    /// `raw` must be a live module string for `'a`.
    pub(super) unsafe fn borrowed<'a>(raw: *mut raw::RedisModuleString) -> Name<'a> {
        Name { raw, owned: false, life: PhantomData }
    }

    /// A name of these bytes.
    pub fn new(bytes: &[u8]) -> Name<'static> {
        // SAFETY: the server copies the bytes; without a context the string is ours to free.
        let raw = unsafe { api!(RedisModule_CreateString(std::ptr::null_mut(), bytes.as_ptr().cast(), bytes.len())) };
        Name { raw, owned: true, life: PhantomData }
    }

    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: the string is live as long as `self`, and nobody changes the name of a key.
        unsafe { bytes_of(self.raw) }
    }

    pub(super) fn raw(&self) -> *mut raw::RedisModuleString {
        self.raw
    }
}

impl Drop for Name<'_> {
    fn drop(&mut self) {
        if self.owned {
            // SAFETY: created by `Name::new` without a context, freed once.
            unsafe { api!(RedisModule_FreeString(std::ptr::null_mut(), self.raw)) };
        }
    }
}

/// What a key is open for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// To be read.
    Read,
    /// To be looked at without counting as a use of the key.
    Peek,
    /// To be changed; the server has removed it if it had expired.
    Write,
}

/// The key is of another type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WrongType;

/// An open key that holds a lock or nothing. Closed when dropped.
pub struct Key<'a> {
    raw: *mut raw::RedisModuleKey,
    /// The value: null if there is none.
    lock: *mut Lock,
    life: PhantomData<&'a ()>,
}

impl<'a> Key<'a> {
    /// Opens a key of the context's database.
    ///
    /// # Errors
    /// [`WrongType`], if it holds something else than a lock.
    pub fn open(context: &'a Context, name: &'a Name, access: Access) -> Result<Key<'a>, WrongType> {
        let mode = match access {
            Access::Read => raw::REDISMODULE_READ,
            Access::Peek => raw::REDISMODULE_READ | raw::REDISMODULE_OPEN_KEY_NOTOUCH,
            Access::Write => raw::REDISMODULE_READ | raw::REDISMODULE_WRITE,
        };
        // SAFETY: context and name are live for 'a, and so for the handle.
        let raw = unsafe { api!(RedisModule_OpenKey(context.raw, name.raw(), mode.cast_signed())) };
        let mut key = Key { raw, lock: null_mut(), life: PhantomData };
        key.lock = key.value()?;
        Ok(key)
    }

    /// The lock in the key; `None` if there is no key.
    pub fn lock(&self) -> Option<&Lock> {
        // SAFETY: a value of our type is a live `Lock` made by `into_value`; the server does not free it while the
        // handle is open, except by `delete`, which forgets it. Nobody else refers to it meanwhile.
        unsafe { self.lock.as_ref() }
    }

    /// The lock in the key, to be changed; `None` if there is no key.
    pub fn lock_mut(&mut self) -> Option<&mut Lock> {
        // SAFETY: as in `lock`, and `&mut self` keeps a second reference through this handle from existing.
        unsafe { self.lock.as_mut() }
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
        let value = into_value(lock);
        // SAFETY: the server owns the value from here on and frees it by the type's `free`; on failure we do.
        unsafe {
            let kind = *DISTRLOCK.raw_type.borrow();
            if api!(RedisModule_ModuleTypeSetValue(self.raw, kind, value.cast())) == super::OK {
                self.lock = value;
            } else {
                free(value.cast());
            }
        }
    }

    /// Removes the key, which must be open for writing.
    pub fn delete(&mut self) {
        self.lock = null_mut();
        if !self.raw.is_null() {
            // SAFETY: the handle is open for writing.
            unsafe { api!(RedisModule_DeleteKey(self.raw)) };
        }
    }

    /// Closes it. From here on it is as good as a key that does not exist, and what is written to it is lost.
    pub fn close(&mut self) {
        if !self.raw.is_null() {
            // SAFETY: opened by `open`, closed once, since the handle is forgotten.
            unsafe { api!(RedisModule_CloseKey(self.raw)) };
            self.raw = null_mut();
            self.lock = null_mut();
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
}

impl Drop for Key<'_> {
    fn drop(&mut self) {
        self.close();
    }
}
