//! A whole run: every scenario, then histories of two locks, and a table of what was done and found.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;
use std::num::NonZeroU64;
use std::path::PathBuf;

use dlock_testkit::Server;
use dlock_testkit::network::Network;
use dlock_testkit::random::Random;

use crate::failure::{Doing, Failure, Result};
use crate::faults;
use crate::lin::{self, Tally};
use crate::plan::{Kind, Scenario};
use crate::scenario::{self, Outcome};
use crate::slots;
use crate::time::{now, unix_ahead};

/// The options of a run.
#[derive(Clone, Debug, PartialEq, Eq, clap::Args)]
pub struct Options {
    /// The seed of all choices; any if there is none.
    #[arg(long)]
    seed: Option<u64>,
    /// How long.
    #[arg(long, default_value_t = 120)]
    pub seconds: u64,
    /// Only this scenario, and no histories.
    #[arg(long)]
    scenario: Option<Scenario>,
    /// How many clients take short sessions at full speed meanwhile.
    #[arg(long, default_value_t = 0)]
    attackers: u64,
    /// The server refuses to open a key for writing once in N times: for a debug build of the module.
    #[arg(long)]
    refusals: Option<NonZeroU64>,
    /// Writes the history of the scenarios to this file, in the form of docs/chaos.md.
    #[arg(long)]
    history: Option<PathBuf>,
    /// Ends after the first scenario with a violation.
    #[arg(long)]
    until_violation: bool,
}

impl Options {
    pub fn seed(&self) -> u64 {
        self.seed.unwrap_or_else(|| Random::of(now(), "seed").below(1_000_000))
    }
}

/// Whether everything was as it should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    Good,
    Violated,
}

/// Runs and reports.
pub fn run(options: &Options) -> Result<Verdict> {
    let (begun, ahead, seed) = (now(), unix_ahead(), options.seed());
    println!("chaos: SEED={seed} SECONDS={}", options.seconds);
    // A process can enter a network only before it has other threads.
    let network = Network::enter();
    if let Err(error) = &network {
        println!("skipped: networks that are cut (needs CAP_SYS_ADMIN, CAP_NET_ADMIN and iproute2: {error})");
    }
    let network = network.ok();
    let mut scenarios: Vec<Scenario> =
        Scenario::ALL.into_iter().filter(|scenario| options.scenario.is_none_or(|one| one == *scenario)).collect();
    if scenarios.contains(&Scenario::Slots) && !slots::can_travel(&Server::start()) {
        println!("skipped: slots that travel (needs Redis 8.4 or Valkey 9.0)");
        scenarios.retain(|scenario| *scenario != Scenario::Slots);
    }
    let ms = options.seconds * 1000 * SCENARIOS_PERCENT / 100 / scenarios.len().max(1) as u64;
    let mut history = options.history.as_ref().map(File::create).transpose().doing("creating the history")?;
    let mut total = Total::default();
    for scenario in scenarios {
        let outcome = scenario::play(scenario, (seed, ms), options.attackers, options.refusals, network.as_ref())?;
        println!("{}", line_of(scenario, &outcome));
        if let Some(history) = &mut history {
            history.write_all(outcome.history.as_bytes()).doing("writing the history")?;
        }
        total.add(outcome);
        if total.is_enough(options) {
            break;
        }
    }
    if options.scenario.is_none() && !total.is_enough(options) {
        let tally = histories(seed, options.seconds * 10 * HISTORIES_PERCENT)?;
        println!("{}", line_of_histories(&tally));
        total.violations.extend(tally.violations);
    }
    if (unix_ahead() - ahead).abs() > CLOCK_SET_US {
        return Err(Failure("the machine's clock was set during the run: no verdict".into()));
    }
    if total.grants == 0 {
        return Err(Failure("nobody was granted a lock: no verdict".into()));
    }
    println!("{}", total.summary(seed, (now() - begun) / 1_000_000));
    total.violations.iter().for_each(|violation| println!("VIOLATION: {violation}"));
    Ok(if total.violations.is_empty() { Verdict::Good } else { Verdict::Violated })
}

/// Records and checks histories for `ms` milliseconds, on a server of their own.
pub fn histories(seed: u64, ms: u64) -> Result<Tally> {
    let server = Server::conf(faults::CONF);
    lin::record_and_check(&server, seed, ms)
}

/// Returns one line of text about the histories.
pub fn line_of_histories(tally: &Tally) -> String {
    let Tally { histories, commands, blurred, violations } = tally;
    format!(
        "{:9}  {histories} histories of two locks, {commands} commands ({blurred} more not judged), {} violations",
        "histories",
        violations.len()
    )
}

fn line_of(scenario: Scenario, outcome: &Outcome) -> String {
    let faults: Vec<String> = outcome.faults.iter().map(|(kind, count)| format!("{count} {kind}")).collect();
    let found = &outcome.findings;
    let errors: Vec<String> = found.errors.iter().map(|(code, count)| format!("{count} {code}")).collect();
    format!(
        "{:9}  {}: {}; {} commands ({}), {} grants, {} spans in force, {} writes ({} fenced off), {} named sessions, {} cut off, longest wait {} ms, {} lost \
         with a primary, {} violations",
        scenario.name(),
        outcome.server,
        faults.join(", "),
        found.commands,
        errors.join(", "),
        found.grants,
        found.spans,
        found.writes,
        found.refused,
        found.sessions,
        found.cut_off,
        found.longest_wait_ms,
        found.lost,
        found.violations.len()
    )
}

#[derive(Default)]
struct Total {
    faults: BTreeMap<Kind, usize>,
    grants: usize,
    lost: usize,
    violations: Vec<String>,
}

impl Total {
    fn add(&mut self, outcome: Outcome) {
        for (kind, count) in outcome.faults {
            *self.faults.entry(kind).or_default() += count;
        }
        self.grants += outcome.findings.grants;
        self.lost += outcome.findings.lost;
        self.violations.extend(outcome.findings.violations);
    }

    fn is_enough(&self, options: &Options) -> bool {
        options.until_violation && !self.violations.is_empty()
    }

    /// The whole run as a row of a table.
    fn summary(&self, seed: u64, seconds: u64) -> String {
        let faults = Kind::ALL.map(|kind| format!(" {kind} {} |", self.faults.get(&kind).copied().unwrap_or(0)));
        let (grants, lost, violations) = (self.grants, self.lost, self.violations.len());
        format!(
            "| seed {seed} | {seconds} s |{} grants {grants} | lost {lost} | violations {violations} |",
            faults.concat()
        )
    }
}

/// How much of the time is for the scenarios and for histories; the rest is for starting and coming to rest.
const SCENARIOS_PERCENT: u64 = 80;
const HISTORIES_PERCENT: u64 = 6;

/// By how much the machine's clock may be corrected during a run.
const CLOCK_SET_US: i64 = 20_000;
