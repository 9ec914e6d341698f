//! The end of a turn: runs the timer, ends waits, and compares the result with the model.

use dlock_core::engine::{Answer, Event, Fault, Output, Permission, Role};

use super::World;
use crate::histories::held;
use crate::histories::naive::{Hold, Naive, Reply, Request, Turn};
use crate::histories::plain;
use crate::histories::values::{KEYS, KeyNo};

impl World {
    /// Ends a command. Fails if a waiter for its keys should have been granted, unless the timer is due in the same turn.
    pub(super) fn end_command(&mut self, keys: &[KeyNo]) {
        self.sync();
        self.audit();
        if self.server.is_due() {
            return;
        }
        let is_concerned = |waiter: &&Request| waiter.keys.iter().any(|key| keys.contains(key));
        for waiter in self.naive.waiting.iter().filter(is_concerned).filter(|waiter| self.may_be_served(waiter)) {
            assert_eq!(self.naive.turn(waiter), Turn::NotYet, "{waiter:?} {:?}", self.naive);
        }
        self.check_wake_ups();
    }

    /// Runs the timer until it is no longer due, and checks what it has done.
    pub(in crate::histories) fn tick(&mut self) {
        let due: Vec<_> = self.bound().into_iter().filter(|(_, hold)| self.may_be_extended(hold)).collect();
        let has_expired = |world: &World, key: &KeyNo| world.server.space.has_expired(&plain::key_name(*key));
        let expired: Vec<KeyNo> = (0..KEYS.len()).filter(|key| has_expired(self, key)).collect();
        let mut ticks = 0;
        while self.server.is_due() {
            self.server.tick();
            let ended = self.sessions_ended();
            let (answers, none) = split(self.server.take_outputs(), 0, None);
            assert!(none.is_empty());
            self.answers_and_ends(answers, ended);
            ticks += 1;
            assert!(ticks < 50, "the timer is always due: {:?}", self.naive);
        }
        self.removed_by_timer.retain(|key| self.naive.keys[*key].unnoticed.is_some());
        self.removed_by_timer
            .extend(expired.into_iter().filter(|key| !self.server.space.has_expired(&plain::key_name(*key))));
        self.sync();
        self.lose_graces();
        self.audit();
        if self.server.role == Role::Primary {
            self.follow_watchdog(&due);
            self.note_refused_renewals();
            self.check_settled();
        }
    }

    /// Returns whether the server may serve a waiter: it has the permission, and has noticed all changes.
    fn may_be_served(&self, waiter: &Request) -> bool {
        let may = |key: &KeyNo| {
            let (name, naive) = (plain::key_name(*key), &self.naive.keys[*key]);
            // The server notices an early expiry when it removes the key. If the timer removes the key to extend a lease,
            // the queue is served at the end of a lease.
            let is_left = self.server.space.has_expired(&name) || self.removed_by_timer.contains(key);
            let is_unnoticed = is_left && naive.unnoticed.is_some_and(|until| self.naive.now() < until);
            !self.server.space.permissions.contains_key(&name) && !naive.is_other && !is_unnoticed
        };
        waiter.keys.iter().all(may)
    }

    /// Fails if the timer has left work undone.
    fn check_settled(&mut self) {
        for key in &self.naive.keys {
            assert!(key.holds.iter().all(|hold| hold.ended.is_none()), "not released: {:?}", self.naive);
        }
        for key in std::mem::take(&mut self.overwritten) {
            assert!(self.naive.queue(key).is_empty(), "{key}: {:?}", self.naive);
        }
        for waiter in self.naive.waiting.iter().filter(|waiter| self.may_be_served(waiter)) {
            assert_eq!(self.naive.turn(waiter), Turn::NotYet, "{waiter:?} {:?}", self.naive);
        }
        self.check_wake_ups();
        let has_expired = (0..KEYS.len()).any(|key| self.server.space.has_expired(&plain::key_name(key)));
        if self.server.space.permissions.is_empty() && !has_expired {
            assert_eq!(self.server.engine.gauges().sessions, self.bound().len());
        }
    }

