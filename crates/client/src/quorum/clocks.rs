//! The servers' clocks, from which the client computes the token to ask for.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use dlock_quorum::{Clocks, Floor};
use redis::{Cmd, Value, cmd};

use crate::quorum::wire::Wire;
use crate::server::fault::Fault;

/// The clocks of all servers, by the time since a fixed point.
pub(super) struct ServerClocks {
    began: Instant,
    clocks: Mutex<Clocks>,
    /// When the clocks are read again, in ms.
    due: AtomicU64,
}

impl ServerClocks {
    pub fn new(began: Instant, members: usize, timeout: Duration) -> Self {
        Self { began, clocks: Mutex::new(Clocks::new(members, timeout)), due: AtomicU64::new(millis(READ_EVERY)) }
    }

    /// Returns the token to ask for.
    pub fn floor(&self) -> Floor {
        self.clocks.lock().unwrap_or_else(PoisonError::into_inner).floor(self.began.elapsed())
    }

    /// Returns whether it is time to read the clocks: once per interval, so that only one task reads them.
    pub(super) fn are_due(&self) -> bool {
        let now = millis(self.began.elapsed());
        let due = self.due.load(Ordering::Relaxed);
        let next = now + millis(READ_EVERY);
        now >= due && self.due.compare_exchange(due, next, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }

    /// Asks a server for the time.
    pub async fn read(&self, member: usize, wire: &Wire, within: Option<Duration>) -> Result<(), Fault> {
        let sent = self.began.elapsed();
        let reply = match wire.ask(&cmd("TIME"), within).await {
            // `TIME` is not allowed. Each acquisition then raises the token on a majority.
            Err(Fault::Refused(_)) => return Ok(()),
            reply => reply?,
        };
        self.note(member, sent, reply);
        Ok(())
    }

    /// Sends a short command and returns its reply. Asks for the time in the same packet.
    pub async fn read_with(
        &self,
        member: usize,
        wire: &Wire,
        command: &Cmd,
        within: Option<Duration>,
    ) -> Result<Value, Fault> {
        let sent = self.began.elapsed();
        let (reply, time) = wire.ask_both(command, &cmd("TIME"), within).await?;
        self.note(member, sent, time);
        Ok(reply)
    }

    fn note(&self, member: usize, sent: Duration, reply: Value) {
        let received = self.began.elapsed();
        if let Some(unix_us) = unix_us(reply) {
            self.clocks.lock().unwrap_or_else(PoisonError::into_inner).note(member, sent, received, unix_us);
        }
    }
}

/// Reads the reply to `TIME`: seconds and microseconds.
fn unix_us(reply: Value) -> Option<u64> {
    let [seconds, micros]: [u64; 2] = redis::from_redis_value::<Vec<u64>>(reply).ok()?.try_into().ok()?;
    seconds.checked_mul(1_000_000)?.checked_add(micros)
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// How often clocks are read while locks are acquired.
const READ_EVERY: Duration = Duration::from_secs(60);
