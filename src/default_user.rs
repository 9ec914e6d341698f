//! Warns if the server would leave transactions out when it loads its append-only file (AOF).
//!
//! Redis up to 8.2 and Valkey up to 8.1 run the commands of a transaction in the file as the user `default`, and leave
//! the whole transaction out if that user lacks a right. `MACQUIRE` writes a transaction, and so does a release that
//! grants the lock to a waiter.

use std::cell::Cell;

use crate::ffi::UnderLock;
use crate::ffi::acl::User;
use crate::ffi::context::{Context, log_warning};

/// Whether [`check_once`] was called before.
static IS_CHECKED: UnderLock<Cell<bool>> = UnderLock::new(Cell::new(false));

/// Checks once, in a turn of the timer after the load, because the server loads users after modules.
pub fn check_once(context: &mut Context<'_>) {
    if !IS_CHECKED.replace(true) && context.flags().has_aof() {
        check(context);
    }
}

/// Warns if the user lacks a right that the module's transactions need.
pub fn check(context: &mut Context<'_>) {
    if !leaves_out(context) {
        return;
    }
    // No operator writes a pattern for this key, so only a user with the right to all keys may use it.
    let key: &[u8] = b"\xffdlock\0any key";
    let may_replay = User::default().is_none_or(|user| {
        user.may_run([b"DLOCK.APPLY", key, b"effect"]) && user.may_run([b"DLOCK.RELEASE", key, b"owner"])
    });
    if !may_replay {
        log_warning(
            "dlock: the user default lacks the right to run dlock.apply and dlock.release on all keys. When this server loads \
             its AOF, it leaves out the transactions that default may not run: locks that DLOCK.MACQUIRE took would be \
             lost. Switch default off, and keep its rights: user default off ~* &* +@all",
        );
    }
}

/// Returns whether this server may leave out what the user `default` may not run. Redis 8.6 and Valkey 9.1 do not.
/// Older versions count as if they did, even those that were not tried.
fn leaves_out(context: &Context<'_>) -> bool {
    let version = |field| {
        context.server_info("server", field).map(|text| {
            let mut numbers = text.split('.').map(|number| number.parse::<u32>().unwrap_or(0));
            (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0))
        })
    };
    match version("valkey_version") {
        Some(valkey) => valkey < (9, 1),
        None => version("redis_version").is_some_and(|redis| redis < (8, 6)),
    }
}
