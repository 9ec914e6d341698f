//! Which holds are bound to which client connection, and when their leases are to be moved on.
//!
//! # Implementation details
//! A binding is no part of the lock: it lives where the connection lives, in the primary's memory. `L` names a lock.
//! Bindings are found by hold, by client and by time, each in O(log n).

use std::collections::{BTreeMap, BTreeSet};

use crate::{Hold, Mode, Owner, Token, UnixMs};

/// The bound holds of a server.
#[derive(Clone, Debug)]
pub struct Sessions<L> {
    bound: BTreeMap<Id, Binding<L>>,
    by_hold: BTreeMap<(L, Owner, Mode), Id>,
    by_client: BTreeMap<u64, BTreeSet<Id>>,
    by_time: BTreeSet<(UnixMs, Id)>,
    due: BTreeSet<(UnixMs, Id)>,
    bindings: Id,
}

type Id = u64;

/// A hold that is bound to a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Binding<L> {
    /// The lock.
    pub lock: L,
    /// Whose hold.
    pub owner: Owner,
    /// In which mode.
    pub mode: Mode,
    /// The client.
    pub client: u64,
    /// The fencing token of the hold: another hold of the same owner has another.
    pub token: Token,
    move_at: UnixMs,
    deadline: UnixMs,
}

impl<L> Default for Sessions<L> {
    fn default() -> Sessions<L> {
        Sessions {
            bound: BTreeMap::new(),
            by_hold: BTreeMap::new(),
            by_client: BTreeMap::new(),
            by_time: BTreeSet::new(),
            due: BTreeSet::new(),
            bindings: 0,
        }
    }
}

impl<L: Clone + Ord> Sessions<L> {
    /// How many holds are bound.
    pub fn len(&self) -> usize {
        self.bound.len()
    }

    /// Whether no hold is bound.
    pub fn is_empty(&self) -> bool {
        self.bound.is_empty()
    }

    /// Binds a hold to a client; the latest binding wins. Its lease is due to be moved on at `move_at`.
    pub fn bind(&mut self, lock: L, hold: &Hold, client: u64, move_at: UnixMs) {
        let Hold { owner, mode, deadline, token, .. } = hold;
        let (owner, mode, deadline, token) = (owner.clone(), *mode, *deadline, *token);
        let bound = (lock.clone(), owner.clone(), mode);
        self.unbind(&bound);
        self.bindings += 1;
        let id = self.bindings;
        self.by_hold.insert(bound, id);
        self.by_client.entry(client).or_default().insert(id);
        self.by_time.insert((move_at, id));
        self.bound.insert(id, Binding { lock, owner, mode, client, token, move_at, deadline });
    }

    /// Takes note of the new deadline of a hold, if it is bound, and of when its lease is due to be moved on next.
    pub fn moved(&mut self, lock: L, hold: &Hold, move_at: UnixMs) {
        let Some(id) = self.by_hold.get(&(lock, hold.owner.clone(), hold.mode)).copied() else { return };
        let Some(binding) = self.bound.get_mut(&id) else { return };
        self.by_time.remove(&(binding.move_at, id));
        self.due.remove(&(binding.deadline, id));
        (binding.deadline, binding.move_at, binding.token) = (hold.deadline, move_at, hold.token);
        self.by_time.insert((move_at, id));
    }

    /// Has a hold that [`Sessions::next_due`] named be named again.
    pub fn put_off(&mut self, hold: &(L, Owner, Mode)) {
        if let Some((id, binding)) = self.by_hold.get(hold).and_then(|id| Some((*id, self.bound.get(id)?))) {
            self.due.insert((binding.deadline, id));
        }
    }

    /// Frees a hold from its client.
    pub fn unbind(&mut self, hold: &(L, Owner, Mode)) -> Option<Binding<L>> {
        let id = self.by_hold.get(hold).copied()?;
        self.remove(id)
    }

    /// Frees every hold of one lock.
    pub fn unbind_lock(&mut self, lock: &L) {
        let first = (lock.clone(), Owner::MIN, Mode::Exclusive);
        let ids: Vec<Id> =
            self.by_hold.range(first..).take_while(|((of, ..), _)| of == lock).map(|(_, id)| *id).collect();
        for id in ids {
            self.remove(id);
        }
    }

    /// Frees every hold of the locks that `is_meant` names.
    pub fn unbind_where(&mut self, is_meant: impl Fn(&L) -> bool) {
        let ids: Vec<Id> =
            self.bound.iter().filter(|(_, binding)| is_meant(&binding.lock)).map(|(id, _)| *id).collect();
        for id in ids {
            self.remove(id);
        }
    }

    /// Frees every hold of a client that is gone, and names them.
    pub fn end(&mut self, client: u64) -> Vec<Binding<L>> {
        let ids = self.by_client.get(&client).cloned().unwrap_or_default();
        ids.into_iter().filter_map(|id| self.remove(id)).collect()
    }

    /// The client a hold is bound to.
    pub fn client_of(&self, hold: &(L, Owner, Mode)) -> Option<u64> {
        let id = self.by_hold.get(hold)?;
        self.bound.get(id).map(|binding| binding.client)
    }

    /// A hold whose lease is to be moved on now, the one that would lapse first. It is named once, until
    /// [`Sessions::moved`].
    pub fn next_due(&mut self, now: UnixMs) -> Option<&Binding<L>> {
        while let Some((at, id)) = self.by_time.first().copied().filter(|(at, _)| *at <= now) {
            self.by_time.remove(&(at, id));
            if let Some(binding) = self.bound.get(&id) {
                self.due.insert((binding.deadline, id));
            }
        }
        let (_, id) = self.due.pop_first()?;
        self.bound.get(&id)
    }

