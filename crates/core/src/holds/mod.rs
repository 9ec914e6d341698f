//! How the holds of one lock are stored and found.
//!
//! # Implementation details
//! Nearly every lock has one hold: it is stored in place, without a second allocation, and the functions that every
//! command runs look for it first. With more, [`Readers`] finds shared holds by owner, by token, by deadline and by
//! number. [`Holds::put`] ensures that there is at most one exclusive hold, that beside it there is only the same
//! owner's shared one, and that no two holds have the same number.

mod deadlines;
mod readers;
mod slots;
mod tokens;

pub(crate) use deadlines::{Deadlines, HoldId, Sum};
use readers::Readers;
pub(crate) use slots::Slots;

use crate::{Bond, Hold, Mode, Owner, Token, UnixMs, broken};

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
    /// The bond of the lock. The bonds in the holds are not used.
    bond: Bond,
}

impl Holds {
    pub(crate) const NONE: Holds = Holds(Stored::None);

    #[inline]
    pub(crate) fn len(&self) -> usize {
        match &self.0 {
            Stored::None => 0,
            Stored::One(_) => 1,
            Stored::Many(many) => usize::from(many.exclusive.is_some()) + many.readers.total().holds,
        }
    }

    /// Returns how many holds are in memory: beside those that `len` counts, dropped ones that are not freed yet.
    pub(crate) fn stored_or_dropped(&self) -> usize {
        match &self.0 {
            Stored::None => 0,
            Stored::One(_) => 1,
            Stored::Many(many) => usize::from(many.exclusive.is_some()) + many.readers.stored(),
        }
    }

    /// Returns the bond of the lock; [`Bond::NONE`] if there is no hold.
    pub(crate) fn bond(&self) -> Bond {
        match &self.0 {
            Stored::None => Bond::NONE,
            Stored::One(hold) => hold.bond,
            Stored::Many(many) => many.bond,
        }
    }

    /// Sets the bond of the lock, if there is a hold. The bond stays until there is no hold.
    pub(crate) fn set_bond(&mut self, bond: Bond) {
        match &mut self.0 {
            Stored::None => {}
            Stored::One(hold) => hold.bond = bond,
            Stored::Many(many) => many.bond = bond,
        }
    }

    #[inline]
    pub(crate) fn exclusive(&self) -> Option<&Hold> {
        if let Stored::One(hold) = &self.0 {
            return Some(hold).filter(|hold| hold.mode == Mode::Exclusive);
        }
        self.many()?.exclusive.as_ref()
    }

    /// Returns the exclusive and the shared hold of `owner`, live or lapsed. O(log n).
    #[inline]
    pub(crate) fn of(&self, owner: &Owner) -> (Option<&Hold>, Option<&Hold>) {
        if let Stored::One(hold) = &self.0 {
            return match hold.mode {
                _ if hold.owner != *owner => (None, None),
                Mode::Exclusive => (Some(hold), None),
                Mode::Shared => (None, Some(hold)),
            };
        }
        let Some(many) = self.many() else { return (None, None) };
        (many.exclusive.as_ref().filter(|hold| hold.owner == *owner), many.readers.get(owner))
    }

    /// Returns the hold of `owner` in `mode`, live or lapsed. O(log n).
    #[inline]
    pub(crate) fn get(&self, owner: &Owner, mode: Mode) -> Option<&Hold> {
        if let Stored::One(hold) = &self.0 {
            return Some(hold).filter(|hold| hold.mode == mode && hold.owner == *owner);
        }
        self.many()?.get(owner, mode)
    }

    /// Returns the first deadline of all holds. O(1).
    #[inline]
    pub(crate) fn first_deadline(&self) -> Option<UnixMs> {
        if let Stored::One(hold) = &self.0 {
            return Some(hold.deadline);
        }
        let many = self.many()?;
        many.exclusive.iter().map(|hold| hold.deadline).chain(many.readers.first_deadline()).min()
    }

    /// Returns the last deadline of all holds. O(1).
    #[inline]
    pub(crate) fn last_deadline(&self) -> Option<UnixMs> {
        if let Stored::One(hold) = &self.0 {
            return Some(hold.deadline);
        }
        let many = self.many()?;
        many.exclusive.iter().map(|hold| hold.deadline).chain(many.readers.last_deadline()).max()
    }

    /// Returns the sum of the holds, of both modes, that have lapsed at `now`. One step for each 512 of them.
    pub(crate) fn lapsed(&self, now: UnixMs) -> Sum {
        match &self.0 {
            Stored::None => Sum::default(),
            Stored::One(hold) => lapsed(hold, now),
            Stored::Many(many) => {
                let exclusive = many.exclusive.as_ref().map_or(Sum::default(), |hold| lapsed(hold, now));
                many.readers.lapsed(now).plus(exclusive)
            }
        }
    }

