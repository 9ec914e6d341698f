//! The limits on one turn: a command, or a step of the timer. Later turns do the rest. The deadlock searches of all
//! turns share a limit.

use std::time::Duration;

use crate::Now;

/// The rest of a turn. Every function whose work may be large takes it as an argument.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Budget {
    /// How many waiters may still be answered.
    pub answers: usize,
    /// How many holds of ended sessions may still be settled: released, or unbound with a grace. An exclusive hold, and
    /// those of the owner that a command or a grant is for, are settled beyond this.
    pub settles: usize,
    /// How many ended sessions may still be looked at in search of the lowest number (`SLOT`) that is free.
    pub looks: usize,
    /// Whether the turn was as large as one may be: the timer looks at the clock before the next.
    pub should_yield: bool,
}

/// How many holds of ended sessions a visit settles, how many leases it extends, and how many waiters a turn answers.
pub(crate) const PIECE: usize = 64;
/// At how many ended sessions a turn looks in search of the lowest free number: it serves [`PIECE`] requests.
const LOOKS: usize = 1024;
/// How many waiters a visit, or a look at an ended named session, sends away: each may wait in 64 queues.
pub(crate) const REJECTED_AT_ONCE: usize = PIECE / 4;
/// How many waiters a tick answers before the caller sends the answers: to send one costs more than to decide on it.
pub(crate) const ANSWERS_AT_ONCE: usize = PIECE;
/// How many holds of large locks, and how many discarded bindings, are freed between two looks at the clock.
pub(crate) const FREED_AT_ONCE: usize = 128;
/// At how many locks of ended sessions, locks of databases that were emptied, and named sessions that may have ended, a
/// step looks.
pub(crate) const LOOKED_AT_ONCE: usize = 16;
/// How many locks of an ended session are marked in one go, and how many bindings of a lock that is gone are freed in
/// one go. The timer does the rest.
pub(crate) const RECORDS_AT_ONCE: usize = 64;
/// How many records that have become due are put in order at a visit: after a pause, all may be due at once.
pub(crate) const MOVED_AT_ONCE: usize = 32;
/// How long one tick may take before others have their turn, in µs. A request that comes during a tick may have to wait
/// for the next tick as well: if the server's own work (such as 1 ms for a table that shrinks) comes between the two,
/// the next tick is due before the reply is sent.
pub(crate) const TICK_US: u64 = 1000;
/// The part of a busy server's time that ticks may take while there is more to do than fits into one: one in this
/// number.
const BUSY_SHARE: u64 = 5;
/// How long a tick may take at most, in µs.
const MAX_TICK_US: u64 = 4_000;
/// How many small steps a tick does at least, even if its time is over: a busy server must not stop the work.
const STEPS: u32 = 16;

/// How many steps a deadlock search takes at most: about a millisecond. A step looks at one waiter or holder with a
/// short owner name.
const MAX_SEARCH: usize = 8000;
/// How many microseconds such a search takes.
const MAX_SEARCH_US: u64 = 1000;
/// The part of the time that searches may take, beside the small ones: one in this number.
const SEARCH_SHARE: u64 = 5;
/// How many steps every search may take, and how many more for each lock of the request, whatever other searches took:
/// about as long as the request takes to join its queues.
const SMALL_SEARCH: usize = 256;
const SMALL_SEARCH_A_LOCK: usize = 4;

impl Budget {
    /// The budget of a command, or of a step of the timer.
    pub(crate) const TURN: Budget = Budget { answers: PIECE, settles: PIECE, looks: LOOKS, should_yield: false };
}

/// How long one tick may take.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TickBudget {
    start: Now,
    us: u64,
    steps: u32,
}

impl TickBudget {
    /// Returns the budget of a tick that begins at `start`. A tick that goes on with what the last one left gets a share
    /// of `since`, the time that the server has worked since then: the busier the server is with commands, and the
    /// longer it waits for its disk in each turn, the fewer ticks there are, and the more each may take. While the
    /// machine runs other programs, no command has its turn, so that time does not count.
    pub(crate) fn new(start: Now, since: Duration) -> TickBudget {
        let since = u64::try_from(since.as_micros()).unwrap_or(u64::MAX);
        TickBudget { start, us: (since / BUSY_SHARE).clamp(TICK_US, MAX_TICK_US), steps: 0 }
    }

    /// Returns whether the tick is over after a step that ended at `now`.
    pub(crate) fn is_over(&mut self, now: Now, step: Budget) -> bool {
        self.steps += 1;
        now.us().saturating_sub(self.start.us()) > self.us && (step.should_yield || self.steps >= STEPS)
    }
}

/// The steps that all deadlock searches share. They come back with the time, up to those of one search. When many
/// requests arrive together, each still gets a small search.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SearchBudget {
    left: usize,
    /// The time of the last search, in µs.
    at_us: u64,
}

impl SearchBudget {
    /// The budget before the first search.
    pub(crate) const FULL: SearchBudget = SearchBudget { left: MAX_SEARCH, at_us: 0 };

    /// Begins a search for a request for this many locks. Returns how many steps it may take.
    pub(crate) fn begin(&mut self, now: Now, locks: usize) -> usize {
        // The clock may have been set back.
        let since_us = now.us().saturating_sub(self.at_us).min(MAX_SEARCH_US * SEARCH_SHARE);
        self.at_us = now.us();
        let back = since_us * MAX_SEARCH as u64 / (MAX_SEARCH_US * SEARCH_SHARE);
        self.left = MAX_SEARCH.min(self.left + usize::try_from(back).unwrap_or(0));
        MAX_SEARCH.min(self.left + small(locks))
    }

    /// Ends a search that took this many steps.
    pub(crate) fn end(&mut self, steps: usize, locks: usize) {
        self.left = self.left.saturating_sub(steps.saturating_sub(small(locks)));
    }
}

/// Returns how many steps every search for a request for this many locks may take.
fn small(locks: usize) -> usize {
    SMALL_SEARCH + SMALL_SEARCH_A_LOCK * locks
}
