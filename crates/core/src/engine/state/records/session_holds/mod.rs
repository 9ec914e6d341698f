//! The holds of one lock that are bound to sessions.
//!
//! A binding is not part of the lock: it exists in the primary's memory only. A session that has ended stays here until
//! a visit settles its holds. Until then, they count as released from the end of the session on or, with a grace, from
//! the end of the grace on.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::hash::BuildHasher;

use foldhash::fast::FixedState;
use smallvec::SmallVec;

use crate::engine::state::load::Load;

use crate::holds::{HoldId, Sum};
use crate::session::NamedId;
use crate::{Bond, Hold, Lock, Mode, Owner, SessionKey, Token, UnixMs, broken};

mod ended;
mod ended_times;
mod renewal;
pub(crate) mod session;
mod slots;
#[cfg(test)]
mod tests;
#[cfg(feature = "check")]
pub(crate) mod views;

pub(crate) use ended::Ended;
use ended_times::EndedTimes;
pub(crate) use renewal::{LoadChange, NextRenewal, Renewal};
use session::Session;
pub(crate) use session::SessionEnd;
use slots::BoundSlots;

#[derive(Clone, Debug, Default)]
pub(crate) struct SessionHolds {
    bindings: BTreeMap<HoldId, Binding>,
    by_owner: BTreeMap<Owner, ByMode>,
    /// The session of each token. Whether the session of a hold has ended is found here, without a lookup of the owner.
    by_token: BTreeMap<(Token, Mode), ByToken>,
    sessions: BTreeMap<SessionKey, Session>,
    /// When each lease is extended. Holds of ended sessions may be missing.
    renewals: BTreeSet<(UnixMs, HoldId)>,
    /// The numbers (`SLOT`) of the bound holds that have one.
    slots: Option<Box<BoundSlots>>,
    /// The sessions that have ended and still have holds. Those with a grace come last, and are settled first.
    ended: VecDeque<SessionKey>,
    /// The deadlines of the holds of ended sessions.
    times: EndedTimes,
    /// The rest of the lock, until something changes.
    rest: Cell<Option<Rest>>,
    /// The last result of `ended_sum`, and the time that it is for.
    ended_sum: Cell<Option<(UnixMs, Sum)>>,
    /// The latest clock of an effect: holds with a deadline up to it are not in the lock any more.
    swept: Option<UnixMs>,
    /// Whether a hold has a deadline up to `swept` all the same, because the clock was set back before it was bound.
    has_older: bool,
    /// Ties the bindings to the value of the key.
    bond: Bond,
    /// Before this time the server does not accept renewals.
    not_before: UnixMs,
    next: HoldId,
    /// The changes in the loads and in the numbers of holds of sessions that were not taken yet.
    load_changes: SmallVec<[LoadChange; 2]>,
    /// Whether the holds are gone from the lock: they count for no named session, and only have to be freed.
    is_uncounted: bool,
}

#[derive(Clone, Debug, Default)]
struct ByMode {
    exclusive: Option<HoldId>,
    shared: Option<HoldId>,
}

/// The holds with one token and mode: nearly always one.
#[derive(Clone, Copy, Debug)]
struct ByToken {
    key: SessionKey,
    /// A hash of the owner. A hold of another owner that is not bound may have the same token (`MINTOKEN`).
    owner: u64,
    /// The deadline of the hold, if there is only one.
    deadline: UnixMs,
    /// How many bound holds have the token and mode.
    holds: u32,
    /// Whether several bound holds had the token at once (`MINTOKEN`). Their sessions are then looked up by owner.
    is_ambiguous: bool,
}

/// The highest token and the last deadline of a lock without the holds that count as released, as found at one time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rest {
    pub token: Option<Token>,
    pub deadline: Option<UnixMs>,
    /// The rest is valid from this time on, if nothing changes.
    pub from: UnixMs,
    /// The rest is valid before this time: the hold with that token lapses then.
    pub until: UnixMs,
}

