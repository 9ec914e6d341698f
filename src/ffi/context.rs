//! The context of a call from the server: flags, time, replies, replication, events, log.

use std::cell::{Cell, OnceCell};
use std::ffi::{CStr, c_int, c_longlong};
use std::fs::File;
use std::marker::PhantomData;
use std::os::unix::fs::FileExt;
use std::ptr::null;
use std::time::Duration;

use dlock_core::engine::Permission;
use dlock_core::reply::Writer;
use dlock_core::{Now, Uptime};
use redis_module::raw;

use super::strings::{KeyName, c_string};
use super::under_lock::UnderLock;

/// The context of one call from the server. It lives as long as the call.
pub struct Context<'call> {
    pub(super) raw: *mut raw::RedisModuleCtx,
    /// How many replies the call has still to give: 1 at first, and more within an array or a map.
    owed: Cell<usize>,
    /// Whether the command is known to come from a connection directly. False while that is not known.
    is_sent: Cell<bool>,
    call: PhantomData<&'call ()>,
}

/// The state of the server and of the client at one moment.
#[derive(Clone, Copy)]
pub struct Flags(c_int);

impl Flags {
    /// Returns whether this server is a primary.
    pub fn is_primary(self) -> bool {
        self.has(raw::REDISMODULE_CTX_FLAGS_MASTER)
    }

    /// Returns whether the command comes from a replication link, or from a file that is being loaded.
    pub fn is_effect(self) -> bool {
        self.has(raw::REDISMODULE_CTX_FLAGS_REPLICATED) || self.is_loading()
    }

    /// Returns whether a client may wait here: not inside `MULTI`, a script, or wherever blocking is denied.
    pub fn can_block(self) -> bool {
        let denied = raw::REDISMODULE_CTX_FLAGS_DENY_BLOCKING;
        !self.has(denied | raw::REDISMODULE_CTX_FLAGS_MULTI | raw::REDISMODULE_CTX_FLAGS_LUA)
    }

    /// Returns whether another module calls the command, by a call that may not block.
    pub fn is_called_by_module(self) -> bool {
        let called = self.has(raw::REDISMODULE_CTX_FLAGS_DENY_BLOCKING);
        called && !self.has(raw::REDISMODULE_CTX_FLAGS_MULTI | raw::REDISMODULE_CTX_FLAGS_LUA)
    }

    /// Returns whether the server is part of a cluster.
    pub fn is_cluster(self) -> bool {
        self.has(raw::REDISMODULE_CTX_FLAGS_CLUSTER)
    }

    /// Returns whether the server appends changes to a file.
    pub fn has_aof(self) -> bool {
        self.has(raw::REDISMODULE_CTX_FLAGS_AOF)
    }

    /// Returns whether the server is loading its data.
    pub fn is_loading(self) -> bool {
        self.has(raw::REDISMODULE_CTX_FLAGS_LOADING | raw::REDISMODULE_CTX_FLAGS_ASYNC_LOADING)
    }

    fn has(self, flags: u32) -> bool {
        self.0.cast_unsigned() & flags != 0
    }
}

/// Returns the server's cached time where the server offers it, else the machine's time. The cached time stands still
/// during a command, a transaction or a script, and in what the server calls meanwhile. Before the server calls the
/// module outside a command, it sets its clock.
pub fn now() -> Now {
    // SAFETY: the function takes nothing and reads the server's cached clock.
    match unsafe { raw::RedisModule_CachedMicroseconds.map(|cached| cached()) } {
        Some(micros) => Now::from_us(micros.max(0).cast_unsigned()),
        None => machine_time(),
    }
}

/// Returns the machine's time: for timers, for a removed key (the server removes expired keys without setting its
/// cached time), and for a forked child, whose cached time stands still.
pub fn machine_time() -> Now {
    let time = clock(libc::CLOCK_REALTIME);
    Now::from_us(time.tv_sec.max(0).cast_unsigned() * 1_000_000 + time.tv_nsec.max(0).cast_unsigned() / 1_000)
}

/// Returns the machine's monotonic clock.
pub fn uptime() -> Uptime {
    Uptime::from_us(clock_ns(libc::CLOCK_MONOTONIC) / 1_000)
}

