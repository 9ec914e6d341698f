//! The time of a thread on a core, which other work of the machine makes hardly longer, and its waits for one.

use std::fs;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// Returns how long this thread has run on a core while it does this.
pub fn on_core(act: impl FnOnce()) -> Duration {
    let start = so_far();
    act();
    so_far() - start
}

/// Returns how long this thread has run on a core so far.
pub fn so_far() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// The time of a thread so far.
#[derive(Clone, Copy, Debug)]
pub struct Scheduled {
    pub on_core: Duration,
    /// How long the thread could have run, but waited for a core.
    pub waited: Duration,
}

/// Returns the times of the threads of a process, each with its number. There is none once the process has ended.
pub fn of_process(process: u32) -> impl Iterator<Item = (String, Scheduled)> {
    let threads = fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten().flatten();
    threads.filter_map(|thread| {
        let text = fs::read_to_string(thread.path().join("schedstat")).ok()?;
        let mut times = text.split(' ').map_while(|ns| ns.parse().ok().map(Duration::from_nanos));
        let scheduled = Scheduled { on_core: times.next()?, waited: times.next()? };
        Some((thread.file_name().to_string_lossy().into_owned(), scheduled))
    })
}
