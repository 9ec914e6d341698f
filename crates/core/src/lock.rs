//! The locking rules: what a command may do to a lock, decided without changing it.

use crate::holds::Holds;
use crate::{Change, Effect, Expiry, Hold, Lease, LeaseChoice, Mode, Owner, Request, Token, UnixMs, Waiters};

/// The value of one key: the holds on it.
///
/// A hold that has lapsed is stored until the next [`Effect`] is applied, but no method that takes `now` counts it.
#[derive(Clone, Debug, Default)]
pub struct Lock {
    pub(crate) holds: Holds,
}

/// A request to enter a lock.
#[derive(Clone, Debug)]
pub struct Acquire<'a> {
    /// Who asks.
    pub owner: &'a Owner,
    /// For which mode.
    pub mode: Mode,
    /// What happens if the owner holds that mode.
    pub reentry: Reentry,
    /// For how long.
    pub lease: LeaseChoice,
    /// What makes it known if it comes twice.
    pub request: Option<&'a Request>,
}

/// What a request by an owner that is already in does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reentry {
    /// It is refused, whichever mode the owner holds (`ACQUIRE`).
    Refuse,
    /// It counts one entry more.
    Count,
}

/// The decision on an [`Acquire`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Acquired {
    /// The owner is in as soon as the effect is applied.
    Granted {
        /// The fencing token of the hold.
        token: Token,
        /// Whether this is a new hold.
        entry: Entry,
        /// What to apply and replicate.
        effect: Effect,
    },
    /// It came before and was granted: nothing changes, and the answer is the token of the hold.
    Replayed(Hold),
    /// The owner is not in, and nothing changes.
    Refused(Refusal),
}

/// How an owner came in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entry {
    /// By a new hold.
    First,
    /// By one entry more of a hold it had.
    Again,
}

/// Why a request is not granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// Another owner is in the way.
    Held,
    /// The owner is in the lock, and the request does not re-enter.
    Owned,
    /// Its absolute lease has passed.
    LeasePassed,
    /// The owner has entered as often as can be counted.
    TooManyEntries,
    /// The server has no fencing token left.
    NoToken,
}

/// A request to leave a lock.
#[derive(Clone, Debug)]
pub struct Release<'a> {
    /// Who leaves.
    pub owner: &'a Owner,
    /// Which mode, `None` if the command does not say.
    pub mode: Option<Mode>,
    /// How many entries.
    pub entries: Entries,
    /// Only the hold with this token.
    pub token: Option<Token>,
    /// What makes it known if it comes twice.
    pub request: Option<&'a Request>,
}

/// How many entries a release gives up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entries {
    /// The last one.
    One,
    /// All of them.
    All,
}

/// The decision on a [`Release`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Released {
    /// The owner has no such hold, and nothing changes.
    NotHeld,
    /// The owner holds both modes and does not say which, and nothing changes.
    Ambiguous,
    /// It came before, and gave up an entry then: nothing changes.
    Replayed,
    /// An entry is given up, the owner is still in.
    Partly(Effect),
    /// The owner no longer holds what it named.
    Fully(Effect),
}

/// A request to set the deadline of an owner's holds.
#[derive(Clone, Debug)]
pub struct Renew<'a> {
    /// Whose holds.
    pub owner: &'a Owner,
    /// Which mode, `None` for both.
    pub mode: Option<Mode>,
    /// For how long from now.
    pub lease: LeaseChoice,
    /// What it says of the token.
    pub token: RenewToken,
}

/// What a [`Renew`] says of the fencing token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RenewToken {
    /// Nothing.
    Any,
    /// Only the hold with this token (`TOKEN`).
    Is(Token),
    /// The token of the hold, the exclusive one if there are both, becomes at least this (`MINTOKEN`).
    AtLeast(Token),
}

/// The decision on a [`Renew`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Renewed {
    /// The owner has no such hold, and nothing changes.
    NotHeld,
    /// Its hold, or both its holds, get a new deadline.
    Moved(Effect, Option<Effect>),
}

impl From<Hold> for Lock {
    /// A lock with one hold.
    fn from(hold: Hold) -> Lock {
        Lock { holds: Holds::one(hold) }
    }
}

impl Acquire<'_> {
    /// The hold it gets at `now` of a lock that nobody holds: what [`Lock::acquire`] comes to on [`Lock::EMPTY`].
    ///
    /// # Errors
    /// [`Refusal::LeasePassed`] and [`Refusal::NoToken`].
    pub fn first_hold(&self, now: UnixMs, default: Lease, fresh: Option<Token>) -> Result<Hold, Refusal> {
        let (lease, deadline) = self.lease.resolve(now, default).ok_or(Refusal::LeasePassed)?;
        let token = fresh.ok_or(Refusal::NoToken)?;
        let request = self.request.cloned().map(Box::new);
        Ok(Hold { owner: self.owner.clone(), mode: self.mode, count: 1, lease, deadline, token, request })
    }
}

