//! The course of an acquisition: what to send next, what it got, and what has to be cleaned up.
//!
//! A command may be executed although its answer never arrives, and a request is sent again if it got none. For this
//! reason the lease of a grant counts from the earliest copy that may have been granted. The nil of a copy that lost
//! its place in the queue to another copy is no refusal. An outcome says what may be left on a server. Nothing here
//! sends a command or reads a clock: the time is an argument. The histories in `tests/clients/histories` define the
//! decisions.

use std::time::{Duration, Instant};

use crate::options::Wait;
use crate::validity::end;

/// The next command, or the outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// Ask for the lock. `block`: how long to wait in the queue; `None`: do not wait. `fresh`: as another owner,
    /// because the last grant has ended.
    Ask {
        block: Option<Block>,
        fresh: bool,
    },
    /// Renew the grant, because too little of its lease is certain.
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
    /// The hold is certain until this time.
    Granted(Instant),
    Refused,
    Unreachable,
    /// The server answered with an error that is final.
    Failed,
    #[cfg_attr(not(test), allow(dead_code, reason = "a future that is dropped has no outcome"))]
    Canceled,
}

/// The cleanup that a server may need.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cleanup {
    Nothing,
    /// A command without an answer may wait in the queue, or be granted.
    Leave,
    /// A hold whose token is known.
    Release,
}

/// A command that was sent, and has no answer, or was granted.
#[derive(Clone, Copy, Debug)]
struct Command {
    number: u64,
    sent: Instant,
    /// The command asks for the lock. Otherwise it renews the grant.
    asks: bool,
    /// The command waits in the queue.
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
    /// How long an acquisition that does not wait looks for an answer.
    outage: Duration,
    /// Whether nothing of a grant is certain before a renewal.
    confirms: bool,
    began: Instant,
    commands: Vec<Command>,
    sent: u64,
    /// Until when the grant is certain.
    grant: Option<Instant>,
    /// Whether a server has answered at all: the next request then waits in the queue.
    is_answered: bool,
    /// Whether a server has said that the lock is not free.
    has_said_nil: bool,
    next: Next,
}

impl Attempt {
    pub fn new(now: Instant, wait: Wait, lease: Duration, outage: Duration) -> Self {
        let next = Next::Ask { block: None, fresh: false };
        let (commands, sent, grant) = (Vec::new(), 0, None);
        let (confirms, is_answered, has_said_nil) = (false, false, false);
        Self { wait, lease, outage, confirms, began: now, commands, sent, grant, is_answered, has_said_nil, next }
    }

    /// Sets whether the owner may have another hold of the lock: the cap of that one, which no reply to a request tells,
    /// ends this one, too.
    pub fn beside(self, is_second: bool) -> Self {
        Self { confirms: is_second, ..self }
    }

    pub fn next(&self) -> Next {
        self.next
    }

    /// Records that the next command is about to be sent, and returns its number.
    pub fn sends(&mut self, now: Instant) -> u64 {
        let (asks, waits) = match self.next {
            Next::Ask { block, .. } => (true, block.is_some()),
            Next::Confirm | Next::Over(..) => (false, false),
        };
        if self.commands.len() >= MOST {
            self.forget_one();
        }
        self.sent += 1;
        self.commands.push(Command { number: self.sent, sent: now, asks, waits, is_open: true, is_old: false });
        self.sent
    }

    /// Takes the answer that the lock is granted.
    pub fn granted(&mut self, now: Instant, number: u64) {
        let Some(command) = self.close(number).filter(|_| self.grant.is_none()) else { return };
        // Kept for `unbound`, which counts the copy as unanswered again.
        self.commands.push(Command { is_open: false, ..command });
        let sent = self.open_copies().map(|copy| copy.sent).fold(command.sent, Instant::min);
        let until = if self.confirms { sent } else { end(sent, self.lease) };
        self.grant = Some(until);
        let is_young = now.saturating_duration_since(sent) <= self.lease / 3 && until > now;
        self.set(if is_young { Next::Over(Outcome::Granted(until), Cleanup::Nothing) } else { Next::Confirm });
    }

    /// Takes the nil that answers a request for the lock.
    pub fn nil(&mut self, now: Instant, number: u64) {
        let Some(command) = self.close(number) else { return };
        (self.is_answered, self.has_said_nil) = (true, true);
        if self.grant.is_some() {
            return;
        }
        // A copy that did not wait had no place in the queue. Another copy may have taken over the place of this one.
        let has_lost_its_place = !command.waits || self.open_copies().next().is_some();
        if self.wait == Wait::Not || !has_lost_its_place || !self.is_time_left(now) {
            return self.end(Outcome::Refused);
        }
        self.ask(now, false);
    }

    /// Takes the answer that the key has another type: a program without dlock holds the lock, which then has no queue.
    pub fn foreign(&mut self, now: Instant, number: u64) {
        if self.close(number).is_none() || self.grant.is_some() {
            return;
        }
        (self.is_answered, self.has_said_nil) = (true, true);
        if self.wait != Wait::Not && self.is_time_left(now) { self.ask(now, false) } else { self.end(Outcome::Refused) }
    }

