//! A simulation of holds: a lock on a server with a clock of its own, a network that delays, loses and reorders
//! messages, a program that pauses and handles the events of that time later. The program acts by a [`Validity`]. The
//! server, and the check of the invariant, use none of its rules.
//!
//! The invariant: no guard claims the lock for a moment at which another client had it.

mod server;

use std::collections::BTreeMap;

use super::planted::Planted;
use super::validity::{Duty, Event, State, Validity};
use crate::random::Random;

/// The outcome of a simulation.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// The events of each hold, and its state after each event.
    pub traces: Vec<Vec<Step>>,
    /// A description of a guard that claimed too much, if any.
    pub violation: Option<String>,
}

/// An event of a hold.
#[derive(Clone, Debug)]
pub struct Step {
    pub at: i64,
    pub event: Event,
    pub after: Validity,
}

/// Runs the simulation of this seed, with or without a defect in the program.
pub fn run(seed: u64, planted: Option<Planted>) -> Outcome {
    let mut world = World::new(seed, planted);
    world.play();
    world.finish()
}

/// An event of the simulation.
#[derive(Clone, Copy, Debug)]
enum Happening {
    /// The server executes a command.
    Executes(Order),
    /// The other client releases the lock.
    OtherLeaves,
    /// The program handles an event of a hold.
    Handles(usize, Event),
    /// The program reads a grant.
    Reads { hold: usize, sent: i64, open: bool },
    /// The duty of a hold is due, unless the hold has changed since.
    Due { hold: usize, change: u64 },
    /// The user does something with the guard.
    Acts(usize, Act),
    /// A task asks for the lock.
    Asks(usize),
}

#[derive(Clone, Copy, Debug)]
enum Act {
    Extends(i64),
    Looks,
    Checks,
    Releases,
}

/// A command on its way to the server.
#[derive(Clone, Copy, Debug)]
struct Order {
    hold: usize,
    kind: Kind,
    /// How long the answer takes, in µs. `None` if it is lost, or nobody reads it.
    back: Option<i64>,
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    Acquire {
        sent: i64,
        open: bool,
        ask: u64,
    },
    /// A copy of a command of which another copy may be granted.
    AcquireAgain {
        ask: u64,
    },
    Renew {
        number: u32,
        lease: i64,
    },
    Fails {
        number: u32,
    },
    Check {
        number: u32,
    },
    Release,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Holder {
    Nobody,
    Other,
    Hold(usize),
}

/// A hold and its guard.
#[derive(Clone, Debug, Default)]
struct Guard {
    lease: i64,
    /// The number of the machine that has the state of the hold.
    machine: Option<usize>,
    is_released: bool,
    /// The number of the request that was granted.
    ask: u64,
    /// When the other client got the lock, in µs.
    ended: Option<i64>,
    /// The last moment that the guard has claimed so far, in µs.
    claimed: i64,
    /// The time that the guard claims now, in µs: since when, and until when.
    claims: Option<(i64, i64)>,
    next: u32,
    /// The number of events so far.
    change: u64,
    /// The numbers of the renewals that are neither answered nor cut.
    waits_for: Vec<u32>,
    /// The number of renewals and questions that the hold has sent.
    sends: u32,
    trace: Vec<Step>,
}

struct World {
    random: Random,
    planted: Option<Planted>,
    now: i64,
    agenda: BTreeMap<(i64, u64), Happening>,
    sequence: u64,
    /// The lease that tasks ask for, in ms.
    lease: i64,
    /// How many µs of a millisecond have passed on the server's clock whenever a millisecond begins on the client's.
    phase: i64,
    /// The times in which the program is paused, in µs.
    pauses: Vec<(i64, i64)>,
    holder: Holder,
    /// The end of the hold, in ms by the server's clock.
    deadline: i64,
    cap: Option<i64>,
    has_cap: bool,
    guards: Vec<Guard>,
    machines: Vec<Option<Validity>>,
}

/// The most renewals and questions that a hold sends.
const MOST: u32 = 6;

impl World {
    fn new(seed: u64, planted: Option<Planted>) -> Self {
        let mut random = Random::of(seed, "a client's world");
        let lease = match random.below(8) {
            0 => 100,
            1 => 300,
            2 | 3 => 1000,
            4 | 5 => 3000,
            6 => 30_000,
            _ => random.within(20..60_000).cast_signed(),
        };
        let mut pauses = Vec::new();
        for _ in 0..random.below(3) {
            let start = random.within(0..lease.cast_unsigned() * 3000).cast_signed();
            pauses.push((start, start + random.within(1..lease.cast_unsigned() * 1500).cast_signed()));
        }
        let (phase, has_cap) = (random.below(1000).cast_signed(), random.one_in(8));
        let tasks = if random.one_in(3) { 2 } else { 1 };
        let mut world = Self {
            random,
            planted,
            now: 0,
            agenda: BTreeMap::new(),
            sequence: 0,
            lease,
            phase,
            pauses,
            holder: Holder::Nobody,
            deadline: 0,
            cap: None,
            has_cap,
            guards: vec![Guard::default(); tasks],
            machines: vec![None; tasks],
        };
        for task in 0..tasks {
            let at = if task == 0 { 0 } else { world.some(3000) };
            world.plan(at, Happening::Asks(task));
        }
        world
    }

