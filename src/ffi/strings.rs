//! Strings: those of C, those of the server, and names of keys.

use std::ffi::CString;
use std::marker::PhantomData;
use std::ptr::{NonNull, null_mut};

use redis_module::raw;

/// The name of a key, as a string of the server.
pub struct KeyName<'a> {
    raw: *mut raw::RedisModuleString,
    /// The bytes of the name, as long as the string lives.
    bytes: *const [u8],
    is_owned: bool,
    life: PhantomData<&'a ()>,
}

impl<'a> KeyName<'a> {
    /// Returns a name whose string the caller keeps and frees.
    ///
    /// # Safety
    /// `raw` must be a live module string for `'a`, and nobody may change it.
    pub(super) unsafe fn borrowed(raw: *mut raw::RedisModuleString) -> KeyName<'a> {
        // SAFETY: by the caller's promise.
        let bytes = unsafe { bytes_of(raw) };
        KeyName { raw, bytes, is_owned: false, life: PhantomData }
    }

    /// Returns a name of these bytes.
    #[inline(never)]
    pub fn new(bytes: &[u8]) -> KeyName<'static> {
        // SAFETY: the server copies the bytes; without a context the string is ours to free.
        let raw = unsafe { api!(RedisModule_CreateString(null_mut(), bytes.as_ptr().cast(), bytes.len())) };
        // SAFETY: the string is ours.
        unsafe { KeyName::owned(raw) }
    }

    /// Returns a name that frees its string.
    ///
    /// # Safety
    /// `raw` must be a live module string that nobody changes and nobody else frees.
    pub(super) unsafe fn owned(raw: *mut raw::RedisModuleString) -> KeyName<'static> {
        // SAFETY: by the caller's promise.
        let bytes = unsafe { bytes_of(raw) };
        KeyName { raw, bytes, is_owned: true, life: PhantomData }
    }

    /// Returns the bytes.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: the string is live as long as `self`, and nobody changes the name of a key.
        unsafe { &*self.bytes }
    }

    pub(super) fn raw(&self) -> *mut raw::RedisModuleString {
        self.raw
    }
}

impl Drop for KeyName<'_> {
    fn drop(&mut self) {
        if self.is_owned {
            // SAFETY: the string is ours, by the promise of `owned`, and freed once. The server frees none by itself:
            // no context of the module has automatic memory.
            unsafe { api!(RedisModule_FreeString(null_mut(), self.raw)) };
        }
    }
}

/// A string of the server, kept for longer than the call that it came with.
pub(super) struct Held(*mut raw::RedisModuleString);

impl Held {
    /// Keeps a string.
    ///
    /// # Safety
    /// `raw` must be a live module string that nobody changes.
    pub(super) unsafe fn new(raw: *mut raw::RedisModuleString) -> Held {
        // SAFETY: by the caller's promise; without a context the string is counted once more, or copied, and ours to free.
        Held(unsafe { api!(RedisModule_HoldString(null_mut(), raw)) })
    }

    pub(super) fn raw(&self) -> *mut raw::RedisModuleString {
        self.0
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        // SAFETY: the string is ours since `new`, and freed once; no context of the module has automatic memory.
        unsafe { api!(RedisModule_FreeString(null_mut(), self.0)) };
    }
}

/// Returns a message for C in one line: a space replaces each line end, and everything from a NUL on is cut off.
pub(super) fn c_string(message: &str) -> CString {
    let line: Vec<u8> = message.bytes().map(|byte| if byte == b'\r' || byte == b'\n' { b' ' } else { byte }).collect();
    let end = line.iter().position(|byte| *byte == 0).unwrap_or(line.len());
    CString::new(line.get(..end).unwrap_or_default()).unwrap_or_default()
}

/// Returns the bytes of a string of the server.
///
/// # Safety
/// `string` must be a live module string, and outlive the slice unchanged.
pub(super) unsafe fn bytes_of<'a>(string: *const raw::RedisModuleString) -> &'a [u8] {
    let mut len = 0;
    // SAFETY: by the caller's promise; the server answers with a pointer to `len` bytes.
    unsafe {
        let start = api!(RedisModule_StringPtrLen(string, &raw mut len));
        NonNull::new(start.cast_mut()).map_or(&[], |start| std::slice::from_raw_parts(start.as_ptr().cast(), len))
    }
}
