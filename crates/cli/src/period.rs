//! The locks of `dlock run --once`, as others see them.

use std::time::Duration;

use dlock_client::LockInfo;

/// Marks the label of an owner whose lock is the memory of a run.
pub const MARK: &str = ":once";

/// Returns when the next run can begin, since the Unix epoch, if the lock is that of a `dlock run --once`: it stays when
/// the command has ended, and nobody has to free it.
pub fn next_run(lock: &LockInfo) -> Option<Duration> {
    let hold = lock.holds.first().filter(|_| lock.holders == 1)?;
    let label = hold.owner.len().checked_sub(RANDOM).and_then(|end| hold.owner.get(..end))?;
    label.ends_with(MARK.as_bytes()).then(|| Duration::from_micros(hold.token) + hold.age + lock.ttl)
}

/// The random end of an owner with a label.
const RANDOM: usize = ":8a19685554eee661".len();