/// How many of the bindings that [`SessionHolds::split_others`] took out were those of ended sessions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct EndedHolds {
    pub all: u64,
    /// The number of those without a grace: the end of their session has released the holds.
    pub released: u64,
}

/// A hold that is bound.
#[derive(Clone, Debug)]
pub(crate) struct Binding {
    pub owner: Owner,
    pub mode: Mode,
    pub key: SessionKey,
    /// The token of the hold: a later hold of the same owner has another one.
    pub token: Token,
    pub deadline: UnixMs,
    entries: u32,
    renewal: Renewal,
}

impl SessionHolds {
    /// Returns how many holds are bound.
    pub(crate) fn len(&self) -> usize {
        self.bindings.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.bindings.is_empty()
    }

    /// Returns whether these are the bindings of this value of the key. A value from elsewhere may have replaced the
    /// old one without an event (a slot that left and came back).
    pub(crate) fn are_of(&self, lock: &Lock) -> bool {
        self.is_empty() || self.bond.is_same(lock.bond())
    }

    pub(crate) fn bond(&self) -> Bond {
        self.bond
    }

    /// Returns the bond. If there is none, sets it to the result of `fresh`.
    pub(crate) fn bond_or(&mut self, fresh: impl FnOnce() -> Bond) -> Bond {
        if self.bond.is_none() {
            self.bond = fresh();
        }
        self.bond
    }

    /// Returns the number of sessions with holds on the lock.
    pub(crate) fn sessions(&self) -> usize {
        self.sessions.len()
    }

    /// Returns the sessions with holds on the lock.
    pub(crate) fn keys(&self) -> impl Iterator<Item = SessionKey> {
        self.sessions.keys().copied()
    }

    /// Returns whether this session has a hold on the lock.
    pub(crate) fn has_session(&self, key: SessionKey) -> bool {
        self.sessions.contains_key(&key)
    }

    /// Binds a hold. The latest binding wins.
    pub(crate) fn bind(&mut self, hold: &Hold, key: SessionKey, renewal: Renewal) {
        self.unbind(&hold.owner, hold.mode);
        let id = self.next;
        self.next += 1;
        let Hold { mode, token, deadline, count, .. } = *hold;
        let owner = hold.owner.clone();
        self.insert(id, Binding { owner, mode, key, token, deadline, entries: count, renewal });
        self.set_slot(id, key, hold.slot(), deadline);
    }

    /// Records the number of a hold, if the hold has one, and its deadline.
    fn set_slot(&mut self, id: HoldId, key: SessionKey, slot: Option<u32>, deadline: UnixMs) {
        if let Some(slot) = slot {
            self.slots.get_or_insert_default().insert(key, id, slot, deadline);
        }
    }

    fn insert(&mut self, id: HoldId, binding: Binding) {
        *self.by_owner.entry(binding.owner.clone()).or_default().of(binding.mode) = Some(id);
        self.has_older |= Some(binding.deadline) <= self.swept;
        let session = self.sessions.entry(binding.key).or_default();
        session.deadlines.insert(binding.deadline, id, binding.entries, false);
        if session.shares_deadlines {
            self.times.insert(session.end, binding.deadline, id, binding.entries);
        }
        self.rest.set(None);
        self.renewals.insert((binding.renewal.at, id));
        self.note_change(binding.key, binding.renewal.load.cast_signed(), 1);
        let first = ByToken::of(binding.key, &binding.owner, binding.deadline);
        self.add_token(binding.token, binding.mode, first);
        self.bindings.insert(id, binding);
    }

    fn add_token(&mut self, token: Token, mode: Mode, first: ByToken) {
        let by_token = self.by_token.entry((token, mode)).or_insert(first);
        by_token.is_ambiguous |= by_token.holds > 0;
        by_token.holds += 1;
    }

