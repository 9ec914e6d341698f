//! The short way of what comes most: a lock is taken that nobody holds, or renewed or given up by the only one who holds
//! it, on a server on which nobody waits and no session is bound. What may be is decided by the core here too;
//! what happens is what [`crate::store::OpenLock`] would do, with nothing to look at in between.

use dlock_core::{Hold, Lock, Token, encode_put};

use crate::ended;
use crate::ffi::context::{Context, Now};
use crate::ffi::key::{Key, Name};
use crate::lines;
use crate::sessions;
use crate::state::state;
use crate::store::with_bytes;

/// Whether this server has locks and nothing else to see to: nobody waits, and no session is bound or has just ended.
pub fn is_quiet() -> bool {
    lines::is_nobody_waiting() && sessions::count() == 0 && !ended::is_any()
}

/// Puts the first hold into a lock whose key, open for writing, is not there. Returns its token.
pub fn take(context: &Context, name: &Name, mut key: Key, now: Now, hold: Hold) -> Token {
    let Hold { token, deadline, .. } = hold;
    note(context, name, now, &hold);
    key.set_lock(Box::new(Lock::from(hold)));
    key.set_expiry(deadline);
    key.close();
    context.signal_modified(name);
    state().stats.grants.count();
    context.notify(c"dlock.acquire", name);
    token
}

/// Puts the only hold into a lock anew, with another deadline.
pub fn renew(context: &Context, name: &Name, mut key: Key, now: Now, hold: Hold) {
    let deadline = hold.deadline;
    note(context, name, now, &hold);
    // It is there: the hold was found in it.
    if let Some(lock) = key.lock_mut() {
        *lock = Lock::from(hold);
    }
    key.set_expiry(deadline);
    key.close();
    state().stats.renewals.count();
    context.notify(c"dlock.renew", name);
}

/// Takes the last hold out of a lock, which goes with it. The command says to replicas what happened.
pub fn give_up(context: &Context, name: &Name, mut key: Key) {
    context.replicate_verbatim();
    key.delete();
    key.close();
    context.signal_modified(name);
    state().stats.releases.count();
    context.notify(c"dlock.release", name);
}

/// Tells the replicas, and the token clock.
fn note(context: &Context, name: &Name, now: Now, hold: &Hold) {
    with_bytes(|bytes| {
        encode_put(now.millis(), hold, bytes);
        context.replicate_effect(name, bytes);
    });
    state().observe(hold.token);
}
