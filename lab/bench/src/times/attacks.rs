//! Whether session locks survive while other clients make as much work for the module's timer as they can.

use std::time::Duration;

use dlock_testkit::client::Request;
use dlock_testkit::flood::{ATTACKED, Outcome};
use dlock_testkit::{Client, Server};

use crate::error::Error;
use crate::figures::Sample;
use crate::ledger::{Figure, Ledger};
use crate::server::Programs;
use crate::targets::{Bound, Target, ratio};

/// Clients that make work for the timer.
pub struct Attack {
    /// The name in the figures.
    pub name: &'static str,
    /// The description on the page and in the progress.
    pub label: &'static str,
    /// Starts the attack. The drop of its result ends it.
    act: fn(&Server) -> Box<dyn std::any::Any>,
}

pub static ATTACKS: [Attack; 3] = [
    Attack {
        name: "short",
        label: "3 clients that acquire new names with `PX 300 SESSION`",
        act: |server| Box::new(server.flood(3, |client, n| acquire(client, n, 300))),
    },
    Attack {
        name: "default",
        label: "3 clients that acquire new names with `PX 30000 SESSION`",
        act: |server| Box::new(server.flood(3, |client, n| acquire(client, n, 30_000))),
    },
    Attack { name: "ends", label: "8 sessions of 10,000 locks that end, and 2 such clients", act: ends },
];

/// All of the attacked locks are still held after each attack.
pub const TARGETS: [Target; 3] = [
    all_held("PX 300", "attack-held/short"),
    all_held("PX 30000", "attack-held/default"),
    all_held("ends", "attack-held/ends"),
];

const fn all_held(case: &'static str, figure: &'static str) -> Target {
    ratio(case, figure, Bound::AtLeast(ATTACKED as f64))
}

fn acquire(client: u64, n: u64, lease_ms: u64) -> Vec<u8> {
    format!("DLOCK.ACQUIRE new-{client}-{n} o PX {lease_ms} SESSION").packed()
}

/// Opens sessions with many locks and ends all of them at once, while other clients acquire more.
fn ends(server: &Server) -> Box<dyn std::any::Any> {
    let mut sessions: Vec<Client> = (0..8).map(|_| server.client()).collect();
    for (client, session) in sessions.iter_mut().enumerate() {
        session.pour((0..10_000).map(|n| format!("DLOCK.ACQUIRE many-{client}-{n} o PX 600000 SESSION")));
    }
    let flood = server.flood(2, |client, n| acquire(client, n, 300));
    drop(sessions);
    Box::new(flood)
}

pub fn measure(programs: &Programs, rounds: usize, ledger: &mut Ledger) -> Result<(), Error> {
    let setup = programs.testkit();
    for attack in &ATTACKS {
        eprintln!("  {}", attack.label);
        let run = |_| {
            let server = setup.clone().start();
            server.sessions_under(LEASE, || (attack.act)(&server))
        };
        let outcomes: Vec<Outcome> = (0..rounds.min(ROUNDS)).map(run).collect();
        let mut note = |sort: &str, value: fn(&Outcome) -> f64| {
            let values = outcomes.iter().map(value);
            ledger.note(format!("{sort}/{}", attack.name), Figure::of_rounds(&Sample::new(values)));
        };
        note("attack-held", |outcome| (ATTACKED - outcome.lost) as f64);
        note("attack-ping", |outcome| outcome.longest_ping.as_secs_f64() * 1e3);
    }
    Ok(())
}

/// The lease of the attacked locks, which the timer has to extend every 300 ms.
const LEASE: Duration = Duration::from_millis(900);
/// The most rounds of an attack, each of which takes five seconds on a new server.
const ROUNDS: usize = 3;