    fn remove_token(&mut self, token: Token, mode: Mode) {
        let Some(by_token) = self.by_token.get_mut(&(token, mode)) else {
            return broken("the token of a binding is counted");
        };
        by_token.holds -= 1;
        if by_token.holds == 0 {
            self.by_token.remove(&(token, mode));
        }
    }

    /// Updates the binding of a hold that has changed, if it is bound.
    pub(crate) fn follow(&mut self, hold: &Hold, renewal: Renewal) {
        let Some(id) = self.id(&hold.owner, hold.mode) else { return };
        self.has_older |= Some(hold.deadline) <= self.swept;
        let Some(binding) = self.bindings.get_mut(&id) else { return broken(OF_OWNER) };
        if let Some(session) = self.sessions.get_mut(&binding.key) {
            if session.end.is_some() {
                self.ended_sum.set(None);
            }
            session.deadlines.remove(binding.deadline, id);
            session.deadlines.insert(hold.deadline, id, hold.count, false);
            if session.shares_deadlines {
                self.times.take_out(session.end, binding.deadline, id);
                self.times.insert(session.end, hold.deadline, id, hold.count);
            }
        }
        self.renewals.remove(&(binding.renewal.at, id));
        self.renewals.insert((renewal.at, id));
        let (token, mode, key) = (binding.token, binding.mode, binding.key);
        if renewal.load != binding.renewal.load {
            let load = renewal.load.cast_signed() - binding.renewal.load.cast_signed();
            self.load_changes.push(LoadChange { key, load, holds: 0 });
        }
        (binding.token, binding.deadline, binding.entries, binding.renewal) =
            (hold.token, hold.deadline, hold.count, renewal);
        if token != hold.token {
            self.remove_token(token, mode);
            self.add_token(hold.token, mode, ByToken::of(key, &hold.owner, hold.deadline));
        } else if let Some(by_token) = self.by_token.get_mut(&(token, mode)) {
            by_token.deadline = hold.deadline;
        }
        self.set_slot(id, key, hold.slot(), hold.deadline);
        if let Some(slots) = &mut self.slots
            && self.sessions.get(&key).is_some_and(|session| session.end.is_some())
        {
            // The number may be lower than the one that is listed for the ended session.
            slots.end(key);
        }
    }

    /// Records the clock of an effect: the effect drops the holds that have lapsed by this clock.
    pub(crate) fn sweep(&mut self, clock: UnixMs) {
        self.rest.set(None);
        if self.swept < Some(clock) {
            (self.swept, self.has_older) = (Some(clock), false);
            self.ended_sum.set(None);
        }
    }

    /// Unbinds a hold. Returns its session if the session has no other hold on the lock.
    pub(crate) fn unbind(&mut self, owner: &Owner, mode: Mode) -> Option<SessionKey> {
        let id = self.id(owner, mode)?;
        self.remove(id)
    }

    /// Unbinds a hold by its id. Returns its session if the session has no other hold on the lock.
    pub(crate) fn remove(&mut self, id: HoldId) -> Option<SessionKey> {
        let binding = self.bindings.remove(&id)?;
        self.renewals.remove(&(binding.renewal.at, id));
        self.note_change(binding.key, -binding.renewal.load.cast_signed(), -1);
        self.remove_token(binding.token, binding.mode);
        if let Some(slots) = &mut self.slots {
            slots.remove(binding.key, id);
            self.slots.take_if(|slots| slots.is_empty());
        }
        if let Some(by_mode) = self.by_owner.get_mut(&binding.owner) {
            *by_mode.of(binding.mode) = None;
            if by_mode.exclusive.is_none() && by_mode.shared.is_none() {
                self.by_owner.remove(&binding.owner);
            }
        }
        self.rest.set(None);
        let session = self.sessions.get_mut(&binding.key)?;
        session.deadlines.remove(binding.deadline, id);
        if session.shares_deadlines {
            self.times.take_out(session.end, binding.deadline, id);
        }
        let (end, is_last) = (session.end, session.deadlines.total().holds == 0);
        if let Some(end) = end {
            self.count_out(&binding, end);
        }
        if !is_last {
            return None;
        }
        if let Some(session) = self.sessions.remove(&binding.key)
            && end.is_some()
        {
            self.times.remove(binding.key, &session);
        }
        if self.ended.back() == Some(&binding.key) {
            self.ended.pop_back();
        } else {
            self.ended.retain(|ended| *ended != binding.key);
        }
        Some(binding.key)
    }

