//! The locking rules.

use super::{Client, Key, Model, Reply, Value};

/// One owner's part of a lock in one mode.
#[derive(Clone, Debug, PartialEq)]
pub struct Hold {
    /// Which of all holds there ever were.
    pub serial: u64,
    pub owner: Vec<u8>,
    pub mode: Mode,
    pub count: u64,
    pub lease: u64,
    pub deadline: u64,
    pub session: Option<Client>,
    pub request: Option<(&'static str, u8)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Mode {
    Exclusive,
    Shared,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Reentry {
    Refuse,
    Count,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Entries {
    One,
    All,
}

/// In ms.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Lease {
    Own,
    For(u64),
    Until(u64),
}

/// What a renewal says of the token.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Fence {
    Any,
    Is(u64),
    AtLeast(u64),
}

/// `ACQUIRE`, `RACQUIRE`, `RLOCK` or `WLOCK`.
#[derive(Clone, Debug)]
pub struct Ask {
    pub command: &'static str,
    pub owner: Vec<u8>,
    pub is_made_up: bool,
    pub mode: Mode,
    pub reentry: Reentry,
    pub lease: Lease,
    pub blocks: bool,
    pub binds: bool,
    pub request: Option<u8>,
}

#[derive(Clone, Debug)]
pub struct Release {
    pub owner: Vec<u8>,
    pub mode: Option<Mode>,
    pub entries: Entries,
    pub token: Option<u64>,
    pub request: Option<u8>,
}

#[derive(Clone, Debug)]
pub struct Renew {
    pub owner: Vec<u8>,
    pub mode: Option<Mode>,
    pub lease: Lease,
    pub fence: Fence,
    pub binds: bool,
}

/// What a lock says to somebody who wants in.
pub enum Entered {
    /// With the hold of this serial number, new, entered again, or as it was.
    In(u64),
    Held,
    /// The owner is in, and does not re-enter.
    Owned,
}

impl Model {
    /// What the lock, without its line, says.
    pub fn try_enter(&mut self, now: u64, client: Client, key: Key, ask: &Ask) -> Entered {
        let request = ask.request.map(|id| (ask.command, id));
        let serials = self.serials;
        let holds = self.holds_mut(key);
        let session = ask.binds.then_some(client);
        let is_owner_in = holds.iter().any(|hold| hold.owner == ask.owner);
        if let Some(hold) = holds.iter_mut().find(|hold| hold.owner == ask.owner && hold.mode == ask.mode) {
            let is_repeated = request.is_some() && hold.request == request;
            if !is_repeated && ask.reentry == Reentry::Refuse {
                return Entered::Owned;
            }
            hold.session = session.or(hold.session);
            if !is_repeated {
                let (lease, deadline) = resolve(ask.lease, now, hold.lease);
                hold.count += 1;
                (hold.lease, hold.deadline) = (hold.lease.max(lease), hold.deadline.max(deadline));
                hold.request = request.or(hold.request);
            }
            return Entered::In(hold.serial);
        }
        if ask.reentry == Reentry::Refuse && is_owner_in {
            return Entered::Owned;
        }
        if holds.iter().any(|hold| hold.owner != ask.owner && excludes(hold.mode, ask.mode)) {
            return Entered::Held;
        }
        let (lease, deadline) = resolve(ask.lease, now, DEFAULT_LEASE);
        let (owner, mode, serial) = (ask.owner.clone(), ask.mode, serials + 1);
        holds.push(Hold { serial, owner, mode, count: 1, lease, deadline, session, request });
        self.serials = serial;
        Entered::In(serial)
    }

    /// `RELEASE`.
    pub fn release(&mut self, now: u64, key: Key, leave: &Release) -> Reply {
        if self.keys.get(&key) == Some(&Value::Text) {
            return WRONG_TYPE;
        }
        self.serve(now, key);
        let reply = self.leave(key, leave);
        self.drop_empty(key);
        self.serve(now, key);
        reply
    }