    /// When a lease is to be moved on next; `UnixMs::ZERO` if one is already.
    pub fn next_time(&self) -> Option<UnixMs> {
        if self.due.is_empty() { self.by_time.first().map(|(at, _)| *at) } else { Some(UnixMs::ZERO) }
    }

    fn remove(&mut self, id: Id) -> Option<Binding<L>> {
        let binding = self.bound.remove(&id)?;
        self.by_hold.remove(&(binding.lock.clone(), binding.owner.clone(), binding.mode));
        self.by_time.remove(&(binding.move_at, id));
        self.due.remove(&(binding.deadline, id));
        if let Some(ids) = self.by_client.get_mut(&binding.client) {
            ids.remove(&id);
            if ids.is_empty() {
                self.by_client.remove(&binding.client);
            }
        }
        Some(binding)
    }
}

/// When the lease of a bound hold is moved on: when a third of it has passed, or up to a twelfth of that third earlier,
/// so that many holds bound together are not all moved at once, and drift apart. `spread` is a random number.
pub fn time_to_move(hold: &Hold, spread: u64) -> UnixMs {
    let third = hold.lease.get() / 3;
    UnixMs::new(hold.deadline.get().saturating_sub(hold.lease.get()) + third - spread % (third / 12 + 1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Lease;

    fn ms(ms: u64) -> UnixMs {
        UnixMs::new(ms)
    }

    fn owner(name: &str) -> Owner {
        Owner::new(name.as_bytes()).unwrap()
    }

    fn hold(name: &str, deadline: u64) -> Hold {
        let (lease, token) = (Lease::MAX, Token::MAX);
        Hold {
            owner: owner(name),
            mode: Mode::Exclusive,
            count: 1,
            lease,
            deadline: ms(deadline),
            token,
            request: None,
        }
    }

    fn bound(holds: &[(&'static str, &str, u64, u64, u64)]) -> Sessions<&'static str> {
        let mut sessions = Sessions::default();
        for (lock, name, client, deadline, move_at) in holds {
            sessions.bind(*lock, &hold(name, *deadline), *client, ms(*move_at));
        }
        sessions
    }

    fn due(sessions: &mut Sessions<&'static str>, now: u64) -> Vec<&'static str> {
        std::iter::from_fn(|| sessions.next_due(ms(now)).map(|binding| binding.lock)).collect()
    }

    #[test]
    fn a_hold_follows_one_connection_the_latest() {
        let mut sessions = bound(&[("k", "a", 1, 30, 10), ("k", "a", 2, 30, 10)]);
        assert_eq!(sessions.len(), 1);
        assert_eq!(sessions.client_of(&("k", owner("a"), Mode::Exclusive)), Some(2));
        assert_eq!(sessions.end(1), vec![]);
        let ended = sessions.end(2);
        assert_eq!(ended.iter().map(|binding| binding.lock).collect::<Vec<_>>(), ["k"]);
        assert!(sessions.is_empty() && sessions.next_time().is_none() && sessions.end(2).is_empty());
    }

    #[test]
    fn the_lease_that_ends_first_is_moved_on_first() {
        let mut sessions = bound(&[("late", "a", 1, 90, 10), ("soon", "a", 1, 30, 12), ("not yet", "a", 1, 200, 60)]);
        assert_eq!(sessions.next_time(), Some(ms(10)));
        assert_eq!(due(&mut sessions, 9), Vec::<&str>::new());
        assert_eq!(sessions.next_due(ms(12)).map(|binding| binding.lock), Some("soon"));
        assert_eq!(sessions.next_time(), Some(UnixMs::ZERO));
        sessions.moved("soon", &hold("a", 60), ms(40));
        assert_eq!(due(&mut sessions, 12), ["late"]);
        assert_eq!(sessions.next_time(), Some(ms(40)));
        sessions.moved("late", &hold("a", 190), ms(110));
        assert_eq!(due(&mut sessions, 60), ["soon", "not yet"]);
    }

    #[test]
    fn a_hold_that_is_due_can_still_be_unbound_and_moved() {
        let mut sessions = bound(&[("a", "o", 1, 30, 10), ("b", "o", 1, 31, 10), ("c", "o", 1, 32, 10)]);
        assert_eq!(sessions.next_due(ms(10)).map(|binding| binding.lock), Some("a"));
        sessions.unbind(&("b", owner("o"), Mode::Exclusive));
        sessions.moved("c", &hold("o", 50), ms(40));
        assert_eq!(due(&mut sessions, 39), Vec::<&str>::new());
        assert_eq!(due(&mut sessions, 40), ["c"]);
    }

    #[test]
    fn a_lock_that_goes_takes_its_bindings_with_it() {
        let mut sessions =
            bound(&[("a", "x", 1, 30, 10), ("b", "x", 1, 30, 10), ("b", "y", 2, 30, 10), ("c", "x", 1, 30, 10)]);
        sessions.bind("b", &Hold { mode: Mode::Shared, ..hold("x", 30) }, 1, ms(10));
        sessions.unbind_lock(&"b");
        assert_eq!(due(&mut sessions, 10), ["a", "c"]);
        assert_eq!(sessions.end(2), vec![]);
        sessions.unbind_where(|lock| *lock == "c");
        assert_eq!(sessions.len(), 1);
    }

    #[test]
    fn leases_are_moved_on_shortly_before_a_third_has_passed() {
        let hold = Hold { lease: Lease::new(1200).unwrap(), ..hold("a", 6200) };
        let times: BTreeSet<u64> = (0..1000).map(|spread| time_to_move(&hold, spread).get() - 5000).collect();
        assert_eq!((times.first(), times.last()), (Some(&367), Some(&400)));
    }
}