    /// Subtracts a hold of an ended session from the cached sum. Many holds are released one after the other: adding up
    /// the rest each time would take long.
    fn count_out(&self, binding: &Binding, end: SessionEnd) {
        let Some((at, sum)) = self.ended_sum.get() else { return };
        if end.deadline() <= at && binding.deadline > self.swept.map_or(at, |swept| swept.max(at)) {
            let one = Sum { holds: 1, entries: u64::from(binding.entries) };
            self.ended_sum.set(Some((at, sum.minus(one))));
        }
    }

    /// Returns the session that a hold is bound to, unless its session has ended.
    pub(crate) fn session_of(&self, owner: &Owner, mode: Mode) -> Option<SessionKey> {
        let binding = self.bindings.get(&self.id(owner, mode)?)?;
        let session = self.sessions.get(&binding.key)?;
        session.end.is_none().then_some(binding.key)
    }

    /// Returns the holds that are bound to this session, the first deadline first.
    pub(crate) fn of_session(&self, key: SessionKey) -> impl DoubleEndedIterator<Item = &Binding> {
        // Most locks have one hold, which is compared directly: a search by session reads several more pieces of
        // memory, none of which is in a cache when a session with many locks is listed.
        let (only, session) = match self.len() {
            1 => (self.bindings.values().next(), None),
            _ => (None, self.sessions.get(&key)),
        };
        let ids = session.into_iter().flat_map(|session| session.deadlines.iter());
        let several = ids.filter_map(|id| self.bindings.get(&id));
        only.filter(|binding| binding.key == key).into_iter().chain(several)
    }

    /// Returns whether there is a lease to be extended.
    pub(crate) fn has_renewal(&self) -> bool {
        !self.renewals.is_empty()
    }

    /// Returns the next renewal.
    pub(crate) fn next_renewal(&self) -> Option<NextRenewal> {
        let (at, id) = self.renewals.first()?;
        let Binding { deadline, key, .. } = *self.bindings.get(id)?;
        Some(NextRenewal { at: (*at).max(self.not_before), deadline, key })
    }

    /// Returns whether all leases have ended at `now`. `false`: there is none, or more than [`FEW`], not looked at.
    pub(crate) fn has_lapsed(&self, now: UnixMs) -> bool {
        (1..=FEW).contains(&self.len()) && self.bindings.values().all(|binding| binding.deadline <= now)
    }

    /// Returns a hold that is due for renewal at `now`.
    pub(crate) fn due(&self, now: UnixMs) -> Option<(HoldId, &Binding)> {
        let (_, id) = self.renewals.first().filter(|(at, _)| (*at).max(self.not_before) <= now)?;
        Some((*id, self.bindings.get(id)?))
    }

    /// Removes a hold from the renewals, because its session has ended.
    pub(crate) fn skip_renewal(&mut self, id: HoldId) {
        if let Some(binding) = self.bindings.get(&id) {
            self.renewals.remove(&(binding.renewal.at, id));
        }
    }

    /// Returns the session of a hold and its load, if it is bound.
    pub(crate) fn load_of(&self, owner: &Owner, mode: Mode) -> Option<(SessionKey, Load)> {
        let binding = self.id(owner, mode).and_then(|id| self.bindings.get(&id))?;
        Some((binding.key, binding.renewal.load))
    }

