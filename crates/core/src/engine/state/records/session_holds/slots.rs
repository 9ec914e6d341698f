//! The numbers of bound holds (`SLOT`), to find the lowest one of ended sessions.
//!
//! # Implementation details
//! A session may end with many holds, and many sessions may end at once. Therefore only the lowest number of an ended
//! session is listed in `ended`, and a search corrects the entries that are outdated.

use std::collections::{BTreeMap, BTreeSet};

use crate::holds::{HoldId, Slots};
use crate::{SessionKey, UnixMs, broken};

/// The numbers of the bound holds of one lock.
#[derive(Clone, Debug, Default)]
pub(super) struct BoundSlots {
    of_hold: BTreeMap<HoldId, u32>,
    by_session: BTreeMap<SessionKey, Slots>,
    /// Ended sessions. Each has an entry with the lowest number of its holds, or with a lower one that is outdated.
    ended: BTreeSet<(u32, SessionKey)>,
    /// The sessions of the entries up to this one have a grace left at this time: a search passes them.
    passed: Option<(UnixMs, (u32, SessionKey))>,
}

impl BoundSlots {
    pub(super) fn is_empty(&self) -> bool {
        self.of_hold.is_empty()
    }

    /// Returns the number of a hold.
    pub(super) fn of(&self, id: HoldId) -> Option<u32> {
        self.of_hold.get(&id).copied()
    }

    /// Adds a hold of a session, or sets its deadline.
    pub(super) fn insert(&mut self, key: SessionKey, id: HoldId, slot: u32, deadline: UnixMs) {
        self.of_hold.insert(id, slot);
        self.by_session.entry(key).or_default().insert(slot, deadline, id);
    }

    /// Removes a hold of a session.
    pub(super) fn remove(&mut self, key: SessionKey, id: HoldId) {
        let Some(slot) = self.of_hold.remove(&id) else { return };
        let Some(slots) = self.by_session.get_mut(&key) else { return broken("a numbered hold has a session") };
        slots.remove(slot, id);
        if slots.is_empty() {
            self.by_session.remove(&key);
        }
        if self.ended.remove(&(slot, key)) {
            self.end(key);
        }
    }

    /// Records that a session has ended, or that a hold of an ended session has another number.
    pub(super) fn end(&mut self, key: SessionKey) {
        let slots = self.by_session.get(&key);
        let Some((slot, _)) = slots.and_then(|slots| slots.lowest_taken(UnixMs::ZERO)) else { return };
        self.ended.insert((slot, key));
        self.passed.take_if(|(_, entry)| (slot, key) <= *entry);
    }

    /// Returns the lowest number of a hold that is live at `clock` and whose ended session `are_released` accepts at
    /// `now`, and the hold. Looks at `looks` entries at most, and takes them off: `None` if they show none.
    pub(super) fn lowest_ended(
        &mut self,
        (clock, now): (UnixMs, UnixMs),
        are_released: impl Fn(SessionKey) -> bool,
        looks: &mut usize,
    ) -> Option<(u32, HoldId)> {
        let mut after = self.passed.filter(|(at, _)| *at == now).map(|(_, entry)| entry);
        while *looks > 0 {
            *looks -= 1;
            let next = match after {
                None => self.ended.first(),
                Some(after) => self.ended.range((std::ops::Bound::Excluded(after), std::ops::Bound::Unbounded)).next(),
            };
            let (noted, key) = *next?;
            let lowest = self.by_session.get(&key).and_then(|slots| slots.lowest_taken(clock));
            match lowest {
                Some((slot, id)) if slot == noted && are_released(key) => return Some((slot, id)),
                Some((slot, _)) if slot == noted => {
                    after = Some((noted, key));
                    self.passed = Some((now, (noted, key)));
                }
                lowest => {
                    self.ended.remove(&(noted, key));
                    self.ended.extend(lowest.map(|(slot, _)| (slot, key)));
                }
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ClientId;

    /// The connection of a hold ends, and the hold is bound to another one, again and again.
    #[test]
    fn an_ended_session_whose_holds_are_gone_leaves_nothing() {
        let mut slots = BoundSlots::default();
        let deadline = UnixMs::new(1000);
        for number in 0..100 {
            let session = SessionKey::Connection(ClientId(number));
            slots.insert(session, 1, 0, deadline);
            slots.insert(session, 2, 1, deadline);
            slots.end(session);
            slots.remove(session, 1);
            let found = slots.lowest_ended((UnixMs::ZERO, UnixMs::ZERO), |_| true, &mut 10);
            assert_eq!(found, Some((1, 2)), "its next number");
            slots.remove(session, 2);
        }
        assert!(slots.is_empty() && slots.ended.is_empty());
    }

    /// A turn serves up to 64 requests, and searches for each of them. The sessions that have a grace left have lower
    /// numbers than the one whose hold is free.
    #[test]
    fn the_searches_of_a_turn_look_once_at_each_session_that_has_a_grace_left_and_share_their_looks() {
        const LOOKS: usize = 1000;
        for (in_grace, found, looks_left) in [(100_u32, 64, LOOKS - 100 - 64), (1000, 0, 0), (5000, 0, 0)] {
            let session = |number: u32| SessionKey::Connection(ClientId(u64::from(number)));
            let mut slots = BoundSlots::default();
            for number in (0..=in_grace).rev() {
                slots.insert(session(number), u64::from(number), number, UnixMs::new(1000));
                slots.end(session(number));
            }
            let asked = std::cell::Cell::new(0);
            let are_released = |key| {
                asked.set(asked.get() + 1);
                key == session(in_grace)
            };
            let mut looks = LOOKS;
            let mut find = || slots.lowest_ended((UnixMs::ZERO, UnixMs::ZERO), are_released, &mut looks);
            let lowest: Vec<_> = (0..64).filter_map(|_| find()).collect();
            assert_eq!(lowest, vec![(in_grace, u64::from(in_grace)); found]);
            assert_eq!((asked.get(), looks), (LOOKS - looks_left, looks_left), "{in_grace} sessions with a grace");
        }
    }

    /// A session that ends, and a later time, may have a free hold among those that a search has passed.
    #[test]
    fn a_search_begins_again_when_a_lower_number_is_listed_and_at_another_time() {
        let mut slots = BoundSlots::default();
        let [first, second] = [1, 2].map(|number| SessionKey::Connection(ClientId(number)));
        let at = |ms| (UnixMs::ZERO, UnixMs::new(ms));
        slots.insert(second, 5, 5, UnixMs::new(1000));
        slots.end(second);
        assert_eq!(slots.lowest_ended(at(1), |_| false, &mut 10), None);
        assert_eq!(slots.lowest_ended(at(2), |key| key == second, &mut 10), Some((5, 5)));
        assert_eq!(slots.lowest_ended(at(2), |_| false, &mut 10), None);
        slots.insert(first, 3, 3, UnixMs::new(1000));
        slots.end(first);
        assert_eq!(slots.lowest_ended(at(2), |key| key == first, &mut 10), Some((3, 3)));
    }
}