/// Reads a clock of the machine.
#[inline]
fn clock(clock: libc::clockid_t) -> libc::timespec {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the call fills in the struct it is given. It cannot fail: every machine has the clocks of this file.
    unsafe { libc::clock_gettime(clock, &raw mut time) };
    time
}

/// Reads a clock of the machine, in nanoseconds.
fn clock_ns(id: libc::clockid_t) -> u64 {
    let time = clock(id);
    let (seconds, nanoseconds) = (time.tv_sec.max(0).cast_unsigned(), time.tv_nsec.max(0).cast_unsigned());
    seconds.saturating_mul(1_000_000_000).saturating_add(nanoseconds)
}

/// The scheduler's figures of the event loop's thread, such as how long it has waited for a processor. `None`: the
/// system has no such figures.
static SCHEDULED: UnderLock<OnceCell<Option<File>>> = UnderLock::new(OnceCell::new());

/// Returns the machine's monotonic clock without the time in which the event loop's thread waited for a processor,
/// because the machine ran other programs. Time in which the thread waits for the disk counts. If the system does not
/// tell how long the thread waited, all time counts.
pub fn granted_time() -> Duration {
    Duration::from_nanos(clock_ns(libc::CLOCK_MONOTONIC).saturating_sub(waited_for_a_processor().unwrap_or(0)))
}

/// Returns for how many ns the event loop's thread has waited for a processor, if the system tells.
fn waited_for_a_processor() -> Option<u64> {
    let file = SCHEDULED.get_or_init(|| File::open("/proc/thread-self/schedstat").ok()).as_ref()?;
    let mut bytes = [0; 64];
    let len = file.read_at(&mut bytes, 0).ok()?;
    // The file has the time on a processor, the time spent waiting for one, and how often the thread got one.
    std::str::from_utf8(bytes.get(..len)?).ok()?.split_ascii_whitespace().nth(1)?.parse().ok()
}

/// Measures processor time of this thread: the time that other programs take on a busy machine does not count.
pub struct Stopwatch(u64);

impl Stopwatch {
    /// Returns a stopwatch that begins now.
    pub fn start() -> Stopwatch {
        Stopwatch(clock_ns(libc::CLOCK_THREAD_CPUTIME_ID))
    }

    /// Returns the processor time since the start, in nanoseconds.
    pub fn ns(&self) -> u64 {
        clock_ns(libc::CLOCK_THREAD_CPUTIME_ID).saturating_sub(self.0)
    }
}

/// Returns whether the server holds its data still (`CLIENT PAUSE`, failover, slot hand-over). Then only the command
/// of a client may write.
pub fn is_held_still() -> bool {
    // SAFETY: the function takes nothing.
    unsafe { api!(RedisModule_AvoidReplicaTraffic()) != 0 }
}

