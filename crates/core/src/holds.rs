//! How the holds of one lock are stored and found.
//!
//! # Implementation details
//! Nearly every lock has one hold: that one is stored in place, without a second allocation. With more, readers are
//! found by owner, by token and by deadline in O(log n), so that no command is linear in the number of readers.
//! There is at most one exclusive hold, and beside it only the same owner's shared one: [`Holds::put`] sees to it.

use std::collections::{BTreeMap, BTreeSet};

use crate::{Hold, Mode, Owner, Token, UnixMs};

/// The holds of one lock, live and lapsed.
#[derive(Clone, Debug, Default)]
pub(crate) struct Holds(Stored);

#[derive(Clone, Debug, Default)]
enum Stored {
    #[default]
    None,
    One(Hold),
    Many(Box<Many>),
}

#[derive(Clone, Debug, Default)]
struct Many {
    exclusive: Option<Hold>,
    readers: Readers,
}

type Slot = usize;

#[derive(Clone, Debug, Default)]
struct Readers {
    slots: Vec<Option<Hold>>,
    free: Vec<Slot>,
    by_owner: BTreeMap<Owner, Slot>,
    by_token: BTreeSet<(Token, Slot)>,
    by_deadline: BTreeSet<(UnixMs, Slot)>,
    entries: u64,
}

impl Holds {
    pub(crate) const NONE: Holds = Holds(Stored::None);

    pub(crate) fn one(hold: Hold) -> Holds {
        Holds(Stored::One(hold))
    }

    pub(crate) fn len(&self) -> usize {
        match &self.0 {
            Stored::None => 0,
            Stored::One(_) => 1,
            Stored::Many(many) => usize::from(many.exclusive.is_some()) + many.readers.by_owner.len(),
        }
    }

    /// Entries of all holds together.
    pub(crate) fn entries(&self) -> u64 {
        match &self.0 {
            Stored::None => 0,
            Stored::One(hold) => u64::from(hold.count),
            Stored::Many(many) => {
                many.exclusive.as_ref().map_or(0, |hold| u64::from(hold.count)) + many.readers.entries
            }
        }
    }

    pub(crate) fn exclusive(&self) -> Option<&Hold> {
        match &self.0 {
            Stored::One(hold) if hold.mode == Mode::Exclusive => Some(hold),
            Stored::None | Stored::One(_) => None,
            Stored::Many(many) => many.exclusive.as_ref(),
        }
    }

    /// The exclusive and the shared hold of `owner`, live or lapsed. O(log n).
    #[inline]
    pub(crate) fn of(&self, owner: &Owner) -> (Option<&Hold>, Option<&Hold>) {
        match &self.0 {
            Stored::One(hold) if hold.owner == *owner => match hold.mode {
                Mode::Exclusive => (Some(hold), None),
                Mode::Shared => (None, Some(hold)),
            },
            Stored::None | Stored::One(_) => (None, None),
            Stored::Many(many) => {
                (many.exclusive.as_ref().filter(|hold| hold.owner == *owner), many.readers.get(owner))
            }
        }
    }

    /// The hold of `owner` in `mode`, live or lapsed. O(log n).
    #[inline]
    pub(crate) fn get(&self, owner: &Owner, mode: Mode) -> Option<&Hold> {
        match (&self.0, mode) {
            (Stored::None, _) => None,
            (Stored::One(hold), _) => Some(hold).filter(|hold| hold.mode == mode && hold.owner == *owner),
            (Stored::Many(many), Mode::Exclusive) => many.exclusive.as_ref().filter(|hold| hold.owner == *owner),
            (Stored::Many(many), Mode::Shared) => many.readers.get(owner),
        }
    }

    /// The first deadline of all holds. O(1).
    pub(crate) fn first_deadline(&self) -> Option<UnixMs> {
        match &self.0 {
            Stored::None => None,
            Stored::One(hold) => Some(hold.deadline),
            Stored::Many(_) => self.by_deadline().next_back().map(|hold| hold.deadline),
        }
    }

    /// The last deadline of all holds. O(1).
    pub(crate) fn last_deadline(&self) -> Option<UnixMs> {
        match &self.0 {
            Stored::None => None,
            Stored::One(hold) => Some(hold.deadline),
            Stored::Many(_) => self.by_deadline().next().map(|hold| hold.deadline),
        }
    }

    /// All holds, the one with the last deadline first. The exclusive hold comes in its place among them.
    pub(crate) fn by_deadline(&self) -> impl DoubleEndedIterator<Item = &Hold> {
        let many = self.many();
        let readers = many.into_iter().flat_map(|many| many.readers.by_deadline());
        let exclusive = many.and_then(|many| many.exclusive.as_ref());
        // Beside an exclusive hold there is at most one other, so one comparison orders them.
        let is_last = exclusive.is_some_and(|hold| self.readers_last().is_none_or(|last| last <= hold.deadline));
        let (first, last) = if is_last { (exclusive, None) } else { (None, exclusive) };
        self.single().into_iter().chain(first).chain(readers).chain(last)
    }

