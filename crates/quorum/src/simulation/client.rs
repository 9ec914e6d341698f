//! A client: takes the lock, holds it a while, releases it, again and again, by the protocol under test.

use std::time::Duration;

use dlock_core::Mode;

use super::clock::{Monotonic, Real};
use super::server::Origin;
use crate::{Acquisition, Clocks, Hold, Terms};

pub struct Client {
    pub clock: Monotonic,
    /// The number of the process, among those that were this client.
    pub process: u32,
    pub stopped_until: Real,
    pub acquisition: u32,
    pub began: Real,
    pub mode: Mode,
    pub terms: Terms,
    pub state: State,
    pub links: Vec<Link>,
    pub clocks: Clocks,
    /// Whether the client was refused when it last asked for the lock.
    pub was_refused: bool,
    /// When the client looks at the clock again.
    pub timer: Option<Real>,
}

pub enum State {
    Idle,
    Acquiring(Acquisition),
    Holding(Hold, Plans),
    Leaving(Hold),
}

/// The plans of a holder.
#[derive(Clone, Copy)]
pub struct Plans {
    pub release: Duration,
    /// Whether the client goes on without noticing that the lock is lost.
    pub ignores_loss: bool,
}

/// The connection to a server.
pub enum Link {
    Down,
    /// The client asked the server what it is, at this time. These calls are sent after the answer.
    Greeting(Duration, Vec<Origin>),
    /// The connection leads to this process of the server, which told its uptime when the client's clock showed `read`.
    Up {
        process: u32,
        uptime: Duration,
        read: Duration,
    },
}

impl Client {
    pub fn new(clock: Monotonic, servers: usize, terms: Terms) -> Client {
        Client {
            clock,
            process: 0,
            stopped_until: 0,
            acquisition: 0,
            began: 0,
            mode: Mode::Exclusive,
            terms,
            state: State::Idle,
            links: (0..servers).map(|_| Link::Down).collect(),
            clocks: Clocks::new(servers, terms.timeout()),
            was_refused: false,
            timer: None,
        }
    }

    /// Ends the process; another takes its place.
    pub fn crash(&mut self) {
        self.process += 1;
        self.state = State::Idle;
        self.links.iter_mut().for_each(|link| *link = Link::Down);
        self.clocks = Clocks::new(self.links.len(), self.terms.timeout());
        self.was_refused = false;
        self.timer = None;
    }

    /// Returns whether the client believes that it holds the lock, or would if it looked at its clock.
    pub fn holds(&self, now: Real) -> bool {
        matches!(&self.state, State::Holding(hold, _) if hold.is_good(self.clock.read(now)))
    }

    /// Returns the time that the client waits for, by its clock.
    pub fn next_timeout(&self) -> Option<Duration> {
        match &self.state {
            State::Idle => None,
            State::Acquiring(acquisition) => acquisition.next_timeout(),
            State::Holding(hold, plans) => Some(hold.next_timeout().map_or(plans.release, |at| at.min(plans.release))),
            State::Leaving(hold) => hold.next_timeout(),
        }
    }
}
