//! The naive model: the contract, as simply as possible with lists and loops. Times are ms unless a comment differs.

use dlock_core::NamedId;
use dlock_core::{Mode, Want};

use super::how::How;
use crate::histories::values::{Asked, KEYS, KeyNo, Lease, SessionNo, User, Who};

mod judge;

/// A hold in plain numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hold {
    pub owner: Who,
    pub mode: Mode,
    pub count: u64,
    pub lease: u64,
    pub deadline: u64,
    /// The latest time that the deadline can ever have.
    pub cap: Option<u64>,
    /// The number of the permit, if the request asked for one.
    pub slot: Option<u32>,
    pub token: u64,
    pub request: Option<Asked>,
    /// The session that the hold is bound to: the id of a client, or the number of a named session.
    pub session: Option<u64>,
    /// When the hold ends because its session has ended. Set until the server has removed or unbound the stored hold.
    pub ended: Option<u64>,
}

impl Hold {
    /// Returns when the hold ends.
    pub fn end(&self) -> u64 {
        self.ended.unwrap_or(self.deadline)
    }

    /// Returns `time`, or the cap if that is earlier.
    pub fn up_to_cap(&self, time: u64) -> u64 {
        self.cap.map_or(time, |cap| cap.min(time))
    }
}

/// The state of a key.
#[derive(Clone, Debug, Default)]
pub struct Key {
    /// The live holds.
    pub holds: Vec<Hold>,
    /// The expiry that a client has set, if it is before the last deadline.
    pub early: Option<u64>,
    /// Whether the key has another type.
    pub is_other: bool,
    /// The time by which the server must have noticed an early expiry. Set as long as it may not have noticed.
    pub unnoticed: Option<u64>,
}

/// A request for one or several locks.
#[derive(Clone, Debug)]
pub struct Request {
    /// The number of the request.
    pub ticket: u64,
    pub client: u64,
    pub owner: Who,
    /// Whether the server generates the owner.
    pub is_drawn: bool,
    pub keys: Vec<KeyNo>,
    pub how: How,
    /// When the request began to wait, in µs.
    pub since: u64,
    pub is_upgrade: bool,
    /// The number of the session that the holds of the request become bound to. Set when the request arrives.
    pub session: Option<u64>,
}

/// The reply to a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reply {
    Granted(u64),
    Replayed(u64),
    Waits,
    /// The request takes the place of the one with this ticket.
    TakesOver(u64),
    Nil,
    Deadlock,
    SessionLease,
    SessionAbsolute,
    /// The user has no session with this id.
    NoSession,
    TooManyWaiters,
    WrongType,
    Ambiguous,
    /// `0` or `1` of a release or a renewal.
    Number(u8),
}

/// Whether the holds of the locks allow a request, without regard to waiters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The request gets a new hold.
    Enters,
    /// The request adds entries to the owner's hold.
    Again,
    /// The owner's holds record this request. The number is their highest token.
    Recorded(u64),
    /// Holds of other owners exclude the request or leave too few permits.
    Held,
    /// A hold of the same owner excludes the request.
    Owned,
    /// The owner would have more permits than the limit.
    OverLimit,
}

/// The outcome of serving a waiter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// The request still waits.
    NotYet,
    /// The request is granted: with `Verdict::Enters` a new hold, with `Verdict::Again` more entries.
    Enters(Verdict),
    /// The owner's holds record this request.
    Recorded(u64),
    /// The end of the lease has passed.
    LeasePassed,
    /// The rest of the lease is too short for a session.
    SessionLease,
    /// The session has ended.
    NoSession,
}

/// The counters of `INFO dlock` that do not depend on when a timer runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    pub grants: u64,
    pub reentries: u64,
    pub refusals: u64,
    pub renewals: u64,
    pub waits: u64,
    pub deadlocks: u64,
    pub replays: u64,
}

/// The locks, their queues and the token clock of a server.
#[derive(Clone, Debug)]
pub struct Naive {
    pub now_us: u64,
    /// How far the monotonic clock is ahead of the server's clock, in µs.
    pub uptime_ahead_us: i64,
    pub keys: Vec<Key>,
    /// The waiting requests, in the order of their arrival.
    pub waiting: Vec<Request>,
    /// The named sessions that are open.
    pub sessions: Vec<Session>,
    /// How often a named session was opened.
    pub openings: u64,
    /// Whether there is more than one user.
    pub has_users: bool,
    pub last_token: u64,
    pub default_lease: u64,
    pub max_waiters: Option<usize>,
    /// Whether the deadlock search sees only the keys of the request itself.
    pub is_blind: bool,
    pub counts: Counts,
}

impl Naive {
    pub fn now(&self) -> u64 {
        self.now_us / 1000
    }

