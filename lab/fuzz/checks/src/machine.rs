//! Histories of locks, lines, sessions and of the search for deadlocks, played on the core and on the models.
//!
//! The first byte says what is played. Every step is made of the bytes after it, few of each kind, so that a fuzzer
//! that changes a byte changes a step.

use dlock_core::{Entries, Mode, Owner, Reentry, Sessions, Waiters, find_cycle};

use dlock_testkit::histories::bound;
use dlock_testkit::histories::crowd::{Ask, Event, Patience};
use dlock_testkit::histories::history::{Lease, Somebody, Step, TokenPick, TokenRule};
use dlock_testkit::histories::shop::Shop;
use dlock_testkit::histories::world::World;

use crate::bytes::Bytes;

/// Plays the bytes as a history.
pub fn machine(bytes: &[u8]) {
    let mut bytes = Bytes::new(bytes);
    match bytes.below(8) {
        0..=2 => drop(World::play(&steps(&mut bytes))),
        3..=5 => drop(Shop::play(&events(&mut bytes))),
        6 => bound_holds(&mut bytes),
        _ => cycles(&mut bytes),
    }
}

fn steps(bytes: &mut Bytes) -> Vec<Step> {
    let owners = if bytes.flag() { 3 } else { 12 };
    let mut steps = Vec::new();
    while !bytes.is_over() && steps.len() < MAX_STEPS {
        steps.push(step(bytes, owners));
    }
    steps
}

fn step(bytes: &mut Bytes, owners: u16) -> Step {
    match bytes.below(24) {
        0..=6 => {
            let (mode, reentry) = bytes.pick(&WAYS_IN);
            let (owner, lease) = (bytes.below(owners), lease(bytes));
            Step::Acquire { owner, mode, reentry, lease, request: id(bytes) }
        }
        7..=10 => {
            let (owner, mode, entries) = (somebody(bytes, owners), mode(bytes), entries(bytes));
            let token = (bytes.below(3) == 0).then(|| token_pick(bytes));
            Step::Release { owner, mode, entries, token, request: id(bytes) }
        }
        11..=13 => {
            let (owner, mode, lease) = (somebody(bytes, owners), mode(bytes), lease(bytes));
            let token = match bytes.below(4) {
                0 => TokenRule::Is(token_pick(bytes)),
                1 => TokenRule::AtLeast(token_pick(bytes), bytes.number(256) * 10),
                _ => TokenRule::Any,
            };
            Step::Renew { owner, mode, lease, token }
        }
        14 | 15 => Step::Wait(bytes.number(90) + 1),
        16 => Step::ClockBack(bytes.number(20)),
        17 => Step::Expire(bytes.number(120) + 1),
        18 => Step::Persist,
        19 => Step::KeyEnds,
        20 => Step::Resend,
        21 => Step::Waiters(if bytes.flag() { Waiters::Some } else { Waiters::None }),
        22 => Step::Sweep,
        _ => match bytes.below(8) {
            0 => Step::Delete,
            1..=3 => Step::Reload,
            _ => Step::Resync,
        },
    }
}

fn events(bytes: &mut Bytes) -> Vec<Event> {
    let owners = if bytes.flag() { 3 } else { 8 };
    let mut events = Vec::new();
    while !bytes.is_over() && events.len() < MAX_STEPS {
        events.push(event(bytes, owners));
    }
    events
}

fn event(bytes: &mut Bytes, owners: u16) -> Event {
    match bytes.below(16) {
        0..=5 => {
            let (mode, reentry) = bytes.pick(&WAYS_IN);
            let (owner, lease) = (bytes.below(owners), lease(bytes));
            Event::Ask(Ask { owner, mode, reentry, lease, has_id: bytes.flag(), patience: patience(bytes) })
        }
        6 => Event::AskAgain(patience(bytes)),
        7..=9 => Event::Release(bytes.below(owners), mode(bytes), entries(bytes)),
        10 => Event::Wait(bytes.number(60) + 1),
        11 => Event::Look,
        12 => Event::Renew(bytes.below(owners), bytes.number(80) + 1),
        13 => {
            let mode = if bytes.flag() { Mode::Shared } else { Mode::Exclusive };
            Event::SessionEnds(bytes.below(owners), mode, bytes.flag().then(|| bytes.number(40) + 1))
        }
        14 => Event::Leave(bytes.below(8)),
        _ => Event::Delete,
    }
}

fn lease(bytes: &mut Bytes) -> Lease {
    match bytes.byte() {
        0..=80 => Lease::Own,
        ms @ 81..=200 => Lease::For(u64::from(ms) - 80),
        ms => Lease::Until(i64::from(ms) - 204),
    }
}

fn mode(bytes: &mut Bytes) -> Option<Mode> {
    bytes.pick(&[None, Some(Mode::Exclusive), Some(Mode::Shared)])
}

fn entries(bytes: &mut Bytes) -> Entries {
    bytes.pick(&[Entries::One, Entries::One, Entries::All])
}