impl Context<'_> {
    /// Replicates `PING` to replicas and to the AOF, where it does nothing. Without such a command, does nothing.
    pub fn replicate_nothing(&mut self) {
        // SAFETY: the context is live for the call; the empty format announces no argument.
        unsafe { api!(RedisModule_Replicate(self.raw, c"PING".as_ptr(), c"".as_ptr())) };
    }

    /// Returns the context of a call that has to give one reply.
    ///
    /// # Safety
    /// `raw` must be the context the server gave to the running call.
    pub(super) unsafe fn new<'call>(raw: *mut raw::RedisModuleCtx) -> Context<'call> {
        Context { raw, owed: Cell::new(1), is_sent: Cell::new(false), call: PhantomData }
    }

    /// Returns the flags now.
    pub fn flags(&self) -> Flags {
        // SAFETY: `self.raw` is live for the call.
        Flags(unsafe { api!(RedisModule_GetContextFlags(self.raw)) })
    }

    /// Returns the selected database.
    pub fn db(&self) -> c_int {
        // SAFETY: `self.raw` is live for the call.
        unsafe { api!(RedisModule_GetSelectedDb(self.raw)) }
    }

    /// Selects a database for this context; returns whether there is such a database.
    pub fn select_db(&mut self, db: c_int) -> bool {
        // SAFETY: `self.raw` is live for the call.
        unsafe { api!(RedisModule_SelectDb(self.raw, db)) == super::OK }
    }

    /// Tells `WATCH` and `CLIENT TRACKING` that the key changed.
    pub fn signal_modified(&mut self, key: &KeyName) {
        // SAFETY: context and name are live for the call.
        unsafe { api!(RedisModule_SignalModifiedKey(self.raw, key.raw())) };
    }

    /// Sends a keyspace event of class `d`.
    pub fn notify(&mut self, event: &CStr, key: &KeyName) {
        // SAFETY: context, event and name are live for the call.
        unsafe {
            api!(RedisModule_NotifyKeyspaceEvent(self.raw, raw::REDISMODULE_NOTIFY_MODULE, event.as_ptr(), key.raw()))
        };
    }

    /// Returns what the server lets a client do to this key now: only release the lock if the server refuses writes,
    /// because too few replicas are there or the disk fails; nothing if the key is on another node. Runs a command,
    /// which may remove an expired key, so that no key may be open meanwhile: see `key::permission`.
    ///
    /// The command runs under the rules for scripts, and changes nothing: it sets the expiry to the end of time, but
    /// only if the key has a later one (`XX LT`). If an operator has taken `PEXPIREAT` away (`rename-command`),
    /// `EXPIREAT` is used.
    pub fn permission(&mut self, key: &KeyName) -> Permission {
        let is_done = match self.probe(c"PEXPIREAT", c"9223372036854775807", key) {
            Err(libc::ENOENT) => self.probe(c"EXPIREAT", c"9223372036854775", key),
            asked => asked,
        };
        match is_done {
            Ok(()) => Permission::Full,
            Err(libc::EPERM) if self.flags().is_cluster() => Permission::Elsewhere,
            Err(_) => Permission::ReleaseOnly,
        }
    }

    /// Runs the command that changes nothing, with the expiry `at`.
    ///
    /// # Errors
    /// The error number that the server leaves in `errno` when it refuses.
    fn probe(&mut self, command: &CStr, at: &CStr, key: &KeyName) -> Result<(), c_int> {
        // SAFETY: the format announces script rules, errors as replies (without which Valkey 9.1 crashes on a
        // refusal), a module string and three C strings; all outlive the call.
        let (reply, error) = unsafe {
            *libc::__errno_location() = 0;
            let reply = api!(RedisModule_Call(
                self.raw,
                command.as_ptr(),
                c"SEsccc".as_ptr(),
                key.raw(),
                at.as_ptr(),
                c"XX".as_ptr(),
                c"LT".as_ptr(),
            ));
            (reply, *libc::__errno_location())
        };
        // SAFETY: the reply is ours, and freed once; null is no reply.
        let is_done = unsafe {
            let is_done = !reply.is_null()
                && api!(RedisModule_CallReplyType(reply)) != super::constant(raw::REDISMODULE_REPLY_ERROR);
            if !reply.is_null() {
                api!(RedisModule_FreeCallReply(reply));
            }
            is_done
        };
        if is_done { Ok(()) } else { Err(error) }
    }

    /// Returns whether the running command has a user. A command that another module calls without a user has none,
    /// and may do everything. The functions of the server that name the user crash then, so this function must be
    /// asked first.
    ///
    /// A command that a connection sends directly has a user. For any other, the server is asked to run an unknown
    /// command with the rights of the user: it looks for the user first, and fails with `ENOTSUP` if there is none.
    pub fn has_user(&mut self) -> bool {
        if self.is_sent.get() {
            return true;
        }
        let flags = self.flags();
        if flags.can_block() && !flags.is_effect() && super::connected::is_connected(self.client_id()) {
            return true;
        }
        // SAFETY: the format announces the rights of the user, and errors as replies; no argument follows. The reply is
        // ours, and freed once; null is no reply.
        unsafe {
            *libc::__errno_location() = 0;
            let reply = api!(RedisModule_Call(self.raw, c"DLOCK.NOTHING".as_ptr(), c"CE".as_ptr()));
            let error = *libc::__errno_location();
            if !reply.is_null() {
                api!(RedisModule_FreeCallReply(reply));
            }
            error != libc::ENOTSUP
        }
    }

    /// Returns the id of the client that sent the command, for the log; 0 in a transaction, a script or a module's
    /// call, where the sender is not known. A module's call that may block has a client without a connection.
    pub fn sender(&self, flags: Flags) -> u64 {
        if flags.can_block() { self.client_id() } else { 0 }
    }

    /// Returns the id of the client that may wait; 0 if the client is no connection.
    pub fn waiting_client(&self, flags: Flags) -> u64 {
        let id = self.sender(flags);
        if !super::connected::is_connected(id) {
            return 0;
        }
        self.is_sent.set(!flags.is_effect());
        id
    }

    /// Returns the id of the client whose command is running, if that is a connection: not a script's or a module's.
    pub fn connected_client(&self, flags: Flags) -> Option<u64> {
        if flags.has(raw::REDISMODULE_CTX_FLAGS_LUA) || flags.is_called_by_module() {
            // Some servers list the client of a script among the connected.
            return None;
        }
        let id = self.client_id();
        Some(id).filter(|id| super::connected::is_connected(*id))
    }

    fn client_id(&self) -> u64 {
        // SAFETY: `self.raw` is live for the call.
        unsafe { api!(RedisModule_GetClientId(self.raw)) }
    }

    /// Returns a field of the server's `INFO`; `None` if there is no field of that name.
    pub fn server_info(&self, section: &str, field: &str) -> Option<String> {
        let (section, field) = (c_string(section), c_string(field));
        // SAFETY: `self.raw` is live for the call; the value is the info's own and is copied before that is freed.
        // `ServerInfo::field` of the crate is not used, because it leaks a string.
        unsafe {
            let info = api!(RedisModule_GetServerInfo(self.raw, section.as_ptr()));
            let value = api!(RedisModule_ServerInfoGetFieldC(info, field.as_ptr()));
            let text = (!value.is_null()).then(|| CStr::from_ptr(value).to_string_lossy().into_owned());
            api!(RedisModule_FreeServerInfo(self.raw, info));
            text
        }
    }

    /// Returns what `CLIENT LIST` prints; `None` if there is no such command.
    pub fn client_list(&mut self) -> Option<Vec<u8>> {
        // SAFETY: the format announces errors as replies and a C string, which outlives the call. The reply is ours,
        // and freed once; its bytes are copied before. Functions that take a reply take null for none.
        unsafe {
            let reply = api!(RedisModule_Call(self.raw, c"CLIENT".as_ptr(), c"Ec".as_ptr(), c"LIST".as_ptr()));
            if reply.is_null() {
                return None;
            }
            let mut len = 0;
            let bytes = api!(RedisModule_CallReplyStringPtr(reply, &raw mut len));
            let text = (!bytes.is_null()).then(|| std::slice::from_raw_parts(bytes.cast(), len).to_vec());
            api!(RedisModule_FreeCallReply(reply));
            text
        }
    }

    /// Returns a setting of the server; `None` if there is no setting of that name, or no command `CONFIG`.
    pub fn setting(&mut self, name: &CStr) -> Option<Vec<u8>> {
        // SAFETY: the format announces errors as replies and two C strings, which outlive the call. The reply is
        // ours, and freed once; the value is a part of it, and copied before. Functions that take a reply take null
        // for none.
        unsafe {
            let reply =
                api!(RedisModule_Call(self.raw, c"CONFIG".as_ptr(), c"Ecc".as_ptr(), c"GET".as_ptr(), name.as_ptr()));
            if reply.is_null() {
                return None;
            }
            let mut len = 0;
            let value = api!(RedisModule_CallReplyArrayElement(reply, 1));
            let bytes =
                if value.is_null() { null() } else { api!(RedisModule_CallReplyStringPtr(value, &raw mut len)) };
            let text = (!bytes.is_null()).then(|| std::slice::from_raw_parts(bytes.cast(), len).to_vec());
            api!(RedisModule_FreeCallReply(reply));
            text
        }
    }

    /// Replies with an integer.
    pub fn reply_integer(&self, integer: u64) {
        let integer = c_longlong::try_from(integer).unwrap_or(c_longlong::MAX);
        self.replies(0);
        // SAFETY: `self.raw` is live for the call.
        unsafe { api!(RedisModule_ReplyWithLongLong(self.raw, integer)) };
    }

    /// Replies with bytes.
    pub fn reply_bytes(&self, bytes: &[u8]) {
        self.replies(0);
        // SAFETY: the server copies the bytes.
        unsafe { api!(RedisModule_ReplyWithStringBuffer(self.raw, bytes.as_ptr().cast(), bytes.len())) };
    }

    /// Replies with a status, such as `OK`.
    pub fn reply_status(&self, status: &str) {
        let status = c_string(status);
        self.replies(0);
        // SAFETY: the server copies the status.
        unsafe { api!(RedisModule_ReplyWithSimpleString(self.raw, status.as_ptr())) };
    }

    /// Replies with nil: the null bulk of RESP2, null in RESP3.
    pub fn reply_nil(&self) {
        self.replies(0);
        // SAFETY: `self.raw` is live for the call.
        unsafe { api!(RedisModule_ReplyWithNull(self.raw)) };
    }

    /// Begins an array of `len` elements.
    pub fn reply_array(&self, len: usize) {
        self.replies(len);
        // SAFETY: `self.raw` is live for the call.
        unsafe { api!(RedisModule_ReplyWithArray(self.raw, signed(len))) };
    }

    /// Begins a map of `pairs` pairs: a flat array in RESP2.
    pub fn reply_map(&self, pairs: usize) {
        self.replies(pairs.saturating_mul(2));
        // SAFETY: `self.raw` is live for the call.
        unsafe { api!(RedisModule_ReplyWithMap(self.raw, signed(pairs))) };
    }

    /// Replies with an error: its code, a space, and the rest.
    #[inline(never)]
    pub fn reply_error(&self, message: &str) {
        let message = c_string(message);
        self.replies(0);
        // SAFETY: the server copies the message.
        unsafe { api!(RedisModule_ReplyWithError(self.raw, message.as_ptr())) };
    }

    /// Counts a reply that was given, and the `parts` that follow it: the elements of an array or a map.
    #[inline]
    fn replies(&self, parts: usize) {
        self.owed.set(self.owed.get().saturating_sub(1).saturating_add(parts));
    }

    /// Records that the call owes no reply any more: the reply comes from elsewhere.
    pub(super) fn owes_nothing(&self) {
        self.owed.set(0);
    }

    /// Replies with this error in place of all that the call still owes: the reply, parts of one, or nothing.
    pub(super) fn reply_rest(&self, message: &str) {
        while self.owed.get() > 0 {
            self.reply_error(message);
        }
    }
}

