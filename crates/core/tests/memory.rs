//! Compares `heap_bytes`, which `MEMORY USAGE` reports, with the bytes that were allocated.

#![allow(clippy::unwrap_used, reason = "a test that panics has failed, which is what it is for")]

use allocation_counter::measure;
use dlock_core::engine::{Call, Left, Settings};
use dlock_core::{
    BindTo, Bond, Change, ClientId, Command, Effect, Engine, Entries, Expiry, Extras, Hold, Keyspace, Lease,
    LeaseChoice, Lock, Memory, Mode, Name, Owner, Release, Request, RequestId, Token, UnixMs, Want,
};
use dlock_testkit::keyspace::MemoryKeyspace;

#[test]
fn a_lock_with_one_hold_has_nothing_on_the_heap_but_a_long_owner() {
    assert_eq!(Lock::default().heap_bytes(), 0);
    assert_eq!(heap(1, UUID, 0), Heap { reported: 0, real: 0 });
    assert_eq!(heap(1, 10, 0), Heap { reported: 10, real: 10 });
    assert_eq!(heap(1, 1024, 0), Heap { reported: 1024, real: 1024 });
}

#[test]
fn a_few_readers_are_reported_within_64_bytes() {
    for len in [UUID, 10, 1024] {
        for readers in 2..=11 {
            let Heap { reported, real } = heap(readers, len, 0);
            assert!(reported.abs_diff(real) <= 64, "{readers} owners of {len} bytes: {reported}, in fact {real}");
        }
    }
}

#[test]
fn many_readers_are_reported_within_a_fifth() {
    for len in [UUID, 10, 1024] {
        for readers in [50, 100, 1000, 10_000] {
            let Heap { reported, real } = heap(readers, len, 0);
            assert!(reported.abs_diff(real) <= real / 5, "{readers} owners of {len} bytes: {reported}, in fact {real}");
        }
    }
}

#[test]
fn the_places_of_readers_that_left_are_given_back() {
    let Heap { reported, real } = heap(1000, UUID, 998);
    assert!(real < 4000, "{real}");
    assert!(reported.abs_diff(real) <= 512, "{reported}, in fact {real}");
}

/// The module keeps a ticket for each waiter, too, which is not measured here.
#[test]
fn a_waiter_takes_at_most_500_bytes_of_a_long_queue() {
    let settings = Settings::new(Lease::new(30_000).unwrap());
    let (mut engine, mut space) = (Engine::<usize>::new(7, settings), MemoryKeyspace::at(1_000_000));
    let (waiters, own) = (10_000, owner(0, UUID));
    let mut acquire = |number: u64, owner: Owner| {
        let call = Call { name: Name { db: 0, key: b"lock" }, now: space.now(), client: ClientId(number) };
        let ask = Request::new(owner, Want::ExclusiveOnce, LeaseChoice::Own);
        engine.acquire(&mut space, call, &ask, Some(|_| 0)).unwrap();
        let mut outputs = engine.take_outputs();
        outputs.clear();
        engine.swap_outputs(outputs);
    };
    acquire(0, own);
    let counted = measure(|| (1..=waiters).for_each(|number| acquire(number, owner(number, UUID))));
    let bytes = counted.bytes_current.cast_unsigned() / waiters;
    assert!((80..=500).contains(&bytes), "{bytes} bytes a waiter");
}

/// The records, names and sessions of holds are freed with the last hold.
#[test]
fn an_engine_frees_the_memory_of_many_sessions() {
    let settings = Settings::new(Lease::new(30_000).unwrap());
    let (mut engine, mut space) = (Engine::<usize>::new(7, settings), MemoryKeyspace::at(1_000_000));
    let counted = measure(|| {
        for round in 0..2_u64 {
            for number in 0..5000_u64 {
                let key = number.to_be_bytes();
                let call = Call { name: Name { db: 0, key: &key }, now: space.now(), client: ClientId(round) };
                let ask = Request {
                    session: BindTo::Connection,
                    ..Request::new(owner(1, UUID), Want::Exclusive, LeaseChoice::Own)
                };
                engine.acquire(&mut space, call, &ask, None::<fn(_) -> usize>).unwrap();
            }
        }
        for number in 0..5000_u64 {
            let key = number.to_be_bytes();
            let call = Call { name: Name { db: 0, key: &key }, now: space.now(), client: ClientId(0) };
            let owner = owner(1, UUID);
            let release = Release { owner: &owner, mode: None, entries: Entries::All, token: None, request: None };
            assert_eq!(engine.release(&mut space, call, &release).unwrap(), Left::Fully);
        }
        drop((engine.take_outputs(), space.take_stream()));
        space.set_now_us(1_000_000_000);
        space.modified.clear();
        space.take_unlinked();
    });
    // The slots of the records stay, 16 bytes each: they are used again.
    assert!(counted.bytes_current < 150_000, "{} bytes", counted.bytes_current);
}