fn patience(bytes: &mut Bytes) -> Patience {
    bytes.pick(&[Patience::Block, Patience::Block, Patience::Block, Patience::None])
}

fn id(bytes: &mut Bytes) -> Option<u8> {
    bytes.pick(&[None, None, Some(0), Some(1)])
}

fn somebody(bytes: &mut Bytes, owners: u16) -> Somebody {
    let byte = bytes.below(256);
    if byte < 192 { Somebody::Holder(byte) } else { Somebody::Any(byte % usize::from(owners)) }
}

fn token_pick(bytes: &mut Bytes) -> TokenPick {
    match bytes.below(8) {
        0..=2 => TokenPick::Mine(Mode::Exclusive),
        3..=4 => TokenPick::Mine(Mode::Shared),
        5..=6 => TokenPick::Of(bytes.below(8)),
        _ => TokenPick::Never,
    }
}

fn bound_holds(bytes: &mut Bytes) {
    let (mut sessions, mut list) = (Sessions::default(), Vec::new());
    let mut serial = 0;
    while !bytes.is_over() {
        let id = |bytes: &mut Bytes| {
            let byte = bytes.byte();
            (byte % 3, byte / 3 % 2, byte / 6 % 2 == 1)
        };
        // Deadlines that differ: which of two equal ones is first does not matter.
        serial += 1;
        let deadline = |bytes: &mut Bytes| (bytes.number(256) << 16) + serial;
        let step = match bytes.below(16) {
            0..=4 => bound::Step::Bind(id(bytes), bytes.number(3), deadline(bytes), bytes.number(50)),
            5..=6 => bound::Step::Moved(id(bytes), deadline(bytes), bytes.number(50)),
            7..=8 => bound::Step::Unbind(id(bytes)),
            9 => bound::Step::UnbindLock(bytes.byte() % 3),
            10 => bound::Step::UnbindFrom(bytes.byte() % 4),
            11 => bound::Step::End(bytes.number(3)),
            _ => bound::Step::Due(bytes.number(60), bytes.flag()),
        };
        bound::play(&mut sessions, &mut list, &step);
        bound::compare(&sessions, &list);
    }
    for client in 0..3 {
        bound::play(&mut sessions, &mut list, &bound::Step::End(client));
    }
    assert!(bound::is_over(&mut sessions));
}

/// Each owner waits for one lock or none, and each lock for some owners: who reaches himself is on a cycle.
fn cycles(bytes: &mut Bytes) {
    const OWNERS: usize = 8;
    let owners: [Owner; OWNERS] = std::array::from_fn(|n| Owner::new(&[b'a' + u8::try_from(n).unwrap()]).unwrap());
    let holders: [u8; OWNERS] = std::array::from_fn(|_| bytes.byte());
    let waits: [Option<usize>; OWNERS] = std::array::from_fn(|_| Some(bytes.below(12)).filter(|lock| *lock < OWNERS));
    let start = bytes.below(8);
    let held_by = |lock: usize| (0..OWNERS).filter(move |owner| holders[lock] >> owner & 1 == 1);
    let number = |owner: &Owner| owners.iter().position(|other| other == owner).unwrap();
    let found = find_cycle(
        &owners[0],
        start,
        |lock, most| held_by(*lock).take(most).map(|owner| owners[owner].clone()).collect(),
        |owner| waits[number(owner)],
    );
    // Everybody in the way of owner 0, and in the way of those; its own hold on the lock it wants is in nobody's way.
    let mut reached: Vec<usize> = held_by(start).filter(|owner| *owner != 0).collect();
    let mut at = 0;
    while let Some(owner) = reached.get(at).copied() {
        let more: Vec<usize> = waits[owner].into_iter().flat_map(held_by).filter(|n| !reached.contains(n)).collect();
        // Who is owner 0 is not asked further: the cycle is closed.
        reached.extend(more);
        at += if reached.contains(&0) { reached.len() } else { 1 };
    }
    assert_eq!(found.is_some(), reached.contains(&0), "{holders:?} {waits:?} {start}");
    let Some(path) = found else { return };
    assert_eq!((number(&path[0].owner), path[0].lock), (0, start));
    for (step, next) in path.iter().zip(path.iter().cycle().skip(1)) {
        assert!(held_by(step.lock).any(|owner| owner == number(&next.owner)), "{path:?}");
    }
    assert!(path[1..].iter().all(|step| waits[number(&step.owner)] == Some(step.lock)));
}

const WAYS_IN: [(Mode, Reentry); 6] = [
    (Mode::Exclusive, Reentry::Count),
    (Mode::Exclusive, Reentry::Refuse),
    (Mode::Shared, Reentry::Count),
    (Mode::Shared, Reentry::Count),
    (Mode::Exclusive, Reentry::Count),
    (Mode::Shared, Reentry::Count),
];

/// A longer history is slower, and seldom worth more.
const MAX_STEPS: usize = 64;
