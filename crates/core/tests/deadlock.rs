//! Who waits for himself, through others: locks, their lines and the search over them.

#![allow(clippy::unwrap_used, reason = "a test that panics has failed, which is what it is for")]

use std::collections::BTreeMap;

use Mode::{Exclusive, Shared};
use dlock_core::{
    Acquire, Acquired, Lease, LeaseChoice, Line, Lock, MAX_OWNERS_SEARCHED, Mode, Owner, Place, Reentry, Step,
    TokenClock, UnixMs, find_cycle,
};

#[test]
fn two_that_wait_for_each_other_are_a_cycle() {
    let mut town = Town::default();
    town.enter("alice", "x", Exclusive);
    town.enter("bob", "y", Exclusive);
    assert_eq!(town.enter("alice", "y", Exclusive), WAITS);
    assert_eq!(town.enter("bob", "x", Exclusive), "bob x, alice y");
}

#[test]
fn three_that_wait_in_a_ring_are_a_cycle() {
    let mut town = Town::default();
    for (owner, lock) in [("alice", "x"), ("bob", "y"), ("carol", "z")] {
        town.enter(owner, lock, Exclusive);
    }
    assert_eq!(town.enter("alice", "y", Exclusive), WAITS);
    assert_eq!(town.enter("bob", "z", Exclusive), WAITS);
    assert_eq!(town.enter("carol", "x", Exclusive), "carol x, alice y, bob z");
}

#[test]
fn a_chain_that_ends_is_no_cycle() {
    let mut town = Town::default();
    town.enter("alice", "x", Exclusive);
    town.enter("bob", "y", Exclusive);
    assert_eq!(town.enter("bob", "x", Exclusive), WAITS);
    assert_eq!(town.enter("carol", "y", Exclusive), WAITS);
    assert_eq!(town.enter("dave", "y", Shared), WAITS);
}

#[test]
fn one_of_many_holders_is_enough_for_a_cycle() {
    let mut town = Town::default();
    for owner in ["alice", "bob", "carol"] {
        town.enter(owner, "x", Shared);
    }
    town.enter("dave", "y", Exclusive);
    town.enter("bob", "y", Exclusive);
    assert_eq!(town.enter("dave", "x", Exclusive), "dave x, bob y");
}

/// A reader waits for readers only where a writer stands before it.
#[test]
fn a_reader_behind_a_writer_waits_for_readers() {
    let mut town = Town::default();
    town.enter("alice", "x", Shared);
    town.enter("bob", "y", Exclusive);
    town.enter("alice", "y", Exclusive);
    assert_eq!(town.enter("carol", "x", Exclusive), WAITS);
    assert_eq!(town.enter("bob", "x", Shared), "bob x, alice y");
}

#[test]
fn who_waits_twice_has_another_thread_that_may_go_on() {
    let mut town = Town::default();
    town.enter("alice", "x", Exclusive);
    town.enter("bob", "y", Exclusive);
    town.enter("carol", "z", Exclusive);
    assert_eq!(town.enter("alice", "y", Exclusive), WAITS);
    assert_eq!(town.enter("alice", "z", Exclusive), WAITS);
    assert_eq!(town.enter("bob", "x", Exclusive), WAITS);
}

/// An upgrade waits for the other holders, not for its own hold.
#[test]
fn nobody_is_in_his_own_way() {
    let mut town = Town::default();
    town.enter("alice", "x", Shared);
    town.enter("bob", "x", Shared);
    assert_eq!(town.enter("alice", "x", Exclusive), WAITS);
    town.enter("carol", "y", Exclusive);
    assert_eq!(town.enter("bob", "y", Exclusive), WAITS);
    assert_eq!(town.enter("carol", "x", Shared), "carol x, bob y");
}

#[test]
fn the_search_ends_though_others_go_round() {
    let ways = |lock: &u32, _: usize| vec![owner(&(lock + 1).to_string()), owner(&(lock + 1).to_string())];
    let next = |owner: &Owner| Some(String::from_utf8_lossy(&owner.text()).parse::<u32>().unwrap() % 5);
    assert_eq!(search(&owner("origin"), 0, ways, next), None);
}

#[test]
fn the_search_looks_at_so_many_owners_and_no_more() {
    let last = u32::try_from(MAX_OWNERS_SEARCHED).unwrap();
    let as_asked = |most| most;
    assert_eq!(chain(last, as_asked).0.unwrap().len(), MAX_OWNERS_SEARCHED);
    assert_eq!(chain(last + 1, as_asked), (None, last));
    // Where more owners are named than were asked for.
    let all = |_| usize::MAX;
    assert_eq!(chain(last + 1, all).0.unwrap().len(), MAX_OWNERS_SEARCHED + 1);
    assert_eq!(chain(last + 2, all), (None, last));
}

