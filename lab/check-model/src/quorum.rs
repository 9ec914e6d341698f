//! Two clients of three servers, and the network between them: the state machine of `dlock-quorum`, and servers with
//! the engine of `dlock-core`.
//!
//! Clients try once (`Patience::None`), hold the lock until they release it or lose it, and try again. A request may be
//! executed in any order, later, or never; its reply arrives at once, late or never. Clocks agree in rate.

mod scope;
mod server;

use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

use dlock_quorum::{Acquisition, Answer, Ask, Call, Hold, Outcome, Patience, Terms};
use stateright::Property;

use crate::explorer::{Broken, Explorer, Instance, NO_PANIC};
pub use scope::{LeftOut, Scope, counter_examples, scopes};
use server::Server;

pub const NO_OVERLAP: &str = "no two clients believe to hold the lock";
pub const TOKENS: &str = "tokens rise";
pub const SOMEBODY: &str = "once nothing fails any more, somebody gets in";

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    Begin(usize),
    Release(usize),
    /// A request is executed, and its reply arrives.
    Deliver(Message),
    /// A request is executed; its reply will arrive later.
    DeliverLate(Message),
    /// A request is lost.
    Lose(Message),
    /// A request is executed; its reply is lost.
    LoseReply(Message),
    /// A late reply arrives.
    Reply(Message, Answer),
    /// Time goes on to the next moment at which something ends.
    Pass,
    /// A server crashes and starts again.
    Crash(usize),
}

/// A request, of which acquisition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message {
    client: usize,
    acquisition: u8,
    call: Call,
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = |message: &Message| {
            let Message { client, call, .. } = message;
            format!("{:?} of client {client} at server {}", call.ask, call.to)
        };
        match self {
            Action::Begin(client) => write!(f, "client {client} tries"),
            Action::Release(client) => write!(f, "client {client} releases"),
            Action::Deliver(message) => write!(f, "{}: executed and answered", what(message)),
            Action::DeliverLate(message) => write!(f, "{}: executed, the reply is late", what(message)),
            Action::Lose(message) => write!(f, "{}: lost", what(message)),
            Action::LoseReply(message) => write!(f, "{}: executed, the reply is lost", what(message)),
            Action::Reply(message, answer) => write!(f, "{}: the reply {answer:?} arrives", what(message)),
            Action::Pass => f.write_str("time passes until something ends"),
            Action::Crash(server) => write!(f, "server {server} crashes and starts again"),
        }
    }
}

#[derive(Clone)]
pub struct World {
    now: u64,
    clients: Vec<Client>,
    servers: Vec<Server>,
    requests: Vec<Message>,
    replies: Vec<(Message, Answer)>,
    passes: u32,
    losses: u32,
    late_replies: u32,
    crashes: u32,
    highest: u64,
    /// How often somebody got in.
    entered: u32,
    broken: Option<Broken>,
}

#[derive(Clone, Debug)]
struct Client {
    acquisition: u8,
    state: State,
}

#[derive(Clone, Debug)]
enum State {
    Idle,
    Acquiring(Acquisition),
    Holding(Hold),
}

const SERVERS: usize = 3;
const CLIENTS: usize = 2;
const LEASE_MS: u64 = 1000;
const TIMEOUT_MS: u64 = 250;
const BEGIN_MS: u64 = 1_000_000;

impl Instance for World {
    type Scope = Scope;
    type Action = Action;

    fn begin(scope: &Scope) -> World {
        let server = |at| Server::new(if at == 0 { scope.ahead } else { 0 });
        World {
            now: BEGIN_MS,
            clients: vec![Client { acquisition: 0, state: State::Idle }; CLIENTS],
            servers: (0..SERVERS).map(server).collect(),
            requests: Vec::new(),
            replies: Vec::new(),
            passes: scope.passes,
            losses: scope.losses,
            late_replies: scope.late_replies,
            crashes: scope.crashes,
            highest: 0,
            entered: 0,
            broken: None,
        }
    }