    fn leave(&mut self, key: Key, leave: &Release) -> Reply {
        let request = leave.request.map(|id| ("RELEASE", id));
        let tokens = self.tokens.clone();
        let holds = self.holds_mut(key);
        let is_named = |hold: &Hold| hold.owner == leave.owner && leave.mode.is_none_or(|mode| mode == hold.mode);
        if request.is_some() && holds.iter().any(|hold| is_named(hold) && hold.request == request) {
            return Reply::Integer(0);
        }
        let is_meant = |hold: &Hold| is_named(hold) && leave.token.is_none_or(|t| tokens.get(&hold.serial) == Some(&t));
        match holds.iter().filter(|hold| is_meant(hold)).count() {
            0 => return Reply::Nil,
            2 if leave.token.is_some() || leave.entries == Entries::One => return Reply::Error("AMBIGUOUS "),
            _ => {}
        }
        if let Some(hold) =
            holds.iter_mut().find(|hold| is_meant(hold) && leave.entries == Entries::One && hold.count > 1)
        {
            hold.count -= 1;
            hold.request = request.or(hold.request);
            return Reply::Integer(0);
        }
        holds.retain(|hold| !is_meant(hold));
        Reply::Integer(1)
    }

    /// `RENEW`.
    pub fn renew(&mut self, now: u64, client: Client, key: Key, renew: &Renew) -> Reply {
        if self.keys.get(&key) == Some(&Value::Text) {
            return WRONG_TYPE;
        }
        self.serve(now, key);
        let mut tokens = self.tokens.clone();
        let mut moved: Vec<&mut Hold> = self
            .holds_mut(key)
            .iter_mut()
            .filter(|hold| hold.owner == renew.owner && renew.mode.is_none_or(|mode| mode == hold.mode))
            .filter(|hold| !matches!(renew.fence, Fence::Is(token) if tokens.get(&hold.serial) != Some(&token)))
            .collect();
        moved.sort_by_key(|hold| hold.mode);
        for hold in &mut moved {
            (hold.lease, hold.deadline) = resolve(renew.lease, now, hold.lease);
            if renew.binds {
                hold.session = Some(client);
            }
        }
        let reply = if moved.is_empty() { Reply::Nil } else { Reply::Integer(1) };
        if let (Fence::AtLeast(least), Some(hold)) = (renew.fence, moved.first()) {
            let token = tokens.entry(hold.serial).or_default();
            *token = least.max(*token);
        }
        self.tokens = tokens;
        self.drop_empty(key);
        reply
    }

    /// The holds of one key, which becomes a lock if it was nothing.
    pub fn holds_mut(&mut self, key: Key) -> &mut Vec<Hold> {
        let value = self.keys.entry(key).or_insert_with(|| Value::Lock(Vec::new()));
        if *value == Value::Text {
            *value = Value::Lock(Vec::new());
        }
        match value {
            Value::Lock(holds) => holds,
            Value::Text => unreachable!("replaced above"),
        }
    }

    /// A key without a hold is gone.
    pub fn drop_empty(&mut self, key: Key) {
        if self.keys.get(&key) == Some(&Value::Lock(Vec::new())) {
            self.keys.remove(&key);
        }
    }
}

/// Whether holds of two owners cannot be on one lock together.
pub fn excludes(a: Mode, b: Mode) -> bool {
    a == Mode::Exclusive || b == Mode::Exclusive
}

fn resolve(lease: Lease, now: u64, own: u64) -> (u64, u64) {
    match lease {
        Lease::Own => (own, now + own),
        Lease::For(ms) => (ms, now + ms),
        Lease::Until(deadline) => (deadline.saturating_sub(now), deadline),
    }
}

/// What the server is started with, in ms.
pub const DEFAULT_LEASE: u64 = 900_000;
pub const WRONG_TYPE: Reply = Reply::Error("WRONGTYPE ");
