//! The time that a reader takes to come and go, or to renew, beside others who stay.

use std::time::Duration;

use super::note_rounds;
use super::team::Team;
use crate::contenders::{self, Kind};
use crate::error::Error;
use crate::ledger::Ledger;
use crate::load::PIPELINE;
use crate::mode::Mode;
use crate::server::Programs;

pub fn measure(programs: &Programs, rounds: usize, ledger: &mut Ledger) -> Result<(), Error> {
    // Each contender gets a server of its own, because all use the same lock.
    let mut entrants = Vec::new();
    for contender in contenders::all() {
        let Kind::Beside(others) = contender.kind else { continue };
        let open = programs.open_in(Mode::NoPersistence, contender.runs_on)?;
        let mut connection = open.server.connect()?;
        let load = (contender.prepare)(&mut connection, 0..NEWCOMERS)?;
        let mut team = Team::of_one(connection, &load, PIPELINE);
        // The first run warms up, and does not count.
        team.run(SLICE)?;
        // A name such as `rlock-100` says what the contender does, and beside how many others.
        let what = contender.name.strip_suffix(&format!("-{others}")).unwrap_or(contender.name);
        entrants.push((what, others, team, Vec::new(), open));
    }
    for _ in 0..rounds {
        for (_, _, team, times, _) in &mut entrants {
            // Microseconds for one operation.
            times.push(1e6 / team.run(SLICE)?);
        }
    }
    for (what, others, _, times, _) in &entrants {
        let beside_one = entrants.iter().find(|(other, count, ..)| other == what && *count == 1);
        let beside_one = beside_one.map(|(_, _, _, times, _)| times.as_slice()).unwrap_or_default();
        note_rounds(ledger, ["readers", "readers-ratio"], &format!("{what}/{others}"), times, beside_one);
    }
    Ok(())
}

/// The number of readers that come and go in turn. Contenders that renew do not use it.
const NEWCOMERS: usize = 64;
/// How long one contender runs before the next one has its turn.
const SLICE: Duration = Duration::from_millis(60);
