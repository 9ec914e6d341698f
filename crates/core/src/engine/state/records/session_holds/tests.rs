//! Compares the bindings with a plain list of them. A `client` here is a session, of a connection or a named one.

use std::collections::BTreeMap;
use std::hint::black_box;
use std::time::Duration;

use dlock_testkit::thread_time::on_core;
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

use super::*;
use crate::{Extras, Lease};

#[derive(Clone, Debug)]
enum Op {
    Bind {
        hold: Hold,
        client: SessionKey,
        renew_at: UnixMs,
    },
    Follow {
        hold: Hold,
        renew_at: UnixMs,
    },
    Unbind {
        owner: Owner,
        mode: Mode,
    },
    End {
        clients: (u64, u64),
        end: SessionEnd,
    },
    Sweep {
        clock: UnixMs,
    },
    Skip {
        now: UnixMs,
    },
    PutOff {
        until: UnixMs,
    },
    /// Splits the bindings, and continues with those of the others, or with the owner's own.
    Split {
        owner: Owner,
        goes_on_with_others: bool,
    },
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    /// The histories include tokens that two holds have, and more ended sessions than are looked at one by one.
    #[test]
    fn bindings_are_what_a_list_says(ops in vec((op(), time()), 1..80), most in 1..9_usize) {
        let (mut bound, mut plain) = (SessionHolds::default(), Plain::default());
        let (mut loads, mut holds): (BTreeMap<SessionKey, i64>, BTreeMap<SessionKey, i64>) = Default::default();
        let mut latest = UnixMs::ZERO;
        for (op, now) in ops {
            // `ended_sum` caches its result, and the operation must clear the cache.
            prop_assert_eq!(bound.ended_sum(now), plain.ended_sum(now));
            step(&mut bound, &mut plain, op);
            compare(&bound, &plain, now);
            // A search forgets lapsed holds, and may miss them if a later search has an earlier clock.
            latest = latest.max(now);
            let lowest = bound.lowest_ended_slot(latest, &mut 1000).map(|(slot, owner)| (slot, owner.clone()));
            prop_assert_eq!(lowest, plain.lowest_ended_slot(latest));
            for change in bound.take_load_changes() {
                *loads.entry(change.key).or_default() += change.load;
                *holds.entry(change.key).or_default() += change.holds;
            }
            // Bindings that a split took out count for their clients until they are taken apart.
            for client in plain.clients() {
                prop_assert!(loads[&client] >= plain.load(client), "the load of {client:?} is too low");
                loads.insert(client, plain.load(client));
                let bound_to = plain.bindings.iter().filter(|entry| entry.client == client).count() as i64;
                prop_assert!(holds[&client] >= bound_to, "{client:?} has more holds than are counted");
                holds.insert(client, bound_to);
            }
        }
        let clients = plain.clients();
        let mut gone = Vec::new();
        while !bound.is_empty() {
            let left = bound.len().saturating_sub(most);
            gone.append(&mut bound.take_apart(most));
            prop_assert_eq!(bound.len(), left);
        }
        gone.sort_unstable();
        prop_assert_eq!(gone, clients);
    }
}

/// Bindings as a plain list.
#[derive(Clone, Debug, Default)]
struct Plain {
    bindings: Vec<Entry>,
    ends: BTreeMap<SessionKey, SessionEnd>,
    swept: UnixMs,
    not_before: UnixMs,
    bound_so_far: u64,
}

#[derive(Clone, Debug)]
struct Entry {
    number: u64,
    hold: Hold,
    client: SessionKey,
    renew_at: Option<UnixMs>,
}

