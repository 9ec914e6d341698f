//! Times that a busy machine does not extend.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// A time, and how late the machine lets this process run meanwhile: a limit of some milliseconds is for a machine that
/// is not late.
#[derive(Debug)]
pub struct Stopwatch {
    began: Instant,
    late: Duration,
}

impl Stopwatch {
    pub fn start() -> Self {
        Self { began: Instant::now(), late: late() }
    }

    pub fn elapsed(&self) -> Duration {
        self.began.elapsed()
    }

    /// Returns how late the machine was in all.
    pub fn stalled(&self) -> Duration {
        late() - self.late
    }

    /// Returns whether the machine was late for more than a hundredth of the time: a failure then proves nothing. One
    /// that runs nothing else is never late by a millisecond.
    pub fn was_late(&self) -> bool {
        self.stalled() * 100 > self.elapsed()
    }

    /// Fails unless it is in between. The delays of the machine do not count.
    #[track_caller]
    pub fn is_between(&self, earliest: Duration, latest: Duration, what: &str) {
        let elapsed = self.elapsed();
        let is_late = || elapsed > latest + (late() - self.late) * HANDS;
        if is_late() {
            // The thread that measures may be late itself, and count that only now.
            thread::sleep(NAP * 10);
        }
        let is_in_time = elapsed >= earliest && !is_late();
        let late = late() - self.late;
        assert!(is_in_time, "{what}: {elapsed:?} ({late:?} of the machine's), not {earliest:?} to {latest:?}");
    }
}

/// Returns how late all sleeps of a thread have ended since the first call.
fn late() -> Duration {
    static LATE: OnceLock<&'static AtomicU64> = OnceLock::new();
    let late = LATE.get_or_init(|| {
        let late: &'static AtomicU64 = Box::leak(Box::default());
        thread::spawn(move || {
            loop {
                let began = Instant::now();
                thread::sleep(NAP);
                let over = began.elapsed().saturating_sub(NAP);
                if over > USUAL {
                    late.fetch_add(over.as_micros() as u64, Ordering::Relaxed);
                }
            }
        });
        late
    });
    Duration::from_micros(late.load(Ordering::Relaxed))
}

/// The threads and processes that an operation passes through, each of which may be late.
const HANDS: u32 = 3;
const NAP: Duration = Duration::from_millis(10);
/// How late a sleep ends on a machine that has nothing else to do.
const USUAL: Duration = Duration::from_millis(1);
