//! The reference for a hold: until when the lock is certainly held, and when to renew the hold. The rules and the
//! constants are those of `tests/clients/histories/README.md`.

use super::planted::Planted;
use super::play::Machine;
use super::text::Line;

/// An event of a hold. Times and leases are in ms. The numbers are those of commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The lock was granted. If `open`, an earlier copy of the request is unanswered.
    Granted { lease: i64, sent: i64, open: bool },
    /// A renewal is sent.
    Sent { number: u32, lease: i64 },
    /// A renewal was executed.
    Ok(u32),
    /// The connection of a renewal has broken, or its answer takes too long.
    Cut(u32),
    /// A renewal was executed, but only up to the cap.
    Capped(u32),
    /// The server has not executed a renewal.
    Refused(u32),
    /// A `CHECK` is sent.
    Asked(u32),
    /// A `CHECK` was answered with the time that is left.
    Left(u32, i64),
    /// A command was answered with nil: the server has no such hold.
    Nil(u32),
    /// The caller looks at the state.
    Now,
    /// The caller releases the lock.
    Release,
}

/// The state of a hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// The lock is certainly held until this time.
    Until(i64),
    Lost,
    Released,
}

/// The next command of a hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Duty {
    /// A renewal at this time.
    Renew(i64),
    /// A renewal at this time, if the last one is not answered by then.
    Again(i64),
    /// A `CHECK` at once.
    Check,
    Nothing,
}

#[derive(Clone, Debug)]
struct Command {
    number: u32,
    sent: i64,
    is_open: bool,
}

#[derive(Clone, Debug)]
struct Question {
    number: u32,
    sent: i64,
    /// Whether a renewal was unanswered when the `CHECK` was sent, or was sent since.
    is_blurred: bool,
}

/// The state machine of a hold.
#[derive(Clone, Debug)]
pub struct Validity {
    state: State,
    duty: Duty,
    /// A lease that is not longer than the lease on the server.
    sure: i64,
    /// The shortest lease of the current group: renewals that were sent while another one of the group was unanswered.
    shortest: i64,
    /// The lease that the next renewal asks for.
    wanted: i64,
    commands: Vec<Command>,
    questions: Vec<Question>,
    is_capped: bool,
    planted: Option<Planted>,
}

/// Returns by how many ms a lease is shorter for the client, because client and server count in whole ms.
fn rounding(planted: Option<Planted>) -> i64 {
    if planted == Some(Planted::CountsFractions) { 0 } else { 2 }
}

impl Validity {
    /// Returns a hold whose grant was read at `now`. `open`: an earlier copy of the request is unanswered.
    pub fn granted(now: i64, lease: i64, sent: i64, open: bool, planted: Option<Planted>) -> Self {
        let sent_or_read = if planted == Some(Planted::CountsFromReply) { now } else { sent };
        let until = sent_or_read + lease - rounding(planted);
        let mut new = Self {
            state: State::Until(until),
            duty: Duty::Renew((sent + lease / 3).max(now)),
            sure: lease,
            shortest: lease,
            wanted: lease,
            commands: Vec::new(),
            questions: Vec::new(),
            is_capped: false,
            planted,
        };
        if open {
            // The earlier copy stays open: its answer is never read.
            new.commands.push(Command { number: 0, sent, is_open: true });
        }
        new.expire(now);
        new
    }

    pub fn state(&self) -> State {
        self.state
    }

    pub fn duty(&self) -> Duty {
        if matches!(self.state, State::Until(_)) { self.duty } else { Duty::Nothing }
    }

    /// Returns the lease that the next renewal asks for.
    pub fn wanted(&self) -> i64 {
        self.wanted
    }

    pub fn is_capped(&self) -> bool {
        self.is_capped
    }

    /// Handles an event at this time.
    pub fn handle(&mut self, now: i64, event: Event) {
        self.expire(now);
        let State::Until(until) = self.state else { return };
        match event {
            Event::Granted { .. } | Event::Now => {}
            Event::Release => self.state = State::Released,
            Event::Nil(_) => self.state = State::Lost,
            Event::Asked(number) => {
                let is_blurred = self.is_any_open() && self.planted != Some(Planted::CheckForgetsOpen);
                self.questions.push(Question { number, sent: now, is_blurred });
            }
            Event::Sent { number, lease } => self.sends(now, until, number, lease),
            Event::Ok(number) => self.answered(now, until, number),
            Event::Capped(number) => {
                if self.close(number).is_some() {
                    (self.is_capped, self.duty) = (true, Duty::Check);
                }
            }
            Event::Refused(number) => {
                if self.close(number).is_some() {
                    self.soon(now, until);
                }
            }
            Event::Cut(number) => {
                if self.planted == Some(Planted::ForgetsOpen) {
                    self.close(number);
                }
                self.soon(now, until);
            }
            Event::Left(number, left) => self.looked(now, until, number, left),
        }
        self.expire(now);
    }

    /// Marks the hold as lost if its time has passed.
    fn expire(&mut self, now: i64) {
        if let State::Until(until) = self.state
            && now >= until
        {
            self.state = State::Lost;
        }
    }

    fn rounding(&self) -> i64 {
        rounding(self.planted)
    }

    fn is_any_open(&self) -> bool {
        self.commands.iter().any(|command| command.is_open)
    }

    /// Returns the lease that the times of renewals are computed from.
    fn lease(&self) -> i64 {
        self.wanted.min(self.sure)
    }

