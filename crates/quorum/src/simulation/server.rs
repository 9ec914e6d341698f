//! A server with one lock, kept by the rules of the module (`dlock-core`).

use dlock_core::{
    Acquire, Acquired, Effect, Entries, Lease, LeaseChoice, Line, Lock, Mode, Owner, Place, Reentry, Refusal, Release,
    Released, Renew, RenewToken, Renewed, Served, Token, TokenClock, UnixMs,
};

use super::clock::{Real, Wall};
use crate::{Answer, Ask, Call};

/// Who sent a call and gets the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Origin {
    pub client: usize,
    /// Which of the processes that were this client.
    pub process: u32,
    /// Which of its acquisitions.
    pub acquisition: u32,
    pub call: Call,
    pub mode: Mode,
    pub lease_ms: u64,
}

impl Origin {
    pub fn owner(&self) -> Owner {
        let mut bytes = [0; 16];
        let numbers = [self.client as u32, self.process, self.acquisition, self.call.attempt];
        for (place, number) in bytes.chunks_mut(4).zip(numbers) {
            place.copy_from_slice(&number.to_be_bytes());
        }
        Owner::from_uuid(bytes)
    }
}

pub type Answers = Vec<(Origin, Answer)>;

/// What is lost when the process ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Memory {
    Nothing,
    /// The token clock, except for what the holds that are left say: an AOF that was rewritten on Redis 7.0.
    TokenClock,
    All,
}

pub struct Server {
    pub clock: Wall,
    pub is_up: bool,
    /// Which of the processes that were this server.
    pub process: u32,
    pub stopped_until: Real,
    pub loses: Memory,
    started: u64,
    lock: Lock,
    line: Line<Origin>,
    places: Vec<(Place, Origin)>,
    tokens: TokenClock,
}

impl Server {
    pub fn new(clock: Wall, loses: Memory) -> Server {
        Server {
            clock,
            is_up: true,
            process: 0,
            stopped_until: 0,
            loses,
            // Up long before the run begins.
            started: 0,
            lock: Lock::default(),
            line: Line::default(),
            places: Vec::new(),
            tokens: TokenClock::new(),
        }
    }

    pub fn crash(&mut self) {
        self.is_up = false;
        self.process += 1;
        self.line = Line::default();
        self.places.clear();
        match self.loses {
            Memory::Nothing => {}
            Memory::TokenClock => {
                self.tokens = TokenClock::new();
                self.tokens.observe_all(self.lock.stored_holds());
            }
            Memory::All => (self.lock, self.tokens) = (Lock::default(), TokenClock::new()),
        }
    }

    pub fn start(&mut self, now: Real) {
        self.is_up = true;
        self.started = self.clock.read(now) / 1_000_000;
    }

    /// `uptime_in_seconds`.
    pub fn uptime(&self, now: Real) -> u64 {
        (self.clock.read(now) / 1_000_000).saturating_sub(self.started)
    }

    /// Runs a command; `place` is set if it waits.
    pub fn run(&mut self, now: Real, from: Origin, answers: &mut Answers) -> Option<Place> {
        self.serve(now, answers);
        let owner = from.owner();
        let mut place = None;
        match from.call.ask {
            Ask::Ping => answers.push((from, Answer::Done)),
            Ask::Enter | Ask::Queue(_) => place = self.enter(now, &owner, from, answers),
            Ask::Confirm(token) => {
                let token = Token::new(token).map_or(RenewToken::Any, RenewToken::AtLeast);
                answers.push((from, self.renew(now, &owner, from.lease_ms, token)));
            }
            Ask::Renew => answers.push((from, self.renew(now, &owner, from.lease_ms, RenewToken::Any))),
            Ask::Release => {
                self.leave_line(|waiting| waiting.owner() == owner);
                let request = Release { owner: &owner, mode: None, entries: Entries::All, token: None, request: None };
                let answer = match self.lock.release(self.unix_ms(now), &request) {
                    Released::Fully(effect) | Released::Partly(effect) => {
                        self.apply(effect);
                        Answer::Done
                    }
                    Released::NotHeld | Released::Ambiguous | Released::Replayed => Answer::Gone,
                };
                answers.push((from, answer));
            }
        }
        self.serve(now, answers);
        place
    }

