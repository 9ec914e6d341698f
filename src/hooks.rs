//! Hooks, which the server calls when a key is removed or a client leaves, and the timer. A hook writes no key: it
//! tells the engine. The timer lets the engine act, after the running command.

use dlock_core::engine::{Input, Lost, Role};
use dlock_core::{Lock, Name, Token, TokenClock};

use crate::config::limits;
use crate::ffi::context::{Context, is_held_still, machine_time};
use crate::ffi::hooks::{Hooks, Origin, is_settled, server_flags};
use crate::ffi::scan::has_lock;
use crate::keyspace::ServerKeys;
use crate::outputs::begin;
use crate::state::{concerns, count_or_log, engine, set_settings, tell, use_engine};
use crate::{aof, default_user};

/// The functions that the server calls.
pub const HOOKS: Hooks = Hooks {
    removed,
    loaded,
    restored,
    token_to_save,
    token_loaded,
    input,
    flushing,
    slots_moved,
    setting_changed: || tell(|engine, _| set_settings(engine)),
    aof_load_begins: |context| {
        aof::load_begins(context);
        default_user::check(context);
    },
    load_ends: aof::load_ends,
    aof_turn_ends: aof::turn_ends,
    timer,
};

fn removed(db: i32, key: &[u8], lock: &Lock, is_foreign: bool) {
    let name = Name { db, key };
    if is_in_charge() {
        let lost = Lost::of(name, lock, machine_time());
        count_or_log(move |engine| engine.lose(&lost));
    }
    if is_foreign && concerns(name) {
        let key: Box<[u8]> = key.into();
        tell(move |engine, now| engine.input(Input::Removed(Name { db, key: &key }), now));
    }
}

/// Returns whether this server decides what happens to locks: a primary does, unless it loads its data.
fn is_in_charge() -> bool {
    let flags = server_flags();
    flags.is_primary() && !flags.is_loading()
}

/// Checks a lock that is restored, and advances the token clock to the tokens of a lock. Only in a cluster can the
/// module tell that a key moves.
fn loaded(lock: &Lock, origin: Origin<'_>) -> Result<(), String> {
    if let Origin::Restored(key) = origin {
        let now = machine_time();
        let is_settled = || key.is_some_and(is_settled);
        lock.check_restored(now, limits(now).highest_min_token(), is_settled).map_err(|why| why.to_string())?;
    }
    use_engine(|engine| engine.memory_mut().tokens.observe_all(lock.stored_holds()))
        .map_err(|_| "the module is busy".to_owned())
}

fn restored(db: i32, key: &[u8]) {
    let key: Box<[u8]> = key.into();
    tell(move |engine, now| engine.input(Input::Restored(Name { db, key: &key }), now));
}

fn input(input: Input<'static>) {
    tell(move |engine, now| engine.input(input, now));
}

fn token_to_save() -> Option<u64> {
    let last = use_engine(|engine| engine.memory().tokens.last()).unwrap_or(0);
    (last.saturating_add(TokenClock::MATTERS_US) > machine_time().us()).then_some(last)
}

fn token_loaded(token: Token) {
    use_engine(|engine| engine.memory_mut().tokens.observe(token)).unwrap_or(());
}

/// Logs a flush that removes locks. A database that is too large for a look at every key counts only if the engine
/// knows a hold of a session in it.
fn flushing(db: Option<i32>) {
    let now = machine_time();
    let knows_lock = || use_engine(|engine| engine.has_session_hold(db, now)).unwrap_or(false);
    if is_in_charge() && has_lock(db).unwrap_or_else(knows_lock) {
        count_or_log(move |engine| engine.log_flush(db, now));
    }
}

fn slots_moved(ranges: Vec<(u16, u16)>) {
    tell(move |engine, now| engine.input(Input::SlotsMoved(&ranges), now));
}

fn timer(context: &mut Context<'_>) {
    aof::timer();
    default_user::check_once(context);
    let flags = context.flags();
    let role = if !flags.is_primary() {
        Role::Replica
    } else if flags.is_loading() || is_held_still() {
        Role::HeldStill
    } else {
        Role::Primary
    };
    let db = context.db();
    if let Ok(mut engine) = engine() {
        engine.tick(&mut ServerKeys::new(context, db, &[]), role);
        begin(context, &[], engine).send();
    }
}
