//! The task that keeps a hold.

use std::sync::Arc;
use std::time::Instant;

use tokio::time::sleep_until;

use super::held::Held;
use crate::heartbeat::Duty;
use crate::options::Keep;
use crate::renewal::Renewal;
use crate::server::fault::Fault;

/// Renews until the lock is lost. Ends with the guard.
pub(super) async fn keep(held: Arc<Held>) {
    if held.hold.keep == Keep::Nobody {
        return expire(held).await;
    }
    if let Some(binding) = &held.hold.binding {
        binding.lost().await;
        return held.change(|validity, _| validity.gone());
    }
    let (mut is_silent, mut is_capped) = (false, false);
    while held.is_kept() {
        let Some(is_cut) = is_due(&held).await else { continue };
        // A server that hangs keeps the connection of a session open, although another primary may have replaced it.
        let session = held.hold.session.as_ref().filter(|_| is_cut || is_silent);
        // Boxed: large, and most guards are released before the first renewal.
        let renewal = match session {
            Some(session) => Box::pin(held.bind(session)).await,
            None => Box::pin(held.renew()).await,
        };
        is_silent = match renewal {
            Renewal::Failed(Fault::Refused(_)) if session.is_some() => {
                return held.change(|validity, _| validity.gone());
            }
            Renewal::Failed(_) if Instant::now() >= held.until() => {
                return held.change(|validity, _| validity.gone());
            }
            Renewal::Failed(_) => {
                if session.is_some()
                    && let Duty::Renew(due) = held.duty()
                {
                    sleep_until(due.into()).await;
                }
                true
            }
            // A primary has just bound the hold, and says how long it lasts: a cap ends it.
            Renewal::Left(_) if session.is_some() => {
                is_capped = true;
                false
            }
            // A primary renews the holds of its connections. Less than half of the lease is left, so the server is a
            // replica now.
            Renewal::Left(left) if held.hold.session.is_some() && !is_capped && left < held.hold.lease / 2 => {
                held.failed();
                true
            }
            _ => false,
        };
    }
}

/// Waits until a renewal is due, and returns whether that is because the connection of a session has ended. `None`:
/// the duty has changed.
async fn is_due(held: &Held) -> Option<bool> {
    let cut = async {
        match &held.hold.session {
            Some(session) => session.link().closed().await,
            None => std::future::pending().await,
        }
    };
    let duty = held.duty();
    let at = match duty {
        Duty::Renew(at) | Duty::Again(at) => at,
        Duty::Check => Instant::now(),
        Duty::Nothing => held.until(),
    };
    tokio::select! {
        () = cut => return Some(true),
        () = held.hurry.notified() => return None,
        () = sleep_until(at.into()) => {}
    }
    match duty {
        Duty::Renew(_) | Duty::Check => Some(false),
        // The program's renewal got no answer, or its future was dropped.
        Duty::Again(_) => {
            held.failed();
            None
        }
        Duty::Nothing => None,
    }
}

/// Waits for the end of the lease, however often it is renewed by hand.
async fn expire(held: Arc<Held>) {
    while held.is_kept() {
        sleep_until(held.until().into()).await;
    }
}

/// Returns a factor from 0.9 to 1 that depends on the owner, so that guards granted together are not renewed together.
pub(super) fn spread(owner: &str) -> f64 {
    let sum: u32 = owner.bytes().map(u32::from).sum();
    0.9 + 0.1 * f64::from(sum % 64) / 63.0
}
