//! Plays the histories that all packages share on the pure code of this one.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use dlock_testkit::client_histories::attempt::{self, Limit};
use dlock_testkit::client_histories::play::{Machine, all_of_repository, play_all};
use dlock_testkit::client_histories::text::Line;
use dlock_testkit::client_histories::validity::Event;

use crate::attempt::{Attempt, Block, Cleanup, Next, Outcome};
use crate::heartbeat::{Duty, Heartbeat};
use crate::options::Wait;
use crate::validity::{Command, Question, State, Validity, end};

/// Times of a history, which has its own zero.
struct Clock(Instant);

impl Clock {
    fn new() -> Self {
        Self(Instant::now() + ms(1_000_000))
    }

    fn at(&self, time: i64) -> Instant {
        let length = ms(time.abs());
        if time < 0 { self.0 - length } else { self.0 + length }
    }

    fn shown(&self, time: Instant) -> i64 {
        let whole = |length: Duration| i64::try_from(length.as_millis()).expect("a time of a history");
        match time.checked_duration_since(self.0) {
            Some(after) => whole(after),
            None => -whole(self.0 - time),
        }
    }
}

fn ms(time: i64) -> Duration {
    Duration::from_millis(u64::try_from(time).expect("a length of time"))
}

/// A hold.
struct Hold {
    clock: Clock,
    kept: Option<(Validity, Heartbeat)>,
    commands: HashMap<u32, Command>,
    questions: HashMap<u32, Question>,
}

impl Hold {
    fn boxed() -> Box<dyn Machine> {
        Box::new(Self { clock: Clock::new(), kept: None, commands: HashMap::new(), questions: HashMap::new() })
    }

    fn tell(&mut self, now: Instant, event: Event) {
        if let Event::Granted { lease, sent, open } = event {
            let (sent, lease) = (self.clock.at(sent), ms(lease));
            let validity = Validity::granted(end(sent, lease), lease, open);
            let heartbeat = Heartbeat::granted(now, sent, lease, 1.0, &validity);
            self.kept = Some((validity, heartbeat));
            return;
        }
        let Some((validity, heartbeat)) = &mut self.kept else { panic!("`granted` comes first") };
        validity.lapse(now);
        if !matches!(validity.state(), State::Until(_)) {
            return;
        }
        match event {
            Event::Granted { .. } | Event::Now => {}
            Event::Sent { number, lease } => {
                self.commands.insert(number, validity.sends(now, ms(lease)));
                heartbeat.wanted = ms(lease);
                heartbeat.sends(now, validity);
            }
            Event::Ok(number) => {
                let command = self.commands.remove(&number).expect("a command");
                let sent = command.sent;
                validity.ok(command);
                heartbeat.ok(now, sent, validity);
            }
            Event::Cut(_) => heartbeat.failed(now, validity),
            Event::Refused(number) => {
                validity.refused(self.commands.remove(&number).expect("a command"));
                heartbeat.failed(now, validity);
            }
            Event::Capped(number) => {
                validity.refused(self.commands.remove(&number).expect("a command"));
                heartbeat.capped();
            }
            Event::Asked(number) => _ = self.questions.insert(number, validity.asks(now)),
            Event::Left(number, left) => {
                validity.looked(self.questions.remove(&number).expect("a question"), ms(left));
                heartbeat.looked(now, validity);
            }
            Event::Nil(_) => validity.gone(),
            Event::Release => validity.release(),
        }
    }
}

impl Machine for Hold {
    fn handle(&mut self, line: &Line) -> Vec<String> {
        let now = self.clock.at(line.at);
        self.tell(now, Event::of(line));
        let Some((validity, heartbeat)) = &mut self.kept else { return Vec::new() };
        validity.lapse(now);
        let shown = |time| self.clock.shown(time);
        let state = match validity.state() {
            State::Until(until) => format!("until {}", shown(until)),
            State::Lost => "lost".to_owned(),
            State::Released => "released".to_owned(),
        };
        let duty = match heartbeat.duty() {
            Duty::Renew(at) => format!("renew {}", shown(at)),
            Duty::Again(at) => format!("again {}", shown(at)),
            Duty::Check => "check".to_owned(),
            Duty::Nothing => "nothing".to_owned(),
        };
        vec![state, duty]
    }
}

