//! The steps that clients take by the protocol under test, and the checks of these steps.

use std::time::Duration;

use dlock_core::Mode;

use super::check::Violation;
use super::client::{Client, Link, Plans, State};
use super::plan::{Given, Readings, Restarts};
use super::server::{Loss, Origin};
use super::world::{Event, Said, World};
use crate::{
    Acquisition, Answer, Ask, Call, Clocks, Facts, Floor, Keeping, Outcome, Patience, Standing, Start, Terms, standing,
};

impl World {
    /// Begins an acquisition with random options.
    pub(super) fn begin(&mut self, client: usize) {
        let random = &mut self.random;
        let longest = self.plan.longest_lease;
        // `Terms` needs a lease of four timeouts or more.
        let lease = random.pick(&[longest, longest, longest / 2]).max(self.plan.timeout * 4);
        let micros = Duration::from_micros;
        let this = &mut self.clients[client];
        let now = this.clock.read(self.now);
        this.terms = Terms::new(self.plan.servers, micros(lease), micros(self.plan.timeout), micros(longest)).unwrap();
        this.terms = this.terms.leaving_out(self.given.without);
        this.mode = if random.permille(200) { Mode::Shared } else { Mode::Exclusive };
        this.acquisition += 1;
        this.began = self.now;
        let patience = match random.within(0..10) {
            0..3 if self.plan.think != CALM_THINK => Patience::None,
            3..6 if self.plan.think != CALM_THINK => Patience::Until(now + micros(random.within(1000..2 * longest))),
            _ => Patience::Endless,
        };
        let mut calls = Vec::new();
        let floor = floor(&this.clocks, self.given, now);
        let start = Start { suspects: &[], contended: this.was_refused, floor, seed: random.number() };
        this.state = State::Acquiring(Acquisition::begin(this.terms, patience, start, now, &mut calls));
        if self.random.permille(READ_PERMILLE) {
            self.read_clocks(client, now);
        }
        self.send_calls(client, calls);
        self.set_timer(client);
    }

    /// Asks the servers that the client is connected to for their time.
    fn read_clocks(&mut self, client: usize, sent: Duration) {
        let process = self.clients[client].process;
        for server in 0..self.plan.servers {
            if let Link::Up { .. } = self.clients[client].links[server] {
                self.send(client, server, 0, Event::Hello { server, client, process, sent });
            }
        }
    }

    /// Hands an event or an answer to a client's acquisition or hold, and sends the calls that it returns.
    pub(super) fn step(&mut self, client: usize, hand_in: impl FnOnce(&mut State, Duration, &mut Vec<Call>)) {
        let this = &mut self.clients[client];
        let now = this.clock.read(self.now);
        let mut calls = Vec::new();
        hand_in(&mut this.state, now, &mut calls);
        let mut state = std::mem::replace(&mut this.state, State::Idle);
        match &mut state {
            State::Idle => {}
            State::Acquiring(acquisition) => acquisition.handle_timeout(now, &mut calls),
            State::Holding(hold, _) | State::Leaving(hold) => hold.handle_timeout(now, &mut calls),
        }
        self.clients[client].state = self.next_state(client, state, now, &mut calls);
        self.send_calls(client, calls);
        self.set_timer(client);
    }

