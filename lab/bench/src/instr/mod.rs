//! `dlock-bench instr`: the server's instructions for each command, beside its rivals, in one run.
//!
//! The figures of the last run that was kept are in `lab/bench/figures/`, one file a server. A run fails if a ratio to
//! `SET NX PX` + `DEL` has moved from there. Targets are only printed, met or missed.

mod count;
mod guard;
mod table;

use std::num::NonZero;
use std::panic::resume_unwind;
use std::sync::{Mutex, PoisonError};
use std::thread;

use crate::command_line::Instr;
use crate::contenders::{self, Background, Contender, SET_DEL, SET_SCRIPT};
use crate::error::Error;
use crate::ledger::{self, Figure, Ledger};
use crate::mode::Mode;
use crate::rows::ROWS;
use crate::server::{Clock, Programs, RunsOn};
use crate::targets::{self, Measure};

pub fn run(options: &Instr) -> Result<(), Error> {
    let contenders = selected(&options.only)?;
    let programs = Programs::find(&options.place)?;
    let mut jobs = jobs(&contenders, &options.modes);
    let mut ledger = Ledger::default();
    ledger.note_fact("server", &version(&programs)?);
    for (name, figure) in measure_all(&programs, &mut jobs)? {
        ledger.note(name, figure);
    }
    let path = ledger::path("instr", ledger.fact("server"));
    let kept = Ledger::read(&path)?;
    let verdicts = targets::judge(&ROWS, &ledger);
    print!("{}", table::text(&ledger, &contenders, &verdicts));
    if options.keep {
        ledger.keep(&path)?;
        println!("\nkept in {}", path.display());
        return Ok(());
    }
    let moved = guard::moved(kept.as_ref(), &ledger);
    match kept {
        Some(_) => moved.iter().for_each(|line| println!("MOVED  {line}")),
        None => println!("\nNo figures of this server are kept to compare with (make bench-instr-keep)."),
    }
    if moved.is_empty() { Ok(()) } else { Err(Error::OverLimit(format!("moved: {}", moved.join("; ")))) }
}

fn version(programs: &Programs) -> Result<String, Error> {
    let server = programs.start(RunsOn::PlainServer, Mode::NoPersistence, Clock::Still, Vec::new())?;
    let version = server.version()?;
    server.stop();
    Ok(version)
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
        [SET_DEL, SET_SCRIPT].contains(&name)
            || only.iter().any(|asked| asked == name || references(asked).any(|reference| reference == name))
    };
    Ok(all.into_iter().filter(|contender| wanted(contender.name)).collect())
}

/// Returns the contenders that a contender is compared with in the targets, by name.
fn references(asked: &str) -> impl Iterator<Item = &'static str> {
    let contender = |figure: &'static str| figure.rsplit('/').next().unwrap_or_default();
    ROWS.iter().flat_map(|row| row.targets).filter_map(move |target| match target.measure {
        Measure::Quotient(subject, reference) if contender(subject) == asked => Some(contender(reference)),
        Measure::Quotient(..) | Measure::Ratio(_) | Measure::OverServer { .. } => None,
    })
}

/// A figure to be made.
enum Job<'a> {
    Instructions(&'a Contender, Mode),
    Replicated(&'a Contender),
}

impl Job<'_> {
    fn contender(&self) -> &Contender {
        match self {
            Self::Instructions(contender, _) | Self::Replicated(contender) => contender,
        }
    }

    fn figure(&self) -> String {
        match self {
            Self::Instructions(contender, mode) => format!("instructions/{}/{}", mode.name(), contender.name),
            Self::Replicated(contender) => format!("replicated/{}", contender.name),
        }
    }

    fn measure(&self, programs: &Programs) -> Result<Vec<(String, Figure)>, Error> {
        match self {
            Self::Instructions(contender, mode) => {
                let [all, own] = count::instructions(programs, contender, *mode)?;
                let own = (contender.runs_on == RunsOn::Module).then_some(own);
                let own = own.map(|own| (format!("own/{}/{}", mode.name(), contender.name), Figure::once(own)));
                Ok([(self.figure(), Figure::once(all))].into_iter().chain(own).collect())
            }
            Self::Replicated(contender) => {
                Ok(vec![(self.figure(), Figure::once(count::replicated(programs, contender)?))])
            }
        }
    }
}

fn jobs<'a>(contenders: &'a [Contender], modes: &[Mode]) -> Vec<Job<'a>> {
    let asked = |mode: &Mode| modes.is_empty() || modes.contains(mode);
    let mut jobs = Vec::new();
    for mode in Mode::ALL.into_iter().filter(asked) {
        let counted = contenders.iter().filter(|contender| contender.runs_in(mode));
        jobs.extend(counted.map(|contender| Job::Instructions(contender, mode)));
        if mode == Mode::Replica {
            // Other clients make no difference to the bytes.
            let alone = |contender: &&Contender| contender.runs_in(mode) && contender.background == Background::Nobody;
            let pairs = contenders.iter().filter(alone);
            jobs.extend(pairs.map(Job::Replicated));
        }
    }
    jobs
}

/// Does all jobs, as many at a time as there are processors.
///
/// Jobs at the same time do not disturb the count: instructions do not depend on what else runs. A contender that the
/// server lacks is left out.
fn measure_all(programs: &Programs, jobs: &mut Vec<Job>) -> Result<Vec<(String, Figure)>, Error> {
    // Jobs are taken from the end.
    jobs.reverse();
    let waiting = Mutex::new(jobs);
    let lock = || waiting.lock().unwrap_or_else(PoisonError::into_inner);
    let work = || {
        let mut figures = Vec::new();
        loop {
            let Some(job) = lock().pop() else { return Ok(figures) };
            eprintln!("measuring {}", job.figure());
            match job.measure(programs) {
                Ok(measured) => figures.extend(measured),
                Err(Error::Lacking(what)) => eprintln!("{} is left out: no {what} here", job.figure()),
                Err(source) => {
                    lock().clear();
                    return Err(Error::Contender { name: job.contender().name, source: Box::new(source) });
                }
            }
        }
    };
    let workers = thread::available_parallelism().map_or(1, NonZero::get);
    let done: Vec<Result<Vec<_>, Error>> = thread::scope(|scope| {
        let started: Vec<_> = (0..workers).map(|_| scope.spawn(work)).collect();
        started.into_iter().map(|worker| worker.join().unwrap_or_else(|panic| resume_unwind(panic))).collect()
    });
    Ok(done.into_iter().collect::<Result<Vec<_>, _>>()?.into_iter().flatten().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contenders_that_are_asked_for_bring_those_that_they_are_compared_with() {
        let names = |only: &str| selected(&[only.to_owned()]).map(|all| all.iter().map(|c| c.name).collect::<Vec<_>>());
        assert_eq!(
            names("racquire").ok(),
            Some(vec!["set-del", "set-script", "reentrant", "redisson-lock", "racquire"])
        );
        assert!(matches!(names("unknown"), Err(Error::Usage(_))));
    }
}
