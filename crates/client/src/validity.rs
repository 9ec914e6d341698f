//! Until when a hold is certain.
//!
//! The server ends a lease by its own clock. This process knows only when it sent a command and when it read the
//! answer. For this reason a lease counts from before its command was sent, and of several that the server may execute
//! in any order, the shortest counts. Pure: the time is an argument. The histories in `tests/clients/histories` define
//! the answers.

use std::time::{Duration, Instant};

/// Whether a hold is certain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// Held until this time if no further answer comes.
    Until(Instant),
    /// The server said so, or the time is over.
    Lost,
    Released,
}

/// The knowledge of one hold.
#[derive(Debug)]
pub(crate) struct Validity {
    state: State,
    /// The lease that the server has at least.
    sure: Duration,
    /// How many commands have no answer, and the shortest lease that was sent since all had one.
    open: usize,
    shortest: Duration,
    /// How many commands that set the lease were sent so far.
    sent: u64,
}

/// A command that sets the lease, until it is answered. One without an answer may be executed at any time.
#[derive(Debug)]
pub(crate) struct Command {
    pub sent: Instant,
}

/// A question how long the hold lasts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Question {
    sent: Instant,
    /// How many commands were sent before the question.
    before: u64,
    /// Whether a command had no answer, which the question may overtake.
    was_open: bool,
}

impl Validity {
    /// Begins with a hold that was granted until `until`. `open`: another command with this lease may still be
    /// executed.
    pub fn granted(until: Instant, lease: Duration, open: bool) -> Self {
        Self { state: State::Until(until), sure: lease, open: usize::from(open), shortest: lease, sent: 0 }
    }

    pub fn state(&self) -> State {
        self.state
    }

    /// Returns the lease that the server has at least.
    pub fn sure(&self) -> Duration {
        self.sure
    }

    /// Returns whether a command that sets the lease has no answer.
    pub fn is_open(&self) -> bool {
        self.open > 0
    }

    /// Ends the hold if its time is over. Nothing revives it.
    pub fn lapse(&mut self, now: Instant) {
        if let State::Until(until) = self.state
            && now >= until
        {
            self.state = State::Lost;
        }
    }

    /// Counts a command that is about to be sent: the server may begin to count its lease at any time from now on.
    pub fn sends(&mut self, now: Instant, lease: Duration) -> Command {
        self.shortest = if self.open == 0 { lease } else { self.shortest.min(lease) };
        self.open += 1;
        self.sent += 1;
        self.sure = self.sure.min(lease);
        if let State::Until(until) = &mut self.state {
            *until = (*until).min(end(now, lease));
        }
        Command { sent: now }
    }

    /// Takes the answer of a command that was executed.
    pub fn ok(&mut self, command: Command) {
        self.ok_at_most(command, None);
    }

    /// Does the same if the hold lasts at most until `most`, even with a longer lease.
    pub fn ok_at_most(&mut self, command: Command, most: Option<Instant>) {
        self.open = self.open.saturating_sub(1);
        self.sure = self.shortest;
        let new = end(command.sent, self.sure);
        self.extend_to(most.map_or(new, |most| most.min(new)));
    }

    /// Takes the answer of a command that was not executed, or that does not count: a cap made its lease shorter, or
    /// too few replicas acknowledged it.
    pub fn refused(&mut self, _: Command) {
        self.open = self.open.saturating_sub(1);
    }

    /// Records that a question is about to be sent.
    pub fn asks(&self, now: Instant) -> Question {
        Question { sent: now, before: self.sent, was_open: self.open > 0 }
    }

    /// Takes the time that was left when the server answered a question.
    pub fn looked(&mut self, question: Question, left: Duration) {
        if question.was_open || question.before != self.sent {
            self.extend_to(end(question.sent, left.min(self.sure)));
        } else if let State::Until(until) = &mut self.state {
            *until = end(question.sent, left);
        }
    }

    /// The server has no such hold.
    pub fn gone(&mut self) {
        if let State::Until(_) = self.state {
            self.state = State::Lost;
        }
    }

    /// Records that the hold is released.
    pub fn release(&mut self) {
        if let State::Until(_) = self.state {
            self.state = State::Released;
        }
    }

    /// Sets the end if it is later than the one that is known.
    fn extend_to(&mut self, new: Instant) {
        if let State::Until(until) = &mut self.state {
            *until = (*until).max(new);
        }
    }
}

/// Returns the certain end of a lease whose command was sent at `sent`. Client and server count whole milliseconds.
pub(crate) fn end(sent: Instant, lease: Duration) -> Instant {
    let end = sent + lease;
    end.checked_sub(ROUNDING).unwrap_or(end)
}

/// The part of a lease that is not certain.
pub(crate) const ROUNDING: Duration = Duration::from_millis(2);
