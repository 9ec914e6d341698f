//! Looks at all locks all the time, and writes down which named session has which hold.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use dlock_testkit::lock::Info;
use dlock_testkit::redis::Value;
use dlock_testkit::{Client, text_of};

use crate::control::Control;
use crate::failure::{Failure, Result};
use crate::time::{Micros, now, sleep_ms};
use crate::workload::KEYS;

/// The result of an observation.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    pub sightings: Vec<Sighting>,
    /// When each look ended. In a gap, the machine was busy, or the server silent or replaced.
    pub looks: Vec<Micros>,
}

/// A hold that was bound to a named session at some time after `at`.
#[derive(Clone, Debug)]
pub struct Sighting {
    pub at: Micros,
    pub key: String,
    pub owner: String,
    pub session: String,
}

/// A thread that looks until it is asked for what it has seen.
pub struct Observer {
    has_ended: Arc<AtomicBool>,
    thread: JoinHandle<Seen>,
}

impl Observer {
    /// Begins to look at all locks of the primary. The control file in `dir`, by which the workers get their orders,
    /// has the primary's port.
    pub fn start(dir: &Path) -> Observer {
        let has_ended = Arc::new(AtomicBool::new(false));
        let (control, is_over) = (Control::in_dir(dir), Arc::clone(&has_ended));
        let thread = std::thread::spawn(move || {
            let mut seen = Seen::default();
            while !is_over.load(Ordering::Relaxed) {
                // A server that is down, or was just replaced, is tried again.
                watch(&control, &is_over, &mut seen);
                sleep_ms(BETWEEN_MS);
            }
            seen
        });
        Observer { has_ended, thread }
    }

    /// Ends the observation. An observer that panicked has not seen everything, so the run gets no verdict.
    pub fn finish(self) -> Result<Seen> {
        self.has_ended.store(true, Ordering::Relaxed);
        self.thread.join().map_err(|_| Failure("the observer panicked: its message is above".into()))
    }
}

/// Looks until the observation ends, another server is the primary, or this one does not answer.
fn watch(control: &Control, is_over: &AtomicBool, seen: &mut Seen) -> Option<()> {
    let port = control.read().ok()?.port;
    let mut client = Client::connect(port).ok()?;
    while !is_over.load(Ordering::Relaxed) && control.read().ok()?.port == port {
        for key in KEYS {
            let at = now();
            let reply = client.outcome_within(PATIENCE, format!("DLOCK.INFO {key} FULL COUNT 0")).ok()?.ok()?;
            if reply != Value::Nil {
                seen.sightings.extend(sightings(at, key, &Info::of(&reply)));
            }
        }
        seen.looks.push(now());
        sleep_ms(BETWEEN_MS);
    }
    Some(())
}

fn sightings(at: Micros, key: &str, info: &Info) -> impl Iterator<Item = Sighting> {
    let holds = info.holds().iter().filter_map(move |hold| {
        // The id of a connection is a number.
        let is_named = matches!(hold.session, Value::BulkString(_));
        let owner = String::from_utf8_lossy(&hold.owner).into_owned();
        is_named.then(|| Sighting { at, key: key.to_owned(), owner, session: text_of(&hold.session) })
    });
    holds.collect::<Vec<_>>().into_iter()
}

/// The pause between two looks. Looks that are further apart than twice this count as a gap.
pub const BETWEEN_MS: u64 = 40;
/// How long an answer may take: longer than a `CLIENT PAUSE` of the run, after which the server answers.
const PATIENCE: Duration = Duration::from_secs(5);