fn step(bound: &mut SessionHolds, plain: &mut Plain, op: Op) {
    match op {
        // A session that has ended binds nothing more.
        Op::Bind { client, .. } if plain.ends.contains_key(&client) => {}
        Op::Bind { hold, client, renew_at } => {
            bound.bind(&hold, client, renewal(&hold, renew_at));
            plain.unbind(&hold.owner, hold.mode);
            let number = plain.bound_so_far;
            plain.bindings.push(Entry { number, hold, client, renew_at: Some(renew_at) });
            plain.bound_so_far += 1;
        }
        Op::Follow { hold, renew_at } => {
            bound.follow(&hold, renewal(&hold, renew_at));
            if let Some(entry) = plain.bindings.iter_mut().find(|entry| entry.is_of(&hold.owner, hold.mode)) {
                (entry.hold, entry.renew_at) = (hold, Some(renew_at));
            }
        }
        Op::Unbind { owner, mode } => assert_eq!(bound.unbind(&owner, mode), plain.unbind(&owner, mode)),
        Op::End { clients, end } => {
            for client in (clients.0..clients.1).map(session) {
                let is_there = plain.clients().contains(&client);
                assert_eq!(bound.end(client, end), is_there);
                if is_there {
                    plain.ends.entry(client).or_insert(end);
                }
            }
        }
        Op::Sweep { clock } => {
            bound.sweep(clock);
            plain.swept = plain.swept.max(clock);
        }
        Op::Skip { now } => {
            let is_ended = |entry: &&Entry| plain.ends.contains_key(&entry.client);
            if let Some(number) = plain.due(now).filter(is_ended).map(|entry| entry.number) {
                let id = bound.due(now).unwrap().0;
                bound.skip_renewal(id);
                plain
                    .bindings
                    .iter_mut()
                    .filter(|entry| entry.number == number)
                    .for_each(|entry| entry.renew_at = None);
            }
        }
        Op::PutOff { until } => {
            bound.put_off(until);
            plain.not_before = until;
        }
        Op::Split { owner, goes_on_with_others } => split(bound, plain, &owner, goes_on_with_others),
    }
}

fn split(bound: &mut SessionHolds, plain: &mut Plain, owner: &Owner, goes_on_with_others: bool) {
    let (own, others): (Vec<Entry>, Vec<Entry>) =
        plain.bindings.drain(..).partition(|entry| entry.hold.owner == *owner);
    // The engine releases the owner's holds of ended sessions before it splits the bindings.
    if own.iter().any(|entry| plain.ends.contains_key(&entry.client)) {
        plain.bindings = own.into_iter().chain(others).collect();
        return;
    }
    let kept = Plain { bindings: own, ends: BTreeMap::new(), not_before: UnixMs::ZERO, ..plain.clone() };
    plain.bindings = others;
    let Some((others, ended)) = bound.split_others(owner) else {
        assert!(plain.bindings.is_empty());
        *plain = Plain { not_before: plain.not_before, ..kept };
        return;
    };
    let released = plain.ended().filter(|(_, end)| end.grace.is_none()).count() as u64;
    assert_eq!(ended, EndedHolds { all: plain.ended().count() as u64, released });
    compare(&others, plain, UnixMs::ZERO);
    compare(bound, &kept, UnixMs::ZERO);
    if goes_on_with_others {
        *bound = others;
    } else {
        *plain = kept;
    }
}

/// Returns a renewal whose load is any number that changes with the hold.
fn renewal(hold: &Hold, at: UnixMs) -> Renewal {
    Renewal { at, load: u64::from(hold.count) }
}

/// Returns when the holds of an ended session begin to count as released.
fn until(end: SessionEnd) -> UnixMs {
    UnixMs::new(end.at.get() + end.grace.map_or(0, Lease::get))
}

impl Entry {
    fn is_of(&self, owner: &Owner, mode: Mode) -> bool {
        self.hold.owner == *owner && self.hold.mode == mode
    }
}

impl Plain {
    fn get(&self, owner: &Owner, mode: Mode) -> Option<&Entry> {
        self.bindings.iter().find(|entry| entry.is_of(owner, mode))
    }

    /// Returns the client, if it has no other hold.
    fn unbind(&mut self, owner: &Owner, mode: Mode) -> Option<SessionKey> {
        let client = self.get(owner, mode)?.client;
        self.bindings.retain(|entry| !entry.is_of(owner, mode));
        let is_gone = !self.clients().contains(&client);
        if is_gone {
            self.ends.remove(&client);
        }
        is_gone.then_some(client)
    }

    fn clients(&self) -> Vec<SessionKey> {
        let mut clients: Vec<SessionKey> = self.bindings.iter().map(|entry| entry.client).collect();
        clients.sort_unstable();
        clients.dedup();
        clients
    }

    fn load(&self, client: SessionKey) -> i64 {
        let theirs = self.bindings.iter().filter(|entry| entry.client == client);
        theirs.map(|entry| i64::from(entry.hold.count)).sum()
    }

    fn ended(&self) -> impl Iterator<Item = (&Entry, SessionEnd)> {
        self.bindings.iter().filter_map(|entry| Some((entry, *self.ends.get(&entry.client)?)))
    }

