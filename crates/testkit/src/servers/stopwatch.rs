//! A stopwatch that leaves out the delays of a busy machine.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Measures a time, and how late the machine has run this process meanwhile. Limits of a few milliseconds hold only on a
/// machine that is not late.
#[derive(Debug)]
pub struct Stopwatch {
    began: Instant,
    late: Duration,
    left_out: Duration,
}

impl Stopwatch {
    pub fn start() -> Self {
        Self { began: Instant::now(), late: late(), left_out: Duration::ZERO }
    }

    pub fn elapsed(&self) -> Duration {
        self.began.elapsed()
    }

    /// Leaves out this delay of another process when the limit is checked.
    pub fn leaves_out(&mut self, delay: Duration) {
        self.left_out += delay;
    }

    /// Returns how late the machine was in total since the start.
    pub fn stalled(&self) -> Duration {
        late() - self.late
    }

    /// Returns whether the machine was late for more than a hundredth of the time, so that a failure proves nothing. An
    /// idle machine is never late.
    pub fn was_late(&self) -> bool {
        self.stalled() * 100 > self.elapsed()
    }

    /// Fails unless the elapsed time is between these two. The delays of the machine do not count.
    #[track_caller]
    pub fn is_between(&self, earliest: Duration, latest: Duration, what: &str) {
        let elapsed = self.elapsed();
        let is_late = || elapsed > latest + (late() - self.late) * HANDS + self.left_out;
        if is_late() {
            // The measuring thread may be late itself, and add its last delay a moment later.
            thread::sleep(NAP * 10);
        }
        let is_in_time = elapsed >= earliest && !is_late();
        let late = late() - self.late + self.left_out;
        assert!(is_in_time, "{what}: {elapsed:?} (delayed by {late:?}), not {earliest:?} to {latest:?}");
    }
}

/// Returns the sum of the delays by which a thread's sleeps have ended late since the first call.
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
/// The delay by which a sleep ends on an idle machine at most.
const USUAL: Duration = Duration::from_millis(1);
