//! The servers of a scenario and what is done to them. Every fault is noted with its beginning and end.

use std::num::NonZeroU64;
use std::path::Path;

use dlock_testkit::jumping::JumpingClock;
use dlock_testkit::process::shared_library;
use dlock_testkit::redis::Value;
use dlock_testkit::replica::info_field;
use dlock_testkit::{Client, Server, Setup};

use crate::check::Fault;
use crate::control::{Control, Orders, Work};
use crate::deleted::{self, Waiters};
use crate::failure::{Doing, Failure, Result};
use crate::plan::{Kind, Scenario};
use crate::slots;
use crate::time::{now, sleep_ms, wait_until};
use crate::traveler::Traveler;
use crate::workload::KEYS;

/// The settings of every server: nothing may be lost by a kill. Keepalive finds the connections of clients that died
/// while they were cut off, and spares those that are cut off for as long as [`LONGEST_CUT_MS`]. Workers have addresses
/// other than 127.0.0.1.
pub const CONF: &str =
    "appendonly yes\nappendfsync always\nmaxmemory-policy noeviction\ntcp-keepalive 4\nprotected-mode no";

/// The longest time in which packets of a client are dropped.
pub const LONGEST_CUT_MS: u64 = 3000;

/// The servers of a scenario. In the methods, `choice` is a random number of the plan.
pub struct Servers {
    /// The primary, or the node that has the slot of the locks.
    primary: Server,
    /// The replica, or the other node, if the scenario has one.
    replica: Option<Server>,
    /// The settings of every server.
    setup: Setup,
    scenario: Scenario,
    /// A server refuses to open a key for writing, once in this many times.
    refusals: Option<NonZeroU64>,
    control: Control,
    clock: Option<JumpingClock>,
    /// Clients whose locks are deleted, and one whose locks move.
    waiters: Waiters,
    traveler: Traveler,
    /// Broken promises that were seen meanwhile.
    found: Vec<String>,
}

impl Servers {
    pub fn start(scenario: Scenario, refusals: Option<NonZeroU64>, dir: &Path) -> Result<Servers> {
        let clock = if scenario == Scenario::Clock {
            Some(JumpingClock::build(dir).doing("building a clock that jumps")?)
        } else {
            None
        };
        let deleter = shared_library(dir, "deleter", DELETER).doing("building a module that deletes keys")?;
        let setup = Setup::new().conf(CONF).conf(&format!("loadmodule {}", deleter.display()));
        let setup = clock.iter().fold(setup, |setup, clock| clock.give(setup));
        let (primary, replica) = match scenario {
            Scenario::Restart | Scenario::Clock => (setup.clone().start(), None),
            Scenario::Failover | Scenario::Promotion => {
                let primary = setup.clone().start();
                let replica = setup.clone().replica_of(&primary);
                (primary, Some(replica))
            }
            Scenario::Slots => {
                let (home, other) = slots::two_nodes(&setup);
                (home, Some(other))
            }
        };
        let (waiters, traveler, found) = (Waiters::default(), Traveler::default(), Vec::new());
        let control = Control::in_dir(dir);
        let servers = Servers { primary, replica, setup, scenario, refusals, control, clock, waiters, traveler, found };
        if let Err(error) = servers.refuse(&servers.primary) {
            return Err(Failure(format!("the module has no hooks for tests: {error}")));
        }
        servers.refuse_all();
        servers.until_in_step()?;
        servers.order(Work::GoOn)?;
        Ok(servers)
    }

    /// Has a server refuse to open keys for writing, now and then, if the run wants that. A server refuses it by itself
    /// while it saves without a fork.
    fn refuse(&self, server: &Server) -> std::result::Result<(), String> {
        let Some(once_in) = self.refusals else { return Ok(()) };
        server.client().attempt(format!("DLOCK.PANIC {} REFUSE {once_in}", KEYS[0])).map(drop)
    }

    /// Has all servers refuse. A node without the slot of the keys refuses this command, and opens none of them anyway.
    fn refuse_all(&self) {
        [Some(&self.primary), self.replica.as_ref()].into_iter().flatten().for_each(|server| _ = self.refuse(server));
    }

