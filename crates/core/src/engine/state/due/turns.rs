//! The order in which locks that are due for one kind of work are visited: clients take turns.
//!
//! All work that is due belongs to a client: to the client that waits, or to the client whose lease runs out. A client
//! with much work delays only its own work.
//!
//! # Implementation details
//! Each client has an account of the time that its visits took. In each round, a client may use [`SHARE_US`]. Clients
//! in the same round are served by urgency; those that have used their share are in a later round. A client without
//! work is forgotten when its round has come, or when no client has work. Each charge looks at the next few accounts
//! for that.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::engine::state::ids::RecordId;
use crate::engine::state::records::attention::Position;
use crate::{ClientId, UnixMs};

/// How long the visits for one client may take in a round, in µs.
const SHARE_US: u64 = 100;
/// How many accounts may be kept beyond two for each client with work, before clients without work are forgotten.
const REMEMBERED: usize = 64;
/// How many accounts a charge looks at. An insertion opens one account at most, and a charge follows it.
const LOOKED_AT: usize = 2;

/// The locks that are due.
#[derive(Clone, Debug, Default)]
pub(crate) struct Turns {
    accounts: BTreeMap<ClientId, Account>,
    /// The clients in the order in which their accounts are looked at: each client with an account once.
    looked_at_next: VecDeque<ClientId>,
    /// The first lock of each client with work.
    order: BTreeSet<(Standing, ClientId)>,
    /// The round of the client that was served last.
    round: u64,
    /// How many positions were given so far.
    given: u64,
}

/// The place of a client in the order: by round, then by urgency, then by the time at which its lock was added.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Standing {
    round: u64,
    urgency: UnixMs,
    number: u64,
}

#[derive(Clone, Debug, Default)]
struct Account {
    /// The locks that are due for the client, by urgency and number.
    work: BTreeMap<(UnixMs, u64), RecordId>,
    /// How long the visits took, in µs, since round 0. Rounds in which the client had no work count as used.
    used_us: u64,
}

impl Account {
    /// Returns the round in which the client may be served next.
    fn round(&self) -> u64 {
        self.used_us / SHARE_US
    }

    fn standing(&self, client: ClientId) -> Option<(Standing, ClientId)> {
        let ((urgency, number), _) = self.work.first_key_value()?;
        Some((Standing { round: self.round(), urgency: *urgency, number: *number }, client))
    }
}

impl Turns {
    /// Returns whether no lock is due.
    pub(crate) fn is_empty(&self) -> bool {
        self.order.is_empty()
    }

    /// Returns a position behind all positions with the same client and urgency, for [`Turns::insert`].
    pub(crate) fn position(&mut self, client: ClientId, urgency: UnixMs) -> Position {
        self.given += 1;
        Position { client, urgency, number: self.given }
    }

    /// Adds a lock. O(log n).
    pub(crate) fn insert(&mut self, position: Position, id: RecordId) {
        let round = self.round;
        self.change(position.client, |account| {
            account.used_us = account.used_us.max(round * SHARE_US);
            account.work.insert((position.urgency, position.number), id);
        });
    }

    /// Takes a lock out. O(log n).
    pub(crate) fn remove(&mut self, position: Position) {
        self.change(position.client, |account| _ = account.work.remove(&(position.urgency, position.number)));
    }

    /// Returns the lock that is visited next. O(log n).
    pub(crate) fn first(&mut self) -> Option<(Position, RecordId)> {
        let (Standing { round, urgency, number }, client) = *self.order.first()?;
        self.round = self.round.max(round);
        let id = self.accounts.get(&client)?.work.get(&(urgency, number))?;
        Some((Position { client, urgency, number }, *id))
    }

    /// Charges a client for a visit that took this long. O(log n).
    pub(crate) fn charge(&mut self, client: ClientId, us: u64) {
        self.change(client, |account| account.used_us += us.max(1));
        for _ in 0..LOOKED_AT {
            if self.accounts.len() > 2 * self.order.len() + REMEMBERED {
                self.look_at_an_account();
            }
        }
    }

    /// Forgets the next client if it has no work and its round has come.
    fn look_at_an_account(&mut self) {
        let Some(client) = self.looked_at_next.pop_front() else { return };
        let Entry::Occupied(account) = self.accounts.entry(client) else { return };
        let has_come = self.order.is_empty() || account.get().round() <= self.round;
        if account.get().work.is_empty() && has_come {
            account.remove();
        } else {
            self.looked_at_next.push_back(client);
        }
    }

    /// Returns the locks that are due, in order.
    #[cfg(feature = "check")]
    pub(crate) fn iter(&self) -> impl Iterator<Item = RecordId> {
        let works = self.order.iter().filter_map(|(_, client)| self.accounts.get(client));
        works.flat_map(|account| account.work.values().copied())
    }

    /// Returns whether a lock has this position.
    #[cfg(feature = "check")]
    pub(crate) fn has(&self, position: Position, id: RecordId) -> bool {
        self.accounts.get(&position.client).and_then(|account| account.work.get(&(position.urgency, position.number)))
            == Some(&id)
    }

