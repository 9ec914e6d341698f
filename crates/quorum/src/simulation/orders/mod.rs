//! Every order of messages of small instances: a client and a newcomer on three servers. Random runs find some of these
//! orders very rarely.
//!
//! Time advances in steps of a server's timeout, a quarter of the lease. Within a step, requests are executed in any
//! order, each is answered at once, and clients act between them in any order. All messages of a step arrive in that step,
//! except for a few late ones, which arrive at any later moment or never. A paused client neither reads messages nor looks
//! at its clock.

mod acquisition;
mod repair;

use std::collections::{HashSet, VecDeque};
use std::fmt::Write;
use std::hash::{DefaultHasher, Hasher};
use std::time::Duration;

use dlock_core::Mode;

use super::check::{Tokens, Violation};
use super::clock::{Real, Wall};
use super::server::{Loss, Origin, Server};
use crate::terms::Rule;
use crate::{Acquisition, Answer, Ask, Call, Clocks, Entry, Hold, Outcome, Patience, Start, Terms};

/// A server's timeout, and a step of time, µs.
const STEP: Real = 100_000;
/// The lease of the clients, which is also the longest lease, in steps.
const LEASE: Real = 4;
const SERVERS: usize = 3;
const LAST: usize = SERVERS - 1;
const ALL: &[usize] = &[0, 1, LAST];

/// How many events of each kind may happen in an instance.
#[derive(Clone, Copy, Debug)]
struct Bounds {
    /// How many messages are late.
    late: u8,
    /// How often the client and the newcomer are paused.
    pauses: [u8; 2],
    /// How often the last server restarts and forgets its locks.
    restarts: u8,
    /// The last step.
    end: Real,
}

#[derive(Clone)]
struct State {
    terms: Terms,
    /// The events that may still happen.
    left: Bounds,
    now: Real,
    servers: Vec<Server>,
    clients: [Actor; 2],
    messages: Vec<Message>,
    /// Answers that are about to be read.
    answers: VecDeque<(Origin, Answer)>,
    /// Whether nothing but `Begin` and `GoOn` has happened in this step.
    is_fresh: bool,
    tokens: Tokens,
    /// Whether the last server has restarted. From then on, it is too young to count.
    is_young: bool,
    violation: Option<Violation>,
}

#[derive(Clone, Debug)]
struct Actor {
    doing: Doing,
    is_paused: bool,
}

#[derive(Clone, Debug)]
enum Doing {
    /// The client has not begun.
    Nothing,
    Acquiring(Box<Acquisition>),
    Holding(Hold),
    /// The client had the lock and released it.
    Done,
    /// The client failed to acquire the lock.
    Out,
}

#[derive(Clone, Copy, Debug)]
enum Message {
    Request { from: Origin, is_late: bool },
    Reply { to: Origin, answer: Answer, is_late: bool },
}

/// An event.
#[derive(Clone, Copy, Debug)]
enum Action {
    /// The message at this place arrives.
    Arrive(usize),
    /// The request at this place arrives, and its answer is late.
    ArriveWithLateAnswer(usize),
    /// A client looks at its clock.
    Look(usize),
    /// The newcomer begins.
    Begin,
    /// The newcomer releases the lock.
    Release,
    Pause(usize),
    GoOn(usize),
    /// The last server restarts.
    Restart,
    /// The next step of time begins.
    Pass,
}

const CLIENT: usize = 0;
const NEWCOMER: usize = 1;

impl State {
    fn new(without: Option<Rule>, left: Bounds) -> State {
        let micros = Duration::from_micros;
        let terms = Terms::new(SERVERS, micros(LEASE * STEP), micros(STEP), micros(LEASE * STEP)).unwrap();
        let actor = Actor { doing: Doing::Nothing, is_paused: false };
        State {
            terms: terms.leaving_out(without),
            left,
            now: 0,
            servers: (0..SERVERS).map(|_| Server::new(Wall::new(0, 0), Loss::All)).collect(),
            clients: [actor.clone(), actor],
            messages: Vec::new(),
            answers: VecDeque::new(),
            is_fresh: false,
            tokens: Tokens::default(),
            is_young: false,
            violation: None,
        }
    }

