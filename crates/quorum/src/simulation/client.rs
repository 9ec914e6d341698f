//! The state of a client, which acquires, holds and releases the lock again and again, by the protocol under test.

use std::time::Duration;

use dlock_core::Mode;

use super::clock::{Monotonic, Real};
use super::server::Origin;
use crate::{Acquisition, Clocks, Hold, Terms};

pub struct Client {
    pub clock: Monotonic,
    /// The number of times that the client has crashed. A crash ends the client's process and starts another.
    pub process: u32,
    pub stopped_until: Real,
    /// The number of the last acquisition that the client has begun.
    pub acquisition: u32,
    /// When that acquisition began.
    pub began: Real,
    pub mode: Mode,
    pub terms: Terms,
    pub state: State,
    pub links: Vec<Link>,
    pub clocks: Clocks,
    /// Whether a server refused during the last acquisition that got the lock.
    pub was_refused: bool,
    /// When the client's timer is set for.
    pub timer: Option<Real>,
}

pub enum State {
    Idle,
    Acquiring(Acquisition),
    Holding(Hold, Plans),
    /// The client waits for the answers to its release.
    Leaving(Hold),
}

/// The plans of a holder.
#[derive(Clone, Copy)]
pub struct Plans {
    /// When the client releases the lock, by its clock.
    pub release: Duration,
    /// Whether the client keeps a lost lock until then.
    pub ignores_loss: bool,
}

/// The connection to a server.
pub enum Link {
    Down,
    /// The client opened the connection at this time and waits for the server's facts. These calls are sent after that.
    Greeting(Duration, Vec<Origin>),
    /// The connection leads to this process of the server. The client read its uptime when the client's clock showed
    /// `read`.
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

    /// Ends the process and starts another.
    pub fn crash(&mut self) {
        self.process += 1;
        self.state = State::Idle;
        self.links.iter_mut().for_each(|link| *link = Link::Down);
        self.clocks = Clocks::new(self.links.len(), self.terms.timeout());
        self.was_refused = false;
        self.timer = None;
    }

    /// Returns whether the client believes at `now` that it holds the lock.
    pub fn holds(&self, now: Real) -> bool {
        matches!(&self.state, State::Holding(hold, _) if hold.is_good(self.clock.read(now)))
    }

    /// Returns when the client acts next unless a message arrives, by its clock.
    pub fn next_timeout(&self) -> Option<Duration> {
        match &self.state {
            State::Idle => None,
            State::Acquiring(acquisition) => acquisition.next_timeout(),
            State::Holding(hold, plans) => Some(hold.next_timeout().map_or(plans.release, |at| at.min(plans.release))),
            State::Leaving(hold) => hold.next_timeout(),
        }
    }
}