    /// Fails unless the timer is set for the end of each lease that a request waits for, for named sessions, and for each
    /// renewal of a bound hold.
    fn check_wake_ups(&self) {
        let now = self.naive.now();
        let wakes = |at: u64| self.server.engine.wake_at().is_some_and(|wake| wake.get() <= at);
        let ends =
            self.naive.keys.iter().flat_map(|key| key.holds.iter().map(|hold| hold.deadline).chain(key.unnoticed));
        for at in ends.filter(|at| *at > now) {
            let mut then = self.naive.clone();
            then.advance(at * 1000);
            let is_noticed = |key: &KeyNo| then.keys[*key].unnoticed.is_none_or(|until| until <= at);
            let is_turn = |waiter: &&Request| {
                self.may_be_served(waiter) && waiter.keys.iter().all(is_noticed) && then.turn(waiter) != Turn::NotYet
            };
            if let Some(waiter) = then.waiting.iter().find(is_turn) {
                assert!(wakes(at), "at {at}, not {:?}: {waiter:?} {:?}", self.server.engine.wake_at(), self.naive);
            }
        }
        // If the clock was set back, the timer is late until the next event.
        let late_until = self.deployed.as_ref().map_or(0, |deployed| deployed.late_until);
        let timer = (now + 50).max(late_until);
        assert!(self.naive.sessions.is_empty() || wakes(timer), "nothing looks at sessions: {:?}", self.naive);
        for (key, hold) in self.bound() {
            if self.may_run(&[key]) {
                let third = hold.deadline - hold.lease + hold.lease / 3;
                // A hold that has reached its cap is not renewed. At the hold's deadline, its session forgets it.
                let due = if hold.cap == Some(hold.deadline) { hold.deadline.max(late_until) } else { third };
                let due = due.max(self.retry_by[key]);
                assert!(wakes(due), "{hold:?} is due at {due}, not {:?}", self.server.engine.wake_at());
            }
        }
    }

    /// Returns the live holds that are bound to sessions.
    fn bound(&self) -> Vec<(KeyNo, Hold)> {
        let holds =
            |key| self.naive.live(key).filter(|hold| hold.session.is_some()).map(move |hold| (key, hold.clone()));
        (0..KEYS.len()).flat_map(holds).collect()
    }

    /// Returns whether the watchdog may extend the lease: a third of it has passed, less a twelfth of that third.
    fn may_be_extended(&self, hold: &Hold) -> bool {
        let third = hold.lease / 3;
        hold.cap != Some(hold.deadline) && self.naive.now() >= hold.deadline - hold.lease + third - third / 12
    }

    /// Fails unless the watchdog has extended the leases that are due, and applies that to the model. `due` has the holds
    /// that were due before the timer ran: it may have granted a request of the same owner since.
    fn follow_watchdog(&mut self, due: &[(KeyNo, Hold)]) {
        let now = self.naive.now();
        for (key, hold) in self.bound() {
            let lock = self.server.space.lock(&plain::key_name(key));
            let stored = lock.stored_holds().map(held::hold);
            let stored = stored.into_iter().find(|stored| (stored.owner, stored.mode) == (hold.owner, hold.mode));
            let deadline = stored.unwrap_or_else(|| panic!("{hold:?} is gone from {key}")).deadline;
            let (begin, third) = (hold.deadline - hold.lease, hold.lease / 3);
            let full = hold.up_to_cap(now + hold.lease);
            if deadline == hold.deadline {
                let is_due =
                    now >= (begin + third).max(self.retry_by[key]) && self.may_run(&[key]) && hold.deadline != full;
                assert!(!is_due, "{hold:?} was not extended at {now}");
                continue;
            }
            assert_eq!(deadline, full, "{hold:?} at {now}");
            let is_same = |(at, due): &(KeyNo, Hold)| {
                (*at, due.owner, due.mode, due.token) == (key, hold.owner, hold.mode, hold.token)
            };
            assert!(self.may_be_extended(&hold) || due.iter().any(is_same), "{hold:?} was extended at {now}");
            assert!(self.may_run(&[key]), "{hold:?} was extended without permission");
            self.reached.count("watchdog");
            self.reached.count_if("watchdog up to a cap", hold.cap == Some(deadline));
            let is_same = |other: &&mut Hold| other.token == hold.token && other.mode == hold.mode;
            let found = self.naive.keys[key].holds.iter_mut().filter(|other| other.owner == hold.owner).find(is_same);
            found.expect("the bound hold").deadline = deadline;
            self.naive.keep_early(key);
            self.late.remove(&key);
        }
    }

    /// Updates the holds of the model whose sessions have ended: the engine may have released them, or shortened them to
    /// their grace.
    fn sync(&mut self) {
        for key in 0..KEYS.len() {
            let lock = self.server.space.lock(&plain::key_name(key));
            let stored: Vec<Hold> = lock.stored_holds().map(held::hold).collect();
            let before = self.naive.keys[key].holds.clone();
            self.naive.keys[key].holds.retain_mut(|hold| {
                let Some(end) = hold.ended else { return true };
                let name = |hold: &Hold| (hold.token, hold.owner, hold.mode);
                let is_it = |other: &&Hold| name(other) == name(hold);
                let Some(found) = stored.iter().find(is_it) else { return false };
                if found.deadline == end {
                    (hold.deadline, hold.ended) = (end, None);
                }
                true
            });
            if before != self.naive.keys[key].holds {
                self.naive.keep_early(key);
            }
        }
        self.naive.advance(self.naive.now_us);
    }

    /// Removes the holds whose lease has ended before the server could write their grace.
    fn lose_graces(&mut self) {
        if self.server.role == Role::Primary {
            let now = self.naive.now();
            for key in 0..KEYS.len() {
                self.naive.keys[key].holds.retain(|hold| hold.ended.is_none() || now < hold.deadline);
                self.naive.keep_early(key);
            }
        }
    }

