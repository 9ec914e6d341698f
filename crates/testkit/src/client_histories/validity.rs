//! Until when a hold is certain, and when to renew it: the reference.

use super::planted::Planted;
use super::play::Machine;
use super::text::Line;

/// An event of a hold. Times and leases in ms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    Granted { lease: i64, sent: i64, open: bool },
    Sent { number: u32, lease: i64 },
    Ok(u32),
    Cut(u32),
    Capped(u32),
    Refused(u32),
    Asked(u32),
    Left(u32, i64),
    Nil(u32),
    Now,
    Release,
}

/// The claim of a hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    Until(i64),
    Lost,
    Released,
}

/// The next duty of a hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Duty {
    Renew(i64),
    Again(i64),
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
    /// Whether a command that sets the lease was open when it was sent, or was sent since.
    is_blurred: bool,
}

/// The state of a hold.
#[derive(Clone, Debug)]
pub struct Validity {
    state: State,
    duty: Duty,
    /// The server has no shorter lease.
    sure: i64,
    /// The shortest of the current group of commands.
    shortest: i64,
    wanted: i64,
    commands: Vec<Command>,
    questions: Vec<Question>,
    is_capped: bool,
    planted: Option<Planted>,
}

/// Client and server count whole milliseconds.
fn rounding(planted: Option<Planted>) -> i64 {
    if planted == Some(Planted::CountsFractions) { 0 } else { 2 }
}

impl Validity {
    /// A hold that was granted.
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
            // No answer to it is ever read.
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

    /// Counts a command as answered. `None`: it was, or there is none.
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

/// The reference as a player wants it.
#[derive(Default)]
pub struct Player(Option<Validity>, Option<Planted>);

impl Player {
    /// With a defect.
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

/// Returns all that may be expected of a hold.
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
