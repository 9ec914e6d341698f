//! Panics that a test asks for, in debug builds only.

use std::sync::Mutex;

/// The entry whose next call panics, and how many calls before it do not.
static PANIC: Mutex<Option<(String, u64)>> = Mutex::new(None);

/// Has the next call of this entry panic, after `skipped` others.
pub fn panic_in(entry: &[u8], skipped: u64) {
    if let Ok(mut plan) = PANIC.lock() {
        *plan = Some((String::from_utf8_lossy(entry).into_owned(), skipped));
    }
}

/// Panics if that was planned for this call.
#[allow(clippy::panic, reason = "the purpose of the function")]
pub(super) fn panic_if_planned(entry: &str) {
    let is_it = |plan: &mut (String, u64)| {
        let is_named = plan.0 == entry;
        let is_due = is_named && plan.1 == 0;
        plan.1 = plan.1.saturating_sub(u64::from(is_named));
        is_due
    };
    let is_due = PANIC.lock().is_ok_and(|mut plan| plan.take_if(is_it).is_some());
    if is_due {
        panic!("DLOCK.PANIC was sent");
    }
}