    /// Draws a time in µs, up to this many thousandths of the lease.
    fn some(&mut self, permille: i64) -> i64 {
        self.random.within(0..(self.lease * permille).cast_unsigned().max(1)).cast_signed()
    }

    /// Draws how long a message takes.
    fn way(&mut self) -> i64 {
        match self.random.below(12) {
            0..=7 => self.random.within(50..1500).cast_signed(),
            8 | 9 => self.some(100),
            10 => self.some(600),
            _ => self.some(1500),
        }
    }

    fn plan(&mut self, at: i64, happening: Happening) {
        self.sequence += 1;
        self.agenda.insert((at.max(self.now), self.sequence), happening);
    }

    fn client_ms(&self) -> i64 {
        self.now.div_euclid(1000)
    }

    fn server_ms(&self) -> i64 {
        (self.now + self.phase).div_euclid(1000)
    }

    fn play(&mut self) {
        let mut steps = 0;
        while let Some(((at, sequence), happening)) = self.agenda.pop_first() {
            steps += 1;
            assert!(steps < 5000, "the simulation does not end");
            let is_of_program = !matches!(happening, Happening::Executes(_) | Happening::OtherLeaves);
            let paused = self.pauses.iter().find(|(start, end)| is_of_program && (*start..*end).contains(&at));
            if let Some((_, end)) = paused {
                // The sequence number keeps the order of arrival.
                self.agenda.insert((*end, sequence), happening);
                continue;
            }
            self.now = at;
            self.lapse();
            self.happens(happening);
        }
    }

    fn happens(&mut self, happening: Happening) {
        match happening {
            Happening::Executes(order) => self.executes(order),
            Happening::OtherLeaves => {
                if self.holder == Holder::Other {
                    self.holder = Holder::Nobody;
                }
            }
            Happening::Reads { hold, sent, open } => self.begins(hold, sent, open),
            Happening::Handles(hold, event) => {
                if let Event::Ok(number)
                | Event::Cut(number)
                | Event::Capped(number)
                | Event::Refused(number)
                | Event::Nil(number) = event
                {
                    let guard = &mut self.guards[hold];
                    let waited = guard.waits_for.iter().position(|waiting| *waiting == number);
                    match waited {
                        Some(at) => _ = guard.waits_for.swap_remove(at),
                        // The connection breaks after the request was answered.
                        None if matches!(event, Event::Cut(_)) => return,
                        None => {}
                    }
                }
                self.tells(hold, event);
            }
            Happening::Due { hold, change } => self.is_due(hold, change),
            Happening::Acts(hold, act) => self.acts(hold, act),
            Happening::Asks(task) => self.asks(task),
        }
    }
}

/// The program.
impl World {
    fn asks(&mut self, task: usize) {
        self.guards[task].lease = self.lease;
        let (sent, open) = (self.client_ms(), self.random.one_in(6));
        let (there, back) = (self.way(), self.way());
        let (mut first, ask) = (there, self.sequence);
        if open {
            // The connection of a first copy has broken. Both copies may arrive.
            let copy = Order { hold: task, kind: Kind::AcquireAgain { ask }, back: None };
            let at = self.now + self.some(1500);
            self.plan(at, Happening::Executes(copy));
            first += self.some(200);
        }
        let order = Order { hold: task, kind: Kind::Acquire { sent, open, ask }, back: Some(back) };
        self.plan(self.now + first, Happening::Executes(order));
        if task > 0 && self.now < self.lease * 5000 {
            let pause = self.lease * 400;
            self.plan(self.now + pause, Happening::Asks(task));
        }
    }

    /// Makes the guard of a grant that the program reads.
    fn begins(&mut self, hold: usize, sent: i64, open: bool) {
        if self.guards[hold].machine.is_some() {
            return;
        }
        let machine = if self.planted == Some(Planted::SharedSlot) { 0 } else { hold };
        self.guards[hold].machine = Some(machine);
        let (now, lease) = (self.client_ms(), self.guards[hold].lease);
        self.machines[machine] = Some(Validity::granted(now, lease, sent, open, self.planted));
        self.note(hold, Event::Granted { lease, sent, open });
        for _ in 0..self.random.below(6) {
            let act = match self.random.below(8) {
                0 => Act::Extends(self.random.within(5..(self.lease * 3).cast_unsigned().max(6)).cast_signed()),
                1 | 2 => Act::Extends((self.lease / 3).max(5)),
                3 => Act::Extends(self.lease * 3),
                4 => Act::Looks,
                5 | 6 => Act::Checks,
                _ => Act::Releases,
            };
            let at = self.now + self.some(2500);
            self.plan(at, Happening::Acts(hold, act));
        }
    }

    fn acts(&mut self, hold: usize, act: Act) {
        if self.guards[hold].is_released {
            return;
        }
        match act {
            Act::Extends(lease) => self.renews(hold, lease),
            Act::Looks => self.tells(hold, Event::Now),
            Act::Checks => self.checks(hold),
            Act::Releases => {
                self.tells(hold, Event::Release);
                self.guards[hold].is_released = true;
                let order = Order { hold, kind: Kind::Release, back: None };
                let at = self.now + self.way();
                self.plan(at, Happening::Executes(order));
            }
        }
    }