    /// Has all servers open keys for writing again.
    pub fn stop_refusing(&mut self) {
        if self.refusals.is_some() {
            let stop = format!("DLOCK.PANIC {} REFUSE 0", KEYS[0]);
            self.all().for_each(|server| _ = server.client().attempt(&*stop));
        }
    }

    pub fn primary(&self) -> &Server {
        &self.primary
    }

    pub fn all(&mut self) -> impl Iterator<Item = &mut Server> {
        std::iter::once(&mut self.primary).chain(&mut self.replica)
    }

    /// The servers that grant locks to clients: the primary, or both nodes of a cluster.
    pub fn nodes(&self) -> impl Iterator<Item = &Server> {
        let other = self.replica.as_ref().filter(|_| self.scenario == Scenario::Slots);
        std::iter::once(&self.primary).chain(other)
    }

    /// Tells the workers where the primary is and whether to go on.
    pub fn order(&self, work: Work) -> Result<()> {
        self.control.write(Orders { port: self.primary.port(), work })
    }

    /// Kills the server and starts it again with what is in its AOF.
    pub fn restart(&mut self, choice: u64) -> Fault {
        let begin = now();
        self.primary.kill9();
        sleep_ms(choice % 300);
        self.primary.boot();
        self.refuse_all();
        Fault::new(Kind::ServerKilled, begin)
    }

    /// Has primary and replica change places in an orderly way.
    pub fn failover(&mut self) -> Result<Fault> {
        let begin = now();
        let replica = self.replica.as_ref().ok_or_else(no_replica)?;
        let mut refusal = String::new();
        let is_begun = wait_until(PATIENCE_MS, || match self.primary.client().attempt("FAILOVER") {
            Ok(_) => true,
            Err(error) => {
                refusal = error;
                false
            }
        });
        if !is_begun || !wait_until(PATIENCE_MS, || replica.is_primary() && !self.primary.is_primary()) {
            return Err(failure(&self.primary, &format!("no failover: {refusal}")));
        }
        self.swap();
        self.order(Work::GoOn)?;
        self.until_in_step()?;
        Ok(Fault::new(Kind::Failover, begin))
    }

    /// Kills the primary, makes the replica one, and the killed server its replica. Half of the time the replica is cut
    /// off a little before: what is granted meanwhile is lost.
    pub fn promote(&mut self, choice: u64) -> Result<Fault> {
        let begin = now();
        let replica = self.replica.as_ref().ok_or_else(no_replica)?;
        if choice.is_multiple_of(2) {
            replica.promote();
            sleep_ms(choice / 2 % 200);
        }
        self.primary.kill9();
        replica.promote();
        self.swap();
        self.order(Work::GoOn)?;
        let fault = Fault::new(Kind::Promotion, begin);
        let primary = self.primary.port();
        let replica = self.replica.as_mut().ok_or_else(no_replica)?;
        let setup = self.setup.clone().conf(&format!("replicaof 127.0.0.1 {primary}"));
        replica.reconfigure(|_| setup);
        replica.boot();
        self.refuse_all();
        self.until_in_step()?;
        Ok(fault)
    }

    /// Moves the slot of all locks to the other node.
    pub fn travel(&mut self) -> Result<Fault> {
        let begin = now();
        self.traveler.before_a_move(&self.primary);
        let to = self.replica.as_ref().ok_or_else(no_replica)?;
        slots::travel(&self.primary, to)
            .map_err(|refusal| failure(&self.primary, &format!("the slot does not move: {refusal}")))?;
        self.swap();
        self.refuse_all();
        self.order(Work::GoOn)?;
        let fault = Fault::new(Kind::SlotMoved, begin);
        self.found.extend(self.traveler.after_a_move(&self.primary));
        Ok(fault)
    }

