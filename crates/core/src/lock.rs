//! The locking rules: what a command may do to a lock, decided without changing it.

use std::num::NonZeroU32;

use crate::holds::{Holds, Sum};
use crate::session::Binding;
use crate::{
    BindTo, Bond, ClientId, Extras, Hold, Lease, LeaseChoice, Mode, Owner, RequestId, SessionKey, Token, UnixMs,
};

/// The value of one key: the holds on it.
///
/// A lapsed hold is stored until the next [`Effect`](crate::Effect) is applied, but methods that take `now` leave it
/// out.
#[derive(Clone, Debug, Default)]
pub struct Lock {
    pub(crate) holds: Holds,
}

/// A request's demand on a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Want {
    /// The lock exclusively, by an owner that does not hold it (`ACQUIRE`, `MACQUIRE`).
    ExclusiveOnce,
    /// The lock exclusively, or one entry more (`RACQUIRE`, `WLOCK`).
    Exclusive,
    /// A shared hold, or one entry more (`RLOCK`).
    Shared,
    /// Permits: shared entries, if all owners together then have at most `limit` (`SACQUIRE`).
    Permits {
        /// How many entries.
        permits: NonZeroU32,
        /// The most entries of all owners together.
        limit: NonZeroU32,
    },
    /// A permit for an owner that has none, with the lowest number from 0 to `limit` - 1 that no hold has
    /// (`SACQUIRE … SLOT`).
    Slot {
        /// The most entries of all owners together.
        limit: NonZeroU32,
    },
}

impl Want {
    /// Returns the mode of the hold that the request leads to.
    pub fn mode(self) -> Mode {
        match self {
            Want::ExclusiveOnce | Want::Exclusive => Mode::Exclusive,
            Want::Shared | Want::Permits { .. } | Want::Slot { .. } => Mode::Shared,
        }
    }

    /// Returns the number of entries that the request asks for.
    pub fn entries(self) -> u32 {
        match self {
            Want::ExclusiveOnce | Want::Exclusive | Want::Shared | Want::Slot { .. } => 1,
            Want::Permits { permits, .. } => permits.get(),
        }
    }

    /// Returns the most entries of all owners together, if the request has a limit.
    pub fn limit(self) -> Option<u32> {
        match self {
            Want::ExclusiveOnce | Want::Exclusive | Want::Shared => None,
            Want::Permits { limit, .. } | Want::Slot { limit } => Some(limit.get()),
        }
    }

    /// Returns whether the request asks for a number.
    #[inline]
    pub fn has_slot(self) -> bool {
        matches!(self, Want::Slot { .. })
    }

    /// Returns whether the request gives more entries to an owner that has a hold of the mode.
    pub fn is_reentrant(self) -> bool {
        match self {
            Want::ExclusiveOnce | Want::Slot { .. } => false,
            Want::Exclusive | Want::Shared | Want::Permits { .. } => true,
        }
    }
}

/// A request to enter locks. Arguments are turned into it, a waiter keeps it, and [`Lock::acquire`] decides on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// The owner that asks.
    pub owner: Owner,
    /// Whether the server drew the owner (`*`), so that the client has to be told.
    pub is_owner_drawn: bool,
    /// The demand on each lock.
    pub want: Want,
    /// The lease.
    pub lease: LeaseChoice,
    /// `MAXHOLD` or `dlock.max-hold`: how long a new hold may last at most, even if something extends it.
    pub cap: Option<Lease>,
    /// `REQUEST`: identifies the request if it is sent twice.
    pub id: Option<Box<RequestId>>,
    /// `SESSION` or `SESSIONID`: the session that the hold is bound to.
    pub session: Binding,
    /// `MINTOKEN`: the token of a new hold is at least this.
    pub min_token: Option<Token>,
}

