//! A scenario: servers and workers are started, faults are injected by plan, and then everything has to come to rest.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::num::NonZeroU64;

use dlock_testkit::network::Network;
use dlock_testkit::replica::{counter, info_field};
use dlock_testkit::{Client, Server};

use crate::attackers::Attackers;
use crate::check::{self, Fault, Findings, Record};
use crate::circle;
use crate::control::Work;
use crate::counters::Counters;
use crate::failure::Result;
use crate::faults::{LONGEST_CUT_MS, Servers};
use crate::observer::Observer;
use crate::plan::{Kind, Planned, Scenario, plan};
use crate::queue;
use crate::time::{Micros, now, sleep_ms, wait_until};
use crate::worker::Acknowledgement;
use crate::workers::Workers;

/// The result of a scenario.
pub struct Outcome {
    pub findings: Findings,
    pub faults: BTreeMap<Kind, usize>,
    pub server: String,
    /// The history as others can check it.
    pub history: String,
}

/// Plays a scenario for `ms` milliseconds, and checks it. The network is cut only if the run has one of its own.
pub fn play(
    scenario: Scenario,
    (seed, ms): (u64, u64),
    attackers: u64,
    refusals: Option<NonZeroU64>,
    network: Option<&Network>,
) -> Result<Outcome> {
    let counters = Counters::default();
    let acknowledgement = match scenario {
        Scenario::Promotion => Acknowledgement::Often,
        Scenario::Restart | Scenario::Failover | Scenario::Clock | Scenario::Slots => Acknowledgement::Never,
    };
    let mut workers = Workers::new(seed, counters.serve()?, acknowledgement)?;
    let servers = Servers::start(scenario, refusals, workers.dir())?;
    let could_cut = Client::connect(servers.primary().port()).and_then(Client::vanish);
    if let Err(error) = could_cut {
        println!("skipped: clients that are cut off (needs CAP_NET_ADMIN: {error})");
    }
    workers.start()?;
    let attackers = Attackers::start(workers.dir(), attackers);
    let observer = Observer::start(workers.dir());
    let mut running = Running { servers, workers, network, faults: Vec::new(), undo: Vec::new(), begun: now() };
    for planned in plan(seed, scenario, ms) {
        running.wait_for(planned.at_ms)?;
        running.inject(planned)?;
    }
    running.wait_for(ms)?;
    drop(attackers);
    running.calm()?;
    let mut found = running.come_to_rest()?;
    let record = Record {
        scenario,
        lives: running.workers.lives()?,
        faults: running.faults.clone(),
        counters: counters.all(),
        seen: observer.finish()?,
    };
    let mut findings = check::check(&record);
    findings.violations.append(&mut found);
    if !findings.violations.is_empty() {
        running.keep();
    }
    let mut faults = BTreeMap::new();
    running.faults.iter().for_each(|fault| *faults.entry(fault.kind).or_default() += 1);
    let history = check::exported::lines(&record);
    Ok(Outcome { findings, faults, server: version(running.servers.primary()), history })
}

struct Running<'a> {
    servers: Servers,
    workers: Workers,
    network: Option<&'a Network>,
    faults: Vec<Fault>,
    /// The faults to undo, and when.
    undo: Vec<(Micros, Undo)>,
    begun: Micros,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Undo {
    Stop(Ipv4Addr),
    Cut(Ipv4Addr),
    MemoryFull,
}