impl Writer for Context<'_> {
    #[inline]
    fn integer(&mut self, integer: u64) {
        self.reply_integer(integer);
    }

    fn bytes(&mut self, bytes: &[u8]) {
        self.reply_bytes(bytes);
    }

    fn nil(&mut self) {
        self.reply_nil();
    }

    fn array(&mut self, len: usize) {
        self.reply_array(len);
    }

    fn map(&mut self, pairs: usize) {
        self.reply_map(pairs);
    }
}

/// Calls `body` with the module's own type for the context of a load or of an event.
pub fn with_own<T>(context: &redis_module::Context, body: impl FnOnce(&mut Context) -> T) -> T {
    // SAFETY: the context that the crate hands out lives for the call.
    body(&mut unsafe { Context::new(context.get_raw()) })
}

/// Writes a warning to the server's log.
pub fn log_warning(message: &str) {
    log(c"warning", message);
}

/// Writes a notice to the server's log.
pub fn log_notice(message: &str) {
    log(c"notice", message);
}

fn log(level: &CStr, message: &str) {
    let message = c_string(message);
    // SAFETY: without a context the server logs under the name "module"; the message is an argument, never the format.
    unsafe { api!(RedisModule_Log(std::ptr::null_mut(), level.as_ptr(), c"%s".as_ptr(), message.as_ptr())) };
}

fn signed(len: usize) -> std::ffi::c_long {
    std::ffi::c_long::try_from(len).unwrap_or(std::ffi::c_long::MAX)
}
