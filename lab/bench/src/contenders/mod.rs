//! Everything that is measured: each file but `background` has a set of contenders.
//!
//! A new set is a file with an `all()` and a line in [`all`].

mod background;
mod locks;
mod others;
mod readers;
mod redisson;
mod reentrant;
mod semaphores;
mod several;
mod strings;

use std::ops::Range;

use crate::connection::Connection;
use crate::error::Error;
use crate::load::Load;
use crate::mode::Mode;
use crate::owners;
use crate::resp::{Reply, Request};
use crate::server::RunsOn;

/// A thing that can be measured.
pub struct Contender {
    /// For `--only`, figures and targets.
    pub name: &'static str,
    /// For people.
    pub label: &'static str,
    pub runs_on: RunsOn,
    pub kind: Kind,
    pub background: Background,
    /// Whether a difference of one per cent matters.
    is_exact: bool,
    /// Whether the time of its pairs is measured, besides their instructions.
    pub is_timed: bool,
    /// Brings a fresh server into the state that the load needs, and makes the load, over locks and owners with the
    /// numbers of the range. [`Error::Lacking`] if the server lacks what the load needs.
    pub prepare: Prepare,
}

pub type Prepare = fn(&mut Connection, Range<usize>) -> Result<Load, Error>;

impl Contender {
    fn new(name: &'static str, label: &'static str, runs_on: RunsOn, kind: Kind, prepare: Prepare) -> Self {
        let background = Background::Nobody;
        Self { name, label, runs_on, kind, background, is_exact: false, is_timed: kind == Kind::Pair, prepare }
    }

    /// Counts the contender beside these clients, often enough to tell one per cent, and does not time it.
    fn beside(self, background: Background) -> Self {
        Self { background, is_timed: false, ..self }.exactly()
    }

    fn exactly(self) -> Self {
        Self { is_exact: true, ..self }
    }

    /// Returns how often the instructions are counted; the median is kept. Every server draws new hash seeds. On
    /// commands that are as short as those on other keys, the place of a name in the table of commands costs up to one
    /// per cent.
    pub fn counts(&self, mode: Mode) -> usize {
        match (self.kind, mode) {
            (Kind::OtherKeys, _) => 5,
            (_, Mode::NoPersistence) if self.is_exact => 3,
            _ => 1,
        }
    }

    pub fn runs_in(&self, mode: Mode) -> bool {
        match (self.kind, mode) {
            (Kind::Pair | Kind::Renewal, _) | (_, Mode::NoPersistence) => true,
            (
                Kind::Beside(_) | Kind::Look | Kind::OtherKeys | Kind::Permits(_) | Kind::Several(_),
                Mode::Aof | Mode::Replica,
            ) => false,
        }
    }

    /// Returns how many numbers [`Self::prepare`] gets: keys with an owner each, sets of keys ([`Kind::Several`]), or
    /// owners on a single key ([`Kind::Beside`], [`Kind::Permits`]). On many keys, what the hash seed of one server
    /// does to one key averages out. The shorter run uses all numbers ([`Self::operations`]), except where one
    /// operation is large: 64 locks at once, or a rival's beside 100 readers or more.
    pub fn keys(&self) -> usize {
        match self.kind {
            Kind::Pair | Kind::Renewal | Kind::Look | Kind::OtherKeys => 400,
            Kind::Beside(_) | Kind::Permits(_) | Kind::Several(_) => 64,
        }
    }

