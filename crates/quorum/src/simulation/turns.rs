//! What clients do in the world: they follow the protocol under test, and are checked.

use std::time::Duration;

use dlock_core::Mode;

use super::check::Violation;
use super::client::{Client, Link, Plans, State};
use super::plan::Restarts;
use super::server::{Memory, Origin};
use super::world::{Event, World};
use crate::{Acquisition, Answer, Ask, Call, Facts, Keeping, Outcome, Patience, Standing, Terms, standing};

impl World {
    pub(super) fn begin(&mut self, client: usize) {
        let random = &mut self.random;
        let longest = self.plan.longest_lease;
        let lease = random.pick(&[longest, longest, longest / 2]).max(self.plan.timeout * 4);
        let micros = Duration::from_micros;
        let this = &mut self.clients[client];
        let now = this.clock.read(self.now);
        this.terms = Terms::new(self.plan.servers, micros(lease), micros(self.plan.timeout), micros(longest)).unwrap();
        this.terms.rules = self.given.rules;
        this.mode = if random.permille(200) { Mode::Shared } else { Mode::Exclusive };
        this.acquisition += 1;
        this.began = self.now;
        let patience = match random.within(0..10) {
            0..3 if self.plan.think != CALM_THINK => Patience::None,
            3..6 if self.plan.think != CALM_THINK => Patience::Until(now + micros(random.within(1000..2 * longest))),
            _ => Patience::Endless,
        };
        let mut calls = Vec::new();
        let seed = random.number();
        this.state = State::Acquiring(Acquisition::begin(this.terms, patience, [], seed, now, &mut calls));
        self.send_calls(client, calls);
        self.set_timer(client);
    }

    /// Hands something to a client's protocol, and does what it says.
    pub(super) fn step(&mut self, client: usize, hand_in: impl FnOnce(&mut State, Duration, &mut Vec<Call>)) {
        let this = &mut self.clients[client];
        let now = this.clock.read(self.now);
        let mut calls = Vec::new();
        hand_in(&mut this.state, now, &mut calls);
        let mut state = std::mem::replace(&mut this.state, State::Idle);
        match &mut state {
            State::Idle => {}
            State::Acquiring(acquisition) => acquisition.pass(now, &mut calls),
            State::Holding(hold, _) | State::Leaving(hold) => hold.pass(now, &mut calls),
        }
        self.clients[client].state = self.next_state(client, state, now, &mut calls);
        self.send_calls(client, calls);
        self.set_timer(client);
    }

    fn next_state(&mut self, client: usize, state: State, now: Duration, calls: &mut Vec<Call>) -> State {
        match state {
            State::Acquiring(mut acquisition) => match acquisition.outcome() {
                None => return State::Acquiring(acquisition),
                Some(Outcome::Held(hold)) => {
                    self.acquired(client, &hold);
                    let lease = hold.valid_until().saturating_sub(now);
                    let time = self.random.pick(&[Duration::from_millis(1), lease / 4, lease * 2]);
                    return State::Holding(hold, Plans { release: now + time });
                }
                Some(Outcome::Contended) => self.counts.contended += 1,
                Some(Outcome::TooFew(_)) => {
                    self.counts.too_few += 1;
                    self.begin_later(client, 100_000);
                    return State::Idle;
                }
            },
            State::Holding(mut hold, plans) => {
                if hold.is_good(now) && now < plans.release {
                    return State::Holding(hold, plans);
                }
                *if hold.is_good(now) { &mut self.counts.released } else { &mut self.counts.lost } += 1;
                hold.release(now, calls);
                return State::Leaving(hold);
            }
            State::Leaving(hold) if !hold.has_left() => return State::Leaving(hold),
            State::Leaving(_) => {}
            State::Idle => return State::Idle,
        }
        self.begin_later(client, self.plan.think);
        State::Idle
    }

    fn acquired(&mut self, client: usize, hold: &crate::Hold) {
        let this = &self.clients[client];
        self.counts.held += 1;
        self.counts.attempts += u64::from(hold.attempt() - 1);
        self.counts.longest_wait = self.counts.longest_wait.max(self.now - this.began);
        let excludes = |other: &Client| other.mode == Mode::Exclusive || this.mode == Mode::Exclusive;
        let others = self.clients.iter().enumerate().filter(|(at, _)| *at != client);
        if others.into_iter().any(|(_, other)| excludes(other) && other.holds(self.now)) {
            self.violation = Some(Violation::Overlap);
        }
        self.violation = self.violation.or(self.tokens.acquired(this.mode, hold.token()));
    }