    /// Adds a hold of a killed client on the last server, with a lease of this many steps.
    fn leave_hold_on_last(&mut self, steps: Real) {
        let entry = Entry { lease: Duration::from_micros(steps * STEP), min_token: None };
        let call = Call { to: LAST, attempt: 1, sent: self.time(), ask: Ask::Enter(entry) };
        let leftover = Origin { client: 9, ..self.origin(CLIENT, call) };
        self.servers[LAST].run(self.now, leftover, &mut Vec::new());
    }

    /// Executes all requests to these servers.
    fn deliver(&mut self, to: &[usize]) {
        while let Some(at) = self.request(to) {
            self.act(Action::Arrive(at));
        }
    }

    fn request(&self, to: &[usize]) -> Option<usize> {
        let is_to = |message: &Message| matches!(message, Message::Request { from, .. } if to.contains(&from.call.to));
        self.messages.iter().position(is_to)
    }

    /// Returns the time by the clients' clocks.
    fn time(&self) -> Duration {
        Duration::from_secs(1000) + Duration::from_micros(self.now)
    }

    fn actions(&self) -> Vec<Action> {
        let mut actions: Vec<Action> =
            (0..self.messages.len()).filter(|at| self.can_arrive(&self.messages[*at])).map(Action::Arrive).collect();
        if self.left.late > 0 {
            let is_answered = |at: &usize| matches!(self.messages[*at], Message::Request { from, is_late: false, .. } if from.call.ask != Ask::Release);
            actions.extend((0..self.messages.len()).filter(is_answered).map(Action::ArriveWithLateAnswer));
        }
        if matches!(self.clients[NEWCOMER].doing, Doing::Nothing) && self.is_fresh {
            actions.push(Action::Begin);
        }
        if matches!(self.clients[NEWCOMER].doing, Doing::Holding(_)) && !self.clients[NEWCOMER].is_paused {
            actions.push(Action::Release);
        }
        for client in [CLIENT, NEWCOMER] {
            let acts = matches!(self.clients[client].doing, Doing::Acquiring(_) | Doing::Holding(_));
            if self.clients[client].is_paused {
                actions.extend(self.is_fresh.then_some(Action::GoOn(client)));
            } else if acts {
                actions.extend(self.is_due(client).then_some(Action::Look(client)));
                actions.extend((self.left.pauses[client] > 0).then_some(Action::Pause(client)));
            }
        }
        // The restart would lose a request on its way, which the instances leave out.
        if self.left.restarts > 0 && self.request(&[LAST]).is_none() {
            actions.push(Action::Restart);
        }
        if self.now < self.left.end * STEP && self.may_pass() {
            actions.push(Action::Pass);
        }
        actions
    }

    fn can_arrive(&self, message: &Message) -> bool {
        !matches!(message, Message::Reply { to, .. } if self.clients[to.client].is_paused)
    }

    fn is_due(&self, client: usize) -> bool {
        let due = match &self.clients[client].doing {
            Doing::Acquiring(acquisition) => acquisition.next_timeout(),
            Doing::Holding(hold) => hold.next_timeout(),
            Doing::Nothing | Doing::Done | Doing::Out => None,
        };
        due.is_some_and(|at| at <= self.time())
    }

    fn may_pass(&self) -> bool {
        let is_due = |client: &usize| !self.clients[*client].is_paused && self.is_due(*client);
        ![CLIENT, NEWCOMER].iter().any(is_due) && self.not_late().count() <= usize::from(self.left.late)
    }

    fn not_late(&self) -> impl Iterator<Item = usize> {
        let is_late = |message: &Message| match message {
            Message::Request { is_late, .. } | Message::Reply { is_late, .. } => *is_late,
        };
        let messages = self.messages.iter().enumerate();
        messages.filter(move |(_, message)| !is_late(message) && self.can_arrive(message)).map(|(at, _)| at)
    }

