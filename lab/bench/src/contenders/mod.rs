//! Everything that is measured, one file a set.
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
    /// Whether its pairs are timed, too.
    pub is_timed: bool,
    /// Brings a fresh server into the state that the load needs, and makes the load, over locks and owners with these
    /// numbers. [`Error::Lacking`] if the server lacks what the load needs.
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

    /// Returns how often it is counted; the median is kept. Every server draws new hash seeds. On commands that
    /// are as short as those on other keys, the place of a name in the table of commands costs up to one per cent.
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

    /// Keys that the operations are spread over, each with an owner of its own. On many keys, what the hash seed of one
    /// server does to one key averages out. All of them are used once before anything is counted, except where one
    /// operation is large: 64 locks at once, or a rival's beside 100 readers or more.
    pub fn keys(&self) -> usize {
        match self.kind {
            Kind::Pair | Kind::Renewal | Kind::Look | Kind::OtherKeys => 400,
            Kind::Beside(_) | Kind::Permits(_) | Kind::Several(_) => 64,
        }
    }

    /// Two numbers of operations whose difference is measured. The first is past all warm-up, apart from that of keys
    /// (see [`Self::keys`]). The difference is without the cost of a clock tick, and of what the bench asks until the
    /// server is ready.
    pub fn operations(&self) -> [usize; 2] {
        let few = match self.kind {
            // The rival's cost grows with the readers.
            Kind::Beside(readers) if self.runs_on == RunsOn::PlainServer => (5_000 / readers).clamp(4, 1_000),
            Kind::Several(locks) => 1_000 / locks,
            Kind::Pair | Kind::Renewal | Kind::Beside(_) | Kind::Look | Kind::OtherKeys | Kind::Permits(_) => 500,
        };
        let is_noisy = match self.kind {
            Kind::OtherKeys => true,
            // The server's timers run while the readers come.
            Kind::Beside(_) => self.runs_on == RunsOn::Module,
            Kind::Pair | Kind::Renewal | Kind::Look | Kind::Permits(_) | Kind::Several(_) => false,
        };
        [few, few * if is_noisy { 20 } else { 5 }]
    }
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Kind {
    /// Enter and leave a free lock. Each of the numbers is a lock with an owner of its own.
    Pair,
    /// Move the lease of a lock that is held. The numbers as with pairs.
    Renewal,
    /// On one lock that this many readers hold.
    Beside(usize),
    /// Writes nothing.
    Look,
    /// On keys that are no locks.
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

/// Returns whether this is a figure of a contender that [`Error::Lacking`] may leave out.
#[cfg(test)]
pub fn may_lack(figure: &str) -> bool {
    let name = figure.rsplit('/').next().unwrap_or_default();
    ["set-cad", "set-ifeq", "acquire-px-no-log"].contains(&name)
}

/// Operations of `N` requests over locks with these numbers, each with an owner of its own.
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

/// Long enough that no lease ends during a run, on any machine.
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
                // The second round shows that the first left nothing behind.
                Ok(load) => load.run(&mut connection, 8).unwrap_or_else(|error| panic!("{}: {error}", contender.name)),
                Err(Error::Lacking(_)) if may_lack(contender.name) => {}
                Err(error) => panic!("{}: {error}", contender.name),
            }
        }
    }
}