    /// Has a thread of another module delete the key of a lock.
    pub fn delete(&mut self, choice: u64) -> Result<Fault> {
        let begin = now();
        let key = usize::try_from(choice % KEYS.len() as u64).ok().and_then(|at| KEYS.get(at).copied());
        let is_deleted = deleted::by_thread(&mut self.primary.client(), key.unwrap_or_default());
        let fault = Fault { key, ..Fault::new(Kind::KeyDeleted, begin) };
        if !is_deleted || !self.waiters.delete(&self.primary) {
            return Err(failure(&self.primary, "the other module deletes nothing"));
        }
        Ok(fault)
    }

    /// Ends what goes on beside the workers. Returns the broken promises.
    pub fn finish(&mut self) -> Vec<String> {
        self.traveler.finish(&self.primary);
        self.found.extend(self.waiters.finish(&self.primary));
        std::mem::take(&mut self.found)
    }

    /// Pauses writes, or everything.
    pub fn pause(&mut self, choice: u64) -> Fault {
        let begin = now();
        let ms = 50 + choice % 500;
        let what = if choice.is_multiple_of(3) { "ALL" } else { "WRITE" };
        self.primary.client().ok(format!("CLIENT PAUSE {ms} {what}"));
        Fault { end: now() + ms * 1000, ..Fault::new(Kind::WritesPaused, begin) }
    }

    /// Leaves the primary less memory than it uses.
    pub fn fill_memory(&mut self, ms: u64) -> Fault {
        let begin = now();
        self.primary.client().ok("CONFIG SET maxmemory 1000000");
        Fault { end: now() + ms * 1000, ..Fault::new(Kind::MemoryFull, begin) }
    }

    /// Gives every server the memory it wants.
    pub fn free_memory(&mut self) {
        self.all().for_each(|server| server.client().ok("CONFIG SET maxmemory 0"));
    }

    /// Moves the clock of the server: towards the real time if it is further off than [`FARTHEST_US`].
    pub fn jump(&mut self, choice: u64) -> Result<Fault> {
        let clock = self.clock.as_mut().ok_or_else(|| Failure("a clock that does not jump".into()))?;
        let begin = now();
        let size = i64::try_from(200_000 + choice % 3_000_000).unwrap_or(200_000);
        let is_forward = match clock.offset() {
            offset if offset > FARTHEST_US => false,
            offset if offset < -FARTHEST_US => true,
            _ => (choice >> 32).is_multiple_of(2),
        };
        let jump_us = if is_forward { size } else { -size };
        clock.jump(jump_us).doing("setting the clock")?;
        let fault = Fault::new(Kind::ClockJump, begin);
        // A turn that has begun goes on with the time that the server read before.
        Ok(Fault { jump_us, end: fault.end + A_TURN_US, ..fault })
    }

    fn swap(&mut self) {
        if let Some(replica) = &mut self.replica {
            std::mem::swap(&mut self.primary, replica);
        }
    }

    /// Waits until the replica gets what the primary writes.
    fn until_in_step(&self) -> Result<()> {
        let Some(replica) = self.replica.as_ref().filter(|_| self.scenario != Scenario::Slots) else { return Ok(()) };
        let is_up = || {
            let status = |mut client: Client| info_field(&mut client, "replication", "master_link_status");
            Client::connect(replica.port()).ok().and_then(status).as_deref() == Some("up")
        };
        let is_known = || matches!(self.primary.client().attempt("WAIT 1 100"), Ok(Value::Int(1..)));
        if wait_until(PATIENCE_MS, || is_up() && is_known()) {
            Ok(())
        } else {
            Err(failure(replica, "the replica does not get in step"))
        }
    }
}

fn failure(server: &Server, problem: &str) -> Failure {
    Failure(format!("{problem}; its log:\n{}", server.log()))
}

fn no_replica() -> Failure {
    Failure("no replica".into())
}

/// Beyond this offset, the clock jumps back towards the real time.
const FARTHEST_US: i64 = 4_000_000;
/// For how long a busy server may use a time that it has read.
const A_TURN_US: u64 = 20_000;

const PATIENCE_MS: u64 = 60_000;

const DELETER: &str = include_str!("deleter.c");
