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
}

/// How many entries of `ended` a search looks at, at most: a command must not take long.
const MAX_LOOKS: usize = 1024;

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
        self.ended.extend(slots.and_then(|slots| slots.lowest_taken(UnixMs::ZERO)).map(|(slot, _)| (slot, key)));
    }

    /// Returns the lowest number of a hold that is live at `now` and whose ended session `are_released` accepts, and
    /// the hold. Looks at [`MAX_LOOKS`] entries at most: `None` if they show none.
    pub(super) fn lowest_ended(
        &mut self,
        now: UnixMs,
        are_released: impl Fn(SessionKey) -> bool,
    ) -> Option<(u32, HoldId)> {
        let mut after = None;
        for _ in 0..MAX_LOOKS {
            let next = match after {
                None => self.ended.first(),
                Some(after) => self.ended.range((std::ops::Bound::Excluded(after), std::ops::Bound::Unbounded)).next(),
            };
            let (noted, key) = *next?;
            let lowest = self.by_session.get(&key).and_then(|slots| slots.lowest_taken(now));
            match lowest {
                Some((slot, id)) if slot == noted && are_released(key) => return Some((slot, id)),
                Some((slot, _)) if slot == noted => after = Some((noted, key)),
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
            let found = slots.lowest_ended(UnixMs::ZERO, |_| true);
            assert_eq!(found, Some((1, 2)), "its next number");
            slots.remove(session, 2);
        }
        assert!(slots.is_empty() && slots.ended.is_empty());
    }
}