    /// Returns the monotonic clock, in µs.
    pub fn uptime_us(&self) -> u64 {
        self.now_us.saturating_add_signed(self.uptime_ahead_us)
    }

    /// Returns the live holds of a key.
    pub fn live(&self, key: KeyNo) -> impl Iterator<Item = &Hold> {
        let now = self.now();
        self.keys[key].holds.iter().filter(move |hold| now < hold.end())
    }

    /// Returns the live hold of an owner in this mode.
    pub fn mine(&self, key: KeyNo, owner: Who, mode: Mode) -> Option<&Hold> {
        self.live(key).find(|hold| hold.owner == owner && hold.mode == mode)
    }

    /// Returns the requests that wait for a key, the head first.
    pub fn queue(&self, key: KeyNo) -> Vec<&Request> {
        let (upgrades, others): (Vec<&Request>, Vec<&Request>) =
            self.waiting.iter().filter(|waiter| waiter.keys.contains(&key)).partition(|waiter| waiter.is_upgrade);
        upgrades.into_iter().chain(others).collect()
    }

    /// Returns the token of a new grant.
    fn fresh_token(&self, how: &How) -> u64 {
        self.now_us.max(self.last_token + 1).max(how.min_token)
    }

    // Commands.

    /// Runs a request for locks.
    pub fn acquire(&mut self, mut request: Request) -> Reply {
        if request.keys.iter().any(|key| self.keys[*key].is_other) {
            return Reply::WrongType;
        }
        request.session = match self.binding(request.client, request.how.binds, request.how.named) {
            Ok(session) => session,
            Err(reply) => return reply,
        };
        let verdict = self.judge(&request);
        let mode = request.how.want.mode();
        if let Verdict::Recorded(token) = verdict {
            let holds = request.keys.iter().filter_map(|key| self.mine(*key, request.owner, mode));
            if request.how.binds && holds.map(|hold| hold.lease).any(|lease| lease < MIN_BOUND) {
                return Reply::SessionLease;
            }
            self.counts.replays += 1;
            self.bind(&request);
            return Reply::Replayed(token);
        }
        let own = match request.keys.as_slice() {
            [key] if !matches!(request.how.want, Want::ExclusiveOnce | Want::Slot { .. }) => {
                self.mine(*key, request.owner, mode).map(|hold| hold.lease)
            }
            _ => None,
        };
        let own = own.unwrap_or(request.how.default_lease(self.default_lease));
        if request.how.binds && request.how.lease == Lease::Own && own < MIN_BOUND {
            return Reply::SessionLease;
        }
        let has_queue = request.keys.iter().any(|key| !self.queue(*key).is_empty());
        let is_allowed = matches!(verdict, Verdict::Enters | Verdict::Again);
        if is_allowed && (!has_queue || self.may_overtake(&request, verdict)) {
            return Reply::Granted(self.enter(&request));
        }
        if !request.how.blocks {
            self.counts.refusals += 1;
            return Reply::Nil;
        }
        let deadlock = |this: &mut Naive| {
            this.counts.deadlocks += 1;
            Reply::Deadlock
        };
        if verdict == Verdict::OverLimit {
            return deadlock(self);
        }
        if let Some(first) = self.take_over(&request) {
            return Reply::TakesOver(first);
        }
        if verdict == Verdict::Owned || (has_queue && self.is_only_holder_of_permits(&request)) {
            return deadlock(self);
        }
        let holds_shared = |key: &KeyNo| self.mine(*key, request.owner, Mode::Shared).is_some();
        request.is_upgrade = request.how.want == Want::Exclusive && request.keys.iter().any(holds_shared);
        let is_other_upgrade =
            |waiter: &&Request| waiter.is_upgrade && waiter.keys == request.keys && waiter.owner != request.owner;
        if request.is_upgrade && self.waiting.iter().any(|waiter| is_other_upgrade(&waiter)) {
            return deadlock(self);
        }
        let places: usize = self.waiting.iter().map(|waiter| waiter.keys.len()).sum();
        if self.max_waiters.is_some_and(|max| places + request.keys.len() > max) {
            return Reply::TooManyWaiters;
        }
        request.since = self.now_us;
        self.waiting.push(request);
        if self.closes_a_cycle() {
            self.waiting.pop();
            return deadlock(self);
        }
        self.counts.waits += 1;
        Reply::Waits
    }

    /// Gives this request the place of a waiting request with the same owner, keys and id. Returns the ticket of the
    /// request that waited; `None` if there is none.
    fn take_over(&mut self, request: &Request) -> Option<u64> {
        let same_keys = |waiter: &Request| {
            waiter.keys.len() == request.keys.len() && waiter.keys.iter().all(|key| request.keys.contains(key))
        };
        let asked = request.how.asked();
        let is_same =
            |waiter: &Request| waiter.owner == request.owner && waiter.how.asked() == asked && same_keys(waiter);
        // A request without an id repeats none.
        asked?;
        let first = self.waiting.iter_mut().find(|waiter| is_same(waiter))?;
        self.counts.replays += 1;
        (first.how, first.client, first.session) = (request.how, request.client, request.session);
        Some(std::mem::replace(&mut first.ticket, request.ticket))
    }

