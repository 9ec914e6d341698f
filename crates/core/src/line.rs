//! The waiting line of one lock: first come, first served.
//!
//! # Implementation details
//! Waiters stand in a tree by place, so that any of them leaves in O(log n). An upgrade, which holds the lock shared
//! and waits for the other holders to go, stands before all others. Nobody is served but the head, and nobody passes
//! who does not hold the lock already: so the line moves only when its head can be granted, and finding out is O(1).

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    Acquire, Acquired, Effect, Entry, Hold, Lease, LeaseChoice, Lock, Mode, Owner, Reentry, Refusal, Request, Token,
    UnixMs,
};

/// The line of one lock. `T` is what the caller needs to find the waiting client again.
#[derive(Clone, Debug)]
pub struct Line<T> {
    waiting: BTreeMap<Place, Waiting<T>>,
    writers: BTreeSet<Place>,
    arrivals: u64,
}

/// A place in a line. Smaller is nearer to the head.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place {
    rank: Rank,
    arrival: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Rank {
    Upgrade,
    Arrival,
}

/// A request that waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waiting<T> {
    /// Who waits.
    pub owner: Owner,
    /// For which mode.
    pub mode: Mode,
    /// What happens if the owner holds it when its turn comes.
    pub reentry: Reentry,
    /// For how long, from the grant on.
    pub lease: LeaseChoice,
    /// What makes it known if it comes twice.
    pub request: Option<Box<Request>>,
    /// Since when.
    pub since: UnixMs,
    /// What the caller needs to find the client again.
    pub ticket: T,
}

/// What the head of a line came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Served<T> {
    /// It is in as soon as the effect is applied.
    Granted {
        /// Who it was.
        waiting: Waiting<T>,
        /// The fencing token of the hold.
        token: Token,
        /// Whether this is a new hold.
        entry: Entry,
        /// What to apply and replicate.
        effect: Effect,
    },
    /// It was granted meanwhile by another connection: the answer is the token of that hold.
    Replayed(Waiting<T>, Hold),
    /// It left the line without a grant, for a reason that waiting does not cure.
    Refused(Waiting<T>, Refusal),
}

/// Another owner waits to upgrade already: neither could ever get in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TwoUpgrades;

impl<T> Default for Line<T> {
    fn default() -> Line<T> {
        Line { waiting: BTreeMap::new(), writers: BTreeSet::new(), arrivals: 0 }
    }
}

impl<T> Line<T> {
    /// How many wait.
    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Whether nobody waits.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Who waits, the head first.
    pub fn iter(&self) -> impl Iterator<Item = &Waiting<T>> {
        self.waiting.values()
    }

    /// Decides on a request that has just come. It is never granted by passing over somebody who waits, except to an
    /// owner that is in the lock already: re-entry, the upgrade of the only holder, the downgrade of a writer.
    pub fn decide(
        &self,
        lock: &Lock,
        now: UnixMs,
        request: &Acquire,
        default: Lease,
        fresh: Option<Token>,
    ) -> Acquired {
        if !self.is_empty() && lock.live_holds_of(request.owner, now).next().is_none() {
            return Acquired::Refused(Refusal::Held);
        }
        lock.acquire(now, request, default, fresh)
    }

    /// Puts a request that [`Line::decide`] refused as held into the line. O(log n).
    ///
    /// # Errors
    /// [`TwoUpgrades`], if it would upgrade while another owner waits to do so.
    pub fn join(&mut self, lock: &Lock, now: UnixMs, request: &Acquire, ticket: T) -> Result<Place, TwoUpgrades> {
        let holds = lock.live_holds_of(request.owner, now).next().is_some();
        let rank = if holds && request.mode == Mode::Exclusive { Rank::Upgrade } else { Rank::Arrival };
        if rank == Rank::Upgrade && self.upgrades().any(|upgrade| upgrade.owner != *request.owner) {
            return Err(TwoUpgrades);
        }
        let place = Place { rank, arrival: self.arrivals };
        self.arrivals += 1;
        let Acquire { owner, mode, reentry, lease, request } = request;
        let (owner, mode, reentry, lease) = ((*owner).clone(), *mode, *reentry, *lease);
        let request = request.cloned().map(Box::new);
        if mode == Mode::Exclusive {
            self.writers.insert(place);
        }
        self.waiting.insert(place, Waiting { owner, mode, reentry, lease, request, since: now, ticket });
        Ok(place)
    }

    /// Whether the waiter at `place` is this request, sent before.
    pub fn is_repeated(&self, place: Place, request: &Request) -> bool {
        self.waiting.get(&place).is_some_and(|waiting| waiting.request.as_deref() == Some(request))
    }

    /// A request that came again takes over the place it has, with its own lease. The ticket of the first is returned.
    pub fn take_over(&mut self, place: Place, lease: LeaseChoice, ticket: T) -> Option<T> {
        let waiting = self.waiting.get_mut(&place)?;
        waiting.lease = lease;
        Some(std::mem::replace(&mut waiting.ticket, ticket))
    }

    /// Takes a waiter out of the line. O(log n).
    pub fn leave(&mut self, place: Place) -> Option<Waiting<T>> {
        self.writers.remove(&place);
        self.waiting.remove(&place)
    }

    /// Whether this is the head.
    pub fn is_head(&self, place: Place) -> bool {
        self.waiting.first_key_value().is_some_and(|(head, _)| *head == place)
    }

    /// Serves the head, if its turn has come. Call it, and apply the effect, until it answers `None`: readers next to
    /// each other get in together.
    pub fn serve(&mut self, lock: &Lock, now: UnixMs, default: Lease, fresh: Option<Token>) -> Option<Served<T>> {
        let head = self.waiting.first_entry()?;
        let Waiting { owner, mode, reentry, lease, request, .. } = head.get();
        let request = Acquire { owner, mode: *mode, reentry: *reentry, lease: *lease, request: request.as_deref() };
        let decision = lock.acquire(now, &request, default, fresh);
        // An owner that came in meanwhile by another connection: its turn comes when it has left.
        if let Acquired::Refused(Refusal::Held | Refusal::Owned) = decision {
            return None;
        }
        self.writers.remove(head.key());
        let waiting = head.remove();
        let served = match decision {
            Acquired::Refused(refusal) => Served::Refused(waiting, refusal),
            Acquired::Granted { token, entry, effect } => Served::Granted { waiting, token, entry, effect },
            Acquired::Replayed(hold) => Served::Replayed(waiting, hold),
        };
        Some(served)
    }

    /// The mode in which holds are in the way of the waiter at `place`, counting those ahead of it: where a writer is
    /// ahead, a reader waits for readers too.
    pub fn waits_for(&self, place: Place) -> Mode {
        match self.writers.first() {
            Some(writer) if *writer <= place => Mode::Exclusive,
            Some(_) | None => Mode::Shared,
        }
    }

    fn upgrades(&self) -> impl Iterator<Item = &Waiting<T>> {
        self.waiting.iter().take_while(|(place, _)| place.rank == Rank::Upgrade).map(|(_, waiting)| waiting)
    }
}
