//! The holds of ended sessions. They stay bound until a visit settles them. Until then, they count as released after
//! the end of the session or, if there is a grace, after the grace.

use super::{Binding, ByToken, Rest, SessionEnd, SessionHolds, hash};
use crate::holds::{HoldId, Sum};
use crate::{Hold, Mode, Owner, SessionKey, Token, UnixMs};

/// The state of a hold of an ended session, until a visit settles the hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    /// The hold counts as released.
    Released,
    /// The hold is live until its grace ends.
    InGrace,
}

impl SessionHolds {
    /// Returns the end of the session that this hold was bound to. O(log n).
    pub(crate) fn end_of(&self, hold: &Hold) -> Option<SessionEnd> {
        if self.ended.is_empty() {
            return None;
        }
        let by_token = self.by_token.get(&(hold.token, hold.mode))?;
        let key = if by_token.is_ambiguous {
            let binding = self.bindings.get(&self.id(&hold.owner, hold.mode)?)?;
            Some(binding.key).filter(|_| binding.token == hold.token)?
        } else if by_token.owner == hash(&hold.owner) {
            by_token.key
        } else {
            return None;
        };
        self.times.end_of(key)
    }

    /// Records that a session has ended. Returns whether it had a hold here.
    pub(crate) fn end(&mut self, key: SessionKey, end: SessionEnd) -> bool {
        let Some(session) = self.sessions.get_mut(&key) else { return false };
        if session.end.is_none() {
            session.end = Some(end);
            // Holds in a grace are settled first: they give the key a later end.
            if end.grace.is_some() {
                self.ended.push_back(key)
            } else {
                self.ended.push_front(key)
            }
            self.times.add(key, session, end);
            self.rest.set(None);
            if let Some(slots) = &mut self.slots {
                slots.end(key);
            }
            self.ended_sum.set(None);
        }
        true
    }

    /// Returns the tokens of holds whose sessions have ended without a grace.
    pub(crate) fn released_tokens(&self) -> impl Iterator<Item = Token> {
        let is_released = |key: &&SessionKey| {
            let end = self.sessions.get(key).and_then(|session| session.end);
            end.is_some_and(|end| end.grace.is_none())
        };
        self.ended.iter().filter(is_released).flat_map(|key| self.of_session(*key)).map(|binding| binding.token)
    }

    /// Returns whether a visit still has to settle holds of an ended session.
    pub(crate) fn has_ended(&self) -> bool {
        !self.ended.is_empty()
    }

    /// Returns a hold of an ended session, and the end of the session.
    pub(crate) fn next_ended(&self) -> Option<(HoldId, &Binding, SessionEnd)> {
        let session = self.sessions.get(self.ended.back()?)?;
        let (_, id) = session.deadlines.last()?;
        Some((id, self.bindings.get(&id)?, session.end?))
    }

    /// Returns the binding of a hold whose session has ended, and the end of the session.
    pub(crate) fn ended_of(&self, owner: &Owner, mode: Mode) -> Option<(HoldId, &Binding, SessionEnd)> {
        if self.ended.is_empty() {
            return None;
        }
        let id = self.id(owner, mode)?;
        let binding = self.bindings.get(&id)?;
        Some((id, binding, self.sessions.get(&binding.key)?.end?))
    }

    /// Returns the sum of the live holds of the lock that count as released at `now`.
    pub(crate) fn ended_sum(&self, now: UnixMs) -> Sum {
        if let Some((at, sum)) = self.ended_sum.get()
            && at == now
        {
            return sum;
        }
        let clock = self.swept.map_or(now, |swept| swept.max(now));
        let sum = if self.times.are_over(now) {
            self.times.live(clock, |key| self.sessions.get(&key))
        } else if self.times.are_all_left(now) {
            Sum::default()
        } else {
            let sessions = self.ended.iter().filter_map(|key| self.sessions.get(key));
            let ended = sessions.filter(|session| session.end.is_some_and(|end| end.deadline() <= now));
            ended.fold(Sum::default(), |sum, session| sum.plus(session.deadlines.live(clock)))
        };
        self.ended_sum.set(Some((now, sum)));
        sum
    }