    /// Returns how many holds have lapsed at `now` because of their cap. One step for each 512 that have lapsed.
    pub(crate) fn lapsed_at_cap(&self, now: UnixMs) -> usize {
        let (single, exclusive, readers) = self.parts();
        let has_ended = |hold: &&Hold| !hold.is_live(now) && hold.has_reached_cap();
        single.into_iter().chain(exclusive).filter(has_ended).count()
            + readers.map_or(0, |readers| readers.lapsed_at_cap(now))
    }

    /// Returns the sum of the shared holds that are live at `now`. One step for each 512 that have lapsed.
    pub(crate) fn live_shared(&self, now: UnixMs) -> Sum {
        match &self.0 {
            Stored::One(hold) if hold.mode == Mode::Shared => one(hold).minus(lapsed(hold, now)),
            Stored::None | Stored::One(_) => Sum::default(),
            Stored::Many(many) => many.readers.total().minus(many.readers.lapsed(now)),
        }
    }

    /// Returns the lowest number (`SLOT`) that no hold has which is live at `now`. One step for each 64 that are taken.
    pub(crate) fn free_slot(&self, now: UnixMs) -> u32 {
        match &self.0 {
            Stored::None => 0,
            Stored::One(hold) => u32::from(hold.is_live(now) && hold.slot() == Some(0)),
            Stored::Many(many) => many.readers.free_slot(now),
        }
    }

    /// Returns all holds of both modes, the one with the last deadline first.
    pub(crate) fn by_deadline(&self) -> impl DoubleEndedIterator<Item = &Hold> {
        let (single, exclusive, readers) = self.parts();
        // Beside an exclusive hold there is at most one other, so one comparison orders them.
        let reader = readers.and_then(Readers::last_deadline);
        let is_last = exclusive.is_some_and(|hold| reader.is_none_or(|last| last <= hold.deadline));
        let (first, last) = if is_last { (exclusive, None) } else { (None, exclusive) };
        let readers = readers.into_iter().flat_map(|readers| readers.by_deadline().rev());
        single.into_iter().chain(first).chain(readers).chain(last)
    }

    /// Returns the shared holds with this deadline. O(log n) and one step a hold found.
    pub(crate) fn readers_with_deadline(&self, deadline: UnixMs) -> impl Iterator<Item = &Hold> {
        let (single, _, readers) = self.parts();
        let single = single.filter(|hold| hold.mode == Mode::Shared && hold.deadline == deadline);
        single.into_iter().chain(readers.into_iter().flat_map(move |readers| readers.with_deadline(deadline)))
    }

    /// Returns all holds, lowest token first; holds with the same token in no order.
    pub(crate) fn by_token(&self) -> impl DoubleEndedIterator<Item = &Hold> {
        let (single, exclusive, readers) = self.parts();
        let reader = exclusive.and(readers).and_then(|readers| readers.by_token().next());
        let is_first = exclusive.is_some_and(|hold| reader.is_none_or(|reader| hold.token <= reader.token));
        let (first, last) = if is_first { (exclusive, None) } else { (None, exclusive) };
        single.into_iter().chain(first).chain(readers.into_iter().flat_map(Readers::by_token)).chain(last)
    }

    /// Returns the holds of both modes that are live at `now`, lowest token first; holds with the same token in no
    /// order. One step for each 64 that are not live, and for each neighbour of a live one.
    pub(crate) fn live_by_token(&self, now: UnixMs) -> impl DoubleEndedIterator<Item = &Hold> {
        let (single, exclusive, readers) = self.parts();
        let single = single.filter(|hold| hold.is_live(now));
        let exclusive = exclusive.filter(|hold| hold.is_live(now));
        let reader = exclusive.and(readers).and_then(|readers| readers.live_by_token(now).next());
        let is_first = exclusive.is_some_and(|hold| reader.is_none_or(|reader| hold.token <= reader.token));
        let (first, last) = if is_first { (exclusive, None) } else { (None, exclusive) };
        let readers = readers.into_iter().flat_map(move |readers| readers.live_by_token(now));
        single.into_iter().chain(first).chain(readers).chain(last)
    }

    /// Returns the tokens of the shared holds of a lock with many that are live at `now`, the lowest first, without
    /// looking up a hold.
    pub(crate) fn live_reader_tokens(&self, now: UnixMs) -> impl DoubleEndedIterator<Item = Token> {
        let (.., readers) = self.parts();
        readers.into_iter().flat_map(move |readers| readers.live_tokens(now))
    }

