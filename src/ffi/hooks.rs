//! Server events, timers, module options, and what the server calls of the module.

use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, Ordering};

use dlock_core::engine::{Input, Permission};
use dlock_core::{ClientId, Lock, Token};
use redis_module::raw;

use super::connected::note_connection;
use super::context::{Context, Flags};
use super::guard::{InDoubt, TIMER_ENTRY, guarded, when_in_doubt};
use super::strings::KeyName;
use super::under_lock::{UnderLock, is_main_thread};

/// The module's functions that the server calls. Only `timer` writes keys.
#[derive(Clone, Copy)]
pub struct Hooks {
    /// A lock's key is removed or replaced: database, name, lock, and whether the cause is no call of the module.
    pub removed: fn(c_int, &[u8], &Lock, bool),
    /// A lock was decoded from a file or a dump.
    pub loaded: fn(&Lock, Origin<'_>) -> Result<(), String>,
    /// A key was restored.
    pub restored: fn(c_int, &[u8]),
    /// The highest token, if a file has to keep it.
    pub token_to_save: fn() -> Option<u64>,
    /// A file has kept this token.
    pub token_loaded: fn(Token),
    /// An event that belongs to no key.
    pub input: fn(Input<'static>),
    /// A database is about to be emptied; `None`: all are.
    pub flushing: fn(Option<c_int>),
    /// Slots of the cluster, from the first to the last of each range, have left with their keys, or have arrived.
    pub slots_moved: fn(Vec<(u16, u16)>),
    /// A setting was set.
    pub setting_changed: fn(),
    /// The server begins to load its append-only file.
    pub aof_load_begins: fn(&mut Context<'_>),
    /// The server has loaded its data.
    pub load_ends: fn(),
    /// A turn of the event loop ends: nothing that it changed is in a file yet, and none of its replies is sent. Only after
    /// [`watch_turns_for_aof`]. No command is running, so this one may replicate.
    pub aof_turn_ends: fn(&mut Context<'_>),
    /// The module's one timer has run.
    pub timer: fn(&mut Context<'_>),
}

/// The source of a lock that is decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin<'a> {
    /// From a primary, or from a file of this server.
    Trusted,
    /// From a client, by `RESTORE` or by a migration; under this key, if the value belongs to a key.
    Restored(Option<&'a [u8]>),
}

static HOOKS: UnderLock<Cell<Hooks>> = UnderLock::new(Cell::new(Hooks {
    removed: |_, _, _, _| (),
    loaded: |_, _| Ok(()),
    restored: |_, _| (),
    token_to_save: || None,
    token_loaded: |_| (),
    input: |_| (),
    flushing: |_| (),
    slots_moved: |_| (),
    setting_changed: || (),
    aof_load_begins: |_| (),
    load_ends: || (),
    aof_turn_ends: |_| (),
    timer: |_| (),
}));

/// Sets the functions that the server calls. Called once, during the load, before anything is registered.
pub fn set_hooks(hooks: Hooks) {
    HOOKS.set(hooks);
    when_in_doubt(InDoubt { look_again, wake: wake_main_thread });
}

pub(super) fn hooks() -> Hooks {
    HOOKS.get()
}

/// Tells the server which tasks the module does itself.
pub fn set_options(context: &Context<'_>) {
    // The header that the bindings are made from has these as expressions, which do not come through.
    const NO_IMPLICIT_SIGNAL_MODIFIED: u32 = 1 << 1;
    const HANDLE_ATOMIC_SLOT_MIGRATION: u32 = 1 << 5;
    // The slot migration of Valkey asks whether the module can take part.
    let migration = if is_valkey(context) { HANDLE_ATOMIC_SLOT_MIGRATION } else { 0 };
    let options = raw::REDISMODULE_OPTIONS_HANDLE_IO_ERRORS | NO_IMPLICIT_SIGNAL_MODIFIED | migration;
    // SAFETY: called during the load.
    unsafe { api!(RedisModule_SetModuleOptions(context.raw, options.cast_signed())) };
}

fn is_valkey(context: &Context<'_>) -> bool {
    context.server_info("server", "valkey_version").is_some()
}

/// Subscribes to the events that free locks or end sessions and name no key. Commands that cause no such event cost no
/// more by that.
pub fn subscribe_to_server_events(context: &Context<'_>) -> Result<(), String> {
    for id in [
        raw::REDISMODULE_EVENT_FLUSHDB,
        raw::REDISMODULE_EVENT_SWAPDB,
        raw::REDISMODULE_EVENT_LOADING,
        raw::REDISMODULE_EVENT_CLIENT_CHANGE,
        raw::REDISMODULE_EVENT_REPLICATION_ROLE_CHANGED,
    ] {
        // SAFETY: called during the load with a function of this module, which is never unloaded.
        let subscribed = unsafe {
            let event = raw::RedisModuleEvent { id, dataver: 1 };
            api!(RedisModule_SubscribeToServerEvent(context.raw, event, Some(server_event)))
        };
        if subscribed != super::OK {
            return Err("dlock: cannot subscribe to server events".to_owned());
        }
    }
    // Where slots leave without an event for each key (Redis 8.4 and later), the server has events that name the slots.
    // Valkey tells of each key, and has other events under these numbers.
    for id in SLOT_EVENTS.into_iter().filter(|_| !is_valkey(context)) {
        // SAFETY: called during the load with a function of this module, which is never unloaded. A server without the
        // event returns an error.
        unsafe {
            let event = raw::RedisModuleEvent { id, dataver: 1 };
            api!(RedisModule_SubscribeToServerEvent(context.raw, event, Some(server_event)));
        }
    }
    Ok(())
}

const SLOT_EVENTS: [u64; 2] =
    [raw::REDISMODULE_EVENT_CLUSTER_SLOT_MIGRATION, raw::REDISMODULE_EVENT_CLUSTER_SLOT_MIGRATION_TRIM];

/// The watchers of the turns of the event loop.
#[derive(Clone, Copy)]
struct Watchers {
    /// The hook `aof_turn_ends`.
    aof: bool,
    /// Called with true at the end of a turn, with false at its beginning.
    waits: Option<fn(bool)>,
}

/// The server keeps one subscriber of a module for each event: both watchers share it.
static WATCHERS: UnderLock<Cell<Watchers>> = UnderLock::new(Cell::new(Watchers { aof: false, waits: None }));

/// Makes the server call the hook `aof_turn_ends` from now on. Called in an event or in a timer.
pub fn watch_turns_for_aof() {
    watch(Watchers { aof: true, ..WATCHERS.get() });
}

/// Ends [`watch_turns_for_aof`]. Called in a timer only: the server goes through its list of subscribers while it sends an event.
pub fn ignore_turns_for_aof() {
    watch(Watchers { aof: false, ..WATCHERS.get() });
}

/// Calls `waits` at each end (true) and each beginning (false) of a turn from now on. Returns whether the server will.
pub(super) fn watch_turns(waits: fn(bool)) -> bool {
    watch(Watchers { waits: Some(waits), ..WATCHERS.get() })
}

fn watch(watchers: Watchers) -> bool {
    let callback: raw::RedisModuleEventCallback =
        if watchers.aof || watchers.waits.is_some() { Some(server_event) } else { None };
    let event = raw::RedisModuleEvent { id: raw::REDISMODULE_EVENT_EVENTLOOP, dataver: 1 };
    // SAFETY: the context is kept since the load; the callback is a function of this module, which is never unloaded.
    let is_told = unsafe { api!(RedisModule_SubscribeToServerEvent(DETACHED.get(), event, callback)) } == super::OK;
    if is_told {
        WATCHERS.set(watchers);
    }
    is_told
}

/// Passes on that a turn ends or begins. A panic in one watcher does not affect the other.
fn pass_turn_on(context: &mut Context<'_>, is_end: bool) {
    let Watchers { aof, waits } = WATCHERS.get();
    if aof && is_end {
        guarded("end of a turn", (), || (hooks().aof_turn_ends)(context));
    }
    if let Some(waits) = waits {
        waits(is_end);
    }
}

extern "C" fn server_event(
    context: *mut raw::RedisModuleCtx,
    event: raw::RedisModuleEvent,
    sub_event: u64,
    data: *mut c_void,
) {
    guarded("server event", (), || {
        // SAFETY: the context is live for the call, and the server passes with each event the structure that belongs to it.
        unsafe { pass_on(&mut Context::new(context), event.id, sub_event, data) };
    });
}

/// # Safety
/// `data` must point to the structure of that event.
unsafe fn pass_on(context: &mut Context<'_>, id: u64, sub_event: u64, data: *mut c_void) {
    // SAFETY: by the caller's promise.
    let input = unsafe {
        match (id, sub_event) {
            (raw::REDISMODULE_EVENT_FLUSHDB, raw::REDISMODULE_SUBEVENT_FLUSHDB_START) => {
                return (hooks().flushing)(flushed_db(data));
            }
            (raw::REDISMODULE_EVENT_FLUSHDB, raw::REDISMODULE_SUBEVENT_FLUSHDB_END) => Input::Flushed(flushed_db(data)),
            (raw::REDISMODULE_EVENT_SWAPDB, _) => {
                let swap = &*data.cast::<raw::RedisModuleSwapDbInfo>();
                Input::Swapped(swap.dbnum_first, swap.dbnum_second)
            }
            (raw::REDISMODULE_EVENT_CLUSTER_SLOT_MIGRATION, sub_event) => {
                if HAVE_MOVED.contains(&sub_event) {
                    let info = &*data.cast::<raw::RedisModuleClusterSlotMigrationInfo>();
                    (hooks().slots_moved)(slot_ranges(info.slots));
                }
                return;
            }
            (raw::REDISMODULE_EVENT_CLUSTER_SLOT_MIGRATION_TRIM, _) => {
                let info = &*data.cast::<raw::RedisModuleClusterSlotMigrationTrimInfo>();
                return (hooks().slots_moved)(slot_ranges(info.slots));
            }
            (raw::REDISMODULE_EVENT_EVENTLOOP, _) => {
                return pass_turn_on(context, sub_event == raw::REDISMODULE_SUBEVENT_EVENTLOOP_BEFORE_SLEEP);
            }
            (raw::REDISMODULE_EVENT_LOADING, raw::REDISMODULE_SUBEVENT_LOADING_AOF_START) => {
                return (hooks().aof_load_begins)(context);
            }
            (raw::REDISMODULE_EVENT_LOADING, raw::REDISMODULE_SUBEVENT_LOADING_ENDED) => {
                (hooks().load_ends)();
                Input::Loaded
            }
            (raw::REDISMODULE_EVENT_CLIENT_CHANGE, change) => {
                let id = (*data.cast::<raw::RedisModuleClientInfo>()).id;
                if change != raw::REDISMODULE_SUBEVENT_CLIENT_CHANGE_DISCONNECTED {
                    return note_connection(id, true);
                }
                // The log names the client, which is connected until the event is over.
                (hooks().input)(Input::ClientGone(ClientId(id)));
                return note_connection(id, false);
            }
            (raw::REDISMODULE_EVENT_REPLICATION_ROLE_CHANGED, _) => Input::RoleChanged,
            _ => return,
        }
    };
    (hooks().input)(input);
}

/// The events after which all that was known of the keys of some slots is void: the slots have arrived with their keys,
/// or have left. An import that begins may find keys here, and an import that has failed may leave keys behind.
const HAVE_MOVED: [u64; 4] = [
    raw::REDISMODULE_SUBEVENT_CLUSTER_SLOT_MIGRATION_IMPORT_STARTED,
    raw::REDISMODULE_SUBEVENT_CLUSTER_SLOT_MIGRATION_IMPORT_FAILED,
    raw::REDISMODULE_SUBEVENT_CLUSTER_SLOT_MIGRATION_IMPORT_COMPLETED,
    raw::REDISMODULE_SUBEVENT_CLUSTER_SLOT_MIGRATION_MIGRATE_COMPLETED,
];

/// # Safety
/// `slots` must be null, or point to a list of ranges with its length.
unsafe fn slot_ranges(slots: *const raw::RedisModuleSlotRangeArray) -> Vec<(u16, u16)> {
    // SAFETY: by the caller's promise, as many ranges follow as the list says.
    unsafe {
        let Some(list) = slots.as_ref() else { return Vec::new() };
        let count = usize::try_from(list.num_ranges).unwrap_or(0);
        let ranges =
            std::slice::from_raw_parts((&raw const (*slots).ranges).cast::<raw::RedisModuleSlotRange>(), count);
        ranges.iter().map(|range| (range.start, range.end)).collect()
    }
}

/// # Safety
/// `data` must point to the structure of a flush.
unsafe fn flushed_db(data: *mut c_void) -> Option<c_int> {
    // SAFETY: by the caller's promise.
    let db = unsafe { (*data.cast::<raw::RedisModuleFlushInfo>()).dbnum };
    Some(db).filter(|db| *db >= 0)
}

/// The context for timers that are set where the server gives none.
static DETACHED: UnderLock<Cell<*mut raw::RedisModuleCtx>> = UnderLock::new(Cell::new(null_mut()));

/// Creates the context that timers are set with. Called once, during the load.
pub fn keep_context(context: &Context<'_>) {
    // SAFETY: called during the load; the context is kept for good.
    DETACHED.set(unsafe { api!(RedisModule_GetDetachedThreadSafeContext(context.raw)) });
}

/// Returns the kept context.
pub(super) fn detached() -> *mut raw::RedisModuleCtx {
    DETACHED.get()
}

/// Returns whether this key is in a slot that this node of a cluster serves, and that is not moving: whoever restores it
/// moves nothing. Runs a command, which may remove the key if it has expired.
pub fn is_settled(key: &[u8]) -> bool {
    // SAFETY: the context is kept since the load.
    let mut context = unsafe { Context::new(DETACHED.get()) };
    context.flags().is_cluster() && context.permission(&KeyName::new(key)) != Permission::Elsewhere
}

/// Returns the state of the server, where no context is at hand.
pub fn server_flags() -> Flags {
    // SAFETY: the context is kept since the load.
    unsafe { Context::new(DETACHED.get()) }.flags()
}

/// The module's one timer: the time it is set for, in unix ms, and the server's handle.
static TIMER: UnderLock<Cell<Option<(u64, raw::RedisModuleTimerID)>>> = UnderLock::new(Cell::new(None));

/// Returns whether the timer is set for this time (unix ms) or earlier.
#[inline]
pub fn is_timer_set_by(at_ms: u64) -> bool {
    TIMER.get().is_some_and(|(set, _)| set <= at_ms)
}

/// Sets the timer for `at_ms` (unix ms), which is in `delay_ms`. With 0 it runs in this turn of the event loop, or in
/// the next if the timers of this one have run, outside of any command.
///
/// The server keeps its timers for the thread of the event loop: any other thread asks that thread to set the timer.
pub fn set_timer(at_ms: u64, delay_ms: i64) {
    if !is_main_thread() {
        return wake_main_thread();
    }
    // SAFETY: the context is kept since the load. A timer that runs has taken itself out of `TIMER` first, so this one has
    // not run yet; the callback is a function of this module, which is never unloaded.
    let timer = unsafe {
        if let Some((_, timer)) = TIMER.take() {
            api!(RedisModule_StopTimer(DETACHED.get(), timer, null_mut()));
        }
        api!(RedisModule_CreateTimer(DETACHED.get(), delay_ms, Some(timer_runs), null_mut()))
    };
    TIMER.set(Some((at_ms, timer)));
}

unsafe extern "C" fn timer_runs(context: *mut raw::RedisModuleCtx, _data: *mut c_void) {
    guarded(TIMER_ENTRY, (), || {
        TIMER.set(None);
        // SAFETY: the context is live for the call.
        (hooks().timer)(&mut unsafe { Context::new(context) });
    });
}

/// When the timer tries again after it has panicked, in ms: it may panic again.
const AFTER_PANIC_MS: u64 = 1000;

/// Has the timer run soon, after a panic: the engine looks at every lock then.
fn look_again(is_timer: bool) {
    // During the load there is no timer yet, and no lock.
    if DETACHED.get().is_null() {
        return;
    }
    if is_timer {
        // The server itself frees the timer that runs.
        TIMER.set(None);
        let at = super::context::machine_time().ms().get() + AFTER_PANIC_MS;
        set_timer(at, AFTER_PANIC_MS.cast_signed());
    } else {
        set_timer(0, 0);
    }
}

/// Whether the thread of the event loop was woken, and has not run since.
static IS_WOKEN: AtomicBool = AtomicBool::new(false);

/// Has the thread of the event loop set the timer for what is due. Any thread may call it, at any time.
pub(super) fn wake_main_thread() {
    if IS_WOKEN.swap(true, Ordering::AcqRel) {
        return;
    }
    // SAFETY: the function is for any thread; the callback is a function of this module, which is never unloaded.
    let is_posted = unsafe { api!(RedisModule_EventLoopAddOneShot(Some(main_thread_runs), null_mut())) };
    if is_posted != super::OK {
        IS_WOKEN.store(false, Ordering::Release);
    }
}

extern "C" fn main_thread_runs(_data: *mut c_void) {
    IS_WOKEN.store(false, Ordering::Release);
    guarded("wake-up", (), || set_timer(0, 0));
}