    fn ended_sum(&self, now: UnixMs) -> Sum {
        let is_live = |hold: &Hold| hold.deadline > now && hold.deadline > self.swept;
        let ended = self.ended().filter(|(entry, end)| until(*end) <= now && is_live(&entry.hold));
        ended.fold(Sum::default(), |sum, (entry, _)| sum.plus(Sum { holds: 1, entries: u64::from(entry.hold.count) }))
    }

    fn lowest_ended_slot(&self, now: UnixMs) -> Option<(u32, Owner)> {
        let is_live = |hold: &Hold| hold.deadline > now && hold.deadline > self.swept;
        let ended = self.ended().filter(|(entry, end)| until(*end) <= now && is_live(&entry.hold));
        ended.filter_map(|(entry, _)| Some((entry.hold.slot()?, entry.hold.owner.clone()))).min()
    }

    fn first_renewal(&self) -> Option<&Entry> {
        let renewed = self.bindings.iter().filter(|entry| entry.renew_at.is_some());
        renewed.min_by_key(|entry| (entry.renew_at, entry.number))
    }

    fn due(&self, now: UnixMs) -> Option<&Entry> {
        self.first_renewal().filter(|entry| entry.renew_at.max(Some(self.not_before)) <= Some(now))
    }
}

fn compare(bound: &SessionHolds, plain: &Plain, now: UnixMs) {
    assert_eq!((bound.len(), bound.is_empty()), (plain.bindings.len(), plain.bindings.is_empty()));
    let clients = plain.clients();
    assert_eq!((bound.sessions(), bound.keys().collect()), (clients.len(), clients.clone()));
    for client in (0..=CLIENTS).map(session) {
        assert_eq!(bound.has_session(client), clients.contains(&client));
        let mut theirs: Vec<&Entry> = plain.bindings.iter().filter(|entry| entry.client == client).collect();
        theirs.sort_by_key(|entry| (entry.hold.deadline, entry.number));
        assert!(bound.of_session(client).map(key).eq(theirs.into_iter().map(key_of)));
    }
    for (owner, mode) in owners_and_modes() {
        let entry = plain.get(&owner, mode);
        let end = entry.and_then(|entry| plain.ends.get(&entry.client).copied());
        assert_eq!(bound.session_of(&owner, mode), entry.filter(|_| end.is_none()).map(|entry| entry.client));
        let ended = bound.ended_of(&owner, mode).map(|(_, binding, end)| (key(binding), end));
        assert_eq!(ended, entry.map(key_of).zip(end));
        for token in (1..=TOKENS).filter_map(Token::new) {
            let its_end = end.filter(|_| entry.is_some_and(|entry| entry.hold.token == token));
            assert_eq!(bound.end_of(&hold(owner.clone(), mode, token, now, 1)), its_end);
        }
    }
    compare_ended(bound, plain, now);
    let renewal = |entry: &Entry| {
        let (at, deadline) = (entry.renew_at?.max(plain.not_before), entry.hold.deadline);
        Some(NextRenewal { at, deadline, key: entry.client })
    };
    assert_eq!(bound.next_renewal(), plain.first_renewal().and_then(renewal));
    for now in TIMES {
        assert_eq!(bound.due(now).map(|(_, binding)| key(binding)), plain.due(now).map(key_of));
        let has_lapsed = plain.bindings.iter().all(|entry| entry.hold.deadline <= now);
        assert_eq!(bound.has_lapsed(now), has_lapsed && (1..=FEW).contains(&plain.bindings.len()));
    }
}

fn compare_ended(bound: &SessionHolds, plain: &Plain, now: UnixMs) {
    assert_eq!(bound.ended_sum(now), plain.ended_sum(now));
    for now in TIMES {
        assert_eq!(bound.ended_sum(now), plain.ended_sum(now));
        assert_eq!(bound.has_grace(now), plain.ended().any(|(_, end)| now < until(end)));
    }
    assert_eq!(bound.has_ended(), plain.ended().next().is_some());
    let next = bound.next_ended().map(|(_, binding, end)| (key(binding), end));
    assert_eq!(next.is_some(), bound.has_ended());
    assert!(next.is_none_or(|next| plain.ended().any(|(entry, end)| (key_of(entry), end) == next)));
    let mut tokens: Vec<Token> = bound.released_tokens().collect();
    let released = plain.ended().filter(|(_, end)| end.grace.is_none());
    let mut wanted: Vec<Token> = released.map(|(entry, _)| entry.hold.token).collect();
    tokens.sort_unstable();
    wanted.sort_unstable();
    assert_eq!(tokens, wanted);
}