    /// All holds, lowest token first; those with one token in no order.
    pub(crate) fn by_token(&self) -> impl DoubleEndedIterator<Item = &Hold> {
        let many = self.many();
        let readers = many.into_iter().flat_map(|many| many.readers.by_token());
        let exclusive = many.and_then(|many| many.exclusive.as_ref());
        let reader = many.and_then(|many| many.readers.by_token().next());
        let is_first = exclusive.is_some_and(|hold| reader.is_none_or(|reader| hold.token <= reader.token));
        let (first, last) = if is_first { (exclusive, None) } else { (None, exclusive) };
        self.single().into_iter().chain(first).chain(readers).chain(last)
    }

    /// The holds with this token. O(log n) and one step a hold found.
    pub(crate) fn with_token(&self, token: Token) -> impl Iterator<Item = &Hold> {
        let many = self.many();
        let exclusive = many.and_then(|many| many.exclusive.as_ref());
        let readers = many.into_iter().flat_map(move |many| many.readers.with_token(token));
        self.single().into_iter().chain(exclusive).filter(move |hold| hold.token == token).chain(readers)
    }

    /// Adds the hold, in place of the same owner's in the same mode and of every hold it excludes. O(log n).
    pub(crate) fn put(&mut self, hold: Hold) {
        match &mut self.0 {
            Stored::None => self.0 = Stored::One(hold),
            Stored::One(old) if old.owner == hold.owner && old.mode == hold.mode => *old = hold,
            Stored::One(old) if excludes(old, &hold) => *old = hold,
            Stored::One(_) => {
                let mut many = Box::<Many>::default();
                if let Stored::One(old) = std::mem::take(&mut self.0) {
                    many.put(old);
                }
                many.put(hold);
                self.0 = Stored::Many(many);
            }
            Stored::Many(many) => {
                many.put(hold);
                self.settle();
            }
        }
    }

    /// Takes the hold of `owner` in `mode` out; whether there was one. O(log n).
    pub(crate) fn remove(&mut self, owner: &Owner, mode: Mode) -> bool {
        match &mut self.0 {
            Stored::None => false,
            Stored::One(hold) => {
                let is_it = hold.mode == mode && hold.owner == *owner;
                if is_it {
                    self.0 = Stored::None;
                }
                is_it
            }
            Stored::Many(many) => {
                let is_there = many.remove(owner, mode).is_some();
                self.settle();
                is_there
            }
        }
    }

    /// Takes out every hold that has lapsed at `now`; how many there were. O(log n) for each, O(1) if there is none.
    pub(crate) fn drop_lapsed(&mut self, now: UnixMs) -> u64 {
        let mut dropped = 0;
        while self.first_deadline().is_some_and(|deadline| deadline <= now) {
            let Some((owner, mode)) = self.first_lapsed(now) else { break };
            self.remove(&owner, mode);
            dropped += 1;
        }
        dropped
    }

    /// Bytes on the heap beside the value itself, about.
    pub(crate) fn heap_bytes(&self) -> usize {
        let owners: usize = self.by_token().map(Hold::heap_bytes).sum();
        owners + self.many().map_or(0, |many| size_of::<Many>() + many.readers.heap_bytes())
    }

    fn first_lapsed(&self, now: UnixMs) -> Option<(Owner, Mode)> {
        let hold = self.by_deadline().next_back().filter(|hold| !hold.is_live(now))?;
        Some((hold.owner.clone(), hold.mode))
    }

    /// The hold, if it is the only one.
    pub(crate) fn single(&self) -> Option<&Hold> {
        match &self.0 {
            Stored::One(hold) => Some(hold),
            Stored::None | Stored::Many(_) => None,
        }
    }

    fn many(&self) -> Option<&Many> {
        match &self.0 {
            Stored::Many(many) => Some(many),
            Stored::None | Stored::One(_) => None,
        }
    }

    fn readers_last(&self) -> Option<UnixMs> {
        self.many().and_then(|many| many.readers.by_deadline.last()).map(|(deadline, _)| *deadline)
    }

    /// Back to the small form when one hold or none is left.
    fn settle(&mut self) {
        if self.len() > 1 {
            return;
        }
        let Stored::Many(many) = std::mem::take(&mut self.0) else { return };
        let Many { exclusive, readers } = *many;
        self.0 = exclusive.or_else(|| readers.slots.into_iter().flatten().next()).map_or(Stored::None, Stored::One);
    }
}

/// Whether two holds cannot be on one lock together.
fn excludes(a: &Hold, b: &Hold) -> bool {
    a.owner != b.owner && (a.mode == Mode::Exclusive || b.mode == Mode::Exclusive)
}