    fn sends(&mut self, now: i64, until: i64, number: u32, lease: i64) {
        self.shortest = if self.is_any_open() { self.shortest.min(lease) } else { lease };
        self.sure = self.sure.min(lease);
        self.wanted = lease;
        self.commands.push(Command { number, sent: now, is_open: true });
        self.questions.iter_mut().for_each(|question| question.is_blurred = true);
        let until = until.min(now + lease - self.rounding());
        self.state = State::Until(until);
        self.duty = Duty::Again((now + (self.lease() / 6).clamp(50, 2000)).min(until));
    }

    /// Marks a command as answered, and returns when it was sent. Returns `None` if it was answered already or is
    /// unknown.
    fn close(&mut self, number: u32) -> Option<i64> {
        let command = self.commands.iter_mut().find(|command| command.number == number && command.is_open)?;
        command.is_open = false;
        Some(command.sent)
    }

    fn answered(&mut self, now: i64, until: i64, number: u32) {
        let Some(mut sent) = self.close(number) else { return };
        match self.planted {
            Some(Planted::CountsFromReply) => sent = now,
            Some(Planted::LateAnswer) => sent = self.commands.last().map_or(sent, |last| last.sent),
            _ => {}
        }
        self.sure = self.shortest;
        let until = until.max(sent + self.sure - self.rounding());
        self.state = State::Until(until);
        self.duty = Duty::Renew((sent + self.lease() / 3).max(now));
    }

    fn soon(&mut self, now: i64, until: i64) {
        let pause = (self.lease() / 30).min((until - now) / 8).clamp(10, 500);
        self.duty = Duty::Renew((now + pause).min(until));
    }

    /// Handles the answer to a `CHECK`.
    fn looked(&mut self, now: i64, until: i64, number: u32, left: i64) {
        let Some(at) = self.questions.iter().position(|question| question.number == number) else { return };
        let question = self.questions.remove(at);
        let from = if self.planted == Some(Planted::CheckFromReply) { now } else { question.sent };
        let until = match question.is_blurred {
            false => from + left - self.rounding(),
            true => until.max(from + left.min(self.sure) - self.rounding()),
        };
        self.state = State::Until(until);
        if let Duty::Renew(at) = self.duty {
            self.duty = Duty::Renew(at.min(until).max(now));
        }
        if self.is_capped {
            self.duty = Duty::Nothing;
        }
    }
}

impl Event {
    /// Reads the event of a line.
    pub fn of(line: &Line) -> Self {
        let number = || u32::try_from(line.number_at(1)).expect("a number");
        let option = |name| line.option(name).and_then(|value| value.parse().ok()).expect(name);
        match line.words[0].as_str() {
            "granted" => Self::Granted {
                lease: option("lease"),
                sent: option("sent"),
                open: line.words.iter().any(|word| word == "open"),
            },
            "sent" => Self::Sent { number: number(), lease: option("lease") },
            "ok" => Self::Ok(number()),
            "cut" => Self::Cut(number()),
            "capped" => Self::Capped(number()),
            "refused" => Self::Refused(number()),
            "asked" => Self::Asked(number()),
            "left" => Self::Left(number(), line.number_at(2)),
            "nil" => Self::Nil(number()),
            "now" => Self::Now,
            "release" => Self::Release,
            other => panic!("line {}: no event of a validity: {other}", line.number),
        }
    }

    /// Returns the words of a line.
    pub fn words(&self) -> Vec<String> {
        let text = match self {
            Self::Granted { lease, sent, open } => {
                format!("granted lease={lease} sent={sent}{}", if *open { " open" } else { "" })
            }
            Self::Sent { number, lease } => format!("sent {number} lease={lease}"),
            Self::Ok(number) => format!("ok {number}"),
            Self::Cut(number) => format!("cut {number}"),
            Self::Capped(number) => format!("capped {number}"),
            Self::Refused(number) => format!("refused {number}"),
            Self::Asked(number) => format!("asked {number}"),
            Self::Left(number, left) => format!("left {number} {left}"),
            Self::Nil(number) => format!("nil {number}"),
            Self::Now => "now".to_owned(),
            Self::Release => "release".to_owned(),
        };
        text.split(' ').map(str::to_owned).collect()
    }
}

/// The reference as a machine that plays histories.
#[derive(Default)]
pub struct Player(Option<Validity>, Option<Planted>);

impl Player {
    /// Returns a player of the reference with a planted bug.
    pub fn with(planted: Planted) -> Self {
        Self(None, Some(planted))
    }
}

impl Machine for Player {
    fn handle(&mut self, line: &Line) -> Vec<String> {
        let event = Event::of(line);
        match (&mut self.0, event) {
            (hold, Event::Granted { lease, sent, open }) => {
                *hold = Some(Validity::granted(line.at, lease, sent, open, self.1));
            }
            (Some(hold), event) => hold.handle(line.at, event),
            (None, _) => panic!("line {}: `granted` comes first", line.number),
        }
        self.0.as_ref().map(answers).unwrap_or_default()
    }
}

/// Returns the answers that a line may expect of a hold.
pub fn answers(hold: &Validity) -> Vec<String> {
    let state = match hold.state() {
        State::Until(until) => format!("until {until}"),
        State::Lost => "lost".to_owned(),
        State::Released => "released".to_owned(),
    };
    let duty = match hold.duty() {
        Duty::Renew(at) => Some(format!("renew {at}")),
        Duty::Again(at) => Some(format!("again {at}")),
        Duty::Check => Some("check".to_owned()),
        Duty::Nothing => None,
    };
    std::iter::once(state).chain(duty).collect()
}
