//! The reference for an acquisition: what to send next, and its outcome (`tests/clients/histories/README.md`).

use std::fmt;

use super::planted::Planted;
use super::play::Machine;
use super::text::Line;

/// How long the caller waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// At most this many ms.
    AtMost(i64),
    /// Without a limit.
    None,
    /// Not at all.
    Try,
}

/// An event of an acquisition. The numbers are those of commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A command is sent.
    Sent(u32),
    /// A request was granted.
    Granted(u32),
    /// A request was answered with nil.
    Nil(u32),
    /// A confirmation has renewed the grant.
    Ok(u32),
    /// A confirmation has renewed the grant only up to its cap: for this many ms, counted from when it was sent.
    Left(u32, i64),
    /// A confirmation was answered with nil: the grant has ended.
    Gone(u32),
    /// The connection of a command has broken, or its answer takes too long.
    Cut(u32),
    /// The server has not executed a command, which may be repeated.
    Refused(u32),
    /// The server has answered with an error that ends the acquisition.
    Error(u32),
    /// The limit has passed, or no server has answered for the time of `outage`.
    Over,
    /// The caller cancels the acquisition.
    Cancel,
}

/// The next command, or the outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Ask for the lock without waiting, with a new owner if `fresh`.
    Try {
        fresh: bool,
    },
    /// Ask for the lock with `BLOCK` in ms, where 0 waits without a limit. With a new owner if `fresh`.
    Wait {
        block: i64,
        fresh: bool,
    },
    /// Confirm a grant by a renewal.
    Confirm,
    /// The lock is held, at least until this time.
    Granted {
        until: i64,
    },
    Refused(Cleanup),
    Unreachable(Cleanup),
    Canceled(Cleanup),
    Failed(Cleanup),
}

/// The cleanup that the client owes the server after the outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cleanup {
    None,
    /// A request may still wait or be granted: the client leaves the queue, and releases what it gets.
    Leave,
    /// A hold is not wanted: the client releases it.
    Release,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Try,
    Wait,
    Confirm,
}

#[derive(Clone, Copy, Debug)]
struct Command {
    number: u32,
    kind: Kind,
    sent: i64,
    /// Whether the command is unanswered.
    is_open: bool,
    /// Whether the command has an owner whose grant has ended.
    is_old: bool,
}

/// The state of an acquisition. Times are in ms.
#[derive(Clone, Debug)]
pub struct Attempt {
    limit: Limit,
    lease: i64,
    /// How long a try repeats a command that got no answer. For other limits, the event `over` ends the acquisition.
    outage: i64,
    began: i64,
    commands: Vec<Command>,
    /// The time until which the grant is certain.
    grant: Option<i64>,
    /// Whether the server has answered a request. The next request then waits.
    is_answered: bool,
    /// Whether the server has answered with nil.
    has_said_nil: bool,
    /// The kind of the command that must be sent next.
    asked: Kind,
    answer: Answer,
    planted: Option<Planted>,
}

impl Attempt {
    pub fn new(now: i64, limit: Limit, lease: i64, outage: Option<i64>, planted: Option<Planted>) -> Self {
        Self {
            limit,
            lease,
            outage: outage.unwrap_or(1000),
            began: now,
            commands: Vec::new(),
            grant: None,
            is_answered: false,
            has_said_nil: false,
            asked: Kind::Try,
            answer: Answer::Try { fresh: false },
            planted,
        }
    }

    pub fn answer(&self) -> Answer {
        self.answer
    }

    /// Returns whether the acquisition has an outcome.
    pub fn is_over(&self) -> bool {
        !matches!(self.answer, Answer::Try { .. } | Answer::Wait { .. } | Answer::Confirm)
    }

    /// Handles an event at this time.
    pub fn handle(&mut self, now: i64, event: Event) -> Answer {
        if self.is_over() {
            return self.answer;
        }
        self.answer = match event {
            Event::Sent(number) => {
                let kind = self.asked;
                self.commands.push(Command { number, kind, sent: now, is_open: true, is_old: false });
                self.answer
            }
            Event::Granted(number) => self.granted(now, number),
            Event::Nil(number) => self.nil(now, number),
            Event::Ok(number) => self.confirmed(now, number, i64::MAX),
            Event::Left(number, left) => self.confirmed(now, number, left),
            Event::Gone(number) => self.gone(now, number),
            Event::Cut(_) => self.again(now),
            Event::Refused(number) => {
                self.close(number);
                self.again(now)
            }
            Event::Error(number) => {
                self.close(number);
                Answer::Failed(self.cleanup())
            }
            Event::Over => self.over(now),
            Event::Cancel => Answer::Canceled(self.cleanup()),
        };
        self.answer
    }

