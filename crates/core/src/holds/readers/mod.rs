//! Many shared holds of one lock.
//!
//! # Implementation details
//! Holds are found by owner, by token, by deadline and by number in O(log n), so that no command is linear in the
//! number of readers. Freeing many lapsed holds at once would be linear. A sweep therefore only *marks* them: a hold
//! that was there before the sweep and has lapsed by its clock is dead. Later changes free dead holds, a few at a time.
//! If the clock is set back, the next sweep adds a mark to those before, so that nothing has to be freed at once then.

use std::collections::BTreeMap;

use super::deadlines::{Deadlines, HoldId, Run, Sum};
use super::slots::Slots;
use super::tokens::{self, Tokens};
use crate::{Hold, Owner, Token, UnixMs};

#[derive(Clone, Debug, Default)]
pub(super) struct Readers {
    holds: BTreeMap<HoldId, Hold>,
    by_owner: BTreeMap<Owner, HoldId>,
    by_token: Tokens,
    by_deadline: Deadlines,
    by_slot: Slots,
    /// Lapsed holds that were dropped and are not freed yet.
    dead: Vec<Run>,
    /// The clock and the next id of each sweep that only marked holds: those with a lower id that have lapsed by the
    /// clock are dead. The clocks fall, because a mark covers all earlier ones whose clocks are not later.
    sweeps: Vec<(UnixMs, HoldId)>,
    next: HoldId,
}

/// How many dropped holds one change frees, and how many are freed at once instead of marked.
const PIECE: usize = 64;

impl Readers {
    pub(super) fn total(&self) -> Sum {
        self.by_deadline.total()
    }

    pub(super) fn lapsed(&self, now: UnixMs) -> Sum {
        self.by_deadline.lapsed(now)
    }

    pub(super) fn lapsed_at_cap(&self, now: UnixMs) -> usize {
        self.by_deadline.lapsed_at_cap(now)
    }

    #[inline(never)]
    pub(super) fn get(&self, owner: &Owner) -> Option<&Hold> {
        self.at(*self.by_owner.get(owner)?)
    }

    pub(super) fn first_deadline(&self) -> Option<UnixMs> {
        self.by_deadline.first().map(|(at, _)| at)
    }

    pub(super) fn last_deadline(&self) -> Option<UnixMs> {
        self.by_deadline.last().map(|(at, _)| at)
    }

    pub(super) fn by_deadline(&self) -> impl DoubleEndedIterator<Item = &Hold> {
        self.by_deadline.iter().filter_map(|id| self.at(id))
    }

    pub(super) fn with_deadline(&self, deadline: UnixMs) -> impl Iterator<Item = &Hold> {
        self.by_deadline.at(deadline).filter_map(|id| self.at(id))
    }

    pub(super) fn by_token(&self) -> impl DoubleEndedIterator<Item = &Hold> {
        self.by_token.iter().filter_map(|item| self.listed(item))
    }

    /// Returns the holds that are live at `now`, the lowest token first. One step for each 64 that are not live, and
    /// for each neighbour of a live one.
    pub(super) fn live_by_token(&self, now: UnixMs) -> impl DoubleEndedIterator<Item = &Hold> {
        self.by_token.live(now).filter_map(|item| self.listed(item))
    }