    /// Changes the account of a client, and moves the client to its new place in the order.
    fn change(&mut self, client: ClientId, change: impl FnOnce(&mut Account)) {
        let account = self.accounts.entry(client).or_insert_with(|| {
            self.looked_at_next.push_back(client);
            Account::default()
        });
        let before = account.standing(client);
        change(account);
        let after = account.standing(client);
        if before != after {
            before.map(|standing| self.order.remove(&standing));
            after.map(|standing| self.order.insert(standing));
        }
    }
}

#[cfg(test)]
mod tests {
    use slotmap::SlotMap;

    use super::*;

    struct Locks(SlotMap<RecordId, ()>);

    const NOW: UnixMs = UnixMs::ZERO;

    fn at(ms: u64) -> UnixMs {
        UnixMs::new(ms)
    }

    impl Locks {
        fn add(&mut self, turns: &mut Turns, client: u64, urgency: UnixMs) {
            let position = turns.position(ClientId(client), urgency);
            turns.insert(position, self.0.insert(()));
        }
    }

    /// Returns the clients whose locks are visited, if each visit takes `us`.
    fn served(turns: &mut Turns, visits: usize, us: u64) -> Vec<u64> {
        let visit = |_| {
            let (position, _) = turns.first()?;
            turns.remove(position);
            turns.charge(position.client, us);
            Some(position.client.0)
        };
        (0..visits).map_while(visit).collect()
    }

    #[test]
    fn the_most_urgent_lock_is_visited_first() {
        let (mut turns, mut locks) = (Turns::default(), Locks(SlotMap::with_key()));
        locks.add(&mut turns, 1, at(30));
        locks.add(&mut turns, 2, at(20));
        locks.add(&mut turns, 3, at(90));
        locks.add(&mut turns, 4, NOW);
        assert_eq!(served(&mut turns, 9, 1), [4, 2, 1, 3]);
        assert!(turns.is_empty());
    }

    #[test]
    fn a_client_with_many_urgent_locks_gets_its_share_only() {
        let (mut turns, mut locks) = (Turns::default(), Locks(SlotMap::with_key()));
        (0..1000).for_each(|n| locks.add(&mut turns, 1, at(n)));
        (0..20).for_each(|n| locks.add(&mut turns, 2, at(100_000 + n)));
        let order = served(&mut turns, 1020, 20);
        let last = order.iter().rposition(|client| *client == 2);
        // A round has 5 visits of 20 us for each client: client 2 needs 4 rounds, which are 40 visits.
        assert!(last < Some(50), "{last:?}");
        assert_eq!(order.len(), 1020);
    }

    #[test]
    fn a_client_that_had_no_work_does_not_save_its_share_up() {
        let (mut turns, mut locks) = (Turns::default(), Locks(SlotMap::with_key()));
        (0..1000).for_each(|n| locks.add(&mut turns, 1, at(n)));
        served(&mut turns, 500, 50);
        (0..1000).for_each(|n| locks.add(&mut turns, 2, at(n)));
        let first = served(&mut turns, 100, 50).iter().filter(|client| **client == 1).count();
        // The clients both have work from now on, so each gets about half of the 100 visits.
        assert!((40..60).contains(&first), "{first}");
    }

    #[test]
    fn a_client_whose_work_runs_out_and_comes_again_keeps_its_account() {
        let (mut turns, mut locks) = (Turns::default(), Locks(SlotMap::with_key()));
        (0..100).for_each(|n| locks.add(&mut turns, 2, at(n)));
        let mut others = 0;
        for _ in 0..200 {
            locks.add(&mut turns, 1, NOW);
            others += served(&mut turns, 1, 50).iter().filter(|client| **client == 2).count();
        }
        // Client 1 gets about half of the 200 visits, although its lock is the most urgent each time.
        assert!(others >= 90, "{others}");
    }

    #[test]
    fn clients_without_work_are_forgotten() {
        let (mut turns, mut locks) = (Turns::default(), Locks(SlotMap::with_key()));
        for client in 0..10_000 {
            locks.add(&mut turns, client, NOW);
            served(&mut turns, 1, SHARE_US);
        }
        assert!(turns.accounts.len() <= 2 * REMEMBERED, "{}", turns.accounts.len());
        assert_eq!(turns.accounts.len(), turns.looked_at_next.len());
    }

    #[test]
    fn clients_in_a_later_round_are_remembered_until_it_comes() {
        let (mut turns, mut locks) = (Turns::default(), Locks(SlotMap::with_key()));
        (1..=5000).for_each(|client| locks.add(&mut turns, client, NOW));
        (0..9000).for_each(|n| locks.add(&mut turns, 0, at(n)));
        // All clients but 0 are in the next round, and have no work.
        served(&mut turns, 5000, SHARE_US);
        assert!(turns.accounts.len() > 5000 - 2 * REMEMBERED, "{}", turns.accounts.len());
        served(&mut turns, 9000, SHARE_US);
        assert!(turns.accounts.len() <= 2 * REMEMBERED, "{}", turns.accounts.len());
        assert_eq!(turns.accounts.len(), turns.looked_at_next.len());
    }
}