    fn send_calls(&mut self, client: usize, calls: Vec<Call>) {
        if !calls.is_empty() && self.random.permille(self.plan.pause_permille) {
            // The process pauses between its decision and the sending.
            self.clients[client].stopped_until = self.now + self.random.within(0..2 * self.plan.longest_lease);
        }
        for call in calls {
            self.counts.calls += 1;
            let this = &self.clients[client];
            let (process, acquisition, mode) = (this.process, this.acquisition, this.mode);
            let lease_ms = this.terms.lease().as_millis() as u64;
            self.send_call(Origin { client, process, acquisition, call, mode, lease_ms });
        }
    }

    fn send_call(&mut self, from: Origin) {
        let (client, server) = (from.client, from.call.to);
        let now = self.clients[client].clock.read(self.now);
        let timeout = self.clients[client].terms.timeout();
        match &mut self.clients[client].links[server] {
            Link::Up { process, uptime, read } => {
                let (to_process, uptime, ago) = (*process, *uptime, now - *read);
                if self.counts_now(server, uptime, ago) || from.call.ask == Ask::Release {
                    self.send(client, server, 0, Event::Request { from, to_process });
                } else {
                    self.counts.young += 1;
                    self.at(self.now + 1, Event::Reply { to: from, answer: Answer::Failed, broken: None });
                }
            }
            Link::Greeting(since, waiting) if now < *since + timeout => waiting.push(from),
            link @ (Link::Greeting(..) | Link::Down) => {
                *link = Link::Greeting(now, vec![from]);
                self.send(client, server, 0, Event::Hello { server, client, process: from.process });
            }
        }
    }

    fn counts_now(&self, server: usize, uptime: Duration, ago: Duration) -> bool {
        let keeps = self.servers[server].loses != Memory::All;
        let keeping = if keeps { Keeping::OnDisk } else { Keeping::InMemory };
        let run_id = String::new();
        let facts = Facts { run_id, uptime, second_repl_offset: -1, is_primary: true, is_aof_enabled: keeps };
        let longest = Duration::from_micros(self.plan.longest_lease);
        self.given.restarts == Restarts::Ignored || standing(&facts, keeping, longest, ago) == Standing::Counts
    }

    pub(super) fn welcome(&mut self, server: usize, client: usize, said: Option<(u32, u64)>) {
        let read = self.clients[client].clock.read(self.now);
        let link = match said {
            Some((process, uptime)) => Link::Up { process, uptime: Duration::from_secs(uptime), read },
            None => Link::Down,
        };
        let is_up = matches!(link, Link::Up { .. });
        let before = std::mem::replace(&mut self.clients[client].links[server], link);
        let Link::Greeting(_, waiting) = before else { return };
        for from in waiting {
            if is_up {
                self.send_call(from);
            } else {
                self.at(self.now, Event::Reply { to: from, answer: Answer::Failed, broken: None });
            }
        }
    }

    pub(super) fn reply(&mut self, to: Origin, answer: Answer, broken: Option<u32>) {
        let this = &mut self.clients[to.client];
        let link = &mut this.links[to.call.to];
        if matches!(link, Link::Up { process, .. } if Some(*process) == broken) {
            *link = Link::Down;
        }
        if this.acquisition != to.acquisition {
            return;
        }
        self.step(to.client, |state, now, calls| match state {
            State::Idle => {}
            State::Acquiring(acquisition) => acquisition.answer(now, &to.call, answer, calls),
            State::Holding(hold, _) | State::Leaving(hold) => hold.answer(&to.call, answer),
        });
    }

    fn set_timer(&mut self, client: usize) {
        let this = &mut self.clients[client];
        let at = this.next_timeout().map(|time| this.clock.when(time).max(self.now + 1));
        if let Some(at) = at.filter(|at| this.timer.is_none_or(|timer| *at < timer)) {
            this.timer = Some(at);
            let process = this.process;
            self.at(at, Event::Timer { client, process });
        }
    }
}

/// In calm runs everybody waits for ever.
const CALM_THINK: u64 = 10_000;