    fn is_due(&mut self, hold: usize, change: u64) {
        let guard = &self.guards[hold];
        let Some(machine) = guard.machine.and_then(|at| self.machines[at].as_ref()) else { return };
        if guard.change != change || guard.is_released {
            return;
        }
        match machine.duty() {
            Duty::Renew(_) => {
                let lease = machine.wanted();
                self.renews(hold, lease);
            }
            Duty::Again(_) => {
                let Some(number) = guard.waits_for.last().copied() else { return };
                self.guards[hold].waits_for.retain(|waiting| *waiting != number);
                self.tells(hold, Event::Cut(number));
            }
            Duty::Check => self.checks(hold),
            Duty::Nothing => {}
        }
    }

    fn number(&mut self, hold: usize) -> u32 {
        let guard = &mut self.guards[hold];
        guard.next += 1;
        guard.next
    }

    fn renews(&mut self, hold: usize, lease: i64) {
        if self.guards[hold].sends >= MOST || !self.is_certain(hold) {
            return self.tells(hold, Event::Now);
        }
        self.guards[hold].sends += 1;
        let number = self.number(hold);
        self.guards[hold].waits_for.push(number);
        self.tells(hold, Event::Sent { number, lease });
        let fails = self.random.one_in(20);
        let kind = if fails { Kind::Fails { number } } else { Kind::Renew { number, lease } };
        self.sends(hold, kind);
        if self.random.one_in(10) {
            // The connection of the renewal breaks.
            let at = self.now + self.way();
            self.plan(at, Happening::Handles(hold, Event::Cut(number)));
        }
    }

    fn checks(&mut self, hold: usize) {
        if !self.is_certain(hold) || self.guards[hold].sends >= MOST {
            return;
        }
        self.guards[hold].sends += 1;
        let number = self.number(hold);
        self.tells(hold, Event::Asked(number));
        self.sends(hold, Kind::Check { number });
    }

    /// Sends a command, which may be lost, as may its answer.
    fn sends(&mut self, hold: usize, kind: Kind) {
        let (there, back) = (self.way(), self.way());
        let (is_lost, is_unanswered) = (self.random.one_in(8), self.random.one_in(8));
        if !is_lost {
            let order = Order { hold, kind, back: (!is_unanswered).then_some(back) };
            self.plan(self.now + there, Happening::Executes(order));
        }
    }

    fn is_certain(&self, hold: usize) -> bool {
        let machine = self.guards[hold].machine.and_then(|at| self.machines[at].as_ref());
        machine.is_some_and(|machine| matches!(machine.state(), State::Until(until) if self.client_ms() < until))
    }

    /// Passes an event to a hold.
    fn tells(&mut self, hold: usize, event: Event) {
        let now = self.client_ms();
        let Some(machine) = self.guards[hold].machine.and_then(|at| self.machines[at].as_mut()) else { return };
        machine.handle(now, event);
        self.note(hold, event);
    }

    /// Records the time that guards claim from now on, and plans the next duty of a hold.
    fn note(&mut self, hold: usize, event: Event) {
        let Some(at) = self.guards[hold].machine else { return };
        let Some(machine) = self.machines[at].clone() else { return };
        let (now, state, duty) = (self.now, machine.state(), machine.duty());
        for guard in self.guards.iter_mut().filter(|guard| guard.machine == Some(at)) {
            guard.settle(now);
            let is_released = guard.is_released;
            guard.claims = match state {
                State::Until(until) if !is_released => Some((now, until * 1000)),
                _ => None,
            };
        }
        let guard = &mut self.guards[hold];
        guard.trace.push(Step { at: now.div_euclid(1000), event, after: machine });
        guard.change += 1;
        let change = guard.change;
        let due = match duty {
            Duty::Renew(at) | Duty::Again(at) => at * 1000,
            Duty::Check => now,
            Duty::Nothing => return,
        };
        if guard.trace.len() < 40 {
            self.plan(due, Happening::Due { hold, change });
        }
    }

    fn finish(mut self) -> Outcome {
        self.now = i64::MAX / 4;
        self.lapse();
        let mut outcome = Outcome::default();
        for (number, mut guard) in self.guards.into_iter().enumerate() {
            guard.settle(i64::MAX / 4);
            let ended = guard.ended.unwrap_or(i64::MAX);
            if guard.claimed > ended {
                let after = guard.claimed - ended;
                outcome.violation.get_or_insert(format!("hold {number} was claimed for {after} µs after {ended} µs"));
            }
            outcome.traces.push(guard.trace);
        }
        outcome
    }
}

impl Guard {
    /// Moves `claimed` to the last moment that the guard has claimed until now.
    fn settle(&mut self, now: i64) {
        if let Some((from, until)) = self.claims {
            let end = until.min(now);
            if end > from {
                self.claimed = self.claimed.max(end);
            }
        }
    }
}
