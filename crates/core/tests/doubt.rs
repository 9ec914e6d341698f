//! The rate limits on faults that the server survives.

use dlock_core::doubt::LogLimit;
use dlock_core::{Uptime, doubt};

/// After a fault, the module looks at every lock. While faults go on, not every command may do that.
#[test]
fn faults_that_go_on_are_taken_once_a_second() {
    const START_MS: u64 = 50_000;
    let take = |ms: u64| doubt::take(Uptime::from_us((START_MS + ms) * 1000));
    assert!(!take(0));
    let mut taken = 0;
    for ms in 0..20_000 {
        doubt::raise();
        taken += u64::from(take(ms));
    }
    assert!((20..=20 + doubt::AT_ONCE).contains(&taken), "{taken}");
    // The last fault is not forgotten.
    assert!(doubt::is_raised() && take(21_000));
    assert!(!doubt::is_raised() && !take(30_000));
    // After a time without faults, several are taken at once.
    for _ in 0..3 {
        doubt::raise();
        assert!(take(30_000));
    }
}

#[test]
fn the_log_gets_a_line_a_second() {
    let limit = LogLimit::new();
    let lines = (0..20_000).filter(|ms| limit.may_log(Uptime::from_us((70_000 + ms) * 1000)));
    assert_eq!(lines.count(), 20);
}