    /// Subtracts the holds from the numbers of holds of their named sessions. Later, the bindings are freed a piece at
    /// a time. One step for each named session.
    pub(crate) fn discount(&mut self) {
        // Named sessions come after connections in the order of keys.
        let named = self.sessions.range(SessionKey::Named(NamedId(0))..);
        let gone = named.map(|(key, session)| LoadChange { key: *key, load: 0, holds: -(session.holds()) });
        self.load_changes.extend(gone);
        self.is_uncounted = true;
    }

    fn note_change(&mut self, key: SessionKey, load: i64, holds: i64) {
        self.load_changes.push(LoadChange { key, load, holds: if self.is_uncounted { 0 } else { holds } });
    }

    /// Takes the changes in the loads and in the numbers of holds of sessions.
    pub(crate) fn take_load_changes(&mut self) -> SmallVec<[LoadChange; 2]> {
        std::mem::take(&mut self.load_changes)
    }

    /// Puts all renewals off until this time.
    pub(crate) fn put_off(&mut self, until: UnixMs) {
        self.not_before = until;
    }

    /// Takes out the bindings of all owners but this one. Returns them, and how many of them are of ended sessions;
    /// `None` if there are none.
    pub(crate) fn split_others(&mut self, owner: &Owner) -> Option<(SessionHolds, EndedHolds)> {
        let own = usize::from(self.by_owner.contains_key(owner));
        if self.by_owner.len() == own {
            return None;
        }
        let mut kept = SessionHolds {
            swept: self.swept,
            has_older: self.has_older,
            next: self.next,
            bond: self.bond,
            ..SessionHolds::default()
        };
        for mode in [Mode::Exclusive, Mode::Shared] {
            let Some(id) = self.id(owner, mode) else { continue };
            let Some(binding) = self.bindings.get(&id).cloned() else {
                broken(OF_OWNER);
                continue;
            };
            let slot = self.slots.as_ref().and_then(|slots| slots.of(id));
            self.remove(id);
            let (key, deadline) = (binding.key, binding.deadline);
            kept.insert(id, binding);
            kept.set_slot(id, key, slot, deadline);
        }
        let mut ended = EndedHolds::default();
        for session in self.ended.iter().filter_map(|key| self.sessions.get(key)) {
            let holds = session.deadlines.total().holds as u64;
            ended.all += holds;
            ended.released += if session.end.is_some_and(|end| end.grace.is_none()) { holds } else { 0 };
        }
        Some((std::mem::replace(self, kept), ended))
    }

    /// Frees at most `most` bindings of holds that are gone. Returns the sessions whose last binding was among them.
    pub(crate) fn take_apart(&mut self, most: usize) -> Vec<SessionKey> {
        // No one reads these lists any more, and removing a session from a long list takes time. After the first piece
        // they are empty, and removing a session from them changes nothing.
        self.ended.clear();
        self.times = EndedTimes::default();
        self.ended_sum.set(None);
        let ids: Vec<HoldId> = self.bindings.keys().copied().take(most).collect();
        ids.into_iter().filter_map(|id| self.remove(id)).collect()
    }

    fn id(&self, owner: &Owner, mode: Mode) -> Option<HoldId> {
        let by_mode = self.by_owner.get(owner)?;
        match mode {
            Mode::Exclusive => by_mode.exclusive,
            Mode::Shared => by_mode.shared,
        }
    }
}

impl ByToken {
    fn of(key: SessionKey, owner: &Owner, deadline: UnixMs) -> ByToken {
        ByToken { key, owner: hash(owner), deadline, holds: 0, is_ambiguous: false }
    }
}

impl ByMode {
    fn of(&mut self, mode: Mode) -> &mut Option<HoldId> {
        match mode {
            Mode::Exclusive => &mut self.exclusive,
            Mode::Shared => &mut self.shared,
        }
    }
}

fn hash(owner: &Owner) -> u64 {
    FixedState::default().hash_one(owner)
}

/// An invariant: each id in `by_owner` has a binding.
const OF_OWNER: &str = "the hold of an owner is a binding";

/// With at most this many bindings, a look at each of them is the fastest search.
const FEW: usize = 8;