    /// Marks a command as answered, and returns it. Returns `None` if it was answered already or is unknown.
    fn close(&mut self, number: u32) -> Option<Command> {
        let command = self.commands.iter_mut().find(|command| command.number == number && command.is_open)?;
        command.is_open = false;
        Some(*command)
    }

    /// Returns the copies of the request that may still be executed.
    fn open_copies(&self) -> impl Iterator<Item = &Command> {
        self.commands.iter().filter(|command| command.is_open && !command.is_old && command.kind != Kind::Confirm)
    }

    fn is_time_left(&self, now: i64) -> bool {
        match self.limit {
            Limit::AtMost(limit) => now - self.began < limit,
            Limit::None => true,
            Limit::Try => now - self.began < self.outage,
        }
    }

    fn granted(&mut self, now: i64, number: u32) -> Answer {
        let Some(command) = self.close(number).filter(|command| !command.is_old) else { return self.answer };
        // The grant of an earlier copy is being confirmed.
        if self.grant.is_some() {
            return self.answer;
        }
        let earliest = self.open_copies().map(|copy| copy.sent).chain([command.sent]).min();
        let mut sent = earliest.unwrap_or(command.sent);
        match self.planted {
            Some(Planted::CountsFromReply) => sent = now,
            Some(Planted::ForgetsCopy) => sent = command.sent,
            _ => {}
        }
        // 2 ms less: client and server count in whole ms.
        let until = sent + self.lease - 2;
        self.grant = Some(until);
        let is_young = now - sent <= self.lease / 3;
        if is_young && until > now { Answer::Granted { until } } else { self.confirms() }
    }

    fn confirms(&mut self) -> Answer {
        self.asked = Kind::Confirm;
        Answer::Confirm
    }

    fn confirmed(&mut self, now: i64, number: u32, left: i64) -> Answer {
        let Some(command) = self.close(number).filter(|command| !command.is_old) else { return self.answer };
        let sent = if self.planted == Some(Planted::CountsFromReply) { now } else { command.sent };
        let until = sent + self.lease.min(left) - 2;
        self.grant = Some(until);
        if until > now { Answer::Granted { until } } else { self.confirms() }
    }

    /// Handles the end of a grant. The next request has a new owner, so that the answers to older copies do not count
    /// any more.
    fn gone(&mut self, now: i64, number: u32) -> Answer {
        if self.close(number).is_none_or(|command| command.is_old) {
            return self.answer;
        }
        self.grant = None;
        (self.is_answered, self.has_said_nil) = (true, true);
        self.commands.iter_mut().for_each(|command| command.is_old = true);
        if !self.is_time_left(now) {
            return Answer::Refused(self.cleanup());
        }
        self.asks(now, true)
    }

    fn nil(&mut self, now: i64, number: u32) -> Answer {
        let Some(command) = self.close(number).filter(|command| !command.is_old) else { return self.answer };
        (self.is_answered, self.has_said_nil) = (true, true);
        // While a grant is confirmed, only the answer to the confirmation counts.
        if self.grant.is_some() {
            return self.answer;
        }
        // A wait follows a try. An open copy of a wait may have taken its place.
        let may_go_on = command.kind == Kind::Try || self.open_copies().next().is_some();
        let is_refusal = self.limit == Limit::Try
            || !may_go_on
            || (self.planted == Some(Planted::BelievesNilOfRepeat) && command.kind == Kind::Wait);
        if is_refusal || !self.is_time_left(now) {
            return Answer::Refused(self.cleanup());
        }
        self.asks(now, false)
    }

    /// Repeats a command that got no answer, if there is time.
    fn again(&mut self, now: i64) -> Answer {
        if !self.is_time_left(now) {
            return self.over(now);
        }
        if self.grant.is_some() { self.confirms() } else { self.asks(now, false) }
    }

    /// Returns the next request for the lock: a try until a server has answered, then a wait.
    fn asks(&mut self, now: i64, fresh: bool) -> Answer {
        let waits = self.limit != Limit::Try && self.is_answered;
        self.asked = if waits { Kind::Wait } else { Kind::Try };
        let block = match self.limit {
            Limit::AtMost(limit) => (limit - (now - self.began)).max(1),
            Limit::None | Limit::Try => 0,
        };
        if waits { Answer::Wait { block, fresh } } else { Answer::Try { fresh } }
    }

