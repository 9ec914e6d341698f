//! The plan of one run: the number of servers and clients, the quality of the network, and the faults. It is drawn from
//! the seed, within the assumptions of `docs/quorum.md` unless a test leaves one out.

use dlock_testkit::random::Random;

use super::clock::{Monotonic, Real, Wall};
use super::server::{Loss, Server};
use crate::clocks::MARGIN_US;
use crate::terms::Rule;

/// The rules and the assumptions that hold in a run. A test leaves one out.
#[derive(Clone, Copy, Debug)]
pub struct Given {
    /// A rule that clients do not keep, if any.
    pub without: Option<Rule>,
    pub restarts: Restarts,
    pub clocks: Clocks,
    pub network: Network,
    pub readings: Readings,
}

/// The clock from which clients compute the token to ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Readings {
    /// The median of the servers' clocks.
    Median,
    /// The fastest of the servers' clocks.
    Fastest,
}

/// The quality of the network, and how often servers and clients fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Network {
    /// Drawn from good to bad.
    Any,
    /// Three servers that restart often, and answer shortly before or after the timeout.
    Rough,
}

/// Whether clients wait until a server that has forgotten its locks is older than the longest lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Restarts {
    WaitedOut,
    Ignored,
}

/// How wrong the servers' clocks are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clocks {
    /// The clocks differ by less than the longest lease. Some are set back, or forward by [`FORWARD_STEP`].
    Agree,
    /// The clocks differ by several leases.
    Apart,
    /// The clocks are set forward by up to a lease.
    Stepped,
    /// The clocks agree at the start, and drift. For plans without faults, which set no clock.
    Right,
}

impl Given {
    pub const ALL: Given = Given {
        without: None,
        restarts: Restarts::WaitedOut,
        clocks: Clocks::Agree,
        network: Network::Any,
        readings: Readings::Median,
    };
}

pub struct Plan {
    pub servers: usize,
    pub clients: usize,
    /// All times are in µs.
    pub longest_lease: u64,
    pub timeout: u64,
    /// The longest delay of a message, unless it is slow.
    pub delay: u64,
    pub slow_permille: u64,
    /// The longest delay of a slow message.
    pub slow: u64,
    pub loss_permille: u64,
    /// How often a client pauses between the decision to send and the sending.
    pub pause_permille: u64,
    /// Whether the messages of a connection arrive in order.
    pub is_in_order: bool,
    /// The longest time from the end of an acquisition or a hold to the next acquisition.
    pub think: u64,
    /// The longest time from an acquisition that too few servers answered to the next one.
    pub retry: u64,
    pub is_rough: bool,
    /// Whether client 0 reads a time from the clock of server 0 that is several leases ahead of it.
    pub misreads: bool,
    pub end: Real,
    pub faults: Vec<(Real, Fault)>,
}

#[derive(Clone, Copy, Debug)]
pub enum Fault {
    Crash {
        server: usize,
        down: u64,
    },
    Stop {
        server: usize,
        time: u64,
    },
    Set {
        server: usize,
        by: i64,
    },
    CrashClient {
        client: usize,
    },
    /// All messages between this client and this server are lost.
    Cut {
        client: usize,
        server: usize,
        time: u64,
    },
}

const MS: u64 = 1000;

impl Plan {
    pub fn draw(random: &mut Random, given: Given) -> Plan {
        let longest_lease = random.within(200..1000) * MS;
        let (mut servers, clients) = (random.pick(&[1, 2, 3, 3, 3, 3, 4, 5, 5, 5]), random.pick(&[2, 3, 4]));
        if given.clocks == Clocks::Apart {
            servers = 3;
        }
        let mut plan = Plan {
            servers,
            clients,
            longest_lease,
            timeout: if random.permille(800) { random.within(10..25) * MS } else { longest_lease / 4 },
            delay: random.pick(&[MS / 5, MS, 4 * MS]),
            slow_permille: random.pick(&[0, 10, 60]),
            slow: random.pick(&[20 * MS, longest_lease / 2, 2 * longest_lease]),
            loss_permille: random.pick(&[0, 0, 10, 100]),
            pause_permille: random.pick(&[0, 0, 5, 20]),
            is_in_order: random.permille(600),
            think: random.pick(&[2, 20, 200]) * MS,
            retry: 100 * MS,
            is_rough: false,
            misreads: false,
            end: 2_500 * MS + 2 * longest_lease,
            faults: Vec::new(),
        };
        if given.network == Network::Rough || random.permille(200) {
            plan.be_rough(random);
        }
        plan.misreads = plan.servers > 2 && (random.permille(200) || given.readings == Readings::Fastest);
        plan.draw_faults(random, given);
        plan
    }

    /// Makes the plan rough. The times are long, so that the whole seconds of an uptime matter little and a server counts
    /// soon after the longest lease.
    fn be_rough(&mut self, random: &mut Random) {
        self.servers = 3;
        self.longest_lease = random.within(20_000..30_000) * MS;
        self.timeout = self.longest_lease / 4;
        self.delay = random.pick(&[self.timeout / 100, self.timeout / 4]);
        self.slow_permille = random.pick(&[20, 100, 300]);
        self.slow = random.pick(&[self.timeout, self.longest_lease, 2 * self.longest_lease]);
        self.loss_permille = random.pick(&[0, 20, 100]);
        self.pause_permille = random.pick(&[0, 20, 100]);
        self.think = random.pick(&[self.timeout / 20, self.timeout]);
        self.retry = self.timeout / 2;
        self.is_rough = true;
        self.end = 25 * self.longest_lease;
    }

