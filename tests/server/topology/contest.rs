//! Clients that contend for locks in threads of their own, while the test does something to the servers.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::thread::JoinHandle;

use super::player::{Field, Guide, Player};
use super::referee::Referee;
use crate::support::soon;

/// The number of players of each lock: enough for a queue at all times.
const PLAYERS: usize = 5;
/// How many more grants of each lock prove that the contest goes on.
const PROOF: usize = 20;

pub struct Contest {
    field: Arc<Field>,
    players: Vec<JoinHandle<()>>,
}

impl Contest {
    /// Begins, and waits until every lock has been had many times.
    #[track_caller]
    pub fn begin(guide: Guide, keys: &[String], copies: i64) -> Self {
        let referee = Referee::new(keys.len());
        let field = Field { guide, referee, is_over: AtomicBool::new(false), copies: AtomicI64::new(copies) };
        let field = Arc::new(field);
        let mut players = Vec::new();
        for lock in 0..keys.len() {
            for number in 0..PLAYERS {
                let player = Player::new(&field, keys, lock, number);
                players.push(std::thread::spawn(move || player.play()));
            }
        }
        let contest = Self { field, players };
        contest.goes_on();
        contest
    }

    /// From now on a grant counts if this number of replicas has it.
    pub fn demand_copies(&self, copies: i64) {
        self.field.copies.store(copies, Ordering::Relaxed);
    }

    /// Waits until every lock has been had many times more.
    #[track_caller]
    pub fn goes_on(&self) {
        let before = self.field.referee.entries();
        soon("every lock is had again and again", || {
            // A player that has failed ends the wait: the assertion below then fails.
            self.players.iter().any(JoinHandle::is_finished)
                || before.iter().zip(self.field.referee.entries()).all(|(before, now)| now >= before + PROOF)
        });
        assert!(!self.players.iter().any(JoinHandle::is_finished), "a client has failed, see above");
    }

    /// Returns the highest token that counted. Every later grant must have a higher one.
    pub fn highest_token(&self) -> i64 {
        self.field.referee.highest()
    }

    /// Returns what clients were told until now: the first words of errors, `nil` instead of a grant, and `closed` for
    /// a lost connection.
    pub fn told(&self) -> BTreeSet<String> {
        self.field.referee.told()
    }

    /// Ends the contest. Returns how many holds were gone at their first release.
    #[track_caller]
    pub fn end(mut self) -> usize {
        self.field.is_over.store(true, Ordering::Relaxed);
        for player in self.players.drain(..) {
            player.join().expect("a client has failed, see above");
        }
        eprintln!("entries {:?}, told {:?}", self.field.referee.entries(), self.told());
        self.field.referee.judge();
        self.field.referee.lost()
    }
}

impl Drop for Contest {
    fn drop(&mut self) {
        self.field.is_over.store(true, Ordering::Relaxed);
    }
}

/// Fails if clients were told a word that is in neither list, or were never told one of `always`.
#[track_caller]
pub fn assert_told(told: &BTreeSet<String>, always: &[&str], perhaps: &[&str]) {
    for word in always {
        assert!(told.contains(*word), "{word} in {told:?}");
    }
    for word in told {
        assert!([always, perhaps].concat().contains(&word.as_str()), "{word} is not in the contract");
    }
}
