//! The course of an acquisition: what to send next, what it got, and what has to be cleaned up.
//!
//! A command may be executed although its answer never comes. So a grant counts from the earliest copy that may have got
//! it, the nil of a copy that lost its place to another one is no refusal, and an outcome says what may be left on a
//! server. Pure: the time is an argument. `tests/clients/histories` says what it answers.

use std::time::{Duration, Instant};

use crate::options::Wait;
use crate::validity::end;

/// The next command, or the outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// Ask for the lock: `block` is how long to wait in the queue, unless it is a try. `fresh`: as another owner, since
    /// the last grant is over.
    Ask {
        block: Option<Block>,
        fresh: bool,
    },
    /// Renew what was granted: too little of it is certain.
    Confirm,
    Over(Outcome, Cleanup),
}

/// How long a command waits in the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Block {
    For(Duration),
    ForEver,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// Certain until then.
    Granted(Instant),
    Refused,
    Unreachable,
    /// The server answered with an error that is final.
    Failed,
    #[cfg_attr(not(test), allow(dead_code, reason = "a future that is dropped has no outcome"))]
    Canceled,
}

/// The rest that may be left on a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cleanup {
    Nothing,
    /// A command may wait there, or be granted.
    Leave,
    /// The token is known.
    Release,
}

/// A command that was sent.
#[derive(Clone, Copy, Debug)]
struct Command {
    number: u64,
    sent: Instant,
    asks: bool,
    waits: bool,
    /// The command has no answer: it may be executed at any time.
    is_open: bool,
    /// The command asked as an owner whose grant is over.
    is_old: bool,
}

#[derive(Debug)]
pub(crate) struct Attempt {
    wait: Wait,
    lease: Duration,
    /// For how long a try looks for an answer.
    outage: Duration,
    began: Instant,
    commands: Vec<Command>,
    sent: u64,
    /// Until when the grant is certain.
    grant: Option<Instant>,
    /// Whether it has been answered at all: then it waits.
    is_answered: bool,
    has_said_nil: bool,
    next: Next,
}

impl Attempt {
    pub fn new(now: Instant, wait: Wait, lease: Duration, outage: Duration) -> Self {
        let next = Next::Ask { block: None, fresh: false };
        let (commands, sent, grant) = (Vec::new(), 0, None);
        let (is_answered, has_said_nil) = (false, false);
        Self { wait, lease, outage, began: now, commands, sent, grant, is_answered, has_said_nil, next }
    }

    pub fn next(&self) -> Next {
        self.next
    }

    /// The command that comes next is about to be sent. Returns its number.
    pub fn sends(&mut self, now: Instant) -> u64 {
        let (asks, waits) = match self.next {
            Next::Ask { block, .. } => (true, block.is_some()),
            Next::Confirm | Next::Over(..) => (false, false),
        };
        // The first of very many that were cut say from when a grant may count.
        if self.commands.len() >= MOST {
            self.commands.remove(MOST / 2);
        }
        self.sent += 1;
        self.commands.push(Command { number: self.sent, sent: now, asks, waits, is_open: true, is_old: false });
        self.sent
    }

    /// Takes a token.
    pub fn granted(&mut self, now: Instant, number: u64) {
        let Some(command) = self.close(number).filter(|_| self.grant.is_none()) else { return };
        let sent = self.open_copies().map(|copy| copy.sent).fold(command.sent, Instant::min);
        let until = end(sent, self.lease);
        self.grant = Some(until);
        let is_young = now.saturating_duration_since(sent) <= self.lease / 3 && until > now;
        self.set(if is_young { Next::Over(Outcome::Granted(until), Cleanup::Nothing) } else { Next::Confirm });
    }

    /// Takes a nil.
    pub fn nil(&mut self, now: Instant, number: u64) {
        let Some(command) = self.close(number) else { return };
        (self.is_answered, self.has_said_nil) = (true, true);
        if self.grant.is_some() {
            return;
        }
        // A copy that came late has taken the place of this one.
        let has_lost_its_place = !command.waits || self.open_copies().next().is_some();
        if self.wait == Wait::Not || !has_lost_its_place || !self.is_time_left(now) {
            return self.end(Outcome::Refused);
        }
        self.ask(now, false);
    }

    /// Takes the answer that the key has another type: a program without dlock has the lock, which has no queue.
    pub fn foreign(&mut self, now: Instant, number: u64) {
        if self.close(number).is_none() || self.grant.is_some() {
            return;
        }
        (self.is_answered, self.has_said_nil) = (true, true);
        if self.wait != Wait::Not && self.is_time_left(now) { self.ask(now, false) } else { self.end(Outcome::Refused) }
    }

