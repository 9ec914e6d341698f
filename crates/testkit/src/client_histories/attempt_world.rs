//! A simulation of one acquisition: a lock that another client holds at times, a queue, a network that delays and loses
//! messages, a program that pauses. Its server decides without the rules of an attempt. The invariants:
//!
//! - a granted acquisition does not claim the lock for a moment at which another client had it;
//! - an acquisition is not refused while it has time, because nothing ends its wait early;
//! - an acquisition that asks for no cleanup has left neither a hold nor a waiter on the server.

use std::collections::BTreeMap;

use super::attempt::{Answer, Attempt, Cleanup, Event, Limit};
use super::planted::Planted;
use crate::random::Random;

/// The outcome of a simulation. Times are in ms by the client's clock.
#[derive(Clone, Debug)]
pub struct Outcome {
    pub limit: Limit,
    pub lease: i64,
    /// The time of each event, the event, and the answer to it.
    pub trace: Vec<(i64, Event, Answer)>,
    /// A description of the invariant that was violated, if any.
    pub violation: Option<String>,
}

/// Runs the simulation of this seed, with or without a planted defect in the program.
pub fn run(seed: u64, planted: Option<Planted>) -> Outcome {
    let mut world = World::new(seed, planted);
    world.carry_out();
    world.play();
    let (limit, lease, trace) = (world.limit, world.lease, std::mem::take(&mut world.trace));
    Outcome { limit, lease, trace, violation: world.violation() }
}

/// An event of the simulation.
#[derive(Clone, Copy, Debug)]
enum Happening {
    /// A command arrives at the server.
    Arrives(Order),
    /// The server notices that the connection of the command with this number has ended.
    Hears(u32),
    /// The `BLOCK` of the command with this number is over.
    BlockEnds(u32),
    /// The other client releases the lock.
    OtherLeaves,
    /// The program handles an event.
    Handles(Event),
    /// The program sends its next command.
    Sends,
    /// The program has waited too long for the answer to the command with this number.
    GivesUp(u32),
    /// The time of the acquisition is over.
    IsOver,
}

/// A command on its way to the server.
#[derive(Clone, Copy, Debug)]
struct Order {
    number: u32,
    owner: usize,
    kind: Kind,
    /// How long the answer takes, in µs. `None` if it is lost.
    back: Option<i64>,
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    Try,
    /// A request with this `BLOCK`, in ms; 0: without a limit.
    Wait(i64),
    Confirm,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Holder {
    Nobody,
    Other,
    Ours(usize),
}

struct World {
    random: Random,
    /// The time in µs.
    now: i64,
    /// The next happenings, by time in µs, then in the order of planning.
    agenda: BTreeMap<(i64, u64), Happening>,
    sequence: u64,
    /// The lease of the acquisition, in ms.
    lease: i64,
    limit: Limit,
    /// How many µs of a millisecond have passed on the server's clock whenever a millisecond begins on the client's.
    phase: i64,
    /// The times in which the program is paused, in µs.
    pauses: Vec<(i64, i64)>,
    holder: Holder,
    /// The end of the hold, in ms by the server's clock.
    deadline: i64,
    queue: Vec<Order>,
    /// When the server ended the hold of each owner, in µs.
    ended: Vec<Option<i64>>,
    attempt: Attempt,
    /// The owner of the last command: an index of `ended`.
    owner: usize,
    /// The number of the last command.
    next: u32,
    /// The commands whose answers the program still waits for.
    unanswered: Vec<u32>,
    trace: Vec<(i64, Event, Answer)>,
    /// When the acquisition ended, for which owner, and with which answer.
    outcome: Option<(i64, usize, Answer)>,
}

impl World {
    fn new(seed: u64, planted: Option<Planted>) -> Self {
        let mut random = Random::of(seed, "an acquisition");
        let lease: i64 = random.pick(&[100, 1000, 1000, 3000, 10_000]);
        let limit = match random.below(6) {
            0 => Limit::Try,
            1 => Limit::None,
            _ => Limit::AtMost(random.within(50..8000).cast_signed()),
        };
        let mut pauses = Vec::new();
        for _ in 0..random.below(3) {
            let start = random.within(0..8_000_000).cast_signed();
            pauses.push((start, start + random.within(1..(lease * 1500).cast_unsigned()).cast_signed()));
        }
        let (phase, is_held) = (random.below(1000).cast_signed(), !random.one_in(4));
        let attempt = Attempt::new(0, limit, lease, None, planted);
        let holder = if is_held { Holder::Other } else { Holder::Nobody };
        let mut world = Self {
            random,
            now: 0,
            agenda: BTreeMap::new(),
            sequence: 0,
            lease,
            limit,
            phase,
            pauses,
            holder,
            deadline: 0,
            queue: Vec::new(),
            ended: vec![None],
            attempt,
            owner: 0,
            next: 0,
            unanswered: Vec::new(),
            trace: Vec::new(),
            outcome: None,
        };
        let leaves = world.random.within(0..8_000_000).cast_signed();
        world.plan(leaves, Happening::OtherLeaves);
        // As the packages do: a wait has 150 ms for the last answer, and a single try has one second more.
        let over = match limit {
            Limit::AtMost(limit) => limit + 150,
            Limit::Try => 1150,
            Limit::None => 20_000,
        };
        world.plan(over * 1000, Happening::IsOver);
        world
    }

