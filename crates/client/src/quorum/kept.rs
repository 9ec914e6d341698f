//! A lock that is held on a majority, as the guard sees it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use dlock_quorum::{Answer, Ask, Call, Hold};

use super::Quorum;
use super::dispatch::Dispatch;
use super::flights::{Flights, Next};
use crate::error::Error;
use crate::renewal::Renewal;
use crate::server::fault::Fault;

/// A hold on several servers.
pub(crate) struct Kept {
    quorum: Arc<Quorum>,
    inner: Mutex<Inner>,
}

struct Inner {
    hold: Hold,
    dispatch: Dispatch,
    /// Calls of the acquisition, whose answers nobody needs before the next call.
    flights: Flights,
}

impl Kept {
    /// Keeps a hold. `flights` may still bring answers to calls of the acquisition.
    pub(super) fn new(quorum: Arc<Quorum>, dispatch: Dispatch, hold: Hold, flights: Flights) -> Arc<Self> {
        let are_sent = flights.are_sent();
        let kept = Arc::new(Self { quorum, inner: Mutex::new(Inner { hold, dispatch, flights }) });
        if !are_sent {
            let flights = kept.inner().flights.take();
            kept.note_the_rest(flights);
        }
        kept
    }

    /// Returns the owner of the hold: that of the attempt that was granted.
    pub fn owner(&self) -> String {
        let mut inner = self.inner();
        let attempt = inner.hold.attempt();
        inner.dispatch.owner(attempt).to_owned()
    }

    /// Returns when the first renewal is due: soon, if the servers were asked for a shorter lease at first.
    pub fn renewal_due(&self) -> Option<Instant> {
        Some(self.quorum.at(self.inner().hold.renewal_due()?))
    }

    /// Tries once to renew on all servers. Succeeds as soon as a majority has renewed.
    pub async fn renew(self: &Arc<Self>) -> Renewal {
        let mut sent = Duration::ZERO;
        let mut flights = self.send(|hold, now, calls| {
            hold.renew(now, calls);
            sent = now;
        });
        let end = Instant::now() + self.quorum.timeout();
        loop {
            let (until, is_renewed) = {
                let hold = &self.inner().hold;
                (hold.valid_until(), hold.is_renewed_since(sent))
            };
            let outcome = if until.is_zero() {
                Renewal::Gone
            } else if is_renewed {
                Renewal::Until(self.quorum.at(until))
            } else {
                match flights.next(Some(end)).await {
                    Next::Answer(call, answer) => {
                        self.note(&call, answer, &mut flights);
                        continue;
                    }
                    Next::Time | Next::Nothing => Renewal::Failed(Fault::OutcomeUnknown(self.quorum.troubles().into())),
                }
            };
            self.note_the_rest(flights);
            return outcome;
        }
    }

    /// Releases the hold on all servers.
    pub async fn release(self: &Arc<Self>) -> Result<(), Error> {
        self.note_answers_to_the_acquisition().await;
        let mut open = 0;
        let mut flights = self.send(|hold, now, calls| {
            hold.release(now, calls);
            open = calls.len();
        });
        let mut answers = ReleaseAnswers { open, ..ReleaseAnswers::default() };
        let end = Instant::now() + self.quorum.timeout();
        while !(self.inner().hold.has_left() && (answers.open == 0 || answers.is_certain(&self.quorum))) {
            match flights.next(Some(end)).await {
                Next::Answer(call, answer) => {
                    if call.ask == Ask::Release {
                        answers.note(answer);
                    }
                    self.note(&call, answer, &mut flights);
                }
                Next::Time | Next::Nothing => break,
            }
        }
        // Often the last server has answered, too, so that nothing is left to do in the background.
        while flights.try_next().await.is_some() {}
        answers.outcome(&self.quorum)
    }

    /// Records the answers to the acquisition that have come, so that the release goes first to servers that hold the
    /// lock.
    async fn note_answers_to_the_acquisition(&self) {
        let mut flights = self.inner().flights.take();
        while let Some((call, answer)) = flights.try_next().await {
            self.note(&call, answer, &mut flights);
        }
        self.inner().flights = flights;
    }

    /// Sends the calls that the protocol makes in `say`.
    fn send(&self, say: impl FnOnce(&mut Hold, Duration, &mut Vec<Call>)) -> Flights {
        let mut inner = self.inner();
        let mut flights = inner.flights.take();
        let mut calls = Vec::new();
        say(&mut inner.hold, self.quorum.now(), &mut calls);
        inner.dispatch.send(calls, &mut flights);
        flights
    }

    /// Records answers that come later, in the background.
    fn note_the_rest(self: &Arc<Self>, mut flights: Flights) {
        if flights.is_empty() {
            return;
        }
        let kept = self.clone();
        tokio::spawn(async move {
            while let Next::Answer(call, answer) = flights.next(None).await {
                kept.note(&call, answer, &mut flights);
            }
        });
    }

    /// Records an answer, and sends what follows from it.
    fn note(&self, call: &Call, answer: Answer, flights: &mut Flights) {
        // A server that does not count answers a release, too, so that the answer does not show that it counts.
        if call.ask != Ask::Release {
            self.quorum.note(call, answer);
        }
        let mut inner = self.inner();
        if inner.dispatch.has_released_behind(call) {
            return;
        }
        let mut calls = Vec::new();
        inner.hold.answer(self.quorum.now(), call, answer, &mut calls);
        inner.dispatch.send(calls, flights);
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The servers' answers to a release.
#[derive(Default)]
struct ReleaseAnswers {
    open: usize,
    done: usize,
    gone: usize,
}

impl ReleaseAnswers {
    fn note(&mut self, answer: Answer) {
        self.open = self.open.saturating_sub(1);
        match answer {
            Answer::Done => self.done += 1,
            Answer::Gone => self.gone += 1,
            Answer::Granted(_) | Answer::Refused | Answer::Reserved | Answer::Failed => {}
        }
    }

    /// Returns whether the outcome is certain without more answers.
    fn is_certain(&self, quorum: &Quorum) -> bool {
        self.done >= quorum.majority() || self.gone > quorum.members() - quorum.majority()
    }

    fn outcome(&self, quorum: &Quorum) -> Result<(), Error> {
        if self.done >= quorum.majority() {
            Ok(())
        } else if self.is_certain(quorum) {
            Err(Error::Lost)
        } else {
            Err(Error::TooFew(quorum.troubles()))
        }
    }
}