    /// Returns all holds, in no order: the fastest way to list them.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Hold> {
        let (single, exclusive, readers) = self.parts();
        single.into_iter().chain(exclusive).chain(readers.into_iter().flat_map(Readers::iter))
    }

    /// Returns the holds with this token. O(log n) and one step a hold found.
    pub(crate) fn with_token(&self, token: Token) -> impl Iterator<Item = &Hold> {
        let (single, exclusive, readers) = self.parts();
        let readers = readers.into_iter().flat_map(move |readers| readers.with_token(token));
        single.into_iter().chain(exclusive).filter(move |hold| hold.token == token).chain(readers)
    }

    /// Adds a hold. The new hold replaces the same owner's hold of the mode, and every hold that excludes it. Returns
    /// how many entries the owner had in that mode. O(log n).
    #[inline(always)]
    pub(crate) fn put(&mut self, hold: Hold, trash: &mut Trash) -> Option<u32> {
        if let Stored::One(old) = &mut self.0
            && old.owner == hold.owner
            && old.mode == hold.mode
        {
            let (before, bond) = (old.count, old.bond);
            *old = Hold { bond, ..hold };
            return Some(before);
        }
        if !matches!(self.0, Stored::None) {
            return self.put_beside(hold, trash);
        }
        self.0 = Stored::One(hold);
        None
    }

    #[inline(never)]
    fn put_beside(&mut self, hold: Hold, trash: &mut Trash) -> Option<u32> {
        match &mut self.0 {
            Stored::None => {
                self.0 = Stored::One(hold);
                None
            }
            Stored::One(old) if excludes(old, &hold) => {
                *old = Hold { bond: old.bond, ..hold };
                None
            }
            Stored::One(old) => {
                let mut many = Box::new(Many { bond: old.bond, ..Many::default() });
                if let Stored::One(old) = std::mem::take(&mut self.0) {
                    many.put(old, trash);
                }
                many.put(hold, trash);
                self.0 = Stored::Many(many);
                None
            }
            Stored::Many(many) => {
                let before = many.get(&hold.owner, hold.mode).map(|old| old.count);
                many.put(hold, trash);
                self.simplify(trash);
                before
            }
        }
    }

    /// Removes the hold of `owner` in `mode`. Returns whether there was one. O(log n).
    #[inline(always)]
    pub(crate) fn remove(&mut self, owner: &Owner, mode: Mode, trash: &mut Trash) -> bool {
        if let Stored::One(hold) = &self.0 {
            let is_it = hold.mode == mode && hold.owner == *owner;
            if is_it {
                self.0 = Stored::None;
            }
            return is_it;
        }
        self.remove_among(owner, mode, trash)
    }

    #[inline(never)]
    fn remove_among(&mut self, owner: &Owner, mode: Mode, trash: &mut Trash) -> bool {
        let Stored::Many(many) = &mut self.0 else { return false };
        let is_there = many.remove(owner, mode).is_some();
        self.simplify(trash);
        is_there
    }

    /// Drops every hold that has lapsed at `now`. Returns how many there were. O(1) if there is none. Frees a bounded
    /// number of dropped holds; later changes free the rest.
    #[inline(always)]
    pub(crate) fn drop_lapsed(&mut self, now: UnixMs, trash: &mut Trash) -> u64 {
        if self.single().is_some_and(|hold| hold.is_live(now)) || matches!(self.0, Stored::None) {
            return 0;
        }
        self.drop_some_lapsed(now, trash)
    }

    #[inline(never)]
    fn drop_some_lapsed(&mut self, now: UnixMs, trash: &mut Trash) -> u64 {
        match &mut self.0 {
            Stored::None => 0,
            Stored::One(_) => {
                self.0 = Stored::None;
                1
            }
            Stored::Many(many) => {
                many.readers.free_some_dead();
                let exclusive = many.exclusive.take_if(|hold| !hold.is_live(now)).is_some();
                let mut rests = None;
                let dropped = many.readers.drop_lapsed(now, &mut rests) + usize::from(exclusive);
                if let Some(rests) = rests {
                    trash.add(rests);
                }
                if dropped > 0 {
                    self.simplify(trash);
                }
                dropped as u64
            }
        }
    }

    /// Returns about how many bytes are on the heap, beside the value itself.
    pub(crate) fn heap_bytes(&self) -> usize {
        let (single, exclusive, readers) = self.parts();
        let owners: usize = single.into_iter().chain(exclusive).map(Hold::heap_bytes).sum();
        owners + readers.map_or(0, |readers| size_of::<Many>() + readers.heap_bytes())
    }

    /// Returns the hold, if it is the only one.
    #[inline]
    pub(crate) fn single(&self) -> Option<&Hold> {
        match &self.0 {
            Stored::One(hold) => Some(hold),
            Stored::None | Stored::Many(_) => None,
        }
    }

    fn many(&self) -> Option<&Many> {
        match &self.0 {
            Stored::None | Stored::One(_) => None,
            Stored::Many(many) => Some(many),
        }
    }

    /// Returns the only hold, the exclusive hold of several, and the shared holds of several.
    fn parts(&self) -> (Option<&Hold>, Option<&Hold>, Option<&Readers>) {
        match &self.0 {
            Stored::None => (None, None, None),
            Stored::One(hold) => (Some(hold), None, None),
            Stored::Many(many) => (None, many.exclusive.as_ref(), Some(&many.readers)),
        }
    }

    /// Changes back to the small form when one hold or none is left.
    fn simplify(&mut self, trash: &mut Trash) {
        if self.len() > 1 {
            return;
        }
        let Stored::Many(many) = std::mem::take(&mut self.0) else { return broken("many holds become few") };
        let Many { exclusive, mut readers, bond } = *many;
        let last = exclusive.or_else(|| readers.take_only());
        self.0 = last.map_or(Stored::None, |hold| Stored::One(Hold { bond, ..hold }));
        trash.add(readers);
    }
}

