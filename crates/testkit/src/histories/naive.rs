//! What the contract says, as simply as it can be written: a list of holds and loops over it.

use dlock_core::{Entries, Mode, Reentry, Refusal, Waiters};

use super::history::{Id, Lease, Who};

/// A hold in plain numbers.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Hold<O = Who> {
    pub token: u64,
    pub owner: O,
    pub mode: Mode,
    pub count: u64,
    pub lease: u64,
    pub deadline: u64,
    pub request: Option<Asked>,
    /// The client that it is bound to. The lock keeps it and does nothing with it.
    pub session: Option<u64>,
}

/// A command that has an id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Asked {
    pub what: What,
    pub id: Id,
}

/// The commands that can have an id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum What {
    Acquire,
    Racquire,
    Rlock,
    Wlock,
    Release,
}

/// A lock, its key and the token clock of its server.
#[derive(Clone, Debug, PartialEq)]
pub struct Naive<O = Who> {
    /// In no order. A lapsed one stays until the next change.
    pub holds: Vec<Hold<O>>,
    /// When the key ends; `None` for never. Means nothing without holds: then there is no key.
    pub end: Option<u64>,
    pub last_token: u64,
    pub waiters: Waiters,
    /// What a hold gets that asks for none, in ms.
    pub default_lease: u64,
}

/// What a command is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reply {
    Token(u64, How),
    /// It came before: the token, or `0` of a partial release.
    Replayed(Option<u64>),
    Nil(Option<Refusal>),
    /// `1` of a full release, or of a renewal.
    One,
    /// `0` of a partial release.
    Zero,
    Ambiguous,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    New,
    Again,
}

/// What a renewal says of the token, in plain numbers.
#[derive(Clone, Copy, Debug)]
pub enum Fence {
    Any,
    Is(u64),
    AtLeast(u64),
}

/// A request to enter.
#[derive(Clone, Copy, Debug)]
pub struct Enter<O = Who> {
    pub owner: O,
    pub mode: Mode,
    pub reentry: Reentry,
    pub lease: Lease,
    pub request: Option<Asked>,
    /// The client to bind the hold to.
    pub session: Option<u64>,
}

/// A request to leave.
#[derive(Clone, Copy, Debug)]
pub struct Leave<O = Who> {
    pub owner: O,
    pub mode: Option<Mode>,
    pub entries: Entries,
    pub token: Option<u64>,
    pub request: Option<Asked>,
}

impl<O> Default for Naive<O> {
    fn default() -> Naive<O> {
        Naive { holds: Vec::new(), end: None, last_token: 0, waiters: Waiters::None, default_lease: DEFAULT_LEASE }
    }
}

impl<O: Clone + Ord> Naive<O> {
    pub fn acquire(&mut self, now: u64, enter: Enter<O>) -> Reply {
        let Enter { owner, mode, reentry, lease, request, session } = enter;
        let mine = |hold: &&Hold<O>| now < hold.deadline && hold.owner == owner;
        let repeated = |hold: &&Hold<O>| mine(hold) && hold.mode == mode && hold.request == request;
        if let Some(hold) = self.holds.iter_mut().find(|hold| request.is_some() && repeated(&&**hold)) {
            hold.session = session.or(hold.session);
            return Reply::Replayed(Some(hold.token));
        }
        if reentry == Reentry::Refuse && self.holds.iter().any(|hold| mine(&hold)) {
            return Reply::Nil(Some(Refusal::Owned));
        }
        if let Some(old) = self.holds.iter().filter(mine).find(|hold| hold.mode == mode).cloned() {
            let Some((lease, deadline)) = resolve(lease, now, old.lease) else {
                return Reply::Nil(Some(Refusal::LeasePassed));
            };
            let (lease, deadline) = (lease.max(old.lease), deadline.max(old.deadline));
            let token = old.token;
            let (request, session) = (request.or(old.request), session.or(old.session));
            self.put(now, Hold { count: old.count + 1, lease, deadline, request, session, ..old });
            self.set_end();
            return Reply::Token(token, How::Again);
        }
        for hold in &self.holds {
            if now < hold.deadline && hold.owner != owner && excludes(mode, hold.mode) {
                return Reply::Nil(Some(Refusal::Held));
            }
        }
        let Some((lease, deadline)) = resolve(lease, now, self.default_lease) else {
            return Reply::Nil(Some(Refusal::LeasePassed));
        };
        let token = (self.last_token + 1).max(now * 1000);
        self.put(now, Hold { token, owner, mode, count: 1, lease, deadline, request, session });
        self.set_end();
        Reply::Token(token, How::New)
    }