impl Many {
    fn put(&mut self, hold: Hold) {
        if self.exclusive.as_ref().is_some_and(|old| excludes(old, &hold)) {
            self.exclusive = None;
        }
        match hold.mode {
            Mode::Shared => self.readers.put(hold),
            Mode::Exclusive => {
                let kept = self.readers.remove(&hold.owner);
                self.readers = Readers::default();
                if let Some(kept) = kept {
                    self.readers.put(kept);
                }
                self.exclusive = Some(hold);
            }
        }
    }

    fn remove(&mut self, owner: &Owner, mode: Mode) -> Option<Hold> {
        match mode {
            Mode::Exclusive => self.exclusive.take_if(|hold| hold.owner == *owner),
            Mode::Shared => self.readers.remove(owner),
        }
    }
}

impl Readers {
    fn get(&self, owner: &Owner) -> Option<&Hold> {
        self.by_owner.get(owner).and_then(|slot| self.at(*slot))
    }

    fn at(&self, slot: Slot) -> Option<&Hold> {
        self.slots.get(slot).and_then(Option::as_ref)
    }

    fn by_deadline(&self) -> impl DoubleEndedIterator<Item = &Hold> {
        self.by_deadline.iter().rev().filter_map(|(_, slot)| self.at(*slot))
    }

    fn by_token(&self) -> impl DoubleEndedIterator<Item = &Hold> {
        self.by_token.iter().filter_map(|(_, slot)| self.at(*slot))
    }

    fn with_token(&self, token: Token) -> impl Iterator<Item = &Hold> {
        self.by_token.range((token, Slot::MIN)..=(token, Slot::MAX)).filter_map(|(_, slot)| self.at(*slot))
    }

    fn put(&mut self, hold: Hold) {
        self.remove(&hold.owner);
        self.entries += u64::from(hold.count);
        let slot = self.free.pop().unwrap_or(self.slots.len());
        self.by_owner.insert(hold.owner.clone(), slot);
        self.by_token.insert((hold.token, slot));
        self.by_deadline.insert((hold.deadline, slot));
        match self.slots.get_mut(slot) {
            Some(place) => *place = Some(hold),
            None => self.slots.push(Some(hold)),
        }
    }

    fn remove(&mut self, owner: &Owner) -> Option<Hold> {
        let slot = self.by_owner.remove(owner)?;
        let hold = self.slots.get_mut(slot)?.take()?;
        self.free.push(slot);
        self.by_token.remove(&(hold.token, slot));
        self.by_deadline.remove(&(hold.deadline, slot));
        self.entries -= u64::from(hold.count);
        Some(hold)
    }

    /// Bytes on the heap beside those of the holds' owners, about.
    fn heap_bytes(&self) -> usize {
        // The key of the owner's tree is a copy.
        let keys: usize = self.by_owner.keys().map(Owner::heap_bytes).sum();
        // A tree begins with one node; when there are more, about two of five places are free.
        let len = self.by_owner.len();
        let places = if len <= NODE_PLACES { NODE_PLACES } else { len * 5 / 3 };
        let a_place = size_of::<(Owner, Slot)>() + size_of::<(Token, Slot)>() + size_of::<(UnixMs, Slot)>();
        let slots = self.slots.capacity() * size_of::<Option<Hold>>() + self.free.capacity() * size_of::<Slot>();
        keys + places * a_place + slots
    }
}

/// Places in a node of the standard library's B-trees.
const NODE_PLACES: usize = 11;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Lease;

    #[test]
    fn holds_are_found_and_taken_out_by_owner_and_mode() {
        let (shared, exclusive) = (Mode::Shared, Mode::Exclusive);
        for put in [
            vec![hold("a", exclusive, 1)],
            vec![hold("a", shared, 1)],
            vec![hold("a", exclusive, 1), hold("a", shared, 2)],
            vec![hold("a", shared, 1), hold("b", shared, 2), hold("c", shared, 3)],
        ] {
            let mut holds = Holds::default();
            put.iter().cloned().for_each(|hold| holds.put(hold));
            for (name, mode) in ["a", "b", "c", "d"].into_iter().flat_map(|name| [(name, shared), (name, exclusive)]) {
                let wanted = put.iter().find(|hold| hold.owner == owner(name) && hold.mode == mode);
                assert_eq!(holds.get(&owner(name), mode), wanted);
                let mut left = holds.clone();
                assert_eq!(left.remove(&owner(name), mode), wanted.is_some());
                assert_eq!(
                    (left.len(), left.get(&owner(name), mode)),
                    (put.len() - usize::from(wanted.is_some()), None)
                );
            }
        }
    }

    fn hold(name: &str, mode: Mode, number: u64) -> Hold {
        let (lease, token) = (Lease::MAX, Token::new(number).unwrap());
        Hold { owner: owner(name), mode, count: 1, lease, deadline: UnixMs::new(number), token, request: None }
    }

    fn owner(name: &str) -> Owner {
        Owner::new(name.as_bytes()).unwrap()
    }
}