impl Lock {
    /// A lock that nobody holds.
    pub const EMPTY: Lock = Lock { holds: Holds::NONE };

    /// Decides whether the owner may enter at `now`. O(log n).
    ///
    /// `default` is the lease of a new hold that names none, `fresh` the token a new hold would get.
    pub fn acquire(&self, now: UnixMs, request: &Acquire, default: Lease, fresh: Option<Token>) -> Acquired {
        let (exclusive, shared) = self.mine(request.owner, now);
        let (mine, other) = match request.mode {
            Mode::Exclusive => (exclusive, shared),
            Mode::Shared => (shared, exclusive),
        };
        match (request.reentry, mine) {
            (_, Some(hold)) if hold.repeats(request.request) => Acquired::Replayed(hold.clone()),
            (Reentry::Count, Some(hold)) => reenter(now, hold, request),
            (Reentry::Refuse, Some(_)) => Acquired::Refused(Refusal::Owned),
            (Reentry::Refuse, None) if other.is_some() => Acquired::Refused(Refusal::Owned),
            (_, None) if self.is_barred(now, request.owner, request.mode) => Acquired::Refused(Refusal::Held),
            (_, None) => enter(now, request, default, fresh),
        }
    }

    /// Decides what a release at `now` gives up. O(log n).
    pub fn release(&self, now: UnixMs, request: &Release) -> Released {
        let (exclusive, shared) = self.named(now, request.owner, request.mode);
        let repeats = |hold: &&Hold| hold.repeats(request.request);
        if exclusive.iter().chain(shared.iter()).any(repeats) {
            return Released::Replayed;
        }
        let has_token = |hold: &&Hold| request.token.is_none_or(|token| token == hold.token);
        let hold = match (exclusive.filter(has_token), shared.filter(has_token)) {
            (None, None) => return Released::NotHeld,
            (Some(_), Some(_)) if request.entries == Entries::One || request.token.is_some() => {
                return Released::Ambiguous;
            }
            (Some(_), Some(_)) => return Released::Fully(remove(now, request.owner, None)),
            (Some(hold), None) | (None, Some(hold)) => hold,
        };
        if request.entries == Entries::All || hold.count <= 1 {
            return Released::Fully(remove(now, request.owner, Some(hold.mode)));
        }
        let record = recorded(request.request, hold);
        Released::Partly(put(now, Hold { count: hold.count - 1, request: record, ..hold.clone() }, Expiry::Keep))
    }

    /// Whether a release at `now` leaves nothing of the lock, and nothing has lapsed before: then [`Lock::release`] comes to
    /// [`Released::Fully`], and its command says the same as its effect. O(1).
    pub fn is_emptied_by(&self, now: UnixMs, request: &Release) -> bool {
        self.only(now, request.owner, request.mode).is_some_and(|hold| {
            (hold.count == 1 || request.entries == Entries::All)
                && request.token.is_none_or(|token| token == hold.token)
                && !hold.repeats(request.request)
        })
    }

    /// Whether the command of a [`Lock::release`] says the same to a replica as its effect: that drops nothing that has
    /// lapsed, and knows of nobody who waits, which matters to the key if a hold is left.
    pub fn is_told_by_command(&self, now: UnixMs, effect: &Effect, waiters: Waiters) -> bool {
        let left = match effect.change {
            Change::Remove { mode: Some(_), .. } => self.stored().saturating_sub(1),
            Change::Remove { mode: None, .. } => self.stored().saturating_sub(2),
            Change::Put { .. } | Change::Sweep => self.stored(),
        };
        !self.has_lapsed(now) && (left == 0 || waiters == Waiters::None)
    }

    /// Decides which deadlines a renewal at `now` moves. O(log n).
    pub fn renew(&self, now: UnixMs, request: &Renew) -> Renewed {
        let (exclusive, shared) = self.named(now, request.owner, request.mode);
        let first = exclusive.and_then(|hold| renewed(now, hold, request.lease, request.token));
        let token = match (request.token, &first) {
            (RenewToken::AtLeast(_), Some(_)) => RenewToken::Any,
            (token, _) => token,
        };
        let second = shared.and_then(|hold| renewed(now, hold, request.lease, token));
        let effect = |hold| put(now, hold, Expiry::Anew);
        match (first, second) {
            (Some(first), second) => Renewed::Moved(effect(first), second.map(effect)),
            (None, Some(only)) => Renewed::Moved(effect(only), None),
            (None, None) => Renewed::NotHeld,
        }
    }

    /// The only hold, live, as a renewal at `now` leaves it: what [`Lock::renew`] comes to. `None`: that may come to
    /// something else. O(1).
    pub fn renewed_only(&self, now: UnixMs, request: &Renew) -> Option<Hold> {
        renewed(now, self.only(now, request.owner, request.mode)?, request.lease, request.token)
    }