impl Request {
    /// Returns a request without options, whose owner the server has not drawn.
    pub fn new(owner: Owner, want: Want, lease: LeaseChoice) -> Request {
        Request {
            owner,
            is_owner_drawn: false,
            want,
            lease,
            cap: None,
            id: None,
            session: BindTo::Nothing,
            min_token: None,
        }
    }

    /// Returns the lease of a new hold, if the request names none: the server's `default`, or the cap if that is
    /// shorter.
    #[inline]
    pub(crate) fn default_lease(&self, default: Lease) -> Lease {
        self.cap.map_or(default, |cap| cap.min(default))
    }

    /// Returns the session that a grant binds the hold to, if `client` has sent the request.
    #[inline]
    pub(crate) fn session_key(&self, client: ClientId) -> Option<SessionKey> {
        self.session.key(client)
    }
}

/// The server's terms for a grant.
#[derive(Clone, Copy, Debug)]
pub struct Terms {
    /// The lease of a new hold, if the request names none.
    pub default: Lease,
    /// The token of a new hold; `None` if all tokens are used up.
    pub fresh: Option<Token>,
}

/// The shared holds that a decision counts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CountedReaders {
    /// Holds that are live at this time count.
    pub live_at: UnixMs,
    /// The sum of those among them that count as released, because their sessions have ended.
    pub ended: Sum,
}

impl CountedReaders {
    /// All holds that are live at `now`.
    pub(crate) fn all(now: UnixMs) -> CountedReaders {
        CountedReaders { live_at: now, ended: Sum::default() }
    }
}

/// The decision on a [`Request`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Acquired {
    /// The owner gets this hold.
    Granted(Hold, Entry),
    /// The same request was granted before, and has this hold: nothing changes.
    Replayed(Hold),
    /// The owner gets nothing, and nothing changes.
    Refused(Refusal),
}

/// How an owner enters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entry {
    /// By a new hold.
    First,
    /// By more entries of a hold that it has.
    Again,
}

/// Why a request is not granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// A hold of another owner is in the way, or a waiter.
    Held,
    /// The owner holds the lock, and the request is not reentrant.
    Owned,
    /// The owner's own permits and those it asks for exceed the limit.
    OverLimit,
    /// The owner is the only holder and asks for more permits behind a waiter that waits for it.
    OnlyHolder,
    /// The absolute lease has passed.
    LeasePassed,
    /// The hold would count more entries than a hold can.
    TooManyEntries,
    /// The server has no fencing token left.
    NoToken,
}

/// A request to leave a lock.
#[derive(Clone, Debug)]
pub struct Release<'a> {
    /// The owner that leaves.
    pub owner: &'a Owner,
    /// The mode, if the command names one.
    pub mode: Option<Mode>,
    /// How many entries.
    pub entries: Entries,
    /// Only the hold with this token.
    pub token: Option<Token>,
    /// Identifies the request if it is sent twice.
    pub request: Option<&'a RequestId>,
}

/// How many entries a release ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entries {
    /// The number of entries.
    Some(NonZeroU32),
    /// All of them.
    All,
}

impl Entries {
    /// A single entry.
    pub const ONE: Entries = Entries::Some(NonZeroU32::MIN);
}

/// The decision on a [`Release`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Released<'a> {
    /// The owner has no such hold, or too few entries: nothing changes.
    NotHeld,
    /// The owner holds both modes and names none: nothing changes.
    Ambiguous,
    /// The same request has released entries before: nothing changes.
    Replayed,
    /// The owner keeps this hold, with fewer entries.
    Partly(Hold),
    /// The hold ends.
    Fully(&'a Hold),
    /// The owner's exclusive and shared hold end.
    Both(&'a Hold, &'a Hold),
}

impl Released<'_> {
    /// Returns the holds that the release changes.
    pub fn holds(&self) -> [Option<&Hold>; 2] {
        match self {
            Released::NotHeld | Released::Ambiguous | Released::Replayed => [None, None],
            Released::Partly(hold) => [Some(hold), None],
            Released::Fully(hold) => [Some(hold), None],
            Released::Both(exclusive, shared) => [Some(exclusive), Some(shared)],
        }
    }
}

