//! A lock that is held on a majority, as the guard sees it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use dlock_quorum::{Answer, Ask, Call, Hold};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::time::timeout_at;

use super::Quorum;
use super::dispatch::{Answers, Dispatch};
use crate::error::Error;
use crate::server::Fault;
use crate::terms::Renewal;

/// A hold on several servers.
pub(crate) struct Kept {
    quorum: Arc<Quorum>,
    dispatch: Dispatch,
    hold: Mutex<Hold>,
}

impl Kept {
    /// `answers` may still bring some to calls of the acquisition.
    pub(super) fn new(
        quorum: Arc<Quorum>,
        dispatch: Dispatch,
        hold: Hold,
        mut answers: UnboundedReceiver<(Call, Answer)>,
    ) -> Arc<Self> {
        let kept = Arc::new(Self { quorum, dispatch, hold: Mutex::new(hold) });
        let late = kept.clone();
        tokio::spawn(async move {
            while let Some((call, answer)) = answers.recv().await {
                late.note(&call, answer);
            }
        });
        kept
    }

    /// Who holds it: the owner of the attempt that came through.
    pub fn owner(&self) -> String {
        self.dispatch.owner(self.hold().attempt())
    }

    /// One attempt to renew on all servers: done as soon as a majority has.
    pub async fn renew(self: &Arc<Self>) -> Renewal {
        let before = self.hold().valid_until();
        let mut calls = Vec::new();
        self.hold().renew(self.quorum.now(), &mut calls);
        let mut answers = self.send(calls);
        let end = Instant::now() + self.quorum.timeout();
        loop {
            let until = self.hold().valid_until();
            if until.is_zero() {
                return Renewal::Gone;
            }
            if until > before {
                self.note_the_rest(answers);
                return Renewal::Until(self.quorum.at(until));
            }
            match timeout_at(end.into(), answers.recv()).await {
                Ok(Some((call, answer))) => self.note(&call, answer),
                Ok(None) => return Renewal::Failed(Fault::OutcomeUnknown(self.quorum.troubles().into())),
                Err(_) => {
                    self.note_the_rest(answers);
                    return Renewal::Failed(Fault::OutcomeUnknown(self.quorum.troubles().into()));
                }
            }
        }
    }

    /// Gives it up on all servers.
    pub async fn release(self: &Arc<Self>) -> Result<(), Error> {
        let mut calls = Vec::new();
        self.hold().release(self.quorum.now(), &mut calls);
        let mut told = Told { open: calls.len(), ..Told::default() };
        let mut answers = self.send(calls);
        let end = Instant::now() + self.quorum.timeout();
        while !(self.hold().has_left() && (told.open == 0 || told.is_clear(&self.quorum))) {
            match timeout_at(end.into(), answers.recv()).await {
                Ok(Some((call, answer))) => {
                    told.note(answer);
                    self.hold().answer(&call, answer);
                }
                Ok(None) | Err(_) => break,
            }
        }
        told.outcome(&self.quorum)
    }

    fn send(&self, calls: Vec<Call>) -> UnboundedReceiver<(Call, Answer)> {
        let (to, answers): (Answers, _) = unbounded_channel();
        self.dispatch.send(calls, &to);
        answers
    }

    fn note_the_rest(self: &Arc<Self>, mut answers: UnboundedReceiver<(Call, Answer)>) {
        let kept = self.clone();
        tokio::spawn(async move {
            while let Some((call, answer)) = answers.recv().await {
                kept.note(&call, answer);
            }
        });
    }

    fn note(&self, call: &Call, answer: Answer) {
        self.quorum.note(call, answer);
        // Only what is kept is noted here; the rest follows from the acquisition that has ended.
        if !matches!(call.ask, Ask::Release) {
            self.hold().answer(call, answer);
        }
    }

    fn hold(&self) -> MutexGuard<'_, Hold> {
        self.hold.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What the servers said to a release.
#[derive(Default)]
struct Told {
    open: usize,
    done: usize,
    gone: usize,
}

impl Told {
    fn note(&mut self, answer: Answer) {
        self.open = self.open.saturating_sub(1);
        match answer {
            Answer::Done => self.done += 1,
            Answer::Gone => self.gone += 1,
            Answer::Granted(_) | Answer::Refused | Answer::Failed => {}
        }
    }

    /// Whether more answers would change nothing.
    fn is_clear(&self, quorum: &Quorum) -> bool {
        self.done >= quorum.majority() || self.gone > quorum.members() - quorum.majority()
    }

    fn outcome(&self, quorum: &Quorum) -> Result<(), Error> {
        if self.done >= quorum.majority() {
            Ok(())
        } else if self.is_clear(quorum) {
            Err(Error::Lost)
        } else {
            Err(Error::TooFew(quorum.troubles()))
        }
    }
}