#[test]
fn no_more_owners_are_asked_for_than_can_be_looked_at() {
    let mut asked = Vec::new();
    let ways = |lock: &usize, most: usize| {
        asked.push(most);
        let names = *lock * 10_000..*lock * 10_000 + 600;
        names.take(most).map(|name| owner(&name.to_string())).collect()
    };
    let next = |other: &Owner| (*other == owner("10000")).then_some(2);
    assert_eq!(search(&owner("origin"), 1, ways, next), None);
    assert_eq!(asked, [MAX_OWNERS_SEARCHED, MAX_OWNERS_SEARCHED - 600]);
}

/// So many owners in a row, each waiting for the next and the last for the first: the cycle, if it is found, and how
/// many were asked what they wait for.
fn chain(owners: u32, limit: fn(usize) -> usize) -> (Option<Vec<Step<u32>>>, u32) {
    let mut asked = 0;
    let next = |number: &u32, most| {
        let next = owner(&((number + 1) % owners).to_string());
        [next].into_iter().take(limit(most)).collect()
    };
    let wait = |owner: &Owner| {
        asked += 1;
        Some(String::from_utf8_lossy(&owner.text()).parse::<u32>().unwrap())
    };
    (search(&owner("0"), 0, next, wait), asked)
}

/// The search; one that goes on for ever fails.
fn search<L: Clone>(
    origin: &Owner,
    wait: L,
    mut in_the_way: impl FnMut(&L, usize) -> Vec<Owner>,
    next_wait: impl FnMut(&Owner) -> Option<L>,
) -> Option<Vec<Step<L>>> {
    let mut looks = 0;
    let counted = |lock: &L, most| {
        looks += 1;
        assert!(looks <= MAX_OWNERS_SEARCHED + 1, "one look for the origin and one for each owner");
        in_the_way(lock, most)
    };
    find_cycle(origin, wait, counted, next_wait)
}

/// Some locks, and who waits where.
#[derive(Default)]
struct Town {
    locks: BTreeMap<&'static str, (Line<()>, Lock)>,
    waits: BTreeMap<&'static str, Vec<(&'static str, Place)>>,
    tokens: TokenClock,
}

impl Town {
    /// Says that the owner is in, waits, or would close a cycle: then it does not wait.
    fn enter(&mut self, name: &'static str, at: &'static str, mode: Mode) -> String {
        let who = owner(name);
        let request = Acquire { owner: &who, mode, reentry: Reentry::Count, lease: LeaseChoice::Own, request: None };
        let (line, lock) = self.locks.entry(at).or_default();
        if let Acquired::Granted { effect, .. } = line.decide(lock, NOW, &request, LEASE, self.tokens.next(1)) {
            lock.apply(effect, &mut self.tokens);
            return GRANTED.to_owned();
        }
        let place = line.join(lock, NOW, &request, ()).unwrap();
        let Some(cycle) = self.cycle(&who, (at, place)) else {
            self.waits.entry(name).or_default().push((at, place));
            return WAITS.to_owned();
        };
        self.locks.get_mut(at).unwrap().0.leave(place).unwrap();
        cycle
    }

    fn cycle(&self, who: &Owner, wait: (&'static str, Place)) -> Option<String> {
        let in_the_way = |(at, place): &(&str, Place), most: usize| {
            let (line, lock) = self.locks.get(at).unwrap();
            lock.owners_in_the_way(line.waits_for(*place), NOW).take(most).cloned().collect()
        };
        let next_wait = |of: &Owner| match self.waits.get(&*String::from_utf8_lossy(&of.text())).map(Vec::as_slice) {
            Some([wait]) => Some(*wait),
            _ => None,
        };
        let steps = search(who, wait, in_the_way, next_wait)?;
        let words = steps.iter().map(|step| format!("{} {}", step.owner.text().escape_ascii(), step.lock.0));
        Some(words.collect::<Vec<_>>().join(", "))
    }
}

fn owner(name: &str) -> Owner {
    Owner::new(name.as_bytes()).unwrap()
}

const WAITS: &str = "waits";
const GRANTED: &str = "granted";
const NOW: UnixMs = UnixMs::new(1_000_000);
const LEASE: Lease = Lease::new(1000).unwrap();
