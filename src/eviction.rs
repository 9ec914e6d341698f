//! Warns if the server may evict locks (an evicted lock is a freed lock), and if it frees expired locks in the
//! event loop.

use redis_module::Context as ServerContext;
use redis_module_macros::config_changed_event_handler;

use crate::ffi::context::{log_warning, with_own};
use crate::ffi::guarded;

#[config_changed_event_handler]
fn on_config_changed(context: &ServerContext, names: &[&str]) {
    guarded("config change", (), || {
        if names.contains(&"maxmemory-policy") {
            warn_if_locks_can_be_evicted(context);
        }
        if names.contains(&"lazyfree-lazy-expire") {
            warn_if_locks_are_freed_at_once(context);
        }
    });
}

/// Warns unless the policy is `noeviction`: at load, and whenever the policy changes.
pub fn warn_if_locks_can_be_evicted(context: &ServerContext) {
    let policy = with_own(context, |context| context.server_info("memory", "maxmemory_policy")).unwrap_or_default();
    if !policy.is_empty() && policy != "noeviction" {
        log_warning(&format!(
            "dlock: maxmemory-policy is {policy}: the server may evict locks, and an evicted lock is a freed lock. \
             Set it to noeviction"
        ));
    }
}

/// Warns if `lazyfree-lazy-expire` is off: at load, and whenever the setting changes. Without the setting, the removal
/// of an expired key with many holds delays the server.
pub fn warn_if_locks_are_freed_at_once(context: &ServerContext) {
    let setting = with_own(context, |context| context.setting(c"lazyfree-lazy-expire")).unwrap_or_default();
    if setting == b"no" {
        log_warning(
            "dlock: lazyfree-lazy-expire is off: the server stands still while it frees an expired lock (74 ms for 500,000 \
             readers, 5 ms with it). Set it to yes",
        );
    }
}
