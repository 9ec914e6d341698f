//! A run: clients, servers, the network between them and faults, in the order of real time.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use dlock_core::engine::WaiterId;
use dlock_testkit::random::Random;

use super::check::{Counts, Tokens, Violation};
use super::client::Client;
use super::clock::Real;
use super::plan::{Fault, Given, Plan};
use super::random_of;
use super::server::{Loss, Origin, Server};
use crate::{Answer, Ask, Terms};

pub struct World {
    pub(super) plan: Plan,
    pub(super) given: Given,
    pub(super) random: Random,
    pub(super) now: Real,
    queue: BinaryHeap<Reverse<Entry>>,
    entries: u64,
    pub(super) servers: Vec<Server>,
    pub(super) clients: Vec<Client>,
    /// For each connection, when the last message to the server and the last one to the client arrives.
    last_arrivals: Vec<[Real; 2]>,
    /// For each connection, until when all messages are lost.
    cuts: Vec<Real>,
    pub(super) tokens: Tokens,
    pub(super) violation: Option<Violation>,
    pub counts: Counts,
}

/// An event of the simulation. `process` is the process of the client or the server for which the event is meant. If that
/// process has ended, the event is dropped.
///
/// - `Begin`: a client begins to acquire the lock.
/// - `Hello`: a server receives a client's request to connect and for its facts.
/// - `Welcome`: a client receives the facts. If `said` is `None`, the server is down.
/// - `Reply`: a client receives an answer. If `broken` is a process of the server, the connection to it has broken.
/// - `Turn`: the timer of a server runs.
/// - `Unblock`: the limit of a wait is reached.
/// - `Disconnect`: a server notices that a client's process has ended.
pub(super) enum Event {
    Begin { client: usize, process: u32 },
    Timer { client: usize, process: u32 },
    Hello { server: usize, client: usize, process: u32, sent: Duration },
    Welcome { server: usize, client: usize, process: u32, sent: Duration, said: Option<Said> },
    Request { from: Origin, to_process: u32 },
    Reply { to: Origin, answer: Answer, broken: Option<u32> },
    Turn { server: usize, process: u32 },
    Unblock { server: usize, process: u32, waiter: WaiterId },
    Start { server: usize },
    Disconnect { server: usize, client: usize, process: u32 },
    Fault(Fault),
}

/// The facts that a server sends to a client that connects.
#[derive(Clone, Copy)]
pub(super) struct Said {
    pub process: u32,
    pub uptime: u64,
    pub unix_us: u64,
}

struct Entry {
    at: Real,
    number: u64,
    event: Event,
}

impl World {
    pub fn new(seed: u64, given: Given) -> World {
        let mut random = random_of(seed);
        let plan = Plan::draw(&mut random, given);
        World::of(plan, given, random)
    }

    pub fn of(plan: Plan, given: Given, mut random: Random) -> World {
        let servers = plan.draw_servers(&mut random, given);
        let longest = Duration::from_micros(plan.longest_lease);
        let terms = Terms::new(plan.servers, longest, Duration::from_micros(plan.timeout), longest).unwrap();
        let clocks = plan.draw_clocks(&mut random);
        let clients: Vec<Client> = clocks.into_iter().map(|clock| Client::new(clock, plan.servers, terms)).collect();
        let last_arrivals = vec![[0; 2]; plan.servers * plan.clients];
        let mut world = World {
            given,
            random,
            now: 0,
            queue: BinaryHeap::new(),
            entries: 0,
            servers,
            clients,
            cuts: vec![0; last_arrivals.len()],
            last_arrivals,
            tokens: Tokens::default(),
            violation: None,
            counts: Counts::default(),
            plan,
        };
        for client in 0..world.clients.len() {
            world.begin_later(client, world.plan.think);
        }
        for (at, fault) in std::mem::take(&mut world.plan.faults) {
            world.at(at, Event::Fault(fault));
        }
        world
    }

    /// Runs to the end or the first violation.
    pub fn run(&mut self) -> Option<Violation> {
        while let Some(Reverse(entry)) = self.queue.pop() {
            if entry.at > self.plan.end || self.violation.is_some() {
                break;
            }
            self.now = entry.at;
            self.happen(entry.event);
        }
        self.violation
    }

