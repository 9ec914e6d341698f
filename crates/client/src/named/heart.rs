//! The task that sends a session's heartbeats to one server.

use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use tokio::sync::Notify;
use tokio::time::{sleep_until, timeout_at};

use super::{Inner, Phase};
use crate::binding::{Beat, Heart};
use crate::server::fault::Fault;

impl Inner {
    /// Opens the session on a server, and begins to send heartbeats to it.
    pub(super) async fn begin(self: &Arc<Self>, name: &str, heart: Heart, within: Duration) -> Result<(), Fault> {
        let wake = heart.wake.clone();
        self.kept().hearts.insert(name.to_owned(), heart);
        let opened = self.round(name, Some(within)).await;
        let is_open = self.kept().hearts.get(name).is_some_and(|heart| heart.until().is_some());
        if !is_open {
            self.kept().hearts.remove(name);
            return opened.and_then(|()| Err(Fault::Later("the session has ended".into())));
        }
        self.runtime.spawn(beat(Arc::downgrade(self), name.to_owned(), wake));
        Ok(())
    }

    /// Returns whether a heartbeat must be sent. Marks the locks that are not certain any more as lost.
    fn is_due(&self, name: &str) -> bool {
        let now = Instant::now();
        let (late, beat) = {
            let mut kept = self.kept();
            (kept.late(name, now), kept.beats(name, now, self.manual))
        };
        if beat == Beat::IsOver {
            self.stop(name);
            return false;
        }
        self.lose(late);
        beat == Beat::IsDue
    }

    /// Drops a server, because no heartbeat was confirmed in time. The locks of this server are lost; with the last
    /// server, the session is lost.
    fn stop(&self, name: &str) {
        let mut kept = self.kept();
        let others = kept.hearts.keys().any(|other| other != name);
        if others {
            kept.hearts.remove(name);
        }
        let lost: Vec<u64> = kept.of(name).map(|(number, _)| number).collect();
        drop(kept);
        if others { self.lose(lost) } else { _ = self.end(Phase::Lost) }
    }

    /// Records that a round has ended.
    fn round_ended(&self, name: &str, outcome: Result<(), Fault>) {
        let mut kept = self.kept();
        kept.failure = outcome.err().map(|fault| fault.cause().to_string());
        kept.round_ended(name, Instant::now());
    }

    /// Ends the session and loses its locks. False: it was not open.
    pub(super) fn end(&self, phase: Phase) -> bool {
        let was_open = self.phase.send_if_modified(|before| {
            let was_open = *before == Phase::Open;
            *before = phase;
            was_open
        });
        let bindings = std::mem::take(&mut self.kept().bindings);
        for bound in bindings.into_values() {
            bound.lost.send_replace(true);
        }
        self.kept().hearts.values().for_each(|heart| heart.wake.notify_one());
        was_open
    }

    pub(super) fn lose(&self, numbers: impl IntoIterator<Item = u64>) {
        for number in numbers {
            let bound = self.kept().bindings.remove(&number);
            if let Some(bound) = bound {
                bound.lost.send_replace(true);
            }
        }
    }

    fn until_of(&self, name: &str) -> Option<Instant> {
        self.kept().hearts.get(name)?.until()
    }
}

/// Sends heartbeats to a server until the session is over there.
async fn beat(session: Weak<Inner>, name: String, wake: Arc<Notify>) {
    loop {
        let next = match session.upgrade() {
            Some(session) if *session.phase.borrow() == Phase::Open => session.kept().next(&name, session.manual),
            _ => return,
        };
        let Some(next) = next else { return };
        tokio::select! {
            () = sleep_until(next.into()) => {}
            () = wake.notified() => {}
        }
        let Some(session) = session.upgrade() else { return };
        if *session.phase.borrow() == Phase::Open
            && session.is_due(&name)
            && let Some(until) = session.until_of(&name)
        {
            let outcome = timeout_at(until.into(), session.round(&name, None)).await;
            session
                .round_ended(&name, outcome.unwrap_or_else(|_| Err(Fault::OutcomeUnknown("no reply in time".into()))));
        }
    }
}
