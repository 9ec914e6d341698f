//! Calls in flight. The task that waits for an answer polls all of them, so that no call needs a task of its own.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use dlock_quorum::{Answer, Call};
use tokio::runtime::Handle;
use tokio::task::unconstrained;
use tokio::time::sleep_until;

use super::Quorum;

/// A call that is not in flight any more, with its result.
pub(super) struct Landing {
    pub call: Call,
    /// `None`: the wait was ended, and there is no answer.
    pub answer: Option<Answer>,
    /// Repeats a release that got no answer.
    pub again: Option<Work>,
}

/// Work for the background.
pub(super) type Work = Pin<Box<dyn Future<Output = ()> + Send>>;

/// A call in flight.
pub(super) struct Flight {
    pub future: Pin<Box<dyn Future<Output = Landing> + Send>>,
    /// Whether the first poll sends the command, so that no poll is needed until the answer is wanted.
    pub is_sent: bool,
}

/// Calls in flight. When this is dropped, they are finished in the background.
pub(super) struct Flights {
    quorum: Arc<Quorum>,
    runtime: Handle,
    open: Vec<Flight>,
    /// Results that nobody has taken yet, the last one first.
    landed: Vec<Landing>,
    /// Whether a background task finishes the calls already. If that task ends with the runtime, so do the calls.
    is_in_background: bool,
}

/// The event that ended a wait.
pub(super) enum Next {
    Answer(Call, Answer),
    /// The time is over.
    Time,
    /// Nothing is in flight.
    Nothing,
}

impl Flights {
    /// Begins without calls. Must run inside a tokio runtime.
    pub fn new(quorum: Arc<Quorum>) -> Self {
        Self { quorum, runtime: Handle::current(), open: Vec::new(), landed: Vec::new(), is_in_background: false }
    }

    /// Sends a call. With an open connection, the command is written before this returns.
    pub fn launch(&mut self, mut flight: Flight) {
        let _runtime = self.runtime.enter();
        // The next wait polls the call again. `unconstrained` sends even if the task has used up its budget.
        let mut first = pin!(unconstrained(flight.future.as_mut()));
        match first.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(landing) => self.landed.insert(0, landing),
            Poll::Pending => self.open.push(flight),
        }
    }

    /// Returns whether all calls in flight have been sent.
    pub fn are_sent(&self) -> bool {
        self.open.iter().all(|flight| flight.is_sent)
    }

    pub fn is_empty(&self) -> bool {
        self.open.is_empty() && self.landed.is_empty()
    }

    /// Moves all calls out, so that dropping `self` does nothing.
    pub fn take(&mut self) -> Self {
        let (open, landed) = (std::mem::take(&mut self.open), std::mem::take(&mut self.landed));
        Self { quorum: self.quorum.clone(), runtime: self.runtime.clone(), open, landed, is_in_background: false }
    }

    /// Waits for the next answer, until `until` at most. Dropping the future loses no answer.
    pub async fn next(&mut self, until: Option<Instant>) -> Next {
        if let Some((call, answer)) = self.try_next().await {
            return Next::Answer(call, answer);
        }
        match until {
            None => poll_fn(|context| self.poll_next(context)).await,
            Some(until) if self.open.is_empty() => {
                sleep_until(until.into()).await;
                Next::Time
            }
            Some(until) => {
                let answer = poll_fn(|context| self.poll_next(context));
                tokio::select! {
                    biased;
                    next = answer => next,
                    () = sleep_until(until.into()) => Next::Time,
                }
            }
        }
    }

    fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Next> {
        match self.poll_landed(context) {
            Some(next) => Poll::Ready(next),
            None if self.open.is_empty() => Poll::Ready(Next::Nothing),
            None => Poll::Pending,
        }
    }

    fn poll_landed(&mut self, context: &mut Context<'_>) -> Option<Next> {
        // No call is polled again before all results are taken.
        self.next_landed().or_else(|| {
            let landed = &mut self.landed;
            self.open.retain_mut(|flight| match flight.future.as_mut().poll(context) {
                Poll::Ready(landing) => {
                    landed.insert(0, landing);
                    false
                }
                Poll::Pending => true,
            });
            self.next_landed()
        })
    }

    fn next_landed(&mut self) -> Option<Next> {
        while let Some(Landing { call, answer, again }) = self.landed.pop() {
            if let Some(again) = again {
                self.quorum.cleanups.spawn(&self.runtime, again);
            }
            if let Some(answer) = answer {
                return Some(Next::Answer(call, answer));
            }
        }
        None
    }

    /// Returns the next answer if it is there already.
    pub async fn try_next(&mut self) -> Option<(Call, Answer)> {
        match poll_fn(|context| Poll::Ready(self.poll_landed(context))).await {
            Some(Next::Answer(call, answer)) => Some((call, answer)),
            _ => None,
        }
    }

    /// Finishes all calls in the background.
    fn finish(&mut self) {
        let mut rest = self.take();
        rest.is_in_background = true;
        let cleanup = self.quorum.cleanups.begin();
        self.runtime.spawn(async move {
            while let Next::Answer(..) = rest.next(None).await {}
            drop(cleanup);
        });
    }
}

impl Drop for Flights {
    fn drop(&mut self) {
        // Starts the repeats of releases that got no answer.
        while self.next_landed().is_some() {}
        if !self.is_in_background && !self.is_empty() {
            self.finish();
        }
    }
}
