//! The naive model of answers to waiters after a change, and of changes to keys by commands of the server.

use super::naive::{Counts, Key, Naive, Reply, Request, Turn};
use crate::histories::values::{KEYS, KeyNo};

impl Naive {
    /// Returns a server without locks.
    pub fn new(now_us: u64, default_lease: u64, max_waiters: Option<usize>) -> Naive {
        Naive {
            now_us,
            keys: vec![Key::default(); KEYS.len()],
            waiting: Vec::new(),
            sessions: Vec::new(),
            uptime_ahead_us: 0,
            openings: 0,
            has_users: false,
            last_token: 0,
            default_lease,
            max_waiters,
            is_blind: false,
            counts: Counts::default(),
        }
    }

    /// Answers every waiter whose turn has come and for which `may_look` returns true. Returns them with their answers.
    pub fn serve(&mut self, may_look: impl Fn(&Request) -> bool) -> Vec<(Request, Reply)> {
        let mut served = Vec::new();
        while let Some((at, answer)) = self.next_answer(&may_look) {
            let waiter = self.waiting.remove(at);
            let reply = match answer {
                None => Reply::WrongType,
                Some(Turn::LeasePassed) => Reply::Nil,
                Some(Turn::SessionLease) => Reply::SessionLease,
                Some(Turn::NoSession) => Reply::NoSession,
                Some(turn) => self.grant(&waiter, turn).expect("the turn is a grant"),
            };
            served.push((waiter, reply));
        }
        served
    }

    /// Returns the first waiter that is answered now, and its turn, or no turn if one of its keys has another type.
    fn next_answer(&self, may_look: impl Fn(&Request) -> bool) -> Option<(usize, Option<Turn>)> {
        let looked_at = self.waiting.iter().enumerate().filter(|(_, waiter)| may_look(waiter));
        looked_at.into_iter().find_map(|(at, waiter)| {
            if waiter.keys.iter().any(|key| self.keys[*key].is_other) {
                return Some((at, None));
            }
            let turn = self.turn(waiter);
            (turn != Turn::NotYet).then_some((at, Some(turn)))
        })
    }

    /// Grants the locks to a waiter that has left its queues. Returns `None` if its turn is not a grant.
    pub fn grant(&mut self, waiter: &Request, turn: Turn) -> Option<Reply> {
        match turn {
            Turn::Enters(_) => Some(Reply::Granted(self.enter(waiter))),
            Turn::Recorded(token) => {
                self.counts.replays += 1;
                self.bind(waiter);
                Some(Reply::Replayed(token))
            }
            Turn::NotYet | Turn::LeasePassed | Turn::SessionLease | Turn::NoSession => None,
        }
    }

    /// Removes the holds whose sessions have ended. With a grace, makes its end their deadline.
    pub fn settle_sessions(&mut self) {
        let now = self.now();
        for key in 0..KEYS.len() {
            let holds = &mut self.keys[key].holds;
            holds.retain(|hold| hold.ended.is_none_or(|end| now < end));
            for hold in holds {
                if let Some(end) = hold.ended.take() {
                    hold.deadline = end;
                }
            }
            self.keep_early(key);
        }
    }

    /// `RENAME`, `MOVE`: the lock moves, and its queue stays under the old name.
    pub fn rename(&mut self, from: KeyNo, to: KeyNo) {
        self.keys[to] = std::mem::take(&mut self.keys[from]);
        self.unbind(to);
    }

    /// `SWAPDB`.
    pub fn swap(&mut self) {
        let half = KEYS.len() / 2;
        for key in 0..half {
            self.keys.swap(key, key + half);
        }
        (0..KEYS.len()).for_each(|key| self.unbind(key));
    }

    /// `FLUSHDB`, `FLUSHALL`.
    pub fn flush(&mut self, db: Option<i32>) {
        (0..KEYS.len()).filter(|key| db.is_none_or(|db| db == KEYS[*key].0)).for_each(|key| self.clear(key));
    }

    /// `SET`.
    pub fn overwrite(&mut self, key: KeyNo) {
        self.clear(key);
        self.keys[key].is_other = true;
    }
}
