//! When an acquisition ends, even if no server answers. Pure: the time is an argument.

use std::time::{Duration, Instant};

use crate::options::{Replicas, Terms, Wait};

/// When one acquisition is over.
#[derive(Clone, Copy)]
pub(crate) struct Limits {
    wait: Wait,
    /// How long all servers may stay silent, for a wait without a limit of its own (`Not`, `ForEver`).
    outage: Duration,
    began: Instant,
}

impl Limits {
    pub fn new(terms: &Terms, now: Instant) -> Self {
        let outage = terms.outage.unwrap_or(if terms.wait == Wait::Not { TRY } else { OUTAGE });
        Self { wait: terms.wait, outage, began: now }
    }

    /// Returns the rest of the wait, if it has an end.
    pub fn left(&self, now: Instant) -> Option<Duration> {
        match self.wait {
            Wait::Not => Some(Duration::ZERO),
            Wait::AtMost(wait) => Some(wait.saturating_sub(now.saturating_duration_since(self.began))),
            Wait::ForEver => None,
        }
    }

    /// Returns when to stop looking for a server that answered last at `heard`. `None`: never.
    pub fn over(&self, heard: Instant) -> Option<Instant> {
        match self.wait {
            Wait::Not => self.began.checked_add(self.outage),
            Wait::AtMost(wait) => self.began.checked_add(wait),
            Wait::ForEver => heard.checked_add(self.outage),
        }
    }

    /// Returns when an upgrade has to begin, if the release of the last one takes long. `None`: at any time.
    pub fn begins_by(&self) -> Option<Instant> {
        match self.wait {
            // The releases of a late copy take as long as an answer may, and a little longer.
            Wait::Not => self.end(self.began),
            Wait::AtMost(_) | Wait::ForEver => self.over(self.began),
        }
    }

    /// Returns how long an acquisition that does not wait looks for an answer.
    pub fn outage(&self) -> Duration {
        self.outage
    }

    /// Returns when an attempt has to end: a moment after the wait is over, when the server's answer may still come.
    pub fn end(&self, heard: Instant) -> Option<Instant> {
        self.over(heard)?.checked_add(ANSWER)
    }

    /// Cuts the timeout of replicas that have to acknowledge a grant to the rest of the wait, so that the server
    /// answers by its end.
    pub fn cut(&self, replicas: Replicas, now: Instant) -> Replicas {
        let over = match self.wait {
            Wait::ForEver => None,
            Wait::Not | Wait::AtMost(_) => self.over(now),
        };
        let left = over.map(|over| over.saturating_duration_since(now).saturating_sub(ENDS_LATE).max(SHORTEST));
        Replicas { timeout: left.map_or(replicas.timeout, |left| left.min(replicas.timeout)), ..replicas }
    }

    /// Returns how often to ask a server for a sign of life while a request waits there: several times in the time
    /// after which it counts as gone.
    pub fn interval(&self) -> Duration {
        let time = if let Wait::AtMost(wait) = self.wait { wait } else { self.outage };
        (time / 4).clamp(MIN_INTERVAL, MAX_INTERVAL)
    }
}

/// How long an acquisition that waits without a limit looks for a server, unless set. A failover takes less.
const OUTAGE: Duration = Duration::from_secs(30);

/// How long an acquisition that does not wait looks for an answer, unless set.
const TRY: Duration = Duration::from_secs(1);

/// How long after the end of the wait the server's answer may still arrive. `Acquire::wait` promises the caller an
/// outcome within 250 ms: the rest is for the client itself.
const ANSWER: Duration = Duration::from_millis(150);

/// How late `WAIT` may end: a server checks for timeouts ten times a second (`hz`).
const ENDS_LATE: Duration = Duration::from_millis(100);

/// The shortest timeout of replicas that have to acknowledge a grant, even if the wait is nearly over.
const SHORTEST: Duration = Duration::from_millis(50);

/// Bounds of the time between two signs of life of a server, while a request waits there.
const MIN_INTERVAL: Duration = Duration::from_millis(50);
const MAX_INTERVAL: Duration = Duration::from_secs(5);