#[test]
fn a_lock_with_one_hold_left_is_small_again() {
    let remove = |name| Change::Remove { owner: owner(name, UUID), mode: None };
    let read = |name| put(reader(name, UUID));
    let write = |name| put(Hold { mode: Mode::Exclusive, ..reader(name, UUID) });
    let cases = [
        ("enters again", vec![read(1), read(1)]),
        ("is left of two", vec![read(1), read(2), remove(1)]),
        ("comes after two others left", vec![read(1), read(2), remove(1), remove(2), read(3)]),
        ("gives up one of two modes", vec![read(1), write(1), Change::Remove { owner: owner(1, UUID), mode: SHARED }]),
        ("replaces one that it excludes", vec![read(1), write(2)]),
        ("replaces many that it excludes", vec![read(1), read(2), read(3), write(4)]),
        ("replaces both modes of another owner", vec![read(1), write(1), write(2)]),
    ];
    for (what, changes) in cases {
        let mut lock = Lock::default();
        for change in changes {
            lock.apply(Effect { clock: UnixMs::ZERO, change }, &mut Memory::new());
        }
        assert_eq!((lock.stored(), lock.heap_bytes()), (1, 0), "the hold that {what}");
    }
}

/// A server frees a value with an effort above 64 in another thread, if it may.
#[test]
fn freeing_a_lock_is_as_large_an_effort_as_the_holds_that_it_has_dropped_and_not_freed() {
    let (mut lock, mut memory) = (Lock::default(), Memory::new());
    let mut apply = |clock, change| lock.apply(Effect { clock: UnixMs::new(clock), change }, &mut memory);
    for number in 0..1100 {
        let deadline = UnixMs::new(if number < 1000 { 50 } else { 60 });
        apply(0, put(Hold { deadline, ..reader(number, UUID) }));
    }
    assert_eq!(apply(50, Change::Sweep).lapsed, 1000);
    (1002..1005).for_each(|number| _ = apply(50, Change::Remove { owner: owner(number, UUID), mode: None }));
    // Each of the three changes has freed 64 of the 1,000.
    assert_eq!((lock.stored(), lock.free_effort()), (97, 97 + 808));
    assert!(memory.trash.is_empty());
    let own = Hold { deadline: UnixMs::new(60), ..reader(1001, UUID) };
    for change in [put(Hold { mode: Mode::Exclusive, ..own.clone() }), put(own)] {
        lock.apply(Effect { clock: UnixMs::new(50), change }, &mut memory);
        assert_eq!(lock.free_effort(), 2, "the trash has the readers");
    }
    assert_eq!([Lock::default().free_effort(), lock.stored()], [0, 2]);
}

#[test]
fn the_request_id_of_a_hold_is_reported() {
    let (mut lock, mut memory) = (Lock::default(), Memory::new());
    let counted = measure(|| {
        let extras = Extras::of(RequestId::new(Command::Acquire, &[b'r'; 60]), None, None);
        let change = put(Hold { extras, ..reader(1, UUID) });
        lock.apply(Effect { clock: UnixMs::ZERO, change }, &mut memory);
    });
    assert_eq!(u64::try_from(lock.heap_bytes()).unwrap(), u64::try_from(counted.bytes_current).unwrap());
    assert!(lock.heap_bytes() >= 60);
}

#[derive(Debug, PartialEq, Eq)]
struct Heap {
    reported: usize,
    real: usize,
}

/// Returns the memory of a lock that `came` readers have entered, of which `left` have left.
fn heap(came: u64, owner_len: usize, left: u64) -> Heap {
    let (mut lock, mut memory) = (Lock::default(), Memory::new());
    let mut apply = |change| lock.apply(Effect { clock: UnixMs::ZERO, change }, &mut memory);
    let counted = measure(|| {
        for number in 0..came {
            apply(put(reader(number, owner_len)));
        }
        for number in 0..left {
            apply(Change::Remove { owner: owner(number, owner_len), mode: None });
        }
    });
    Heap { reported: lock.heap_bytes(), real: usize::try_from(counted.bytes_current).unwrap() }
}

fn put(hold: Hold) -> Change {
    Change::Put { hold, expiry: Expiry::Anew }
}

fn reader(number: u64, owner_len: usize) -> Hold {
    Hold {
        owner: owner(number, owner_len),
        mode: Mode::Shared,
        count: 1,
        lease: Lease::new(1000).unwrap(),
        // The order of deadlines is not that of tokens.
        deadline: UnixMs::new(1_000_000 + number * 7919 % 10_007),
        token: Token::new(number + 1).unwrap(),
        extras: None,
        bond: Bond::NONE,
    }
}

fn owner(number: u64, len: usize) -> Owner {
    match len {
        UUID => Owner::from_uuid(u128::from(number).to_be_bytes()),
        _ => Owner::new(format!("{number:0len$}").as_bytes()).unwrap(),
    }
}

/// Stands for the length of an owner that is a UUID, which is kept in place as 16 bytes.
const UUID: usize = 0;
const SHARED: Option<Mode> = Some(Mode::Shared);
