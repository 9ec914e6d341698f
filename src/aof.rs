//! What keeps locks in the append-only file (AOF) over the next starts.

use std::cell::Cell;

use crate::ffi::MainThread;
use crate::ffi::acl::User;
use crate::ffi::context::{Context, log_warning};

/// Does once after the start, in the first turn of the event loop, what the AOF needs.
///
/// A server that was killed while it appended a transaction cuts the file behind the last whole command, but leaves `MULTI`
/// (all but Valkey 9.1). What it appends stays in that transaction: without an `EXEC` the next start drops all of it,
/// although clients had their replies. Two commands that do nothing make the server append an `EXEC`. No client has a reply
/// before: the server appends what a turn has changed before it replies.
pub fn see_to_file(context: &mut Context<'_>) {
    static IS_DONE: MainThread<Cell<bool>> = MainThread::new(Cell::new(false));
    let flags = context.flags();
    if IS_DONE.get() || !flags.is_primary() || flags.is_loading() {
        return;
    }
    IS_DONE.set(true);
    if flags.has_aof() {
        context.replicate_nothing();
        context.replicate_nothing();
        warn_if_transactions_are_dropped();
    }
}

/// Redis up to 8.2 and Valkey up to 8.1 drop a transaction of the file that the user `default` may not run. A release that
/// hands the lock to the next waiter is one.
fn warn_if_transactions_are_dropped() {
    let may_run = |user: User| user.may_run([b"DLOCK.APPLY", b"key", b"effect"]);
    if !User::default().is_none_or(may_run) {
        log_warning(
            "dlock: the user default may not run DLOCK.APPLY: a server that loads its AOF may drop locks then. Give it the \
             rights, and switch it off: ACL SETUSER default off ~* &* +@all",
        );
    }
}