    /// Returns the outcome of a wait whose time is over.
    fn over(&self, now: i64) -> Answer {
        match self.grant {
            Some(until) if until > now => Answer::Granted { until },
            Some(_) => Answer::Unreachable(self.cleanup()),
            None if self.has_said_nil && self.limit != Limit::None => Answer::Refused(self.cleanup()),
            None => Answer::Unreachable(self.cleanup()),
        }
    }

    fn cleanup(&self) -> Cleanup {
        let is_copy_open = self.commands.iter().any(|command| command.is_open && command.kind != Kind::Confirm);
        match self.grant {
            _ if self.planted == Some(Planted::LeavesCopies) => Cleanup::None,
            Some(_) => Cleanup::Release,
            None if is_copy_open => Cleanup::Leave,
            None => Cleanup::None,
        }
    }
}

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fresh = |fresh: &bool| if *fresh { "fresh " } else { "" };
        match self {
            Self::Try { fresh: is_fresh } => write!(f, "{}try", fresh(is_fresh)),
            Self::Wait { block, fresh: is_fresh } => write!(f, "{}wait {block}", fresh(is_fresh)),
            Self::Confirm => f.write_str("confirm"),
            Self::Granted { until } => write!(f, "granted until {until}"),
            Self::Refused(cleanup) => write!(f, "refused {cleanup}"),
            Self::Unreachable(cleanup) => write!(f, "unreachable {cleanup}"),
            Self::Canceled(cleanup) => write!(f, "canceled {cleanup}"),
            Self::Failed(cleanup) => write!(f, "failed {cleanup}"),
        }
    }
}

impl fmt::Display for Cleanup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::None => "cleanup none",
            Self::Leave => "cleanup leave",
            Self::Release => "cleanup release",
        })
    }
}

impl Event {
    /// Reads the event of a line of a history, except the first line.
    pub fn of(line: &Line) -> Self {
        let number = || u32::try_from(line.number_at(1)).expect("a number");
        match line.words[0].as_str() {
            "sent" => Self::Sent(number()),
            "granted" => Self::Granted(number()),
            "nil" => Self::Nil(number()),
            "ok" => Self::Ok(number()),
            "left" => Self::Left(number(), line.number_at(2)),
            "gone" => Self::Gone(number()),
            "cut" => Self::Cut(number()),
            "refused" => Self::Refused(number()),
            "error" => Self::Error(number()),
            "over" => Self::Over,
            "cancel" => Self::Cancel,
            other => panic!("line {}: no event of an attempt: {other}", line.number),
        }
    }
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sent(number) => write!(f, "sent {number}"),
            Self::Granted(number) => write!(f, "granted {number}"),
            Self::Nil(number) => write!(f, "nil {number}"),
            Self::Ok(number) => write!(f, "ok {number}"),
            Self::Left(number, left) => write!(f, "left {number} {left}"),
            Self::Gone(number) => write!(f, "gone {number}"),
            Self::Cut(number) => write!(f, "cut {number}"),
            Self::Refused(number) => write!(f, "refused {number}"),
            Self::Error(number) => write!(f, "error {number}"),
            Self::Over => f.write_str("over"),
            Self::Cancel => f.write_str("cancel"),
        }
    }
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AtMost(limit) => write!(f, "{limit}"),
            Self::None => f.write_str("none"),
            Self::Try => f.write_str("try"),
        }
    }
}

/// Returns the limit, lease and outage in the first line of a history.
pub fn asked(line: &Line) -> (Limit, i64, Option<i64>) {
    let number = |name| line.option(name).map(|value| value.parse().expect(name));
    let limit = match line.option("limit").expect("a limit") {
        "none" => Limit::None,
        "try" => Limit::Try,
        ms => Limit::AtMost(ms.parse().expect("a limit")),
    };
    (limit, number("lease").expect("a lease"), number("outage"))
}

/// The reference as a machine that plays histories.
#[derive(Default)]
pub struct Player(Option<Attempt>, Option<Planted>);

impl Player {
    /// Returns a player of the reference with a planted bug.
    pub fn with(planted: Planted) -> Self {
        Self(None, Some(planted))
    }
}

impl Machine for Player {
    fn handle(&mut self, line: &Line) -> Vec<String> {
        let answer = match &mut self.0 {
            None => {
                let (limit, lease, outage) = asked(line);
                self.0.insert(Attempt::new(line.at, limit, lease, outage, self.1)).answer()
            }
            Some(attempt) => attempt.handle(line.at, Event::of(line)),
        };
        vec![answer.to_string()]
    }
}