    /// Records when refused renewals are tried again: after a quarter of the time that is left.
    fn note_refused_renewals(&mut self) {
        let now = self.naive.now();
        for (key, hold) in self.bound() {
            if !self.may_run(&[key]) && self.may_be_extended(&hold) {
                let pause = (hold.deadline.saturating_sub(now) / 4).clamp(20, 1000);
                self.retry_by[key] = self.retry_by[key].max(now + pause);
            }
        }
    }

    /// Applies the timer's answers of a turn in which these named sessions have ended. If several have ended, the end of
    /// a session may have freed a lock for a request that is bound to a session which ended after it.
    fn answers_and_ends(&mut self, answers: Answers, mut ended: Vec<u64>) {
        let session_of = |naive: &Naive, (ticket, answer): &(u64, Answer)| {
            let waiter = naive.waiting.iter().find(|waiter| waiter.ticket == *ticket)?;
            waiter.session.filter(|_| matches!(answer, Answer::Granted(..)))
        };
        let mut granted: Vec<Option<u64>> = answers.iter().map(|answer| session_of(&self.naive, answer)).collect();
        if ended.len() < 2 {
            granted.clear();
        }
        for (at, answer) in answers.into_iter().enumerate() {
            let later = granted.get(at..).unwrap_or_default();
            ended
                .extract_if(.., |session| !later.contains(&Some(*session)))
                .for_each(|session| self.end_named(session));
            self.answers(vec![answer]);
        }
        ended.into_iter().for_each(|session| self.end_named(session));
    }

    /// Applies answers to waiters to the model, and fails if they are wrong.
    pub(super) fn answers(&mut self, answers: Answers) {
        for (ticket, answer) in answers {
            let at = self.naive.waiting.iter().position(|waiter| waiter.ticket == ticket).expect("a waiter");
            let waiter = self.naive.waiting[at].clone();
            if let Some(deployed) = &mut self.deployed {
                deployed.answered.push((waiter.clone(), answer.clone()));
            }
            let has = |permission| {
                let permissions = &self.server.space.permissions;
                waiter.keys.iter().any(|key| permissions.get(&plain::key_name(*key)) == Some(&permission))
            };
            let turn = self.naive.turn(&waiter);
            match &answer {
                Answer::Fault(Fault::WrongType) => {
                    assert!(waiter.keys.iter().any(|key| self.naive.keys[*key].is_other));
                }
                Answer::Fault(Fault::TryAgain) => assert!(has(Permission::Elsewhere)),
                Answer::Fault(Fault::NoSession(_)) => assert_eq!(turn, Turn::NoSession, "{:?}", self.naive),
                Answer::Fault(Fault::SessionLease) => assert_eq!(turn, Turn::SessionLease, "{:?}", self.naive),
                Answer::Nil => assert_eq!(turn, Turn::LeasePassed, "{:?}", self.naive),
                Answer::Granted(grant, owner) => {
                    assert!(
                        !has(Permission::ReleaseOnly)
                            && !has(Permission::Elsewhere)
                            && self.server.role == Role::Primary
                    );
                    assert_eq!(owner.as_ref().map(plain::who), waiter.is_drawn.then_some(waiter.owner));
                    self.reached.served(&waiter, turn);
                    self.naive.waiting.remove(at);
                    let Some(Reply::Granted(expected) | Reply::Replayed(expected)) = self.naive.grant(&waiter, turn)
                    else {
                        panic!("{waiter:?} is granted, but {turn:?} {:?}", self.naive);
                    };
                    assert_eq!(grant.token.get(), expected);
                    self.check_slot(&waiter, *grant);
                    continue;
                }
                answer => panic!("{answer:?}"),
            }
            self.reached.ended(&answer);
            self.naive.waiting.remove(at);
        }
    }
}

type Answers = Vec<(u64, Answer)>;

/// Splits answers into those before and those after the last event of this kind on a key of the command. Without such an
/// event, all are before. Fails if a key that is not the command's has an event.
pub(super) fn split(outputs: Vec<Output<u64>>, keys: usize, marker: Option<Event>) -> (Answers, Answers) {
    let is_marker = |output: &Output<u64>| matches!(output, Output::Own(_, event) if Some(*event) == marker);
    let cut = outputs.iter().rposition(is_marker).unwrap_or(outputs.len());
    let (mut before, mut after) = (Vec::new(), Vec::new());
    for (at, output) in outputs.into_iter().enumerate() {
        match output {
            Output::Own(index, event) => assert!(index < keys, "{event:?} on key {index} of {keys}"),
            Output::Answer(ticket, answer) if at > cut => after.push((ticket, answer)),
            Output::Answer(ticket, answer) => before.push((ticket, answer)),
            Output::Event(..) | Output::Modified(..) => {}
        }
    }
    (before, after)
}
