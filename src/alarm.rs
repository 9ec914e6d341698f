//! Work that is done by a timer, outside any command, because a hook must not write.

use std::cell::Cell;

use dlock_core::UnixMs;

use crate::ffi::context::{Context, Now};
use crate::ffi::hooks::{Timer, after, stop};

/// A job and the one timer that is set for it.
pub struct Alarm {
    job: fn(&Context),
    /// The timer, and for when it is set, in unix ms.
    set: Cell<Option<(u64, Timer)>>,
}

impl Alarm {
    /// An alarm that is not set.
    pub const fn new(job: fn(&Context)) -> Alarm {
        Alarm { job, set: Cell::new(None) }
    }

    /// Has the job done in so many ms, unless it is going to be done earlier. With 0 it is done in this turn of the
    /// event loop. The job begins with [`Alarm::rings`].
    pub fn wake_in(&self, delay_ms: u32) {
        let at = Now::of_the_machine().millis().get() + u64::from(delay_ms);
        if !self.is_set_by(at) {
            self.set_to(at, delay_ms);
        }
    }

    /// The same, at a time of the machine's clock. Costs nothing if the alarm is set already.
    pub fn wake_at(&self, at: UnixMs) {
        if !self.is_set_by(at.get()) {
            // The time of the running command may be older than that of the machine, by which timers run.
            let delay = at.since(Now::of_the_machine().millis());
            self.set_to(at.get(), u32::try_from(delay).unwrap_or(u32::MAX));
        }
    }

    fn is_set_by(&self, at: u64) -> bool {
        self.set.get().is_some_and(|(set, _)| set <= at)
    }

    fn set_to(&self, at: u64, delay_ms: u32) {
        if let Some((_, timer)) = self.set.take() {
            stop(timer);
        }
        self.set.set(Some((at, after(delay_ms, self.job))));
    }

    /// Takes note that the timer has run; whether the job may be done. It may not while the server holds its data still:
    /// then it is tried again soon.
    pub fn rings(&self, context: &Context) -> bool {
        self.set.set(None);
        if context.is_held_still() {
            self.wake_in(RETRY_MS);
            return false;
        }
        true
    }
}

/// When to try again what the server does not allow for now.
pub const RETRY_MS: u32 = 20;

/// How much of its work a job does before it lets others have their turn: as much as fits 2 ms, but at least so much
/// that a machine with too little time for the server does not make it crawl.
pub struct Turn {
    start: Now,
    done: u32,
}

impl Turn {
    /// Begins now.
    pub fn begin() -> Turn {
        Turn { start: Now::of_the_machine(), done: 0 }
    }

    /// Takes note of a piece of work; whether the turn is over.
    pub fn is_over(&mut self) -> bool {
        self.done += 1;
        self.done.is_multiple_of(PIECES)
            && Now::of_the_machine().micros().saturating_sub(self.start.micros()) > BUDGET_US
    }
}

const BUDGET_US: u64 = 2000;
const PIECES: u32 = 16;
