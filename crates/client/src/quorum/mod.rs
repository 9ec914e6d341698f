//! Locks that a majority of independent servers decides on.
//!
//! `dlock-quorum` decides what is sent when, and what the answers mean. This module has the connections, the clock, the
//! randomness and the errors.

mod acquire;
mod attempt;
pub(crate) mod builder;
mod clocks;
mod contended;
mod dispatch;
mod flights;
pub(crate) mod kept;
mod last_answers;
mod lookout;
mod member;
mod time;
mod wire;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use dlock_quorum::{Answer, Call};

use crate::cleanup::Cleanups;
use crate::server::fault::Fault;
use clocks::ServerClocks;
use contended::Contended;
use last_answers::LastAnswers;
use member::Member;
use wire::Wire;

pub(crate) struct Quorum {
    members: Vec<Member>,
    longest_lease: Duration,
    timeout: Duration,
    /// The instant from which the protocol counts its times.
    began: Instant,
    clocks: Arc<ServerClocks>,
    contended: Contended,
    /// The servers that did not answer when last asked.
    silent: Mutex<Vec<bool>>,
    answers: LastAnswers,
    pub cleanups: Cleanups,
}

impl Quorum {
    fn members(&self) -> usize {
        self.members.len()
    }

    fn majority(&self) -> usize {
        self.members.len() / 2 + 1
    }

    fn timeout(&self) -> Duration {
        self.timeout
    }

    /// Returns how long a call waits for its answer at most.
    fn longest_answer(&self) -> Duration {
        (self.timeout * 4).max(Duration::from_secs(1))
    }

    fn now(&self) -> Duration {
        self.began.elapsed()
    }

    fn at(&self, time: Duration) -> Instant {
        self.began + time
    }

    fn member(&self, at: usize) -> Result<&Member, Fault> {
        self.members.get(at).ok_or_else(|| Fault::NotSent("no such server".into()))
    }

    /// Checks that the server at the other end of this connection may count.
    fn check_counts(&self, at: usize, wire: &Wire) -> Result<(), Fault> {
        self.member(at)?.check_counts(wire)?;
        self.check_is_no_twin(at)
    }

    /// Returns whether the server will count, but is too young.
    fn is_young(&self, at: usize, wire: &Wire) -> Result<bool, Fault> {
        let is_young = self.member(at)?.is_young(wire)?;
        self.check_is_no_twin(at)?;
        Ok(is_young)
    }

    /// Checks that no earlier member is the same server.
    fn check_is_no_twin(&self, at: usize) -> Result<(), Fault> {
        let member = self.member(at)?;
        match self.members.iter().take(at).find(|other| other.is_same_process(member)) {
            Some(twin) => Err(member.twin_fault(&twin.address())),
            None => Ok(()),
        }
    }

    /// Records whether a server answered.
    fn note(&self, call: &Call, answer: Answer) {
        if let Some(silent) = self.silent().get_mut(call.to) {
            *silent = answer == Answer::Failed;
        }
    }

    /// Returns what is wrong with the servers that do not count.
    fn troubles(&self) -> String {
        let trouble = |member: &Member| {
            let (address, why) = (member.address(), member.trouble()?);
            // A failed connection names the address by itself.
            Some(if why.starts_with(&address) { why } else { format!("{address} {why}") })
        };
        let troubles: Vec<String> = self.members.iter().filter_map(trouble).collect();
        if troubles.is_empty() { "no answer in time".to_owned() } else { troubles.join("; ") }
    }

    fn silent(&self) -> std::sync::MutexGuard<'_, Vec<bool>> {
        self.silent.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