/// A request to set the deadline of an owner's holds.
#[derive(Clone, Debug)]
pub struct Renew<'a> {
    /// The owner.
    pub owner: &'a Owner,
    /// The mode; `None` for both.
    pub mode: Option<Mode>,
    /// The lease from now on.
    pub lease: LeaseChoice,
    /// The condition on the token, or its new minimum.
    pub token: RenewToken,
}

/// The `TOKEN` or the `MINTOKEN` of a [`Renew`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RenewToken {
    /// The hold may have any token, and keeps it.
    Any,
    /// Only the hold with this token (`TOKEN`).
    Is(Token),
    /// The token of the hold, the exclusive one if there are both, becomes at least this (`MINTOKEN`).
    AtLeast(Token),
}

/// The decision on a [`Renew`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Renewed {
    /// The owner has no such hold: nothing changes.
    NotHeld,
    /// The hold, or both holds, with their new deadlines.
    Moved(Hold, Option<Hold>, Reach),
}

/// Whether a renewal sets the deadlines that the command asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reach {
    /// The renewal sets the deadlines asked for.
    Asked,
    /// The cap of a hold makes its deadline earlier.
    Cap,
}

impl Lock {
    /// A lock without a hold.
    pub const EMPTY: Lock = Lock { holds: Holds::NONE };

    /// Returns the bond, which ties the lock to its bindings.
    pub(crate) fn bond(&self) -> Bond {
        self.holds.bond()
    }

    /// Decides whether the owner may enter at `now`. O(log n).
    #[inline(always)]
    pub fn acquire(&self, now: UnixMs, request: &Request, terms: Terms) -> Acquired {
        self.acquire_counting(now, request, terms, CountedReaders::all(now))
    }

    /// Decides as [`Lock::acquire`] does, but counts only these shared holds. Those left out are of other owners.
    #[inline(always)]
    pub(crate) fn acquire_counting(
        &self,
        now: UnixMs,
        request: &Request,
        terms: Terms,
        readers: CountedReaders,
    ) -> Acquired {
        // An empty lock refuses nothing, except for a limit.
        if self.is_empty() && request.want.limit().is_none() {
            return enter(now, request, terms, None, None);
        }
        let (exclusive, shared) = self.mine(&request.owner, now);
        let (mine, other) = match request.want.mode() {
            Mode::Exclusive => (exclusive, shared),
            Mode::Shared => (shared, exclusive),
        };
        if let Some(hold) = mine.filter(|hold| hold.repeats(request.id.as_deref())) {
            return Acquired::Replayed(hold.clone());
        }
        let refusal = match request.want {
            Want::ExclusiveOnce if exclusive.is_some() || shared.is_some() => Some(Refusal::Owned),
            Want::ExclusiveOnce | Want::Exclusive => {
                self.is_held_by_others(&request.owner, readers).then_some(Refusal::Held)
            }
            Want::Shared => self.is_closed_to(&request.owner, now).then_some(Refusal::Held),
            Want::Permits { limit, .. } | Want::Slot { limit } => {
                let own = shared.map_or(0, |hold| u64::from(hold.count));
                let (permits, limit) = (u64::from(request.want.entries()), u64::from(limit.get()));
                if own + permits > limit {
                    Some(Refusal::OverLimit)
                } else if shared.is_some() && !request.want.is_reentrant() {
                    Some(Refusal::Owned)
                } else if exclusive.is_some() {
                    None
                } else if self.is_closed_to(&request.owner, now) {
                    Some(Refusal::Held)
                } else {
                    let taken = self.count(readers).entries;
                    (taken + permits > limit).then_some(Refusal::Held)
                }
            }
        };
        match (refusal, mine) {
            (Some(refusal), _) => Acquired::Refused(refusal),
            (None, Some(hold)) => reenter(now, hold, request),
            (None, None) => match self.slot(readers, request.want) {
                Ok(slot) => enter(now, request, terms, slot, other.and_then(Hold::cap)),
                Err(refusal) => Acquired::Refused(refusal),
            },
        }
    }