    fn act(&mut self, action: Action) {
        // A client begins or goes on only at the start of a step, which saves many equal orders.
        self.is_fresh &= matches!(action, Action::GoOn(_) | Action::Begin);
        match action {
            Action::Arrive(at) => match self.messages.swap_remove(at) {
                Message::Request { from, .. } => self.execute(from),
                Message::Reply { to, answer, .. } => self.read(to, answer),
            },
            Action::ArriveWithLateAnswer(at) => {
                if let Message::Request { from, .. } = self.messages.swap_remove(at) {
                    self.execute(from);
                }
                self.left.late -= 1;
                let late = self.answers.drain(..).map(|(to, answer)| Message::Reply { to, answer, is_late: true });
                self.messages.extend(late);
            }
            Action::Look(client) => self.step(client, |doing, now, calls| match doing {
                Doing::Acquiring(acquisition) => acquisition.handle_timeout(now, calls),
                Doing::Holding(hold) => hold.handle_timeout(now, calls),
                Doing::Nothing | Doing::Done | Doing::Out => {}
            }),
            Action::Begin => self.begin(NEWCOMER, Patience::None, &[]),
            Action::Release => self.step(NEWCOMER, |doing, now, calls| {
                if let Doing::Holding(hold) = doing {
                    hold.release(now, calls);
                }
                *doing = Doing::Done;
            }),
            Action::Pause(client) => {
                self.clients[client].is_paused = true;
                self.left.pauses[client] -= 1;
            }
            Action::GoOn(client) => self.clients[client].is_paused = false,
            Action::Restart => {
                self.servers[LAST].crash();
                self.servers[LAST].start(self.now);
                self.left.restarts -= 1;
                self.is_young = true;
            }
            Action::Pass => self.pass(),
        }
        while let Some((to, answer)) = self.answers.pop_front() {
            if self.clients[to.client].is_paused {
                self.messages.push(Message::Reply { to, answer, is_late: false });
            } else {
                self.read(to, answer);
            }
        }
        self.messages
            .retain(|message| self.clients.iter().enumerate().all(|(at, actor)| !is_unread(at, actor, message)));
        let [client, newcomer] = [CLIENT, NEWCOMER].map(|client| self.held_by(client));
        if client.is_some() && newcomer.is_some() {
            self.violation.get_or_insert(Violation::Overlap);
        }
        for token in client.into_iter().chain(newcomer) {
            if self.tokens.is_outdated(Mode::Exclusive, token) {
                self.violation.get_or_insert(Violation::TokenOrder);
            }
        }
    }

    fn read(&mut self, to: Origin, answer: Answer) {
        let answer = if to.is_reserved && answer == Answer::Done { Answer::Reserved } else { answer };
        self.step(to.client, |doing, now, calls| match doing {
            Doing::Acquiring(acquisition) => acquisition.answer(now, &to.call, answer, calls),
            Doing::Holding(hold) => hold.answer(now, &to.call, answer, calls),
            Doing::Nothing | Doing::Done | Doing::Out => {}
        });
    }

    /// Returns the token of a client that believes that it holds the lock.
    fn held_by(&self, client: usize) -> Option<u64> {
        match &self.clients[client].doing {
            Doing::Holding(hold) if hold.is_good(self.time()) => Some(hold.token()),
            _ => None,
        }
    }

    fn pass(&mut self) {
        let late: Vec<usize> = self.not_late().collect();
        self.left.late -= late.len() as u8;
        for at in late {
            match &mut self.messages[at] {
                Message::Request { is_late, .. } | Message::Reply { is_late, .. } => *is_late = true,
            }
        }
        self.now += STEP;
        self.is_fresh = true;
        let mut answers = Vec::new();
        for server in &mut self.servers {
            server.end_waits(self.now, &mut answers);
            server.tick(self.now, &mut answers);
        }
        self.reply(answers);
    }

    fn begin(&mut self, client: usize, patience: Patience, suspects: &[usize]) {
        let mut clocks = Clocks::new(SERVERS, self.terms.timeout());
        for (at, server) in self.servers.iter().enumerate() {
            clocks.note(at, self.time(), self.time(), server.clock.read(self.now));
        }
        let start = Start { suspects, contended: false, floor: clocks.floor(self.time()), seed: 1 };
        let mut calls = Vec::new();
        let acquisition = Acquisition::begin(self.terms, patience, start, self.time(), &mut calls);
        self.clients[client].doing = Doing::Acquiring(Box::new(acquisition));
        self.send(client, calls);
    }