    fn actions(&self, scope: &Scope) -> Vec<Action> {
        let mut actions = Vec::new();
        for (at, client) in self.clients.iter().enumerate() {
            match &client.state {
                // Clients are alike: the first begins.
                State::Idle if client.acquisition < scope.rounds && (at == 0 || self.clients[0].acquisition > 0) => {
                    actions.push(Action::Begin(at));
                }
                State::Idle | State::Acquiring(_) => {}
                State::Holding(_) => actions.push(Action::Release(at)),
            }
        }
        for message in &self.requests {
            actions.push(Action::Deliver(*message));
            if self.late_replies > 0 {
                actions.push(Action::DeliverLate(*message));
            }
            if self.losses > 0 {
                actions.extend([Action::Lose(*message), Action::LoseReply(*message)]);
            }
        }
        actions.extend(self.replies.iter().map(|(message, answer)| Action::Reply(*message, *answer)));
        if self.passes > 0 {
            actions.extend(self.next_end().map(|_| Action::Pass));
        }
        if self.crashes > 0 {
            actions.extend((0..SERVERS).map(Action::Crash));
        }
        actions
    }

    fn play(&mut self, scope: &Scope, action: &Action) {
        match action {
            Action::Begin(client) => {
                self.clients[*client].acquisition += 1;
                let (mut calls, now) = (Vec::new(), self.time());
                let acquisition = Acquisition::begin(terms(scope), Patience::None, [], 0, now, &mut calls);
                self.clients[*client].state = State::Acquiring(acquisition);
                self.send(*client, calls);
                self.settle(*client);
            }
            Action::Release(client) => {
                let (mut calls, now) = (Vec::new(), self.time());
                if let State::Holding(hold) = &mut self.clients[*client].state {
                    hold.release(now, &mut calls);
                }
                self.clients[*client].state = State::Idle;
                self.send(*client, calls);
            }
            Action::Deliver(message) => {
                let answer = self.execute(scope, *message);
                self.answer(*message, answer);
            }
            Action::DeliverLate(message) => {
                let answer = self.execute(scope, *message);
                self.late_replies -= 1;
                self.replies.push((*message, answer));
            }
            Action::Lose(message) => {
                self.losses -= 1;
                self.take(*message);
            }
            Action::LoseReply(message) => {
                self.losses -= 1;
                self.execute(scope, *message);
            }
            Action::Reply(message, answer) => {
                self.replies.retain(|reply| *reply != (*message, *answer));
                self.answer(*message, *answer);
            }
            Action::Pass => {
                self.passes = self.passes.saturating_sub(1);
                self.now = self.next_end().unwrap_or(self.now);
                (0..CLIENTS).for_each(|client| self.settle(client));
            }
            Action::Crash(server) => {
                self.crashes -= 1;
                self.servers[*server].crash(scope.forgets, self.now);
            }
        }
    }

    fn check(&mut self, scope: &Scope, action: &Action, reached: &mut dyn FnMut(&'static str)) -> Result<(), Broken> {
        let entered = self.entered;
        self.play(scope, action);
        if self.entered > entered {
            reached("grants");
        }
        match self.broken.take() {
            Some(broken) => Err(broken),
            None => self.check_somebody_gets_in(scope),
        }
    }

    fn fingerprint(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        (self.now, self.passes, self.losses, self.late_replies, self.crashes, self.highest).hash(&mut hasher);
        format!("{:?}", self.clients).hash(&mut hasher);
        // In whichever order they were sent.
        let mut messages: Vec<String> = self.requests.iter().map(|message| format!("{message:?}")).collect();
        messages.extend(self.replies.iter().map(|reply| format!("{reply:?}")));
        messages.sort_unstable();
        messages.hash(&mut hasher);
        self.servers.iter().for_each(|server| server.hash(&mut hasher));
        hasher.finish()
    }

    fn properties() -> Vec<Property<Explorer<World>>> {
        crate::always![NO_OVERLAP, TOKENS, SOMEBODY, NO_PANIC]
    }
}

impl World {
    /// What clients show: µs do not matter.
    fn time(&self) -> Duration {
        Duration::from_millis(self.now)
    }

    /// When the next thing ends: a timeout, or a hold on a server.
    fn next_end(&self) -> Option<u64> {
        let timeouts = self.clients.iter().filter_map(|client| match &client.state {
            State::Idle => None,
            State::Acquiring(acquisition) => acquisition.next_timeout(),
            State::Holding(hold) => hold.next_timeout(),
        });
        let timeouts = timeouts.map(|at| at.as_micros().div_ceil(1000) as u64);
        timeouts.chain(self.servers.iter().flat_map(Server::ends)).filter(|at| *at > self.now).min()
    }

    fn send(&mut self, client: usize, calls: Vec<Call>) {
        let acquisition = self.clients[client].acquisition;
        self.requests.extend(calls.into_iter().map(|call| Message { client, acquisition, call }));
    }

