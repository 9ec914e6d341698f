//! A lock that many clients want at the same time: every way to wait for it, each client a thread that sleeps in the
//! kernel until its reply or its time comes.
//!
//! Two kinds of rounds. In one the holder is busy for a moment before it releases the lock, so that everybody else has
//! come to rest: its hand-offs are timed, from the release sent to the grant received. In the other it releases the
//! lock at once: its hand-offs are counted, with all bytes that the clients sent and received meanwhile.

mod client;
mod crowd;
mod part;
mod round;
mod way;
mod ways;

use std::time::Duration;

use super::note_rounds;
use crate::error::Error;
use crate::figures::Sample;
use crate::ledger::{Figure, Ledger};
use crate::server::Programs;
use crowd::Crowd;
use round::Traffic;
pub use way::Way;

pub fn measure(programs: &Programs, rounds: usize, ledger: &mut Ledger) -> Result<(), Error> {
    for waiters in WAITERS {
        eprintln!("  {waiters} waiters");
        let mut open = programs.open()?;
        let crowd = Crowd::gather(&open.server, waiters + 1)?;
        let mut results: Vec<Results> = Way::ALL.into_iter().map(Results::of).collect();
        // Twice the rounds: a median of hand-offs jumps about more than the other figures do.
        for round in 0..=rounds * 2 {
            for result in &mut results {
                let time = result.way.window();
                let timed = crowd.contend(result.way, HELD, time, &mut open)?;
                let counted = crowd.contend(result.way, Duration::ZERO, time, &mut open)?;
                // The first round is to warm up.
                if round > 0 {
                    result.add(timed.latencies, counted.traffic);
                }
            }
        }
        crowd.join_all();
        note(&results, waiters, ledger);
    }
    Ok(())
}

/// The results of one way over all rounds.
struct Results {
    way: Way,
    /// All hand-offs, in microseconds.
    latencies: Vec<f64>,
    /// The other results, one number per round.
    medians: Vec<f64>,
    rates: Vec<f64>,
    commands: Vec<f64>,
    bytes: Vec<f64>,
}

impl Results {
    fn of(way: Way) -> Self {
        Self {
            way,
            latencies: Vec::new(),
            medians: Vec::new(),
            rates: Vec::new(),
            commands: Vec::new(),
            bytes: Vec::new(),
        }
    }

    fn add(&mut self, latencies: Vec<f64>, traffic: Traffic) {
        self.medians.push(Sample::new(latencies.iter().copied()).median());
        self.latencies.extend(latencies);
        let hand_offs = traffic.hand_offs as f64;
        self.rates.push(hand_offs / traffic.time.as_secs_f64());
        if traffic.hand_offs > 0 {
            self.commands.push(traffic.commands as f64 / hand_offs);
            self.bytes.push(traffic.bytes as f64 / hand_offs);
        }
    }
}

fn note(results: &[Results], waiters: usize, ledger: &mut Ledger) {
    let list = results.iter().find(|result| result.way == Way::Element).map(|result| result.medians.as_slice());
    for result in results {
        let name = result.way.name();
        let sorts = [format!("hand-off-median/{waiters}"), format!("hand-off-ratio/{waiters}")];
        note_rounds(ledger, [&sorts[0], &sorts[1]], name, &result.medians, list.unwrap_or_default());
        let all = Sample::new(result.latencies.iter().copied());
        for (percentile, rank) in [("p50", 500), ("p99", 990), ("p99.9", 999)] {
            // A rank with only one hand-off beyond it is not reported.
            if all.len() * (1000 - rank) >= 2_000 {
                let figure = Figure::once(all.per_mille(rank));
                ledger.note(format!("hand-off-{percentile}/{waiters}/{name}"), figure);
            }
        }
        for (what, values) in [("rate", &result.rates), ("commands", &result.commands), ("bytes", &result.bytes)] {
            if !values.is_empty() {
                let figure = Figure::of_rounds(&Sample::new(values.iter().copied()));
                ledger.note(format!("hand-off-{what}/{waiters}/{name}"), figure);
            }
        }
    }
}

pub const WAITERS: [usize; 5] = [2, 8, 64, 512, 5_000];
/// How long the holder is busy where hand-offs are timed.
const HELD: Duration = Duration::from_micros(200);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command_line::Place;

    #[test]
    fn in_every_way_the_lock_goes_from_one_to_the_next() {
        let programs = Programs::find(&Place::default()).expect("a server and the module");
        let mut open = programs.open().expect("a server that runs");
        let crowd = Crowd::gather(&open.server, 4).expect("clients");
        for way in Way::ALL {
            // The second round fails if the first one has left something behind.
            for held in [HELD, Duration::ZERO] {
                let time = Duration::from_millis(100);
                let outcome = crowd.contend(way, held, time, &mut open).expect("hand-offs");
                let Traffic { hand_offs, commands, .. } = outcome.traffic;
                assert!(hand_offs > 0, "{way:?}");
                // Each hand-off has a command to acquire and one to release. Some are sent before or after the time.
                assert!(commands + 2 * 4 >= 2 * hand_offs, "{way:?}: {commands} for {hand_offs}");
                assert!(outcome.latencies.iter().all(|latency| *latency > 0.0), "{way:?}");
            }
        }
        crowd.join_all();
    }
}