    pub(super) fn at(&mut self, at: Real, event: Event) {
        self.entries += 1;
        self.queue.push(Reverse(Entry { at: at.max(self.now), number: self.entries, event }));
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Begin { client, process } => self.for_client(client, process, event, |world| world.begin(client)),
            Event::Timer { client, process } => self.for_client(client, process, event, |world| {
                world.clients[client].timer = None;
                world.step(client, |_, _, _| ());
            }),
            Event::Welcome { server, client, process, sent, said } => {
                self.for_client(client, process, event, |world| world.welcome(server, client, sent, said));
            }
            Event::Reply { to, answer, broken } => {
                self.for_client(to.client, to.process, event, |world| world.reply(to, answer, broken));
            }
            Event::Hello { server, client, process, sent } => self.for_server(server, event, |world| {
                let said = world.servers[server].is_up.then(|| {
                    let (server, now) = (&world.servers[server], world.now);
                    Said { process: server.process, uptime: server.uptime(now), unix_us: server.clock.read(now) }
                });
                world.send(client, server, 1, Event::Welcome { server, client, process, sent, said });
            }),
            Event::Request { from, to_process } => {
                self.for_server(from.call.to, event, |world| world.request(from, to_process));
            }
            Event::Turn { server, process } => self.on_server(server, process, |_, _| ()),
            Event::Unblock { server, process, waiter } => {
                self.on_server(server, process, |server, answers| server.unblock(waiter, answers));
            }
            Event::Disconnect { server, client, process } => {
                let current = self.servers[server].process;
                self.on_server(server, current, |server, _| server.disconnect(client, process));
            }
            Event::Start { server } => self.servers[server].start(self.now),
            Event::Fault(fault) => self.fail(fault),
        }
    }

    /// Handles an event of a client. Postpones the event if the client is paused, and drops it if the process has ended.
    fn for_client(&mut self, client: usize, process: u32, event: Event, then: impl FnOnce(&mut World)) {
        let this = &self.clients[client];
        if this.process != process {
            return;
        }
        if this.stopped_until > self.now {
            return self.at(this.stopped_until, event);
        }
        then(self);
    }

    /// Handles an event of a server. Postpones the event if the server is stopped.
    fn for_server(&mut self, server: usize, event: Event, then: impl FnOnce(&mut World)) {
        let until = self.servers[server].stopped_until;
        if until > self.now && self.servers[server].is_up {
            return self.at(until, event);
        }
        then(self);
    }

    fn request(&mut self, from: Origin, to_process: u32) {
        let server = from.call.to;
        if !self.servers[server].is_up || self.servers[server].process != to_process {
            let reply = Event::Reply { to: from, answer: Answer::Failed, broken: Some(to_process) };
            return self.send(from.client, server, 1, reply);
        }
        let now = self.now;
        let mut waiter = None;
        self.on_server(server, to_process, |server, answers| waiter = server.run(now, from, answers));
        if let (Some(waiter), Ask::Queue(_, Some(time))) = (waiter, from.call.ask) {
            // Servers count whole milliseconds.
            let time = (time.as_micros() as u64).div_ceil(1000) * 1000;
            self.at(now + time, Event::Unblock { server, process: to_process, waiter });
        }
    }

    /// Runs something on a server if its process is still this one, and sends the answers.
    fn on_server(&mut self, at: usize, process: u32, run: impl FnOnce(&mut Server, &mut Vec<(Origin, Answer)>)) {
        let now = self.now;
        let server = &mut self.servers[at];
        if !server.is_up || server.process != process {
            return;
        }
        if server.stopped_until > now {
            // A timer runs when the server continues.
            let until = server.stopped_until;
            return self.at(until, Event::Turn { server: at, process });
        }
        let mut answers = Vec::new();
        run(server, &mut answers);
        // The timer does the work that the command left to it.
        server.tick(now, &mut answers);
        if let Some(turn) = server.next_tick(now) {
            self.at(turn, Event::Turn { server: at, process });
        }
        for (to, answer) in answers {
            self.send(to.client, at, 1, Event::Reply { to, answer, broken: None });
        }
    }

    /// Sends a message, which is delayed or lost. `direction` is 0 to the server, 1 to the client.
    pub(super) fn send(&mut self, client: usize, server: usize, direction: usize, event: Event) {
        let plan = &self.plan;
        if self.random.permille(plan.loss_permille) || self.now < self.cuts[client * plan.servers + server] {
            return;
        }
        let slow = self.random.permille(plan.slow_permille);
        let delay = self.random.within(20..if slow { plan.slow } else { plan.delay });
        let leaves = if direction == 0 { self.now.max(self.clients[client].stopped_until) } else { self.now };
        let last_arrival = &mut self.last_arrivals[client * plan.servers + server][direction];
        let mut at = leaves + delay;
        if plan.is_in_order {
            at = at.max(*last_arrival + 1);
            *last_arrival = at;
        }
        self.at(at, event);
    }

    pub(super) fn begin_later(&mut self, client: usize, think: u64) {
        let process = self.clients[client].process;
        let at = self.now + self.random.within(0..think);
        self.at(at, Event::Begin { client, process });
    }

    fn fail(&mut self, fault: Fault) {
        match fault {
            Fault::Crash { server, down } if self.servers[server].is_up => {
                let this = &mut self.servers[server];
                // A server may lose its token clock only if its restart takes longer than the agreed difference between
                // clocks, which is less than the longest lease.
                if this.loses == Loss::TokenClock && down < self.plan.longest_lease {
                    return;
                }
                this.crash();
                self.counts.crashes_with_loss += u64::from(this.loses == Loss::All);
                self.at(self.now + down, Event::Start { server });
            }
            Fault::Crash { .. } => {}
            Fault::Stop { server, time } => self.servers[server].stopped_until = self.now + time,
            Fault::Set { server, by } => {
                let clock = &mut self.servers[server].clock;
                // A clock is set back by half of the agreed difference between clocks at most, counted from real time.
                let most = self.plan.agreement() as i64 / 2;
                let by = if by < 0 { by.max((-most - clock.offset()).min(0)) } else { by };
                clock.set(by);
                let process = self.servers[server].process;
                self.on_server(server, process, |_, _| ());
            }
            Fault::Cut { client, server, time } => {
                self.cuts[client * self.plan.servers + server] = self.now + time;
            }
            Fault::CrashClient { client } => {
                let process = self.clients[client].process;
                self.clients[client].crash();
                for server in 0..self.servers.len() {
                    let at = self.now + self.random.within(0..2 * self.plan.longest_lease);
                    self.at(at, Event::Disconnect { server, client, process });
                }
                self.begin_later(client, self.plan.think);
            }
        }
    }
}

impl PartialEq for Entry {
    fn eq(&self, other: &Entry) -> bool {
        self.number == other.number
    }
}

impl Eq for Entry {}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Entry) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Entry {
    fn cmp(&self, other: &Entry) -> std::cmp::Ordering {
        (self.at, self.number).cmp(&(other.at, other.number))
    }
}