/// An acquisition.
struct Acquisition {
    clock: Clock,
    attempt: Option<Attempt>,
    numbers: HashMap<u32, u64>,
    sent: HashMap<u32, Instant>,
}

impl Acquisition {
    fn boxed() -> Box<dyn Machine> {
        Box::new(Self { clock: Clock::new(), attempt: None, numbers: HashMap::new(), sent: HashMap::new() })
    }

    fn tell(&mut self, line: &Line) {
        use attempt::Event;
        let now = self.clock.at(line.at);
        let Some(attempt) = &mut self.attempt else {
            let (limit, lease, outage) = attempt::asked(line);
            let wait = match limit {
                Limit::AtMost(limit) => Wait::AtMost(ms(limit)),
                Limit::None => Wait::ForEver,
                Limit::Try => Wait::Not,
            };
            self.attempt = Some(Attempt::new(now, wait, ms(lease), ms(outage.unwrap_or(1000))));
            return;
        };
        let number = |number| self.numbers.get(&number).copied().expect("a command");
        match Event::of(line) {
            Event::Sent(sent) => {
                self.numbers.insert(sent, attempt.sends(now));
                self.sent.insert(sent, now);
            }
            Event::Granted(sent) => attempt.granted(now, number(sent)),
            Event::Nil(sent) => attempt.nil(now, number(sent)),
            Event::Ok(sent) => attempt.ok(now, number(sent), None),
            Event::Left(sent, left) => {
                let most = end(self.sent[&sent], ms(left));
                attempt.ok(now, number(sent), Some(most));
            }
            Event::Gone(sent) => attempt.gone(now, number(sent)),
            Event::Cut(_) => attempt.cut(now),
            Event::Refused(sent) => attempt.refused(now, number(sent)),
            Event::Error(sent) => attempt.failed(number(sent)),
            Event::Over => attempt.over(now),
            Event::Cancel => attempt.cancel(),
        }
    }
}

impl Machine for Acquisition {
    fn handle(&mut self, line: &Line) -> Vec<String> {
        self.tell(line);
        let Some(attempt) = &self.attempt else { return Vec::new() };
        let is_fresh = |fresh| if fresh { "fresh " } else { "" };
        let answer = match attempt.next() {
            Next::Ask { block: None, fresh } => format!("{}try", is_fresh(fresh)),
            Next::Ask { block: Some(Block::ForEver), fresh } => format!("{}wait 0", is_fresh(fresh)),
            Next::Ask { block: Some(Block::For(left)), fresh } => {
                format!("{}wait {}", is_fresh(fresh), left.as_millis().max(1))
            }
            Next::Confirm => "confirm".to_owned(),
            Next::Over(Outcome::Granted(until), _) => format!("granted until {}", self.clock.shown(until)),
            Next::Over(outcome, cleanup) => {
                let outcome = format!("{outcome:?}").to_lowercase();
                let cleanup = match cleanup {
                    Cleanup::Nothing => "none",
                    Cleanup::Leave => "leave",
                    Cleanup::Release => "release",
                };
                format!("{outcome} cleanup {cleanup}")
            }
        };
        vec![answer]
    }
}

#[test]
fn an_acquisition_sends_and_ends_as_the_histories_say() {
    assert!(play_all(&all_of_repository(), "acquire", Acquisition::boxed) >= 1000);
}

#[test]
fn a_hold_claims_and_renews_as_the_histories_say() {
    assert!(play_all(&all_of_repository(), "granted", Hold::boxed) >= 2000);
}