    /// Returns the number of a new hold, if the request asks for one. A hold that only counts as released keeps its
    /// number until it is released: if no other is free, the request is refused.
    fn slot(&self, readers: CountedReaders, want: Want) -> Result<Option<u32>, Refusal> {
        match want {
            Want::Slot { limit } => {
                let free = self.holds.free_slot(readers.live_at);
                Some(free).filter(|slot| *slot < limit.get()).map(Some).ok_or(Refusal::Held)
            }
            Want::ExclusiveOnce | Want::Exclusive | Want::Shared | Want::Permits { .. } => Ok(None),
        }
    }

    /// Decides which entries a release at `now` ends. O(log n).
    #[inline(always)]
    pub fn release(&self, now: UnixMs, request: &Release) -> Released<'_> {
        let (exclusive, shared) = self.named(now, request.owner, request.mode);
        let repeats = |hold: &&Hold| hold.repeats(request.request);
        if exclusive.iter().chain(shared.iter()).any(repeats) {
            return Released::Replayed;
        }
        let has_token = |hold: &&Hold| request.token.is_none_or(|token| token == hold.token);
        let hold = match (exclusive.filter(has_token), shared.filter(has_token)) {
            (None, None) => return Released::NotHeld,
            (Some(_), Some(_)) if request.entries != Entries::All || request.token.is_some() => {
                return Released::Ambiguous;
            }
            (Some(exclusive), Some(shared)) => return Released::Both(exclusive, shared),
            (Some(hold), None) | (None, Some(hold)) => hold,
        };
        let left = match request.entries {
            Entries::All => Some(0),
            Entries::Some(entries) => hold.count.checked_sub(entries.get()),
        };
        match left {
            None => Released::NotHeld,
            Some(0) => Released::Fully(hold),
            Some(count) => {
                let mut left = Hold { count, ..hold.clone() };
                left.record(request.request);
                Released::Partly(left)
            }
        }
    }

    /// Decides which deadlines a renewal at `now` sets. O(log n).
    #[inline(always)]
    pub fn renew(&self, now: UnixMs, request: &Renew) -> Renewed {
        let (exclusive, shared) = self.named(now, request.owner, request.mode);
        let first = exclusive.and_then(|hold| renewed(now, hold, request.lease, request.token));
        let token = match (request.token, &first) {
            (RenewToken::AtLeast(_), Some(_)) => RenewToken::Any,
            (token, _) => token,
        };
        let second = shared.and_then(|hold| renewed(now, hold, request.lease, token));
        match (first, second) {
            (Some((first, reach)), None) | (None, Some((first, reach))) => Renewed::Moved(first, None, reach),
            (Some((first, one)), Some((second, other))) => Renewed::Moved(first, Some(second), one.max(other)),
            (None, None) => Renewed::NotHeld,
        }
    }

    /// Returns whether an owner other than this one has a hold that counts.
    pub(crate) fn is_held_by_others(&self, owner: &Owner, readers: CountedReaders) -> bool {
        let CountedReaders { live_at: now, ended } = readers;
        if self.is_closed_to(owner, now) {
            return true;
        }
        // Nearly always there is one hold.
        if let Some(hold) = self.holds.single() {
            return hold.owner != *owner && hold.is_live(now) && ended.holds == 0;
        }
        let own = usize::from(self.live(owner, Mode::Shared, now).is_some());
        self.count(readers).holds > own
    }

    fn count(&self, readers: CountedReaders) -> Sum {
        self.holds.live_shared(readers.live_at).minus(readers.ended)
    }

    /// Returns whether another owner holds the lock exclusively.
    fn is_closed_to(&self, owner: &Owner, now: UnixMs) -> bool {
        self.holds.exclusive().is_some_and(|hold| hold.owner != *owner && hold.is_live(now))
    }

    /// Returns the live holds of `owner` that a command names: the exclusive and the shared one.
    #[inline]
    pub(crate) fn named(&self, now: UnixMs, owner: &Owner, mode: Option<Mode>) -> (Option<&Hold>, Option<&Hold>) {
        let (exclusive, shared) = self.mine(owner, now);
        (exclusive.filter(|_| mode != Some(Mode::Shared)), shared.filter(|_| mode != Some(Mode::Exclusive)))
    }

    /// Returns the live holds of `owner`: the exclusive and the shared one.
    #[inline]
    pub(crate) fn mine(&self, owner: &Owner, now: UnixMs) -> (Option<&Hold>, Option<&Hold>) {
        let (exclusive, shared) = self.holds.of(owner);
        (exclusive.filter(|hold| hold.is_live(now)), shared.filter(|hold| hold.is_live(now)))
    }

    #[inline]
    pub(crate) fn live(&self, owner: &Owner, mode: Mode, now: UnixMs) -> Option<&Hold> {
        self.holds.get(owner, mode).filter(|hold| hold.is_live(now))
    }
}