fn one(hold: &Hold) -> Sum {
    Sum { holds: 1, entries: u64::from(hold.count) }
}

fn lapsed(hold: &Hold, now: UnixMs) -> Sum {
    if hold.is_live(now) { Sum::default() } else { one(hold) }
}

/// The rest of locks that had many holds, freed a piece at a time: freeing it at once would delay other clients.
#[derive(Clone, Debug, Default)]
pub struct Trash(Vec<Readers>);

impl Trash {
    /// Returns an empty trash.
    pub const fn new() -> Trash {
        Trash(Vec::new())
    }

    /// Returns whether there is nothing to free.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Frees some of the holds, in at most `most` steps: one for each entry of a tree.
    pub fn free_some(&mut self, most: usize) {
        if self.0.last_mut().is_some_and(|readers| !readers.take_apart(most)) {
            self.0.pop();
        }
    }

    fn add(&mut self, readers: Readers) {
        if readers.stored() > MANY {
            self.0.push(readers);
        }
    }
}

/// At most this many holds are freed at once, without the trash.
const MANY: usize = 64;

/// Returns whether a lock cannot have both holds.
fn excludes(a: &Hold, b: &Hold) -> bool {
    let is_exclusive = a.mode == Mode::Exclusive || b.mode == Mode::Exclusive;
    a.owner != b.owner && (is_exclusive || (a.slot().is_some() && a.slot() == b.slot()))
}

impl Many {
    fn put(&mut self, hold: Hold, trash: &mut Trash) {
        if self.exclusive.as_ref().is_some_and(|old| excludes(old, &hold)) {
            self.exclusive = None;
        }
        match hold.mode {
            Mode::Shared => self.readers.put(hold),
            Mode::Exclusive => {
                let kept = self.readers.remove(&hold.owner);
                trash.add(std::mem::take(&mut self.readers));
                if let Some(kept) = kept {
                    self.readers.put(kept);
                }
                self.exclusive = Some(hold);
            }
        }
    }

    #[inline(never)]
    fn get(&self, owner: &Owner, mode: Mode) -> Option<&Hold> {
        match mode {
            Mode::Exclusive => self.exclusive.as_ref().filter(|hold| hold.owner == *owner),
            Mode::Shared => self.readers.get(owner),
        }
    }

    fn remove(&mut self, owner: &Owner, mode: Mode) -> Option<Hold> {
        match mode {
            Mode::Exclusive => self.exclusive.take_if(|hold| hold.owner == *owner),
            Mode::Shared => self.readers.remove(owner),
        }
    }
}

/// Returns the sum of `count` numbers. If there are many, estimates it by the first ones.
fn estimate(numbers: impl Iterator<Item = usize>, count: usize) -> usize {
    const ALL: usize = 1000;
    if count <= ALL { numbers.sum() } else { numbers.take(ALL).sum::<usize>() / ALL * count }
}

/// Returns about how many entries a `BTreeMap` with `len` entries has room for. A small map has one node; in a larger
/// one, about two of five places are free.
fn tree_places(len: usize) -> usize {
    const NODE_PLACES: usize = 11;
    match len {
        0 => 0,
        1..=NODE_PLACES => NODE_PLACES,
        _ => len * 5 / 3,
    }
}

#[cfg(test)]
mod tests;