    /// The end of a session: the hold is gone, or is to end after `grace`. `None` if there is no such live hold: another
    /// one of the same owner, which has another token, is left alone.
    pub fn end_session(
        &self,
        now: UnixMs,
        owner: &Owner,
        mode: Mode,
        token: Token,
        grace: Option<Lease>,
    ) -> Option<Effect> {
        let hold = self.live(owner, mode, now).filter(|hold| hold.token == token)?;
        Some(match grace {
            None => remove(now, owner, Some(mode)),
            Some(grace) => put(now, Hold { deadline: now.plus(grace), ..hold.clone() }, Expiry::Anew),
        })
    }

    /// Whether a hold of another owner keeps `owner` from entering in `mode`.
    fn is_barred(&self, now: UnixMs, owner: &Owner, mode: Mode) -> bool {
        let bars = |hold: &Hold| hold.is_live(now) && hold.owner != *owner;
        match mode {
            Mode::Shared => self.holds.exclusive().is_some_and(bars),
            // The owner has at most two holds, so a live one of somebody else is among the last three.
            Mode::Exclusive => self.holds.by_deadline().take(3).any(bars),
        }
    }

    /// The only hold, if it is live and one of `owner` that a command names.
    fn only(&self, now: UnixMs, owner: &Owner, mode: Option<Mode>) -> Option<&Hold> {
        let is_named =
            |hold: &&Hold| hold.is_live(now) && hold.owner == *owner && mode.is_none_or(|mode| mode == hold.mode);
        self.holds.single().filter(is_named)
    }

    /// The live holds of `owner` that a command names: the exclusive and the shared one.
    fn named(&self, now: UnixMs, owner: &Owner, mode: Option<Mode>) -> (Option<&Hold>, Option<&Hold>) {
        let (exclusive, shared) = self.mine(owner, now);
        (exclusive.filter(|_| mode != Some(Mode::Shared)), shared.filter(|_| mode != Some(Mode::Exclusive)))
    }

    /// The live holds of `owner`: the exclusive and the shared one.
    #[inline]
    pub(crate) fn mine(&self, owner: &Owner, now: UnixMs) -> (Option<&Hold>, Option<&Hold>) {
        let (exclusive, shared) = self.holds.of(owner);
        (exclusive.filter(|hold| hold.is_live(now)), shared.filter(|hold| hold.is_live(now)))
    }

    fn live(&self, owner: &Owner, mode: Mode, now: UnixMs) -> Option<&Hold> {
        self.holds.get(owner, mode).filter(|hold| hold.is_live(now))
    }
}

fn enter(now: UnixMs, request: &Acquire, default: Lease, fresh: Option<Token>) -> Acquired {
    match request.first_hold(now, default, fresh) {
        Ok(hold) => Acquired::Granted { token: hold.token, entry: Entry::First, effect: put(now, hold, Expiry::Anew) },
        Err(refusal) => Acquired::Refused(refusal),
    }
}

/// One entry more: the lease never gets shorter and never adds up.
fn reenter(now: UnixMs, hold: &Hold, request: &Acquire) -> Acquired {
    let Some((lease, deadline)) = request.lease.resolve(now, hold.lease) else {
        return Acquired::Refused(Refusal::LeasePassed);
    };
    let Some(count) = hold.count.checked_add(1) else {
        return Acquired::Refused(Refusal::TooManyEntries);
    };
    let (lease, deadline) = (lease.max(hold.lease), deadline.max(hold.deadline));
    let record = recorded(request.request, hold);
    let effect = put(now, Hold { count, lease, deadline, request: record, ..hold.clone() }, Expiry::Anew);
    Acquired::Granted { token: hold.token, entry: Entry::Again, effect }
}

/// The hold with another deadline; `None`: it is not the one with that token, or the lease has passed.
fn renewed(now: UnixMs, hold: &Hold, lease: LeaseChoice, token: RenewToken) -> Option<Hold> {
    let token = match token {
        RenewToken::Any => hold.token,
        RenewToken::Is(token) if token == hold.token => token,
        RenewToken::Is(_) => return None,
        RenewToken::AtLeast(floor) => floor.max(hold.token),
    };
    let (lease, deadline) = lease.resolve(now, hold.lease)?;
    Some(Hold { lease, deadline, token, ..hold.clone() })
}

/// A record stays until another request on that hold replaces it.
fn recorded(request: Option<&Request>, hold: &Hold) -> Option<Box<Request>> {
    request.cloned().map(Box::new).or_else(|| hold.request.clone())
}

fn put(now: UnixMs, hold: Hold, expiry: Expiry) -> Effect {
    Effect { clock: now, change: Change::Put { hold, expiry }, waiters: Waiters::None }
}

fn remove(now: UnixMs, owner: &Owner, mode: Option<Mode>) -> Effect {
    Effect { clock: now, change: Change::Remove { owner: owner.clone(), mode }, waiters: Waiters::None }
}
