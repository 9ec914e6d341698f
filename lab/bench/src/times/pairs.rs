//! Entering and leaving a free lock, as often as the server can.

use std::time::Duration;

use super::note_rounds;
use super::team::{Keys, Team};
use crate::connection::Connection;
use crate::contenders::{self, Contender, SET_SCRIPT};
use crate::error::Error;
use crate::follower::Follower;
use crate::ledger::Ledger;
use crate::load::{Load, PIPELINE};
use crate::mode::Mode;
use crate::owners;
use crate::processors::Apart;
use crate::resp::{Expect, Request};
use crate::server::{Programs, RunsOn};
use crate::waiting::Open;

pub fn measure(programs: &Programs, rounds: usize, ledger: &mut Ledger) -> Result<(), Error> {
    for mode in Mode::ALL {
        let mut pair = ServerPair::open(programs, mode)?;
        let _apart = Apart::keep([&pair.plain.server, &pair.module.server])?;
        for keys in Keys::ALL {
            if keys == Keys::Million {
                fill(&mut pair.plain.control, MILLION, |key, owner| {
                    Request::new(&[b"SET", key, owner, b"NX", b"PX", LEASE], Expect::Ok)
                })?;
                fill(&mut pair.module.control, MILLION, |key, owner| {
                    Request::new(&[b"DLOCK.ACQUIRE", key, owner, b"PX", LEASE], Expect::Positive)
                })?;
            }
            for pipeline in PIPELINES {
                compare(&pair, mode, keys, pipeline, rounds, ledger)?;
            }
        }
    }
    Ok(())
}

/// A server for dlock and one without the module for its rivals, with their replicas if they have any.
struct ServerPair {
    plain: Open,
    module: Open,
    _followers: Vec<Follower>,
}

impl ServerPair {
    fn open(programs: &Programs, mode: Mode) -> Result<Self, Error> {
        let (plain, module) = (programs.open_in(mode, RunsOn::PlainServer)?, programs.open_in(mode, RunsOn::Module)?);
        let followers = match mode {
            Mode::Replica => vec![Follower::attach(&plain.server)?, Follower::attach(&module.server)?],
            Mode::NoPersistence | Mode::Aof => Vec::new(),
        };
        Ok(Self { plain, module, _followers: followers })
    }

    fn of(&self, contender: &Contender) -> &Open {
        match contender.runs_on {
            RunsOn::PlainServer => &self.plain,
            RunsOn::Module => &self.module,
        }
    }
}

/// Measures a table: all contenders in turns.
fn compare(
    servers: &ServerPair,
    mode: Mode,
    keys: Keys,
    pipeline: usize,
    rounds: usize,
    ledger: &mut Ledger,
) -> Result<(), Error> {
    let case = format!("{}/{pipeline}/{}", mode.name(), keys.name());
    eprintln!("  {case}");
    let mut teams = Vec::new();
    for contender in contenders::timed() {
        match Team::of_pairs(&servers.of(&contender).server, &contender, pipeline, keys) {
            Ok(team) => teams.push((contender.name, team, Vec::new())),
            Err(Error::Lacking(_)) => {}
            Err(source) => return Err(Error::Contender { name: contender.name, source: Box::new(source) }),
        }
    }
    for _ in 0..rounds {
        for (_, team, rates) in &mut teams {
            team.run(WARM_UP)?;
            rates.push(team.run(SLICE)?);
        }
    }
    let script: Vec<f64> =
        teams.iter().find(|(name, ..)| *name == SET_SCRIPT).map(|(_, _, rates)| rates.clone()).unwrap_or_default();
    for (name, _, rates) in &teams {
        note_rounds(ledger, [&format!("pairs/{case}"), &format!("pairs-ratio/{case}")], name, rates, &script);
    }
    Ok(())
}

/// Takes that many locks that nobody asks for again.
pub fn fill(connection: &mut Connection, locks: usize, take: impl Fn(&[u8], &[u8]) -> Request) -> Result<(), Error> {
    for first in (0..locks).step_by(FILLED_AT_ONCE) {
        let numbers = first..(first + FILLED_AT_ONCE).min(locks);
        let takes = numbers.clone().map(|n| [take(format!("held:{n:06}").as_bytes(), &owners::owner(n))]);
        Load::new(takes).run(connection, numbers.len())?;
    }
    Ok(())
}

/// How many requests a client sends before it reads the replies.
pub const PIPELINES: [usize; 2] = [PIPELINE, 1];
pub const MILLION: usize = 1_000_000;
/// An hour in ms: longer than a measurement.
pub const LEASE: &[u8] = b"3600000";
/// How many locks are taken in one batch.
const FILLED_AT_ONCE: usize = 1_000;
/// How long a contender runs before each slice that is measured. Slices are short, so that all contenders have the
/// same machine.
const WARM_UP: Duration = Duration::from_millis(20);
const SLICE: Duration = Duration::from_millis(60);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command_line::Place;

    #[test]
    fn rates_of_pairs_are_noted_for_all_keys_and_pipelines() {
        let programs = Programs::find(&Place::default()).expect("a server and the module");
        let servers = ServerPair::open(&programs, Mode::Replica).expect("servers that run");
        let mut ledger = Ledger::default();
        for keys in Keys::ALL {
            for pipeline in PIPELINES {
                compare(&servers, Mode::Replica, keys, pipeline, 1, &mut ledger).expect("rates");
                for name in [SET_SCRIPT, "redisson-fair", "acquire"] {
                    let figure = format!("pairs/replica/{pipeline}/{}/{name}", keys.name());
                    assert!(ledger.figure(&figure).is_some_and(|figure| figure.median > 0.0), "{figure}");
                }
            }
        }
    }
}