    fn plan(&mut self, at: i64, happening: Happening) {
        self.sequence += 1;
        self.agenda.insert((at.max(self.now), self.sequence), happening);
    }

    /// Draws how long a message takes.
    fn way(&mut self) -> i64 {
        match self.random.below(12) {
            0..=7 => self.random.within(50..1500).cast_signed(),
            8 | 9 => self.random.within(0..100_000).cast_signed(),
            10 => self.random.within(0..(self.lease * 1500).cast_unsigned()).cast_signed(),
            _ => self.random.within(0..3_000_000).cast_signed(),
        }
    }

    fn play(&mut self) {
        let mut steps = 0;
        while let Some(((at, sequence), happening)) = self.agenda.pop_first() {
            steps += 1;
            assert!(steps < 20_000, "the simulation does not end");
            let is_of_program = matches!(
                happening,
                Happening::Handles(_) | Happening::Sends | Happening::GivesUp(_) | Happening::IsOver
            );
            if let Some((_, end)) =
                self.pauses.iter().find(|(start, end)| is_of_program && (*start..*end).contains(&at))
            {
                self.agenda.insert((*end, sequence), happening);
                continue;
            }
            self.now = at;
            self.lapse();
            self.happens(happening);
        }
        // After all this, the lease of a hold that is left has ended.
        self.now = i64::MAX / 4;
    }

    fn happens(&mut self, happening: Happening) {
        match happening {
            Happening::Arrives(order) => self.arrives(order),
            Happening::Hears(number) => self.queue.retain(|waiter| waiter.number != number),
            Happening::BlockEnds(number) => {
                if let Some(at) = self.queue.iter().position(|waiter| waiter.number == number) {
                    let waiter = self.queue.remove(at);
                    self.replies(waiter, Event::Nil(number));
                }
            }
            Happening::OtherLeaves => self.serve(),
            Happening::Handles(event) => {
                if let Event::Granted(number) | Event::Nil(number) | Event::Ok(number) | Event::Gone(number) = event {
                    // The program has given the command up and closed its connection, so it does not read the reply.
                    if !self.unanswered.contains(&number) {
                        return;
                    }
                    self.unanswered.retain(|other| *other != number);
                }
                self.tells(event);
            }
            Happening::Sends => self.sends(),
            Happening::GivesUp(number) => {
                if self.unanswered.contains(&number) {
                    self.unanswered.retain(|other| *other != number);
                    if !self.random.one_in(10) {
                        let at = self.now + self.way();
                        self.plan(at, Happening::Hears(number));
                    }
                    self.tells(Event::Cut(number));
                }
            }
            Happening::IsOver => self.tells(Event::Over),
        }
    }
}

/// The server.
impl World {
    fn server_ms(&self) -> i64 {
        (self.now + self.phase).div_euclid(1000)
    }

    /// Ends a hold of ours whose lease is over. The other client takes the lock at once.
    fn lapse(&mut self) {
        let end = self.deadline * 1000 - self.phase;
        if let Holder::Ours(owner) = self.holder
            && self.now >= end
        {
            self.ended[owner] = Some(end);
            self.holder = Holder::Other;
            let leaves = self.now + self.random.within(0..2_000_000).cast_signed();
            self.plan(leaves, Happening::OtherLeaves);
        }
    }

    /// Lets the other client release the lock, and grants it to the first waiter.
    fn serve(&mut self) {
        if self.holder != Holder::Other {
            return;
        }
        self.holder = Holder::Nobody;
        if !self.queue.is_empty() {
            let waiter = self.queue.remove(0);
            self.grants(waiter);
        }
    }

    fn grants(&mut self, order: Order) {
        self.holder = Holder::Ours(order.owner);
        self.deadline = self.server_ms() + self.lease;
        self.replies(order, Event::Granted(order.number));
    }