    pub fn release(&mut self, now: u64, leave: Leave<O>) -> Reply {
        let Leave { owner, mode, entries, token, request } = leave;
        let is_repeated = |hold: &Hold<O>| request.is_some() && hold.request == request;
        if self.find(now, &owner, mode, None).iter().any(is_repeated) {
            return Reply::Replayed(None);
        }
        let found = self.find(now, &owner, mode, token);
        match found.as_slice() {
            [] => return Reply::Nil(None),
            // A token names the hold, unless both have it. ALL drops both.
            [_, _] if token.is_some() || entries == Entries::One => return Reply::Ambiguous,
            [hold] if hold.count > 1 && entries == Entries::One => {
                self.put(now, Hold { count: hold.count - 1, request: request.or(hold.request), ..hold.clone() });
                self.keep_early_end();
                return Reply::Zero;
            }
            _ => {}
        }
        self.drop_lapsed(now);
        self.holds.retain(|hold| !found.contains(hold));
        self.keep_early_end();
        Reply::One
    }

    pub fn renew(&mut self, now: u64, owner: &O, mode: Option<Mode>, lease: Lease, fence: Fence) -> Reply {
        let token = match fence {
            Fence::Is(token) => Some(token),
            Fence::Any | Fence::AtLeast(_) => None,
        };
        let found = self.find(now, owner, mode, token);
        if found.is_empty() || found.iter().any(|hold| resolve(lease, now, hold.lease).is_none()) {
            return Reply::Nil(None);
        }
        for hold in &found {
            let (lease, deadline) = resolve(lease, now, hold.lease).expect("looked at above");
            let is_lifted = found.len() == 1 || hold.mode == Mode::Exclusive;
            let token = match fence {
                Fence::AtLeast(floor) if is_lifted => hold.token.max(floor),
                Fence::Any | Fence::Is(_) | Fence::AtLeast(_) => hold.token,
            };
            self.put(now, Hold { token, lease, deadline, ..hold.clone() });
        }
        self.set_end();
        Reply::One
    }

    /// Whether the end of a session ended this hold, or gave it so many ms.
    pub fn end_session(&mut self, now: u64, owner: &O, mode: Mode, grace: Option<u64>) -> bool {
        let Some(hold) = self.find(now, owner, Some(mode), None).first().cloned() else { return false };
        self.drop_lapsed(now);
        match grace {
            Some(grace) => self.put(now, Hold { deadline: now + grace, ..hold }),
            None => self.holds.retain(|other| *other != hold),
        }
        true
    }

    /// Drops lapsed holds; the key ends with the last of the others, or earlier.
    pub fn sweep(&mut self, now: u64) {
        self.drop_lapsed(now);
        self.keep_early_end();
    }

    pub fn delete(&mut self) {
        self.holds.clear();
        self.end = None;
    }

    pub fn is_ended(&self, now: u64) -> bool {
        self.end.is_some_and(|end| end <= now)
    }

    pub fn live(&self, now: u64) -> Vec<Hold<O>> {
        let mut live: Vec<Hold<O>> = self.holds.iter().filter(|hold| now < hold.deadline).cloned().collect();
        live.sort();
        live
    }

    pub fn lapsed(&self, now: u64) -> usize {
        self.holds.iter().filter(|hold| hold.deadline <= now).count()
    }

    pub fn last_deadline(&self) -> Option<u64> {
        self.holds.iter().map(|hold| hold.deadline).max()
    }

    fn find(&self, now: u64, owner: &O, mode: Option<Mode>, token: Option<u64>) -> Vec<Hold<O>> {
        let mut found = self.live(now);
        found.retain(|hold| {
            hold.owner == *owner && mode.is_none_or(|mode| mode == hold.mode) && token.is_none_or(|t| t == hold.token)
        });
        found
    }

    fn put(&mut self, now: u64, hold: Hold<O>) {
        self.drop_lapsed(now);
        self.holds.retain(|old| old.owner != hold.owner || old.mode != hold.mode);
        self.last_token = self.last_token.max(hold.token);
        self.holds.push(hold);
    }

    fn drop_lapsed(&mut self, now: u64) {
        self.holds.retain(|hold| now < hold.deadline);
    }

    /// An end that somebody made earlier stands, but the key never outlives its last hold.
    fn keep_early_end(&mut self) {
        self.end = match (self.end, self.last_deadline()) {
            (_, None) => None,
            (Some(end), Some(last)) if end < last => Some(end),
            (_, Some(_)) => return self.set_end(),
        };
    }

    /// The key ends with its last hold, or a little later if somebody waits.
    fn set_end(&mut self) {
        let grace = match self.waiters {
            Waiters::None => 0,
            Waiters::Some => Waiters::GRACE_MS,
        };
        self.end = self.last_deadline().map(|last| last + grace);
    }
}

/// Whether holds of two owners cannot be on one lock together.
pub fn excludes(a: Mode, b: Mode) -> bool {
    a == Mode::Exclusive || b == Mode::Exclusive
}

/// The lease and the deadline; `None` if it has passed.
fn resolve(lease: Lease, now: u64, own: u64) -> Option<(u64, u64)> {
    match lease {
        Lease::Own => Some((own, now + own)),
        Lease::For(ms) => Some((ms, now + ms)),
        Lease::Until(more) => u64::try_from(more).ok().filter(|more| *more > 0).map(|more| (more, now + more)),
    }
}

pub const DEFAULT_LEASE: u64 = 50;