    /// Takes the answer to a renewal that confirms, after which the hold lasts at most until then.
    pub fn ok(&mut self, now: Instant, number: u64, most: Option<Instant>) {
        let Some(command) = self.close(number) else { return };
        let until = end(command.sent, self.lease);
        let until = most.map_or(until, |most| most.min(until));
        self.grant = Some(until);
        let granted = Next::Over(Outcome::Granted(until), Cleanup::Nothing);
        self.set(if until > now { granted } else { Next::Confirm });
    }

    /// Takes the nil of a renewal that confirms.
    pub fn gone(&mut self, now: Instant, number: u64) {
        if self.close(number).is_none() {
            return;
        }
        (self.grant, self.is_answered, self.has_said_nil) = (None, true, true);
        // A copy of the same owner that comes late must not be taken for the next request's.
        self.commands.iter_mut().for_each(|command| command.is_old = true);
        if self.is_time_left(now) { self.ask(now, true) } else { self.end(Outcome::Refused) }
    }

    /// The connection that a grant was bound to has ended before it was confirmed: it is asked for again.
    pub fn unbound(&mut self, now: Instant) {
        if self.grant.take().is_some() {
            self.commands.iter_mut().filter(|command| command.asks).for_each(|command| command.is_open = true);
            if self.is_time_left(now) { self.ask(now, false) } else { self.over(now) }
        }
    }

    /// A command got no answer: it may still be executed.
    pub fn cut(&mut self, now: Instant) {
        self.again(now);
    }

    /// A command was not executed, and is worth sending again.
    pub fn refused(&mut self, now: Instant, number: u64) {
        self.close(number);
        self.again(now);
    }

    /// A command was answered with an error that is final.
    pub fn failed(&mut self, number: u64) {
        self.close(number);
        self.end(Outcome::Failed);
    }

    /// The time is over.
    pub fn over(&mut self, now: Instant) {
        match self.grant {
            Some(until) if until > now => self.set(Next::Over(Outcome::Granted(until), Cleanup::Nothing)),
            None if self.has_said_nil && self.wait != Wait::ForEver => self.end(Outcome::Refused),
            _ => self.end(Outcome::Unreachable),
        }
    }

    /// The caller waits no longer.
    #[cfg(test)]
    pub fn cancel(&mut self) {
        self.end(Outcome::Canceled);
    }

    /// Returns whether a copy of the request of this owner has no answer.
    pub fn is_repeated(&self) -> bool {
        self.open_copies().next().is_some()
    }

    /// Returns whether a copy of the request of an earlier owner has no answer.
    pub fn has_old_copies(&self) -> bool {
        self.commands.iter().any(|command| command.is_open && command.is_old && command.asks)
    }

    /// Returns whether a renewal of the grant has no answer: one that confirms, or one that was sent behind a copy of the
    /// request, if such are.
    pub fn is_renewal_open(&self, asks_renew: bool) -> bool {
        self.commands.iter().any(|command| command.is_open && !command.is_old && (asks_renew || !command.asks))
    }

    /// Returns whether something may be left on a server if nobody waits any longer.
    pub fn cleanup(&self) -> Cleanup {
        match self.grant {
            Some(_) => Cleanup::Release,
            None if self.commands.iter().any(|command| command.is_open && command.asks) => Cleanup::Leave,
            None => Cleanup::Nothing,
        }
    }

    fn again(&mut self, now: Instant) {
        match self.grant {
            _ if !self.is_time_left(now) => self.over(now),
            Some(_) => self.set(Next::Confirm),
            None => self.ask(now, false),
        }
    }

    fn ask(&mut self, now: Instant, fresh: bool) {
        let block = match self.wait {
            // The first command does not wait.
            _ if !self.is_answered => None,
            Wait::Not => None,
            Wait::AtMost(wait) => Some(Block::For(wait.saturating_sub(now.saturating_duration_since(self.began)))),
            Wait::ForEver => Some(Block::ForEver),
        };
        self.set(Next::Ask { block, fresh });
    }

    fn end(&mut self, outcome: Outcome) {
        self.set(Next::Over(outcome, self.cleanup()));
    }

    /// An outcome is final.
    fn set(&mut self, next: Next) {
        if !matches!(self.next, Next::Over(..)) {
            self.next = next;
        }
    }

    fn close(&mut self, number: u64) -> Option<Command> {
        let command = self.commands.iter_mut().find(|command| command.number == number && command.is_open)?;
        command.is_open = false;
        Some(*command).filter(|command| !command.is_old)
    }

    fn open_copies(&self) -> impl Iterator<Item = &Command> {
        self.commands.iter().filter(|command| command.is_open && command.asks && !command.is_old)
    }

    fn is_time_left(&self, now: Instant) -> bool {
        let elapsed = now.saturating_duration_since(self.began);
        match self.wait {
            Wait::Not => elapsed < self.outage,
            Wait::AtMost(wait) => elapsed < wait,
            Wait::ForEver => true,
        }
    }
}

/// The commands that are remembered.
const MOST: usize = 64;