    /// Takes the success of a renewal that confirms the grant. The hold lasts at most until `most`.
    pub fn ok(&mut self, now: Instant, number: u64, most: Option<Instant>) {
        let Some(command) = self.close(number) else { return };
        let until = end(command.sent, self.lease);
        let until = most.map_or(until, |most| most.min(until));
        self.grant = Some(until);
        let granted = Next::Over(Outcome::Granted(until), Cleanup::Nothing);
        self.set(if until > now { granted } else { Next::Confirm });
    }

    /// Takes the nil of a renewal that should confirm the grant: the grant has ended.
    pub fn gone(&mut self, now: Instant, number: u64) {
        if self.close(number).is_none() {
            return;
        }
        (self.grant, self.is_answered, self.has_said_nil) = (None, true, true);
        // A late answer to the old owner must not be taken for an answer to the next request.
        self.commands.iter_mut().for_each(|command| command.is_old = true);
        if self.is_time_left(now) { self.ask(now, true) } else { self.end(Outcome::Refused) }
    }

    /// The connection of a grant has ended before the grant was confirmed: the lock is asked for again.
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

    /// The connection of a request has ended without an answer, and a late copy of the request would bind the hold to
    /// that connection, whose end releases it. The lock is asked for again, as another owner.
    pub fn orphaned(&mut self, now: Instant) {
        self.commands.iter_mut().for_each(|command| command.is_old = true);
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

    /// Returns whether a renewal of the grant has no answer: one that should confirm it or, if `asks_renew`, one that
    /// was sent together with a copy of the request.
    pub fn is_renewal_open(&self, asks_renew: bool) -> bool {
        self.commands.iter().any(|command| command.is_open && !command.is_old && (asks_renew || !command.asks))
    }

    /// Returns the cleanup that a server may need if nobody waits any longer.
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

    /// Sets what comes next. An outcome is final.
    fn set(&mut self, next: Next) {
        if !matches!(self.next, Next::Over(..)) {
            self.next = next;
        }
    }

    /// Removes a command that has no answer. `None` if there is none, or if it asked as an owner whose grant is over.
    fn close(&mut self, number: u64) -> Option<Command> {
        let at = self.commands.iter().position(|command| command.number == number && command.is_open)?;
        Some(self.commands.remove(at)).filter(|command| !command.is_old)
    }

    /// Forgets one of very many commands without an answer. The first of its kind stays: a grant may count from it, and
    /// it may have to be cleaned up.
    fn forget_one(&mut self) {
        let mut kinds = Vec::new();
        let second = self.commands.iter().position(|command| {
            let kind = (command.asks, command.is_old, command.is_open);
            let is_known = kinds.contains(&kind);
            kinds.push(kind);
            is_known
        });
        if let Some(second) = second {
            self.commands.remove(second);
        }
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

/// How many commands are remembered: see `forget_one`.
const MOST: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    const LEASE: Duration = Duration::from_secs(3000);

    /// An attempt that sends many commands, and the present time.
    struct Long(Attempt, Instant);

    impl Long {
        fn new() -> Self {
            let now = Instant::now();
            Self(Attempt::new(now, Wait::ForEver, LEASE, Duration::ZERO), now)
        }

        fn sends(&mut self) -> u64 {
            self.1 += Duration::from_secs(1);
            self.0.sends(self.1)
        }

        /// A program without dlock holds the lock.
        fn finds_it_taken(&mut self, times: usize) {
            for _ in 0..times {
                let number = self.sends();
                self.0.foreign(self.1, number);
            }
        }

        /// No server answers. Returns when that began.
        fn hears_nothing(&mut self, times: usize) -> Instant {
            let since = self.1 + Duration::from_secs(1);
            for _ in 0..times {
                self.sends();
                self.0.cut(self.1);
            }
            assert!(self.0.commands.len() <= MOST, "{} commands are remembered", self.0.commands.len());
            since
        }

        fn is_granted(&mut self) -> Next {
            let number = self.sends();
            self.0.granted(self.1, number);
            self.0.next()
        }
    }

    fn granted_since(sent: Instant) -> Next {
        Next::Over(Outcome::Granted(end(sent, LEASE)), Cleanup::Nothing)
    }

    #[test]
    fn a_grant_counts_from_the_first_of_very_many_copies() {
        for taken in [0, 10, 40, 100] {
            let mut attempt = Long::new();
            attempt.finds_it_taken(taken);
            let since = attempt.hears_nothing(200);
            assert_eq!(attempt.is_granted(), granted_since(since), "{taken}");
        }
    }

    #[test]
    fn a_grant_counts_from_the_first_copy_of_its_owner_and_the_others_are_cleaned_up() {
        for before in [1, 40, 100] {
            let mut attempt = Long::new();
            attempt.hears_nothing(before);
            attempt.1 += LEASE;
            assert_eq!(attempt.is_granted(), Next::Confirm);
            attempt.hears_nothing(100);
            let number = attempt.sends();
            attempt.0.gone(attempt.1, number);
            assert!(matches!(attempt.0.next(), Next::Ask { fresh: true, .. }));
            let since = attempt.hears_nothing(200);
            assert!(attempt.0.has_old_copies());
            assert_eq!(attempt.is_granted(), granted_since(since), "{before}");
        }
    }
}