type Key = (Owner, Mode, SessionKey, Token, UnixMs);

fn key(binding: &Binding) -> Key {
    (binding.owner.clone(), binding.mode, binding.key, binding.token, binding.deadline)
}

fn key_of(entry: &Entry) -> Key {
    (entry.hold.owner.clone(), entry.hold.mode, entry.client, entry.hold.token, entry.hold.deadline)
}

/// Holds that lapsed by an earlier clock stay lapsed when the clock is set back, even after a split.
#[test]
fn holds_that_lapsed_before_a_split_stay_lapsed() {
    let mut bound = SessionHolds::default();
    let bind = |bound: &mut SessionHolds, number: u64, deadline| {
        let hold = hold(owner(number), Mode::Shared, Token::MAX, UnixMs::new(deadline), 1);
        bound.bind(&hold, session(number), renewal(&hold, UnixMs::ZERO));
    };
    bind(&mut bound, 0, 5);
    bind(&mut bound, 1, 20);
    bound.sweep(UnixMs::new(10));
    assert!(bound.split_others(&owner(0)).is_some());
    bind(&mut bound, 2, 20);
    assert_eq!(bound.len(), 2);
    for client in [0, 2].map(session) {
        bound.end(client, SessionEnd { at: UnixMs::ZERO, grace: None });
    }
    assert_eq!(bound.ended_sum(UnixMs::new(1)), Sum { holds: 1, entries: 1 });
}

/// A command that looks at many readers asks for the end of each one's session. A search through the list of ended
/// sessions would take some 1000 times as long with 20,000 as with 8.
#[test]
fn the_end_of_one_of_many_sessions_is_found_without_a_search() {
    let (few, many) = (crowd(8), crowd(20_000));
    let (few, many) = (time_of_ends(&few), time_of_ends(&many));
    assert!(many < few * 50, "{many:?} with 20,000 ended sessions, {few:?} with 8");
}

/// A piece costs the same however many sessions are left: the bindings of a large lock are freed in many pieces.
#[test]
fn a_piece_of_the_bindings_that_are_freed_changes_no_session_that_is_left() {
    let mut bound = crowd(100);
    for left in (0..100).rev() {
        assert_eq!(bound.take_apart(1).len(), 1);
        assert!(bound.sessions.values().all(|session| session.shares_deadlines), "{left} are left");
        assert_eq!((bound.sessions(), bound.has_ended()), (left, false));
    }
}

/// The token of a hold tells its session. An ambiguous token does not, so the owner's binding is looked up.
#[test]
fn a_token_is_ambiguous_when_two_holds_had_it_at_once() {
    let (mut bound, token, mode) = (SessionHolds::default(), Token::MAX, Mode::Shared);
    let mut is_ambiguous = |name: u64, client: u64| {
        let hold = hold(owner(name), mode, token, UnixMs::MAX, 1);
        bound.bind(&hold, session(client), renewal(&hold, UnixMs::ZERO));
        bound.by_token[&(token, mode)].is_ambiguous
    };
    assert_eq!([is_ambiguous(1, 1), is_ambiguous(1, 2), is_ambiguous(2, 3)], [false, false, true]);
}

/// A third of 36 s is 12 s; a twelfth of that is 1 s. The random spread covers exactly that second.
#[test]
fn a_lease_is_extended_when_a_third_has_passed_or_up_to_a_twelfth_of_that_earlier() {
    let at = |lease, deadline, spread| {
        let hold = hold(owner(1), Mode::Shared, Token::MAX, UnixMs::new(deadline), 1);
        Renewal::of(&Hold { lease: Lease::new(lease).unwrap(), ..hold }, spread, 0).at.get()
    };
    assert_eq!([0, 1, 1000, 1001].map(|spread| at(36_000, 100_000, spread)), [76_000, 75_999, 75_000, 76_000]);
    assert_eq!([0, 8, 9].map(|spread| at(300, 1000, spread)), [800, 792, 800]);
    assert_eq!(at(36_000, 5, 0), 12_000, "a deadline before the lease's length");
}

fn crowd(sessions: u64) -> SessionHolds {
    let mut bound = SessionHolds::default();
    for number in 0..sessions {
        let hold = of_crowd(number);
        bound.bind(&hold, session(number), renewal(&hold, UnixMs::ZERO));
        bound.end(session(number), SessionEnd { at: UnixMs::ZERO, grace: None });
    }
    bound
}