    /// Returns a plan without faults.
    pub fn calm(random: &mut Random, servers: usize, clients: usize) -> Plan {
        Plan {
            servers,
            clients,
            longest_lease: 1000 * MS,
            timeout: 50 * MS,
            delay: random.pick(&[MS / 5, MS]),
            slow_permille: 0,
            slow: 0,
            loss_permille: 0,
            pause_permille: 0,
            is_in_order: true,
            think: 10 * MS,
            retry: 100 * MS,
            is_rough: false,
            misreads: false,
            end: 10_000 * MS,
            faults: Vec::new(),
        }
    }

    pub fn draw_servers(&self, random: &mut Random, given: Given) -> Vec<Server> {
        let apart = match given.clocks {
            Clocks::Agree | Clocks::Stepped => random.pick(&[0, MS, 20 * MS, self.agreement()]),
            Clocks::Apart => 4 * self.longest_lease,
            Clocks::Right => 0,
        };
        let server = |_| {
            let loses = random.pick(&[Loss::All, Loss::All, Loss::Nothing, Loss::TokenClock]);
            Server::new(Wall::new(random.around_zero(DRIFT_PPM), random.around_zero(apart / 2)), loses)
        };
        (0..self.servers).map(server).collect()
    }

    pub fn draw_clocks(&self, random: &mut Random) -> Vec<Monotonic> {
        (0..self.clients).map(|_| Monotonic::new(random.around_zero(DRIFT_PPM))).collect()
    }

    /// Returns how far apart the servers' clocks may be at the start. After the drift of a whole run and the steps
    /// forward, they still differ by less than the longest lease minus the margins of the token to ask for.
    pub fn agreement(&self) -> u64 {
        let margin = MARGIN_US + self.timeout / 2;
        let drifted = 2 * DRIFT_PPM * self.end / 1_000_000 + 2 * FORWARD_STEP as u64;
        self.longest_lease - self.longest_lease / 100 - margin - drifted
    }

    fn draw_faults(&mut self, random: &mut Random, given: Given) {
        let crashes = match (given.clocks, self.is_rough) {
            (Clocks::Apart, _) => 10,
            (_, true) => random.pick(&[4, 10, 25]),
            (_, false) => random.pick(&[0, 1, 3, 6]),
        };
        for _ in 0..crashes {
            // Longer than the clocks are apart, because an AOF may have lost the token clock.
            let long = self.longest_lease;
            let down = match self.is_rough {
                true => random.pick(&[MS, self.timeout / 4, self.timeout]),
                false => random.pick(&[MS, 20 * MS, 200 * MS]) + random.within(0..MS),
            };
            let fault =
                Fault::Crash { server: self.any_server(random), down: if random.permille(300) { long } else { down } };
            self.add_fault(random, fault);
        }
        for _ in 0..random.pick(&[0, 0, 2]) {
            let time = random.within(0..2 * self.longest_lease);
            let fault = Fault::Stop { server: self.any_server(random), time };
            self.add_fault(random, fault);
        }
        for _ in 0..random.pick(&[0, 0, 1, 2]) {
            let client = random.within(0..self.clients as u64) as usize;
            self.add_fault(random, Fault::CrashClient { client });
        }
        for _ in 0..if self.is_rough { random.pick(&[0, 10, 40]) } else { random.pick(&[0, 0, 2]) } {
            let client = random.within(0..self.clients as u64) as usize;
            let time = random.within(0..3 * self.longest_lease / 2);
            let fault = Fault::Cut { client, server: self.any_server(random), time };
            self.add_fault(random, fault);
        }
        for server in 0..self.servers {
            if given.clocks == Clocks::Stepped {
                let by = random.within(0..self.longest_lease) as i64;
                self.add_fault(random, Fault::Set { server, by });
            } else if random.permille(300) {
                let back = self.agreement() as i64 / 2;
                let by = if random.permille(500) { FORWARD_STEP } else { -(random.within(0..back as u64) as i64) };
                self.add_fault(random, Fault::Set { server, by });
            }
        }
    }

    fn any_server(&self, random: &mut Random) -> usize {
        random.within(0..self.servers as u64) as usize
    }

    /// Adds a fault at a random time.
    fn add_fault(&mut self, random: &mut Random, fault: Fault) {
        self.faults.push((random.within(0..self.end), fault));
    }
}

/// The most by which a clock is too fast or too slow. Two clocks drift apart by 0.4 % at most. That leaves 0.6 % of the
/// lease and 1 ms of [`crate::drift_bound`] for a step forward, and 1 ms because servers count in whole ms.
const DRIFT_PPM: u64 = 2000;
/// The step by which a clock is set forward, µs.
const FORWARD_STEP: i64 = 1500;