    fn arrives(&mut self, order: Order) {
        let Order { number, owner, kind, .. } = order;
        let is_held = self.holder == Holder::Ours(owner);
        match kind {
            Kind::Confirm if is_held => {
                self.deadline = self.server_ms() + self.lease;
                self.replies(order, Event::Ok(number));
            }
            Kind::Confirm => self.replies(order, Event::Gone(number)),
            Kind::Try | Kind::Wait(_) if is_held => self.replies(order, Event::Granted(number)),
            Kind::Try | Kind::Wait(_) if self.holder == Holder::Nobody => self.grants(order),
            Kind::Try => self.replies(order, Event::Nil(number)),
            Kind::Wait(block) => {
                // A repeated request takes the place of its earlier copy.
                match self.queue.iter().position(|waiter| waiter.owner == owner) {
                    Some(at) => {
                        let before = std::mem::replace(&mut self.queue[at], order);
                        self.replies(before, Event::Nil(before.number));
                    }
                    None => self.queue.push(order),
                }
                if block > 0 {
                    self.plan(self.now + block * 1000, Happening::BlockEnds(number));
                }
            }
        }
    }

    fn replies(&mut self, order: Order, event: Event) {
        if let Some(back) = order.back {
            self.plan(self.now + back, Happening::Handles(event));
        }
    }
}

/// The program.
impl World {
    fn client_ms(&self) -> i64 {
        self.now.div_euclid(1000)
    }

    /// Tells the attempt of an event, and does what it answers.
    fn tells(&mut self, event: Event) {
        if self.outcome.is_some() {
            return;
        }
        let answer = self.handle(event);
        if self.attempt.is_over() {
            self.outcome = Some((self.now, self.owner, answer));
            return;
        }
        self.carry_out();
    }

    fn handle(&mut self, event: Event) -> Answer {
        let now = self.client_ms();
        let answer = self.attempt.handle(now, event);
        self.trace.push((now, event, answer));
        answer
    }

    /// Plans the sending of the next command, in half of the cases after a pause.
    fn carry_out(&mut self) {
        let pause = if self.random.one_in(2) { 0 } else { self.random.within(0..50_000).cast_signed() };
        self.plan(self.now + pause, Happening::Sends);
    }

    fn sends(&mut self) {
        if self.outcome.is_some() || !self.unanswered.is_empty() {
            return;
        }
        let kind = match self.attempt.answer() {
            Answer::Try { .. } => Kind::Try,
            Answer::Wait { block, .. } => Kind::Wait(block),
            _ => Kind::Confirm,
        };
        if let Answer::Try { fresh: true } | Answer::Wait { fresh: true, .. } = self.attempt.answer() {
            self.ended.push(None);
            self.owner = self.ended.len() - 1;
        }
        self.next += 1;
        let number = self.next;
        self.handle(Event::Sent(number));
        self.unanswered.push(number);
        let (there, back) = (self.way(), self.way());
        let (is_lost, is_unanswered) = (self.random.one_in(8), self.random.one_in(6));
        if !is_lost {
            let back = (!is_unanswered).then_some(back);
            let order = Order { number, owner: self.owner, kind, back };
            self.plan(self.now + there, Happening::Arrives(order));
        }
        let patience = match kind {
            Kind::Wait(_) => self.random.within(100_000..9_000_000),
            Kind::Try | Kind::Confirm => self.random.within(50_000..2_000_000),
        };
        self.plan(self.now + patience.cast_signed(), Happening::GivesUp(number));
    }

    /// Returns a description of the invariant that was violated, if any.
    fn violation(mut self) -> Option<String> {
        let left = self.holder;
        let waits = !self.queue.is_empty();
        self.lapse();
        let (at, owner, answer) = self.outcome?;
        let ms = at.div_euclid(1000);
        match answer {
            Answer::Granted { until } => {
                let ended = self.ended[owner].unwrap_or(i64::MAX);
                let claimed = until * 1000;
                (claimed > at && claimed > ended).then(|| format!("claimed until {claimed} µs, ended at {ended} µs"))
            }
            Answer::Refused(cleanup) => {
                let has_time = match self.limit {
                    // The last millisecond may be cut by rounding.
                    Limit::AtMost(limit) => ms < limit - 1,
                    Limit::None => true,
                    Limit::Try => false,
                };
                if has_time {
                    return Some(format!("refused at {ms} ms of {:?}", self.limit));
                }
                is_left(cleanup, (left, waits), at, &self.ended)
            }
            Answer::Unreachable(cleanup) => is_left(cleanup, (left, waits), at, &self.ended),
            _ => None,
        }
    }
}

/// Returns a violation if an acquisition that asks for no cleanup has left a hold or a waiter after its outcome.
fn is_left(cleanup: Cleanup, (holder, waits): (Holder, bool), at: i64, ended: &[Option<i64>]) -> Option<String> {
    let is_held = matches!(holder, Holder::Ours(_)) || ended.iter().flatten().any(|ended| *ended > at);
    (cleanup == Cleanup::None && (is_held || waits))
        .then(|| format!("no cleanup, but the holder is {holder:?}, and a request waits: {waits}"))
}