impl Running<'_> {
    /// Waits for that time of the scenario, and undoes meanwhile what is due.
    fn wait_for(&mut self, at_ms: u64) -> Result<()> {
        let until = self.begun + at_ms * 1000;
        loop {
            let (due, later) = self.undo.drain(..).partition(|(at, _)| *at <= now());
            self.undo = later;
            due.into_iter().try_for_each(|(_, undo): (_, Undo)| self.undo(undo))?;
            if now() >= until {
                return Ok(());
            }
            sleep_ms(5);
        }
    }

    fn inject(&mut self, planned: Planned) -> Result<()> {
        let Planned { kind, choice, .. } = planned;
        let fault = match kind {
            Kind::ServerKilled => self.servers.restart(choice),
            Kind::Failover => self.servers.failover()?,
            Kind::Promotion => self.servers.promote(choice)?,
            Kind::ClockJump => self.servers.jump(choice)?,
            Kind::SlotMoved => self.servers.travel()?,
            Kind::KeyDeleted => self.servers.delete(choice)?,
            Kind::WritesPaused => self.servers.pause(choice),
            Kind::ClientKilled => {
                let begin = self.workers.kill(choice)?;
                Fault::new(kind, begin)
            }
            Kind::ClientStopped => {
                let (begin, ms) = (now(), 200 + choice % 2000);
                let address = self.workers.address(choice)?;
                if self.undo.iter().any(|(_, undo)| *undo == Undo::Stop(address)) {
                    return Ok(());
                }
                self.workers.stop(address)?;
                self.undo.push((begin + ms * 1000, Undo::Stop(address)));
                Fault { end: begin + ms * 1000, ..Fault::new(kind, begin) }
            }
            Kind::NetworkCut => {
                let Some(network) = self.network else { return Ok(()) };
                let (begin, ms) = (now(), 100 + choice % (LONGEST_CUT_MS - 100));
                let address = self.workers.address(choice)?;
                if self.undo.iter().any(|(_, undo)| *undo == Undo::Cut(address)) {
                    return Ok(());
                }
                network.cut(address)?;
                let end = now() + ms * 1000;
                self.undo.push((end, Undo::Cut(address)));
                Fault { end, ..Fault::new(kind, begin) }
            }
            Kind::MemoryFull => {
                let ms = 100 + choice % 700;
                let fault = self.servers.fill_memory(ms);
                self.undo.push((fault.end, Undo::MemoryFull));
                fault
            }
        };
        self.faults.push(fault);
        Ok(())
    }

    fn undo(&mut self, undo: Undo) -> Result<()> {
        match undo {
            Undo::Stop(address) => self.workers.wake(address),
            Undo::Cut(address) => Ok(self.network.map_or(Ok(()), |network| network.heal(address))?),
            Undo::MemoryFull => {
                self.servers.free_memory();
                Ok(())
            }
        }
    }

    /// Ends all faults, and lets the workers go on undisturbed for a while.
    fn calm(&mut self) -> Result<()> {
        for (_, undo) in std::mem::take(&mut self.undo) {
            self.undo(undo)?;
        }
        self.workers.wake_all()?;
        self.servers.free_memory();
        self.servers.stop_refusing();
        self.servers.primary().client().ok("CLIENT UNPAUSE");
        sleep_ms(CALM_MS);
        Ok(())
    }

    /// Has everybody finish. A request that waits for longer than [`LONGEST_WAIT_MS`] is starved, and a lock that is
    /// left has leaked.
    fn come_to_rest(&mut self) -> Result<Vec<String>> {
        self.servers.order(Work::Finish)?;
        let mut found = Vec::new();
        let late = self.workers.finish(LONGEST_WAIT_MS)?;
        for life in self.workers.lives()?.iter().filter(|life| late.contains(&life.worker)) {
            let what = life.pending().map_or("nothing", |call| &call.command);
            found.push(format!(
                "{} is starved: {LONGEST_WAIT_MS} ms after the order to finish it waits for `{what}`",
                life.worker
            ));
        }
        found.extend(self.servers.finish());
        found.extend(queue::check(self.servers.primary()));
        found.extend(circle::check(self.servers.primary()));
        found.extend(self.leaks());
        for server in self.servers.all() {
            found.extend(server.complaints().into_iter().map(|line| format!("in the server's log: {line}")));
        }
        Ok(found)
    }

    /// Finds keys, queues, waiters and sessions that stay although nobody wants them.
    fn leaks(&self) -> Vec<String> {
        let left_on = |mut client: Client| {
            let counted =
                ["waiters", "queues", "sessions", "named_sessions"].map(|name| (name, counter(&mut client, name)));
            let keys = ("keys", client.int("DBSIZE"));
            counted.into_iter().chain([keys]).filter(|(_, count)| *count != 0).collect::<Vec<_>>()
        };
        let left = || self.servers.nodes().map(Server::client).flat_map(left_on).collect::<Vec<_>>();
        wait_until(LONGEST_WAIT_MS, || left().is_empty());
        left().into_iter().map(|(name, count)| format!("{name} {count} is left at the end")).collect()
    }

    /// Leaves histories and servers' directories behind.
    fn keep(&mut self) {
        let faults: Vec<String> = self.faults.iter().map(|fault| format!("{fault:?}\n")).collect();
        let histories = self.workers.keep();
        // The verdict does not depend on this file: it helps to find the cause.
        let _ = std::fs::write(histories.join("faults"), faults.concat());
        eprintln!("kept: {}", histories.display());
        self.servers.all().for_each(|server| eprintln!("kept: {}", server.keep().display()));
    }
}

/// Name and version.
fn version(server: &Server) -> String {
    let mut client = server.client();
    let mut field = |name| info_field(&mut client, "server", name);
    field("valkey_version").map_or_else(
        || format!("Redis {}", field("redis_version").unwrap_or_default()),
        |version| format!("Valkey {version}"),
    )
}

/// How long the workers go on after the last fault.
const CALM_MS: u64 = 1000;

/// How long a request may wait after the workers were told to finish. A hold ahead of it has a lease of at most 4 s,
/// which a clock that jumped back stretches by at most 14.4 s. The rest is for the workers ahead of it in the queue.
const LONGEST_WAIT_MS: u64 = 45_000;
