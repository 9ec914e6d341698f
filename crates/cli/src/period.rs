//! Recognizes the locks of `dlock run --once`.

use std::time::Duration;

use dlock_client::LockInfo;

/// The end of the label of an owner of `dlock run --once`.
pub const MARK: &str = ":once";

/// Returns when the next run can begin, since the Unix epoch. `None`: this is no lock of `dlock run --once`.
pub fn next_run(lock: &LockInfo) -> Option<Duration> {
    let hold = lock.holds.first().filter(|_| lock.holders == 1)?;
    let label = hold.owner.len().checked_sub(RANDOM).and_then(|end| hold.owner.get(..end))?;
    label.ends_with(MARK.as_bytes()).then(|| Duration::from_micros(hold.token) + hold.age + lock.ttl)
}

/// The length of the random end of an owner, behind its label.
const RANDOM: usize = ":8a19685554eee661".len();