    /// Returns the tokens of the holds that are live at `now`, the lowest first: the fastest way to list them in order.
    pub(super) fn live_tokens(&self, now: UnixMs) -> impl DoubleEndedIterator<Item = Token> {
        self.by_token.live(now).filter(|item| !self.is_dead(item.id, item.end)).map(|item| item.token)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Hold> {
        self.holds.iter().filter(|(id, hold)| !self.is_dead(**id, hold.deadline)).map(|(_, hold)| hold)
    }

    pub(super) fn with_token(&self, token: Token) -> impl Iterator<Item = &Hold> {
        self.by_token.with(token).filter_map(|item| self.listed(item))
    }

    /// Returns the lowest number that no hold has which is live at `now`.
    pub(super) fn free_slot(&self, now: UnixMs) -> u32 {
        // If the clock was set back, dropped holds may have deadlines in the future.
        let clock = self.sweeps.first().map_or(now, |(clock, _)| now.max(*clock));
        self.by_slot.lowest_free(clock, |id| self.at(id).is_none_or(|hold| !hold.is_live(now)))
    }

    /// Adds the hold. It replaces the same owner's hold, and the hold with the same number. O(log n).
    pub(super) fn put(&mut self, hold: Hold) {
        let old = self.by_owner.get(&hold.owner).copied();
        if let Some(id) = old {
            if self.is_same(id, &hold) {
                return self.change(id, hold);
            }
            self.free(id);
        }
        let id = self.next;
        self.next += 1;
        if let Some(slot) = hold.slot() {
            let other = self.by_slot.get(slot);
            other.map(|other| self.free(other));
            self.by_slot.insert(slot, hold.deadline, id);
        }
        self.by_owner.insert(hold.owner.clone(), id);
        self.by_token.insert(tokens::Item { token: hold.token, id, end: hold.deadline });
        self.by_deadline.insert(hold.deadline, id, hold.count, hold.has_reached_cap());
        self.holds.insert(id, hold);
    }

    /// Returns whether `hold` changes neither the token nor the number of the hold `id`. Neither may be dead.
    fn is_same(&self, id: HoldId, hold: &Hold) -> bool {
        let is_same = |old: &Hold| old.token == hold.token && old.slot() == hold.slot();
        self.at(id).is_some_and(is_same) && !self.is_dead(id, hold.deadline)
    }

    /// Puts `hold` in the place of the hold `id`, which has the same token and number. Most changes are of this kind:
    /// renewals, and entries.
    fn change(&mut self, id: HoldId, hold: Hold) {
        let Some(old) = self.holds.get_mut(&id) else { return };
        self.by_deadline.remove(old.deadline, id);
        self.by_deadline.insert(hold.deadline, id, hold.count, hold.has_reached_cap());
        self.by_token.set_end(tokens::Item { token: hold.token, id, end: hold.deadline });
        if let Some(slot) = hold.slot() {
            self.by_slot.insert(slot, hold.deadline, id);
        }
        *old = hold;
    }

    /// Takes the hold of `owner` out. O(log n).
    pub(super) fn remove(&mut self, owner: &Owner) -> Option<Hold> {
        self.get(owner)?;
        self.free_owner(owner)
    }

    /// Drops every hold that has lapsed at `now`. Returns how many there were. At most [`PIECE`] are freed at once. If
    /// few holds are left, `rests` gets the others.
    pub(super) fn drop_lapsed(&mut self, now: UnixMs, rests: &mut Option<Readers>) -> usize {
        let lapsed = self.lapsed(now).holds;
        if lapsed > PIECE && self.total().holds - lapsed <= PIECE {
            let mut kept = Readers::default();
            self.by_deadline().rev().take_while(|hold| hold.is_live(now)).cloned().for_each(|hold| kept.put(hold));
            *rests = Some(std::mem::replace(self, kept));
        } else if lapsed > PIECE {
            self.dead.append(&mut self.by_deadline.drain_lapsed(now));
            // After a clock that was set back, the new mark does not cover the holds that earlier sweeps dropped.
            while self.sweeps.pop_if(|(clock, _)| *clock <= now).is_some() {}
            self.sweeps.push((now, self.next));
        } else {
            while let Some((_, id)) = self.by_deadline.first().filter(|(at, _)| *at <= now) {
                self.free(id);
            }
        }
        lapsed
    }

    /// Frees at most [`PIECE`] dropped holds.
    pub(super) fn free_some_dead(&mut self) {
        if self.dead.is_empty() {
            return;
        }
        for _ in 0..PIECE {
            let Some(run) = self.dead.last_mut() else { break };
            match run.pop() {
                // The hold is freed already if its owner has a new one.
                Some(id) => drop(self.free(id)),
                None => drop(self.dead.pop()),
            }
        }
        if self.dead.is_empty() {
            self.sweeps.clear();
        }
    }

    /// Frees some entries of the trees, of dead holds or not. Returns whether any may be left.
    pub(super) fn take_apart(&mut self, most: usize) -> bool {
        for _ in 0..most {
            if self.holds.pop_first().is_none() && self.by_owner.pop_first().is_none() && !self.by_token.free_last() {
                return false;
            }
        }
        true
    }

    /// Returns how many holds are stored, dropped ones too.
    pub(super) fn stored(&self) -> usize {
        self.holds.len()
    }

    /// Takes out the one hold that is left.
    pub(super) fn take_only(&mut self) -> Option<Hold> {
        let (_, id) = self.by_deadline.first()?;
        self.free(id)
    }

    /// Returns the bytes on the heap, about.
    pub(super) fn heap_bytes(&self) -> usize {
        // Dropped holds that are not freed yet have their bytes, too.
        let holds = super::estimate(self.holds.values().map(Hold::heap_bytes), self.holds.len());
        // The keys of the tree by owner are copies.
        let keys = super::estimate(self.by_owner.keys().map(Owner::heap_bytes), self.by_owner.len());
        let places = super::tree_places(self.holds.len());
        let a_place = size_of::<(HoldId, Hold)>() + size_of::<(Owner, HoldId)>();
        let lists = self.by_token.heap_bytes() + self.by_deadline.heap_bytes() + self.by_slot.heap_bytes();
        holds + keys + places * a_place + lists
    }

    fn at(&self, id: HoldId) -> Option<&Hold> {
        self.holds.get(&id).filter(|hold| !self.is_dead(id, hold.deadline))
    }

    /// Returns the hold with this token, unless it is dead.
    fn listed(&self, item: tokens::Item) -> Option<&Hold> {
        // The hold is looked up only if it is not dead: many dead ones may be listed.
        if self.is_dead(item.id, item.end) { None } else { self.holds.get(&item.id) }
    }

    fn is_dead(&self, id: HoldId, deadline: UnixMs) -> bool {
        // The first sweep since the hold was put has the latest clock of all since then.
        let sweep = self.sweeps.get(self.sweeps.partition_point(|(_, next)| *next <= id));
        sweep.is_some_and(|(clock, _)| deadline <= *clock)
    }

    /// Frees the hold of an owner, dead or not.
    fn free_owner(&mut self, owner: &Owner) -> Option<Hold> {
        let id = self.by_owner.get(owner).copied()?;
        self.free(id)
    }

    fn free(&mut self, id: HoldId) -> Option<Hold> {
        let hold = self.holds.remove(&id)?;
        self.by_owner.remove(&hold.owner);
        self.by_token.remove(hold.token, id);
        self.by_deadline.remove(hold.deadline, id);
        if let Some(slot) = hold.slot() {
            self.by_slot.remove(slot, id);
        }
        Some(hold)
    }
}

#[cfg(test)]
mod tests;