    /// Returns the state of a client after a step, and counts what has ended.
    fn next_state(&mut self, client: usize, state: State, now: Duration, calls: &mut Vec<Call>) -> State {
        match state {
            State::Acquiring(mut acquisition) => match acquisition.outcome() {
                None => return State::Acquiring(acquisition),
                Some(Outcome::Held(hold)) => {
                    self.clients[client].was_refused = acquisition.was_refused();
                    self.acquired(client, &hold);
                    let lease = hold.valid_until().saturating_sub(now);
                    let ignores_loss = self.random.permille(200);
                    let time = self.random.pick(&[Duration::from_millis(1), lease / 4, lease * 2]);
                    return State::Holding(hold, Plans { release: now + time, ignores_loss });
                }
                Some(Outcome::Contended) => self.counts.contended += 1,
                Some(Outcome::TooFew(_)) => {
                    self.counts.too_few += 1;
                    self.begin_later(client, self.plan.retry);
                    return State::Idle;
                }
            },
            State::Holding(mut hold, plans) => {
                if hold.is_good(now) && self.tokens.is_outdated(self.clients[client].mode, hold.token()) {
                    self.violation = Some(Violation::TokenOrder);
                }
                if now < plans.release && (hold.is_good(now) || plans.ignores_loss) {
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

    /// Counts a hold that has begun, and checks it against the holds of the other clients.
    fn acquired(&mut self, client: usize, hold: &crate::Hold) {
        let this = &self.clients[client];
        self.counts.held += 1;
        self.counts.attempts += u64::from(hold.attempt() - 1);
        self.counts.most_attempts = self.counts.most_attempts.max(hold.attempt());
        self.counts.longest_wait = self.counts.longest_wait.max(self.now - this.began);
        let excludes = |other: &Client| other.mode == Mode::Exclusive || this.mode == Mode::Exclusive;
        let others = self.clients.iter().enumerate().filter(|(at, _)| *at != client);
        if others.into_iter().any(|(_, other)| excludes(other) && other.holds(self.now)) {
            self.violation = Some(Violation::Overlap);
        }
        self.violation = self.violation.or(self.tokens.acquired(this.mode, hold.token()));
        self.counts.overtaken += u64::from(self.servers[0].has_other_waiter(this.began, client));
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
            self.send_call(Origin {
                client,
                process,
                acquisition,
                call,
                mode,
                lease_ms,
                is_reserved: false,
                arrived: 0,
            });
        }
    }

    /// Sends a call to its server if the server counts, or if the call may also go to a server that does not count yet.
    /// Connects first, and keeps the call until then.
    fn send_call(&mut self, from: Origin) {
        let (client, server) = (from.client, from.call.to);
        let now = self.clients[client].clock.read(self.now);
        let timeout = self.clients[client].terms.timeout();
        match &mut self.clients[client].links[server] {
            Link::Up { process, uptime, read } => {
                let (to_process, uptime, ago) = (*process, *uptime, now - *read);
                let counts = self.counts_now(server, uptime, ago);
                if counts || matches!(from.call.ask, Ask::Release | Ask::Raise(_) | Ask::Renew | Ask::Repair(_)) {
                    let from = Origin { is_reserved: !counts, ..from };
                    self.send(client, server, 0, Event::Request { from, to_process });
                } else {
                    self.counts.young += 1;
                    self.at(self.now + 1, Event::Reply { to: from, answer: Answer::Failed, broken: None });
                }
            }
            Link::Greeting(since, waiting) if now < *since + timeout => waiting.push(from),
            link @ (Link::Greeting(..) | Link::Down) => {
                *link = Link::Greeting(now, vec![from]);
                self.send(client, server, 0, Event::Hello { server, client, process: from.process, sent: now });
            }
        }
    }

    /// Returns whether a client lets a server count, by the uptime that the client read `ago`.
    fn counts_now(&self, server: usize, uptime: Duration, ago: Duration) -> bool {
        let is_on_disk = self.servers[server].loses != Loss::All;
        let keeping = if is_on_disk { Keeping::OnDisk } else { Keeping::InMemory };
        let run_id = String::new();
        let facts = Facts { run_id, uptime, second_repl_offset: -1, is_primary: true, is_aof_enabled: is_on_disk };
        let longest = Duration::from_micros(self.plan.longest_lease);
        self.given.restarts == Restarts::Ignored || standing(&facts, keeping, longest, ago) == Standing::Counts
    }

    /// Handles a server's answer to `Hello`: notes its clock, and sends the calls that wait for the connection. `said`
    /// is `None` if the server is down.
    pub(super) fn welcome(&mut self, server: usize, client: usize, sent: Duration, said: Option<Said>) {
        let this = &mut self.clients[client];
        let read = this.clock.read(self.now);
        if let Some(Said { unix_us, .. }) = said {
            let wrong = if self.plan.misreads && (client, server) == (0, 0) { 4 * self.plan.longest_lease } else { 0 };
            this.clocks.note(server, sent, read, unix_us + wrong);
        }
        if !matches!(this.links[server], Link::Greeting(..)) {
            return;
        }
        let link = match said {
            Some(Said { process, uptime, .. }) => Link::Up { process, uptime: Duration::from_secs(uptime), read },
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

    /// Hands a reply to the client. `broken`: the process of the server whose connection has ended.
    pub(super) fn reply(&mut self, to: Origin, answer: Answer, broken: Option<u32>) {
        let this = &mut self.clients[to.client];
        let link = &mut this.links[to.call.to];
        if matches!(link, Link::Up { process, .. } if Some(*process) == broken) {
            *link = Link::Down;
        }
        if this.acquisition != to.acquisition {
            return;
        }
        let answer = if to.is_reserved && answer == Answer::Done { Answer::Reserved } else { answer };
        let floor = floor(&this.clocks, self.given, this.clock.read(self.now));
        self.step(to.client, |state, now, calls| match state {
            State::Idle => {}
            State::Acquiring(acquisition) => {
                acquisition.set_floor(floor);
                acquisition.answer(now, &to.call, answer, calls);
            }
            State::Holding(hold, _) | State::Leaving(hold) => hold.answer(now, &to.call, answer, calls),
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

fn floor(clocks: &Clocks, given: Given, now: Duration) -> Floor {
    match given.readings {
        Readings::Median => clocks.floor(now),
        Readings::Fastest => clocks.floor_of_the_fastest(now),
    }
}

/// Before this many of 1000 acquisitions, a client reads the servers' clocks again.
const READ_PERMILLE: u64 = 200;

/// The `think` of calm plans, in µs. No other plan has it. In calm runs, all clients wait without a limit.
const CALM_THINK: u64 = 10_000;