    /// Serves the line as far as it goes.
    pub fn serve(&mut self, now: Real, answers: &mut Answers) {
        let (now_ms, default) = (self.unix_ms(now), Lease::MAX);
        while let Some(served) = self.line.serve(&self.lock, now_ms, default, self.tokens.next(self.clock.read(now))) {
            let (from, answer) = match served {
                Served::Granted { waiting, token, effect, .. } => {
                    self.apply(effect);
                    (waiting.ticket, Answer::Granted(token.get()))
                }
                Served::Replayed(waiting, _) | Served::Refused(waiting, _) => (waiting.ticket, Answer::Refused),
            };
            self.places.retain(|(_, waiting)| *waiting != from);
            answers.push((from, answer));
        }
    }

    /// The wait of this place has run out.
    pub fn unblock(&mut self, now: Real, place: Place, answers: &mut Answers) {
        if let Some(waiting) = self.line.leave(place) {
            self.places.retain(|(at, _)| *at != place);
            answers.push((waiting.ticket, Answer::Refused));
            self.serve(now, answers);
        }
    }

    /// The client's connections are gone.
    pub fn disconnect(&mut self, client: usize, process: u32) {
        self.leave_line(|waiting| (waiting.client, waiting.process) == (client, process));
    }

    /// When somebody in line may get in because a lease ends.
    pub fn next_turn(&self, now: Real) -> Option<Real> {
        if self.line.is_empty() {
            return None;
        }
        let deadline = self.lock.live_holds(self.unix_ms(now)).map(|hold| hold.deadline).min()?;
        Some(self.clock.when(deadline.get() * 1000, now))
    }

    fn enter(&mut self, now: Real, owner: &Owner, from: Origin, answers: &mut Answers) -> Option<Place> {
        let lease = LeaseChoice::For(Lease::new(from.lease_ms).unwrap());
        let request = Acquire { owner, mode: from.mode, reentry: Reentry::Refuse, lease, request: None };
        let (now_ms, fresh) = (self.unix_ms(now), self.tokens.next(self.clock.read(now)));
        match self.line.decide(&self.lock, now_ms, &request, Lease::MAX, fresh) {
            Acquired::Granted { token, effect, .. } => {
                self.apply(effect);
                answers.push((from, Answer::Granted(token.get())));
                None
            }
            Acquired::Refused(Refusal::Held) if matches!(from.call.ask, Ask::Queue(_)) => {
                let place = self.line.join(&self.lock, now_ms, &request, from).unwrap();
                self.places.push((place, from));
                Some(place)
            }
            Acquired::Refused(_) | Acquired::Replayed(_) => {
                answers.push((from, Answer::Refused));
                None
            }
        }
    }

    fn renew(&mut self, now: Real, owner: &Owner, lease_ms: u64, token: RenewToken) -> Answer {
        let lease = LeaseChoice::For(Lease::new(lease_ms).unwrap());
        match self.lock.renew(self.unix_ms(now), &Renew { owner, mode: None, lease, token }) {
            Renewed::NotHeld => Answer::Gone,
            Renewed::Moved(first, second) => {
                std::iter::once(first).chain(second).for_each(|effect| self.apply(effect));
                Answer::Done
            }
        }
    }

    fn apply(&mut self, effect: Effect) {
        self.lock.apply(effect, &mut self.tokens);
    }

    fn leave_line(&mut self, leaves: impl Fn(&Origin) -> bool) {
        let gone: Vec<Place> = self.places.iter().filter(|(_, from)| leaves(from)).map(|(place, _)| *place).collect();
        self.places.retain(|(_, from)| !leaves(from));
        gone.into_iter().for_each(|place| drop(self.line.leave(place)));
    }

    fn unix_ms(&self, now: Real) -> UnixMs {
        UnixMs::new(self.clock.read(now) / 1000)
    }
}