    fn take(&mut self, message: Message) {
        let at = self.requests.iter().position(|request| *request == message).expect("it is on its way");
        self.requests.remove(at);
    }

    fn execute(&mut self, scope: &Scope, message: Message) -> Answer {
        self.take(message);
        let server = &mut self.servers[message.call.to];
        let counts = server.counts(self.now) || scope.left_out == Some(LeftOut::RestartRule);
        if counts || message.call.ask == Ask::Release { server.run(self.now, message) } else { Answer::Failed }
    }

    fn answer(&mut self, message: Message, answer: Answer) {
        let (now, mut calls) = (self.time(), Vec::new());
        let client = &mut self.clients[message.client];
        if client.acquisition == message.acquisition {
            match &mut client.state {
                State::Idle => {}
                State::Acquiring(acquisition) => acquisition.answer(now, &message.call, answer, &mut calls),
                State::Holding(hold) => hold.answer(&message.call, answer),
            }
        }
        self.send(message.client, calls);
        self.settle(message.client);
    }

    /// A client does what time asks for, and what its outcome is.
    fn settle(&mut self, client: usize) {
        let (now, mut calls) = (self.time(), Vec::new());
        let mut next = None;
        match &mut self.clients[client].state {
            State::Idle => {}
            State::Acquiring(acquisition) => {
                acquisition.pass(now, &mut calls);
                next = acquisition.outcome().map(|outcome| match outcome {
                    Outcome::Held(hold) => State::Holding(hold),
                    Outcome::Contended | Outcome::TooFew(_) => State::Idle,
                });
            }
            State::Holding(hold) => {
                hold.pass(now, &mut calls);
                if !hold.is_good(now) {
                    hold.release(now, &mut calls);
                    next = Some(State::Idle);
                }
            }
        }
        self.send(client, calls);
        if let Some(State::Holding(hold)) = &next {
            self.judge(client, hold.token());
        }
        if let Some(next) = next {
            self.clients[client].state = next;
        }
    }

    /// A client has come to hold the lock.
    fn judge(&mut self, client: usize, token: u64) {
        let now = self.time();
        let holds = |other: &Client| matches!(&other.state, State::Holding(hold) if hold.is_good(now));
        let others = self.clients.iter().enumerate().filter(|(at, _)| *at != client);
        if others.into_iter().any(|(_, other)| holds(other)) {
            let how = format!("client {client} holds the lock beside another");
            self.broken = Some(Broken { property: NO_OVERLAP, how });
        } else if token <= self.highest {
            let how = format!("client {client} has token {token} after {}", self.highest);
            self.broken = Some(Broken { property: TOKENS, how });
        }
        self.highest = self.highest.max(token);
        self.entered += 1;
    }

    /// From here on nothing fails, and messages arrive in order.
    fn check_somebody_gets_in(&self, scope: &Scope) -> Result<(), Broken> {
        let is_good = |client: &Client| matches!(&client.state, State::Holding(hold) if hold.is_good(self.time()));
        // Where messages are on their way, the states that they lead to are checked.
        let is_quiet = self.requests.is_empty() && self.replies.is_empty();
        if scope.left_out.is_some() || !is_quiet || self.clients.iter().any(is_good) {
            return Ok(());
        }
        let mut world = self.clone();
        // Who tried while all was held tries again when time has passed.
        let mut has_tried = false;
        for _ in 0..MOST_STEPS {
            let idle = world.clients.iter().position(|client| matches!(client.state, State::Idle));
            let action = if let Some(message) = world.requests.first() {
                Action::Deliver(*message)
            } else if let Some((message, answer)) = world.replies.first() {
                Action::Reply(*message, *answer)
            } else if let (Some(idle), false) = (idle, has_tried) {
                Action::Begin(idle)
            } else {
                Action::Pass
            };
            if let Action::Begin(_) | Action::Pass = action {
                has_tried = action != Action::Pass;
            }
            world.play(scope, &action);
            if world.entered > self.entered {
                return Ok(());
            }
        }
        Err(Broken { property: SOMEBODY, how: "nobody got in".to_owned() })
    }
}

/// How many steps a client needs at most to get in.
const MOST_STEPS: usize = 400;

fn terms(scope: &Scope) -> Terms {
    let (lease, timeout) = (Duration::from_millis(LEASE_MS), Duration::from_millis(TIMEOUT_MS));
    let terms = Terms::new(SERVERS, lease, timeout, lease).expect("good terms");
    if scope.left_out == Some(LeftOut::Confirmation) { terms.without_confirmation() } else { terms }
}