    /// Returns the lowest number (`SLOT`) of the live holds that count as released at `now`, and its owner. If very
    /// many sessions have ended, only some are looked at: `looks` at most, which are taken off.
    pub(crate) fn lowest_ended_slot(&mut self, now: UnixMs, looks: &mut usize) -> Option<(u32, &Owner)> {
        let clock = self.swept.map_or(now, |swept| swept.max(now));
        let end = |key| self.sessions.get(&key).and_then(|session| session.end);
        let are_released = |key| end(key).is_some_and(|end| end.deadline() <= now);
        let (slot, id) = self.slots.as_mut()?.lowest_ended((clock, now), are_released, looks)?;
        Some((slot, &self.bindings.get(&id)?.owner))
    }

    /// Returns the sum of the holds of ended sessions that are live at `time`. One step for each 512 of them, and for
    /// each session with many.
    pub(crate) fn ended_after(&self, time: UnixMs) -> Sum {
        let clock = self.swept.map_or(time, |swept| swept.max(time));
        self.times.live(clock, |key| self.sessions.get(&key))
    }

    /// Returns the sum of the holds that are in the grace of their ended session at `now`, even if their leases have
    /// run out since, and the end of the last such grace. A cap that comes before the end of the grace is left out.
    pub(crate) fn graced(&self, now: UnixMs) -> (Sum, Option<UnixMs>) {
        if self.are_graces_over(now) {
            return (Sum::default(), None);
        }
        self.times.graced((now, self.swept.unwrap_or_default()), |key| self.sessions.get(&key))
    }

    /// Returns whether no ended session has a grace left at `now`. O(1). May be `false` without need.
    pub(crate) fn are_graces_over(&self, now: UnixMs) -> bool {
        self.times.are_over(now)
    }

    /// Returns whether the sums and lists of ended sessions are those at `now`. `false` is possible only if the clock
    /// was set back: a session may end later, and they leave out holds that have come since.
    pub(crate) fn have_sums_at(&self, now: UnixMs) -> bool {
        self.times.have_ended_by(now) && !self.has_older
    }

    /// Returns the tokens of the shared holds of ended sessions, the lowest first: of those that count as released at
    /// `now` and are live, and of those in a grace. Tokens that several holds have may be of either kind.
    pub(crate) fn ended_readers(&self, now: UnixMs) -> impl DoubleEndedIterator<Item = (Token, Ended)> {
        let (swept, has_graces) = (self.swept.unwrap_or_default(), !self.are_graces_over(now));
        let ended = move |by: &ByToken| match self.times.end_of(by.key) {
            _ if by.is_ambiguous => has_graces.then_some(Ended::InGrace),
            Some(end) if now < end.deadline() => (by.deadline > swept.max(end.at)).then_some(Ended::InGrace),
            Some(_) => (by.deadline > swept.max(now)).then_some(Ended::Released),
            None => None,
        };
        let readers = self.by_token.iter().filter(|((_, mode), _)| *mode == Mode::Shared);
        readers.filter_map(move |((token, _), by)| Some((*token, ended(by)?)))
    }

    /// Returns the kept rest of the lock, if it is valid at `now` and nothing has changed since.
    pub(crate) fn rest(&self, now: UnixMs) -> Option<Rest> {
        self.rest.get().filter(|rest| rest.from <= now && now < rest.until)
    }

    /// Keeps the rest of the lock, until something changes.
    pub(crate) fn keep_rest(&self, rest: Rest) {
        self.rest.set(Some(rest));
    }

    /// Returns the latest clock of an effect at `now` that drops no hold in the grace of its ended session. The leases of
    /// such holds may have run out.
    pub(crate) fn effect_clock(&self, now: UnixMs) -> UnixMs {
        self.times.before_graces(now)
    }

    /// Returns whether an ended session still has a grace at `now`.
    pub(crate) fn has_grace(&self, now: UnixMs) -> bool {
        // Sessions with a grace come last.
        let sessions = self.ended.iter().rev().filter_map(|key| self.sessions.get(key));
        !self.times.are_over(now) && sessions.filter_map(|session| session.end).any(|end| end.deadline() > now)
    }
}