    /// Returns the operations of a shorter and a longer run, whose difference is measured. The shorter run is past all
    /// warm-up, apart from that of keys (see [`Self::keys`]). The costs that both runs have cancel out: a tick of the
    /// server's clock, and the commands of the bench until the server is ready.
    pub fn operations(&self) -> [usize; 2] {
        let few = match self.kind {
            // The rival's cost grows with the readers.
            Kind::Beside(readers) if self.runs_on == RunsOn::PlainServer => (5_000 / readers).clamp(4, 1_000),
            Kind::Several(locks) => 1_000 / locks,
            Kind::Pair | Kind::Renewal | Kind::Beside(_) | Kind::Look | Kind::OtherKeys | Kind::Permits(_) => 500,
        };
        let is_noisy = match self.kind {
            Kind::OtherKeys => true,
            // To admit the readers takes so long that the server's timers run meanwhile.
            Kind::Beside(_) => self.runs_on == RunsOn::Module,
            Kind::Pair | Kind::Renewal | Kind::Look | Kind::Permits(_) | Kind::Several(_) => false,
        };
        [few, few * if is_noisy { 20 } else { 5 }]
    }
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Kind {
    /// Enters and leaves a free lock. Each of the numbers is a lock with an owner of its own.
    Pair,
    /// Moves the lease of a lock that is held. Each of the numbers is a lock with an owner of its own.
    Renewal,
    /// Works on one lock that this many readers hold.
    Beside(usize),
    /// Writes nothing.
    Look,
    /// Works on keys that are no locks.
    OtherKeys,
    /// Takes and gives back a permit of a semaphore of which this many are taken.
    Permits(usize),
    /// Enters and leaves this many free locks at once.
    Several(usize),
}

/// The yardstick of all figures that are kept: the cheapest there is, which checks no owner.
pub use strings::SET_DEL;
/// The rival that most people use today, and its script.
pub use strings::{COMPARE_AND_DELETE, SET_SCRIPT};

pub use background::Background;
pub use others::COMMANDS as OTHER_COMMANDS;
pub use semaphores::{SEMAPHORES, TAKEN};
pub use several::{LOCKS_AT_ONCE, SEVERAL};

/// Returns the contenders whose pairs are timed.
pub fn timed() -> impl Iterator<Item = Contender> {
    all().into_iter().filter(|contender| contender.is_timed)
}

/// All contenders, in the order of the table.
pub fn all() -> Vec<Contender> {
    let sets = [
        strings::all(),
        reentrant::all(),
        redisson::all(),
        locks::all(),
        readers::all(),
        others::all(),
        semaphores::all(),
        several::all(),
    ];
    sets.into_iter().flatten().collect()
}

/// Returns whether this is a figure of a contender that some servers lack ([`Error::Lacking`]).
#[cfg(test)]
pub fn may_lack(figure: &str) -> bool {
    let name = figure.rsplit('/').next().unwrap_or_default();
    ["set-cad", "set-ifeq", "acquire-px-no-log"].contains(&name)
}

/// Returns operations of `N` requests each, one for each number: a lock with an owner of its own.
fn over<const N: usize>(numbers: Range<usize>, operation: impl Fn(&[u8], &[u8]) -> [Request; N]) -> Load {
    Load::new(numbers.map(|n| operation(&owners::key(n), &owners::owner(n))))
}

/// Loads a script and returns its digest.
pub fn script(connection: &mut Connection, text: &str) -> Result<Vec<u8>, Error> {
    match connection.call(&[b"SCRIPT", b"LOAD", text.as_bytes()])? {
        Reply::Bulk(digest) => Ok(digest),
        other => Err(Error::Reply(format!("SCRIPT LOAD got {other:?}"))),
    }
}

/// Runs every operation once.
fn run_through(load: &Load, connection: &mut Connection) -> Result<(), Error> {
    load.run(connection, load.operations())
}

/// An hour in ms, so that no lease ends during a run, on any machine.
const LEASE: &[u8] = b"3600000";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command_line::Place;
    use crate::server::{Clock, Programs};

    #[test]
    fn every_contender_gets_the_replies_it_expects() {
        let programs = Programs::find(&Place::default()).expect("a server and a module");
        for contender in all() {
            let server = programs.start(contender.runs_on, Mode::NoPersistence, Clock::Still, Vec::new());
            let server = server.expect("a server that runs");
            let _background = contender.background.gather(&server).expect("background");
            let mut connection = server.connect().expect("a connection");
            match (contender.prepare)(&mut connection, 0..4) {
                // Most loads have four operations: the second round shows that the first left nothing behind.
                Ok(load) => load.run(&mut connection, 8).unwrap_or_else(|error| panic!("{}: {error}", contender.name)),
                Err(Error::Lacking(_)) if may_lack(contender.name) => {}
                Err(error) => panic!("{}: {error}", contender.name),
            }
        }
    }
}