    fn step(&mut self, client: usize, act: impl FnOnce(&mut Doing, Duration, &mut Vec<Call>)) {
        let (now, mut calls) = (self.time(), Vec::new());
        let doing = &mut self.clients[client].doing;
        act(doing, now, &mut calls);
        if let Doing::Acquiring(acquisition) = doing {
            match acquisition.outcome() {
                Some(Outcome::Held(hold)) => {
                    let violation = self.tokens.acquired(Mode::Exclusive, hold.token());
                    self.violation = self.violation.or(violation);
                    *doing = Doing::Holding(hold);
                }
                Some(Outcome::Contended | Outcome::TooFew(_)) => *doing = Doing::Out,
                // The instance ends with the client's first attempt.
                None if acquisition.has_failed() => *doing = Doing::Out,
                None => {}
            }
        }
        self.send(client, calls);
    }

    fn send(&mut self, client: usize, calls: Vec<Call>) {
        for call in calls {
            let is_young = self.is_young && call.to == LAST;
            let from = Origin { is_reserved: is_young, ..self.origin(client, call) };
            if is_young && matches!(call.ask, Ask::Enter(_) | Ask::Queue(..) | Ask::Ping) {
                self.answers.push_back((from, Answer::Failed));
            } else {
                self.messages.push(Message::Request { from, is_late: false });
            }
        }
    }

    fn origin(&self, client: usize, call: Call) -> Origin {
        let lease_ms = self.terms.lease().as_millis() as u64;
        let (process, acquisition, mode) = (0, 0, Mode::Exclusive);
        Origin { client, process, acquisition, call, mode, lease_ms, is_reserved: false, arrived: 0 }
    }

    fn execute(&mut self, from: Origin) {
        let server = &mut self.servers[from.call.to];
        let mut answers = Vec::new();
        server.run(self.now, from, &mut answers);
        server.tick(self.now, &mut answers);
        self.reply(answers);
    }

    fn reply(&mut self, answers: Vec<(Origin, Answer)>) {
        for (to, answer) in answers {
            if to.client < self.clients.len() {
                self.answers.push_back((to, answer));
            }
        }
    }

    /// Returns whether one of the clients can no longer hold the lock, so that no rule can be violated any more.
    fn is_over(&self) -> bool {
        self.clients.iter().any(|actor| match &actor.doing {
            Doing::Out => true,
            Doing::Holding(hold) => !hold.is_good(self.time()) && self.terms.keeps(Rule::LostForGood),
            Doing::Nothing | Doing::Acquiring(_) | Doing::Done => false,
        })
    }

    fn fingerprint(&self) -> u64 {
        let mut messages: Vec<u64> = self.messages.iter().map(hash_of).collect();
        messages.sort_unstable();
        let servers = self.servers.iter().map(Server::fingerprint).collect::<Vec<_>>();
        let counts = (self.left, self.now, self.is_fresh, self.is_young);
        hash_of(&(messages, servers, &self.clients, &self.tokens, counts))
    }
}

/// Returns whether a message is an answer that this client ignores.
fn is_unread(client: usize, actor: &Actor, message: &Message) -> bool {
    match message {
        Message::Reply { to, .. } if to.client == client => {
            to.call.ask == Ask::Release || matches!(actor.doing, Doing::Done | Doing::Out)
        }
        _ => false,
    }
}

fn hash_of(value: &impl std::fmt::Debug) -> u64 {
    struct Hashed(DefaultHasher);
    impl Write for Hashed {
        fn write_str(&mut self, text: &str) -> std::fmt::Result {
            self.0.write(text.as_bytes());
            Ok(())
        }
    }
    let mut hashed = Hashed(DefaultHasher::new());
    write!(hashed, "{value:?}").unwrap();
    hashed.0.finish()
}

/// Visits every state that can follow. Returns how many there are, or the first violation.
fn visit(first: State) -> Result<usize, Violation> {
    let (mut seen, mut open) = (HashSet::from([first.fingerprint()]), vec![first]);
    while let Some(state) = open.pop() {
        for action in state.actions() {
            let mut next = state.clone();
            next.act(action);
            if let Some(violation) = next.violation {
                eprintln!("{violation:?} after {} states", seen.len());
                return Err(violation);
            }
            if !next.is_over() && seen.insert(next.fingerprint()) {
                open.push(next);
            }
        }
    }
    eprintln!("{} states, no violation", seen.len());
    Ok(seen.len())
}
