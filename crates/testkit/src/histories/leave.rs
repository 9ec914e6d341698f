//! The naive model of releases, renewals, and changes without a command.

use dlock_core::{Entries, Mode};

use super::naive::{Hold, Key, MIN_BOUND, Naive, Reply};
use crate::histories::values::{Asked, KeyNo, Lease, SessionNo, Who};

/// The arguments of a `RELEASE`.
#[derive(Clone, Copy, Debug)]
pub struct Leave {
    pub owner: Who,
    pub mode: Option<Mode>,
    pub entries: Entries,
    pub token: Option<u64>,
    /// `REQUEST`.
    pub asked: Option<Asked>,
}

/// The arguments of a `RENEW`.
#[derive(Clone, Copy, Debug)]
pub struct Renewal {
    pub client: u64,
    pub owner: Who,
    pub mode: Option<Mode>,
    pub lease: Lease,
    pub fence: Fence,
    pub binds: bool,
    pub named: Option<SessionNo>,
}

/// The option `TOKEN` or `MINTOKEN` of a `RENEW`.
#[derive(Clone, Copy, Debug)]
pub enum Fence {
    Any,
    Is(u64),
    AtLeast(u64),
}

impl Naive {
    pub fn release(&mut self, key: KeyNo, leave: Leave) -> Reply {
        let Leave { owner, mode, entries, token, asked } = leave;
        if self.keys[key].is_other {
            return Reply::WrongType;
        }
        let found = self.named(key, owner, mode);
        if found.iter().any(|hold| asked.is_some() && hold.request == asked) {
            self.counts.replays += 1;
            return Reply::Number(0);
        }
        let found: Vec<Hold> = found.into_iter().filter(|hold| token.is_none_or(|token| token == hold.token)).collect();
        let (left, request) = match (found.as_slice(), entries) {
            ([], _) => return Reply::Nil,
            // An owner with holds in both modes must name the mode or a token that only one hold has. ALL ends both.
            ([_, _], Entries::All) if token.is_none() => (0, None),
            ([_, _], _) => return Reply::Ambiguous,
            ([hold], Entries::Some(entries)) if u64::from(entries.get()) > hold.count => return Reply::Nil,
            ([hold], Entries::Some(entries)) => (hold.count - u64::from(entries.get()), asked.or(hold.request)),
            (_, _) => (0, None),
        };
        for hold in &mut self.keys[key].holds {
            if found.contains(hold) {
                (hold.count, hold.request) = (left, request);
            }
        }
        self.keys[key].holds.retain(|hold| hold.count > 0);
        self.keep_early(key);
        Reply::Number(u8::from(left == 0))
    }

    pub fn renew(&mut self, key: KeyNo, renewal: Renewal) -> Reply {
        let Renewal { client, owner, mode, lease, fence, binds, named } = renewal;
        if self.keys[key].is_other {
            return Reply::WrongType;
        }
        let bound_to = match self.binding(client, binds, named) {
            Ok(bound_to) => bound_to,
            Err(reply) => return reply,
        };
        let (now, mut found) = (self.now(), self.named(key, owner, mode));
        if let Fence::Is(token) = fence {
            found.retain(|hold| hold.token == token);
        }
        if found.is_empty() {
            return Reply::Nil;
        }
        let (mut renewed, mut is_cut) = (Vec::new(), false);
        for hold in &found {
            let (lease_ms, deadline) = lease.resolve(now, hold.lease).expect("an end in the future");
            if binds || hold.session.is_some() {
                match lease {
                    Lease::Until(_) => return Reply::SessionAbsolute,
                    Lease::Own | Lease::For(_) if lease_ms < MIN_BOUND => return Reply::SessionLease,
                    Lease::Own | Lease::For(_) => {}
                }
            }
            let is_raised = found.len() == 1 || hold.mode == Mode::Exclusive;
            let token = match fence {
                Fence::AtLeast(floor) if is_raised => hold.token.max(floor),
                Fence::Any | Fence::Is(_) | Fence::AtLeast(_) => hold.token,
            };
            let session = bound_to.or(hold.session);
            is_cut |= hold.up_to_cap(deadline) < deadline;
            let deadline = hold.up_to_cap(deadline);
            renewed.push(Hold { lease: lease_ms, deadline, token, session, ..hold.clone() });
        }
        for hold in renewed {
            self.last_token = self.last_token.max(hold.token);
            self.keys[key].holds.retain(|old| old.ended.is_some() || old.owner != owner || old.mode != hold.mode);
            self.keys[key].holds.push(hold);
        }
        self.keys[key].early = None;
        self.counts.renewals += 1;
        Reply::Number(u8::from(!is_cut))
    }

    /// Returns the live holds of an owner in this mode, or in both.
    fn named(&self, key: KeyNo, owner: Who, mode: Option<Mode>) -> Vec<Hold> {
        let named = |hold: &&Hold| hold.owner == owner && mode.is_none_or(|mode| mode == hold.mode);
        self.live(key).filter(named).cloned().collect()
    }

    /// Keeps an early expiry that a client has set only if it is before the end of the last hold.
    pub fn keep_early(&mut self, key: KeyNo) {
        let last = self.keys[key].holds.iter().map(|hold| hold.deadline).max();
        self.keys[key].early = self.keys[key].early.filter(|early| last.is_some_and(|last| *early < last));
    }

    /// Ends a session. Its holds end at once, or when the grace is over.
    pub fn end_session(&mut self, session: u64, grace: Option<u64>) {
        let now = self.now();
        for hold in self.keys.iter_mut().flat_map(|key| &mut key.holds) {
            if hold.session == Some(session) && now < hold.end() {
                (hold.session, hold.ended) = (None, Some(hold.up_to_cap(now + grace.unwrap_or(0))));
            }
        }
    }

    /// Prepares for a command of an owner: its holds whose sessions have ended get the end of the grace as their deadline.
    pub fn begin_command(&mut self, keys: &[KeyNo], owner: Who) {
        let now = self.now();
        for key in keys {
            let mine = |hold: &&mut Hold| hold.owner == owner && hold.ended.is_some_and(|end| now < end);
            for hold in self.keys[*key].holds.iter_mut().filter(|hold| mine(hold)) {
                (hold.deadline, hold.ended) = (hold.end(), None);
            }
            self.keep_early(*key);
        }
    }

    /// Clears a key that is gone or has been replaced.
    pub fn clear(&mut self, key: KeyNo) {
        self.keys[key] = Key::default();
    }

    /// Unbinds the holds of a key from their sessions.
    pub fn unbind(&mut self, key: KeyNo) {
        for hold in &mut self.keys[key].holds {
            (hold.session, hold.ended) = (None, None);
        }
    }

    /// Sets the clock, and removes the holds that have ended.
    pub fn advance(&mut self, now_us: u64) {
        self.now_us = now_us;
        let now = self.now();
        for key in &mut self.keys {
            if key.early.is_some_and(|early| early < now) {
                // Waiters may have to wait until the end of the next lease, when the server looks at the key.
                key.unnoticed = key.holds.iter().map(|hold| hold.deadline).min();
                key.holds.clear();
                key.early = None;
            }
            key.holds.retain(|hold| now < hold.end() || (hold.ended.is_some() && now < hold.deadline));
        }
    }
}
