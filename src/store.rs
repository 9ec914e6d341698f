//! How a change reaches the key, the replicas and those who watch.

use dlock_core::{Effect, Lock, encode_effect};

use crate::error::Error;
use crate::ffi::context::Context;
use crate::ffi::key::{Key, Name};
use crate::state::state;

/// How a change is replicated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Replication {
    /// As its effect.
    Effect,
    /// As the command that came: it says the same to whoever has the same lock.
    Verbatim,
}

/// Applies an effect to the lock in a key that is open for writing, sets the key's time to live, replicates, and tells
/// `WATCH` and `CLIENT TRACKING` if holders or counts changed. A key without a hold goes.
///
/// How many lapsed holds it dropped is returned.
pub fn commit(
    context: &Context,
    name: &Name,
    key: &mut Key,
    effect: Effect,
    replication: Replication,
) -> Result<u64, Error> {
    let mut bytes = Vec::new();
    if replication == Replication::Effect {
        bytes.reserve(64);
        encode_effect(&effect, &mut bytes);
    }
    let applied = match key.lock_mut()? {
        Some(lock) => {
            let applied = state().with_tokens(|tokens| lock.apply(effect, tokens));
            match lock.last_deadline() {
                None => key.delete(),
                Some(last) => {
                    let current = key.expiry();
                    let end = applied.expiry.key_deadline(current, last);
                    if current != Some(end) {
                        key.set_expiry(end);
                    }
                }
            }
            applied
        }
        None => {
            let mut lock = Lock::default();
            let applied = state().with_tokens(|tokens| lock.apply(effect, tokens));
            if let Some(last) = lock.last_deadline() {
                key.set_lock(lock);
                key.set_expiry(last);
            }
            applied
        }
    };
    match replication {
        Replication::Effect => context.replicate_effect(name, &bytes),
        Replication::Verbatim => context.replicate_verbatim(),
    }
    if applied.is_visible {
        context.signal_modified(name);
    }
    Ok(applied.lapsed)
}

/// Applies and replicates a change that this primary decided on. Counts and announces the leases that had run out.
pub fn decide(
    context: &Context,
    name: &Name,
    key: &mut Key,
    effect: Effect,
    replication: Replication,
) -> Result<(), Error> {
    let lapsed = commit(context, name, key, effect, replication)?;
    if lapsed > 0 {
        state().stats.lapses.add(lapsed);
        context.notify(c"dlock.lapse", name);
    }
    Ok(())
}
