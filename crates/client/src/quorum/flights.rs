//! Calls that are under way. The task that waits for an answer drives all of them, so that none needs a task of its
//! own.

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

/// The result of a call.
pub(super) struct Landing {
    pub call: Call,
    /// `None`: nobody wants to know.
    pub answer: Option<Answer>,
    /// A release that did not get through, to be tried again.
    pub again: Option<Work>,
}

/// Something that goes on in the background.
pub(super) type Work = Pin<Box<dyn Future<Output = ()> + Send>>;

/// A call under way.
pub(super) struct Flight {
    pub future: Pin<Box<dyn Future<Output = Landing> + Send>>,
    /// Whether the first poll sends it, so that it needs nobody until its answer is wanted.
    pub is_sent: bool,
}

/// Calls under way. Dropped, it finishes them in the background.
pub(super) struct Flights {
    quorum: Arc<Quorum>,
    runtime: Handle,
    open: Vec<Flight>,
    /// Answers that came at once.
    landed: Vec<Landing>,
    /// Finishes in the background already. If that ends with its runtime, so do the calls.
    is_left: bool,
}

/// The event that ended a wait.
pub(super) enum Next {
    Answer(Call, Answer),
    /// The time has come.
    Time,
    /// Nothing is under way.
    Nothing,
}

impl Flights {
    /// Makes calls for this quorum. Must run inside a tokio runtime.
    pub fn new(quorum: Arc<Quorum>) -> Self {
        Self { quorum, runtime: Handle::current(), open: Vec::new(), landed: Vec::new(), is_left: false }
    }

    /// Sends a call: what has a connection is written before this returns.
    pub fn launch(&mut self, mut flight: Flight) {
        let _runtime = self.runtime.enter();
        // The next wait polls the call again. A task that has used up its budget may send nevertheless.
        let mut first = pin!(unconstrained(flight.future.as_mut()));
        match first.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(landing) => self.landed.insert(0, landing),
            Poll::Pending => self.open.push(flight),
        }
    }

    /// Returns whether all that is under way has been sent.
    pub fn are_sent(&self) -> bool {
        self.open.iter().all(|flight| flight.is_sent)
    }

    pub fn is_empty(&self) -> bool {
        self.open.is_empty() && self.landed.is_empty()
    }

    /// Leaves all to another, so that dropping this one does nothing.
    pub fn take(&mut self) -> Self {
        let (open, landed) = (std::mem::take(&mut self.open), std::mem::take(&mut self.landed));
        Self { quorum: self.quorum.clone(), runtime: self.runtime.clone(), open, landed, is_left: false }
    }

    /// Waits for the next answer, until then at most. Lost nothing if dropped.
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
        // No flight is polled again before all that has come is taken.
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

    /// Returns the next answer that has come already.
    pub async fn try_next(&mut self) -> Option<(Call, Answer)> {
        match poll_fn(|context| Poll::Ready(self.poll_landed(context))).await {
            Some(Next::Answer(call, answer)) => Some((call, answer)),
            _ => None,
        }
    }

    /// Finishes all in the background.
    fn finish(&mut self) {
        let mut rest = self.take();
        rest.is_left = true;
        let cleanup = self.quorum.cleanups.begin();
        self.runtime.spawn(async move {
            while let Next::Answer(..) = rest.next(None).await {}
            drop(cleanup);
        });
    }
}

impl Drop for Flights {
    fn drop(&mut self) {
        while self.next_landed().is_some() {}
        if !self.is_left && !self.is_empty() {
            self.finish();
        }
    }
}