/// Gives the owner a hold. `other_cap` is the cap of its hold in the other mode, which limits the new one as well: an
/// owner cannot escape its cap by changing the mode again and again.
fn enter(now: UnixMs, request: &Request, terms: Terms, slot: Option<u32>, other_cap: Option<UnixMs>) -> Acquired {
    let Some((lease, deadline)) = request.lease.resolve(now, request.default_lease(terms.default)) else {
        return Acquired::Refused(Refusal::LeasePassed);
    };
    let Some(token) = terms.fresh else { return Acquired::Refused(Refusal::NoToken) };
    let (owner, mode, count) = (request.owner.clone(), request.want.mode(), request.want.entries());
    let cap = request.cap.map(|cap| now.plus(cap)).into_iter().chain(other_cap).min();
    // An absolute lease may be behind the cap: the clock may have been set back since it was given.
    let deadline = cap.map_or(deadline, |cap| deadline.min(cap));
    let extras = Extras::of(request.id.as_deref().cloned(), cap, slot);
    Acquired::Granted(Hold { owner, mode, count, lease, deadline, token, extras, bond: Bond::NONE }, Entry::First)
}

/// Adds entries: re-entry never shortens a lease and never adds leases up. The hold keeps its cap.
fn reenter(now: UnixMs, hold: &Hold, request: &Request) -> Acquired {
    let Some((lease, deadline)) = request.lease.resolve(now, hold.lease) else {
        return Acquired::Refused(Refusal::LeasePassed);
    };
    let Some(count) = hold.count.checked_add(request.want.entries()) else {
        return Acquired::Refused(Refusal::TooManyEntries);
    };
    let (lease, deadline) = (lease.max(hold.lease), hold.up_to_cap(deadline.max(hold.deadline)));
    let mut more = Hold { count, lease, deadline, ..hold.clone() };
    more.record(request.id.as_deref());
    Acquired::Granted(more, Entry::Again)
}

/// Returns the hold with its new deadline; `None` if it has another token than the command names, or if the lease has
/// passed.
#[inline(always)]
fn renewed(now: UnixMs, hold: &Hold, lease: LeaseChoice, token: RenewToken) -> Option<(Hold, Reach)> {
    let token = match token {
        RenewToken::Any => hold.token,
        RenewToken::Is(token) if token == hold.token => token,
        RenewToken::Is(_) => return None,
        RenewToken::AtLeast(floor) => floor.max(hold.token),
    };
    let (lease, asked) = lease.resolve(now, hold.lease)?;
    let deadline = hold.up_to_cap(asked);
    let reach = if deadline < asked { Reach::Cap } else { Reach::Asked };
    Some((Hold { lease, deadline, token, ..hold.clone() }, reach))
}
