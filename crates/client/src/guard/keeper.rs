//! The task that keeps a hold.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::time::sleep_until;

use super::{Held, State};
use crate::server::Fault;
use crate::terms::{Keep, Renewal};

/// Renews until the lock is lost. Ends with the guard.
pub(super) async fn keep(held: Arc<Held>) {
    if held.hold.keep == Keep::Nobody {
        return expire(held).await;
    }
    if let Some(binding) = &held.hold.binding {
        binding.lost().await;
        return held.set(State::Lost);
    }
    let mut is_silent = false;
    let mut due = first_renewal(&held);
    loop {
        let cut = async {
            match &held.hold.session {
                Some(session) => session.link().closed().await,
                None => std::future::pending().await,
            }
        };
        let is_cut = tokio::select! {
            () = cut => true,
            () = sleep_until(due.into()) => false,
            () = held.hurry.notified() => {
                due = due.min(Instant::now() + third(&held, held.lease()));
                continue;
            }
        };
        // A server that hangs keeps the connection of a session open. Another one may have taken its place.
        let session = held.hold.session.as_ref().filter(|_| is_cut || is_silent);
        // Boxed: large, and most guards are released before the first renewal.
        let renewal = match session {
            Some(session) => Box::pin(held.bind(session)).await,
            None => Box::pin(held.renew()).await,
        };
        match renewal {
            // A cap may end it before its lease would.
            Renewal::Until(_) => {
                (due, is_silent) = ((Instant::now() + third(&held, held.lease())).min(held.until()), false);
            }
            Renewal::Gone => return,
            Renewal::Failed(Fault::Refused(_)) if session.is_some() => return held.set(State::Lost),
            Renewal::Failed(_) if Instant::now() >= held.until() => return held.set(State::Lost),
            Renewal::Failed(_) => {
                // The first lease of a quorum is shorter.
                let left = held.until().saturating_duration_since(Instant::now());
                let pause = (held.lease() / 30).min(left / 8).clamp(MIN_PAUSE, MAX_PAUSE);
                due = (Instant::now() + pause).min(held.until());
                is_silent = true;
                if session.is_some() {
                    sleep_until(due.into()).await;
                }
            }
        }
    }
}

/// Returns the time between two renewals of this lease.
fn third(held: &Held, lease: Duration) -> Duration {
    lease.mul_f64(spread(&held.hold.owner) / 3.0)
}

fn first_renewal(held: &Held) -> Instant {
    let lease = held.hold.lease;
    let after_a_third = held.until().checked_sub(lease - third(held, lease)).unwrap_or_else(Instant::now);
    // The lease of a lock that stays at least so long may be longer than the one that is renewed.
    let due = after_a_third.min(Instant::now() + third(held, held.lease()));
    let of_quorum = held.hold.kept.as_ref().and_then(|kept| kept.renewal_due());
    of_quorum.map_or(due, |at| due.max(at))
}

/// Waits for the end of the lease, however often it is renewed by hand.
async fn expire(held: Arc<Held>) {
    while Instant::now() < held.until() {
        sleep_until(held.until().into()).await;
    }
    held.set(State::Lost);
}

/// Returns a factor from 0.9 to 1, by the owner: guards that began together drift apart.
fn spread(owner: &str) -> f64 {
    let sum: u32 = owner.bytes().map(u32::from).sum();
    0.9 + 0.1 * f64::from(sum % 64) / 63.0
}

/// Between two attempts at a renewal.
const MIN_PAUSE: Duration = Duration::from_millis(10);
const MAX_PAUSE: Duration = Duration::from_millis(500);
