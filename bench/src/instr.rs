//! `dlock-bench instr`: the server's instructions for each command, beside its rivals, in one run.

use std::num::NonZero;
use std::panic::resume_unwind;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::thread;

use crate::callgrind;
use crate::command_line::{Format, Options};
use crate::contenders::{self, BASELINE, Contender, RunsOn};
use crate::error::Error;
use crate::limits::{self, LIMITS, Verdict};
use crate::load::PIPELINE;
use crate::report::{self, Report};
use crate::run_dir::RunDir;
use crate::server::{self, Mode, Server, Setup};

pub fn run(options: &Options) -> Result<(), Error> {
    let contenders = selected(&options.only)?;
    let target = Target::find(options, &contenders)?;
    let costs = measure_all(&target, &contenders)?;
    let verdicts = limits::judge(&LIMITS, &costs);
    let report = Report {
        server: &target.version()?,
        mode: target.mode,
        pipeline: PIPELINE,
        operations: [FEW, MANY],
        baseline: BASELINE,
        costs: &costs,
        verdicts: &verdicts,
    };
    match options.format {
        Format::Table => print!("{}", report::table(&report)),
        Format::Json => print!("{}", report::json(&report)),
    }
    let failed: Vec<String> = verdicts.iter().filter(|verdict| !verdict.is_met()).map(over).collect();
    if failed.is_empty() { Ok(()) } else { Err(Error::OverLimit(failed.join("; "))) }
}

/// What one operation of a contender costs the server.
#[derive(Debug, Clone, PartialEq)]
pub struct Cost {
    pub name: &'static str,
    pub label: &'static str,
    /// Requests in an operation.
    pub requests: usize,
    /// Instructions of an operation.
    pub instructions: u64,
}

impl Cost {
    pub fn ratio_to(&self, reference: &Self) -> f64 {
        self.instructions as f64 / reference.instructions as f64
    }
}

/// The server and the module that are measured.
struct Target {
    program: PathBuf,
    /// Absent if no contender needs it.
    module: Option<PathBuf>,
    mode: Mode,
}

impl Target {
    fn find(options: &Options, contenders: &[Contender]) -> Result<Self, Error> {
        let needs_module = contenders.iter().any(|contender| contender.runs_on == RunsOn::Module);
        Ok(Self {
            program: server::find_program(options.server.as_deref())?,
            module: if needs_module { Some(server::find_module(options.module.as_deref())?) } else { None },
            mode: Mode::NoPersistence,
        })
    }

    /// Of a server that is not under callgrind.
    fn version(&self) -> Result<String, Error> {
        let dir = RunDir::create()?;
        let setup = Setup { program: &self.program, module: None, mode: self.mode, wrapper: Vec::new() };
        let server = Server::start(&setup, &dir)?;
        let version = server.version()?;
        server.stop()?;
        Ok(version)
    }

    fn module_for(&self, runs_on: RunsOn) -> Option<&Path> {
        match runs_on {
            RunsOn::PlainServer => None,
            RunsOn::Module => self.module.as_deref(),
        }
    }
}

/// The contenders that were asked for, and those that they are compared with.
fn selected(only: &[String]) -> Result<Vec<Contender>, Error> {
    let all = contenders::all();
    if only.is_empty() {
        return Ok(all);
    }
    let known: Vec<&str> = all.iter().map(|contender| contender.name).collect();
    if let Some(unknown) = only.iter().find(|name| !known.contains(&name.as_str())) {
        return Err(Error::Usage(format!("no contender `{unknown}`; there are: {}", known.join(", "))));
    }
    let wanted = |name: &str| {
        name == BASELINE || only.iter().any(|asked| asked == name || limits::references(asked).any(|r| r == name))
    };
    Ok(all.into_iter().filter(|contender| wanted(contender.name)).collect())
}

/// Measures all contenders, as many at a time as there are processors, and returns them in the order given.
///
/// That does not disturb the count: instructions do not depend on who else runs.
fn measure_all(target: &Target, contenders: &[Contender]) -> Result<Vec<Cost>, Error> {
    // Taken from the end: those with the longest preparation stand there.
    let waiting = Mutex::new(contenders.iter().collect::<Vec<_>>());
    let lock = || waiting.lock().unwrap_or_else(PoisonError::into_inner);
    let next = || lock().pop();
    let work = || {
        let mut costs = Vec::new();
        while let Some(contender) = next() {
            eprintln!("measuring {}", contender.label);
            let cost = measure(target, contender).map_err(|source| {
                lock().clear();
                Error::Contender { name: contender.name, source: Box::new(source) }
            });
            costs.push(cost?);
        }
        Ok(costs)
    };
    let workers = thread::available_parallelism().map_or(1, NonZero::get);
    let done: Vec<Result<Vec<Cost>, Error>> = thread::scope(|scope| {
        let started: Vec<_> = (0..workers).map(|_| scope.spawn(work)).collect();
        started.into_iter().map(|worker| worker.join().unwrap_or_else(|panic| resume_unwind(panic))).collect()
    });
    let mut costs: Vec<Cost> = done.into_iter().collect::<Result<Vec<_>, _>>()?.into_iter().flatten().collect();
    costs.sort_by_key(|cost| contenders.iter().position(|contender| contender.name == cost.name));
    Ok(costs)
}

fn measure(target: &Target, contender: &Contender) -> Result<Cost, Error> {
    let few = count(target, contender, FEW)?;
    let many = count(target, contender, MANY)?;
    let difference = many.instructions.checked_sub(few.instructions);
    let operations = u64::try_from(MANY - FEW).unwrap_or(u64::MAX);
    match difference.map(|instructions| instructions / operations) {
        Some(instructions) if instructions > 0 => {
            Ok(Cost { name: contender.name, label: contender.label, requests: many.requests, instructions })
        }
        Some(_) | None => Err(Error::Callgrind(format!("{MANY} operations cost no more than {FEW}"))),
    }
}

/// What one server process executed from start to end.
struct Count {
    instructions: u64,
    /// Requests in an operation.
    requests: usize,
}

fn count(target: &Target, contender: &Contender, operations: usize) -> Result<Count, Error> {
    let dir = RunDir::create()?;
    let setup = Setup {
        program: &target.program,
        module: target.module_for(contender.runs_on),
        mode: target.mode,
        wrapper: callgrind::wrapper(&dir),
    };
    let mut server = Server::start(&setup, &dir)?;
    let requests = match serve(&server, contender, operations) {
        Ok(requests) => requests,
        Err(_) if server.exited()?.is_some() => return Err(server.failure("the server died")),
        Err(error) => return Err(error),
    };
    server.stop()?;
    Ok(Count { instructions: callgrind::instructions(&dir)?, requests })
}

fn serve(server: &Server, contender: &Contender, operations: usize) -> Result<usize, Error> {
    let mut connection = server.connect()?;
    let load = (contender.prepare)(&mut connection)?;
    load.run(&mut connection, operations)?;
    Ok(load.requests_per_operation())
}

fn over(verdict: &Verdict) -> String {
    format!(
        "over the limit: {} is {:.3} of {}, at most {:.2}",
        verdict.subject.label, verdict.ratio, verdict.reference.label, verdict.at_most
    )
}

/// The two numbers of operations. The first is past all warm-up; the difference makes a clock tick disappear.
const FEW: usize = 2_000;
const MANY: usize = 10_000;