fn of_crowd(number: u64) -> Hold {
    hold(owner(number), Mode::Shared, Token::new(number + 1).unwrap(), UnixMs::MAX, 1)
}

/// Returns the time of the shortest of some rounds: other work of the machine only makes a round longer.
fn time_of_ends(bound: &SessionHolds) -> Duration {
    let sessions = bound.sessions() as u64;
    let holds: Vec<Hold> = (0..100).map(|number| of_crowd(number * 197 % sessions)).collect();
    let round = || assert!(holds.iter().all(|hold| black_box(bound).end_of(hold).is_some()));
    (0..10).map(|_| on_core(round)).min().unwrap()
}

fn owners_and_modes() -> impl Iterator<Item = (Owner, Mode)> {
    (0..OWNERS).flat_map(|number| [Mode::Exclusive, Mode::Shared].map(|mode| (owner(number), mode)))
}

fn owner(number: u64) -> Owner {
    Owner::from_uuid(u128::from(number).to_be_bytes())
}

fn hold(owner: Owner, mode: Mode, token: Token, deadline: UnixMs, count: u32) -> Hold {
    // The shared holds of two of three owners have the owner's number as their slot.
    let number = (0..OWNERS).find(|number| self::owner(*number) == owner).filter(|number| number % 3 > 0);
    let slot = number.filter(|_| mode == Mode::Shared).and_then(|number| u32::try_from(number).ok());
    Hold {
        owner,
        mode,
        count,
        lease: Lease::MAX,
        deadline,
        token,
        extras: Extras::of(None, None, slot),
        bond: Bond::NONE,
    }
}

/// Generates operations with few different values of each kind, so that several of them are about the same hold.
fn op() -> impl Strategy<Value = Op> {
    let client = || (0..CLIENTS).prop_map(session);
    let clients = (0..CLIENTS, 1..CLIENTS).prop_map(|(first, count)| (first, first + count));
    let grace = || option::of((1..LAST_MS).prop_map(|ms| Lease::new(ms).unwrap()));
    let end = (time(), grace()).prop_map(|(at, grace)| SessionEnd { at, grace });
    prop_oneof![
        12 => (some_hold(), client(), time()).prop_map(|(hold, client, renew_at)| Op::Bind { hold, client, renew_at }),
        4 => (some_hold(), time()).prop_map(|(hold, renew_at)| Op::Follow { hold, renew_at }),
        4 => (some_owner(), mode()).prop_map(|(owner, mode)| Op::Unbind { owner, mode }),
        3 => (clients, end).prop_map(|(clients, end)| Op::End { clients, end }),
        2 => time().prop_map(|clock| Op::Sweep { clock }),
        2 => time().prop_map(|now| Op::Skip { now }),
        1 => time().prop_map(|until| Op::PutOff { until }),
        2 => (some_owner(), prop::bool::weighted(0.8))
            .prop_map(|(owner, goes_on_with_others)| Op::Split { owner, goes_on_with_others }),
    ]
}

fn some_hold() -> impl Strategy<Value = Hold> {
    let token = (1..=TOKENS).prop_map(|number| Token::new(number).unwrap());
    (some_owner(), mode(), token, time(), 1..4_u32)
        .prop_map(|(owner, mode, token, deadline, count)| hold(owner, mode, token, deadline, count))
}

fn some_owner() -> impl Strategy<Value = Owner> {
    (0..OWNERS).prop_map(owner)
}

fn mode() -> impl Strategy<Value = Mode> {
    prop_oneof![Just(Mode::Exclusive), Just(Mode::Shared)]
}

fn time() -> impl Strategy<Value = UnixMs> {
    (0..LAST_MS).prop_map(UnixMs::new)
}

const OWNERS: u64 = 12;
const CLIENTS: u64 = 16;
const TOKENS: u64 = 20;
const LAST_MS: u64 = 12;
const TIMES: [UnixMs; 5] = [UnixMs::new(0), UnixMs::new(3), UnixMs::new(6), UnixMs::new(9), UnixMs::new(24)];

fn session(client: u64) -> SessionKey {
    if client.is_multiple_of(2) {
        SessionKey::Connection(crate::ClientId(client))
    } else {
        SessionKey::Named(NamedId(client))
    }
}