    /// Binds the holds of a granted request to its session.
    pub(super) fn bind(&mut self, request: &Request) {
        if request.session.is_some() {
            for key in &request.keys {
                let mine = |hold: &&mut Hold| hold.owner == request.owner && hold.mode == request.how.want.mode();
                let hold = self.keys[*key].holds.iter_mut().filter(|hold| hold.ended.is_none()).find(mine);
                hold.expect("a granted hold").session = request.session;
            }
        }
    }

    /// Adds a hold in place of the owner's hold of this mode, and of holds of other owners that it excludes. The
    /// latter must have ended.
    fn put(&mut self, key: KeyNo, hold: Hold) {
        let now = self.now();
        let excludes = |old: &Hold| {
            let exclusive = old.mode == Mode::Exclusive || hold.mode == Mode::Exclusive;
            let same_slot = old.slot.is_some() && old.slot == hold.slot;
            if old.owner == hold.owner { old.mode == hold.mode } else { exclusive || same_slot }
        };
        let is_in_the_way = |old: &Hold| old.owner != hold.owner && excludes(old) && now < old.end();
        assert!(!self.keys[key].holds.iter().any(is_in_the_way), "{hold:?} beside {:?}", self.keys[key].holds);
        self.keys[key].holds.retain(|old| !excludes(old));
        self.keys[key].holds.push(hold);
    }

    /// Returns whether the request that arrived last waits for its own owner, through other owners.
    fn closes_a_cycle(&self) -> bool {
        let origin = self.waiting.last().expect("a waiter");
        let waits = |owner: Who| self.waiting.iter().filter(|waiter| waiter.owner == owner).collect::<Vec<_>>();
        if waits(origin.owner).len() > 1 {
            return false;
        }
        let may_look =
            |key: KeyNo| origin.keys.contains(&key) || (KEYS[key].0 == KEYS[origin.keys[0]].0 && !self.is_blind);
        let (mut met, mut next) = (vec![origin.owner], vec![origin]);
        while let Some(waiter) = next.pop() {
            for key in waiter.keys.iter().copied().filter(|key| may_look(*key)) {
                for owner in self.waits_for(waiter, key) {
                    if owner == origin.owner {
                        return true;
                    }
                    if !met.contains(&owner) {
                        met.push(owner);
                        if let [waiter] = waits(owner).as_slice() {
                            next.push(waiter);
                        }
                    }
                }
            }
        }
        false
    }

    /// Returns the owners that a waiter waits for on one of its keys: those of waiters ahead, and those of holds that
    /// the waiter or a waiter ahead excludes. Waiters ahead whose owners wait more than once are left out.
    fn waits_for(&self, waiter: &Request, key: KeyNo) -> Vec<Who> {
        let queue = self.queue(key);
        let ahead: Vec<&Request> = queue.into_iter().take_while(|other| other.ticket != waiter.ticket).collect();
        let excludes = |request: &Request, hold: &Hold| {
            request.owner != hold.owner && (request.how.want.mode() == Mode::Exclusive || hold.mode == Mode::Exclusive)
        };
        let waits_once =
            |other: &&Request| self.waiting.iter().filter(|waiter| waiter.owner == other.owner).count() == 1;
        let ahead: Vec<&Request> = ahead.into_iter().filter(waits_once).collect();
        let mut owners: Vec<Who> = ahead.iter().map(|other| other.owner).collect();
        for hold in self.live(key) {
            if excludes(waiter, hold) || ahead.iter().any(|other| excludes(other, hold)) {
                owners.push(hold.owner);
            }
        }
        owners
    }
}

/// The shortest lease of a hold that is bound to a session, in ms.
pub const MIN_BOUND: u64 = 300;

/// A named session that is open.
#[derive(Clone, Copy, Debug)]
pub struct Session {
    pub id: SessionNo,
    /// The user that has opened the session.
    pub user: User,
    /// The number by which holds and waiters refer to the session. Each opening gets a new number.
    pub number: u64,
    /// The engine's id, if it is known.
    pub named: Option<NamedId>,
    /// How long the session stays open without a heartbeat, in µs.
    pub timeout: u64,
    /// When the last heartbeat came, in µs of the monotonic clock.
    pub beat_at: u64,
    /// The least session time that has passed since the last heartbeat, in µs.
    pub passed: u64,
    /// How often the timer has run since the session should have ended.
    pub turns_late: usize,
}
