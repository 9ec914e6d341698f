//! The cost of an operation on a lock does not grow linearly with the number of readers.

#![allow(clippy::unwrap_used, reason = "a test that panics has failed, which is what it is for")]

use std::hint::black_box;
use std::num::NonZeroU32;
use std::time::Duration;

use dlock_core::{
    Acquired, Change, Effect, Entries, Expiry, Hold, Lease, LeaseChoice, Lock, Memory, Owner, Release, Released, Renew,
    RenewToken, Renewed, Request, Terms, UnixMs, Want,
};
use dlock_testkit::thread_time::on_core;

/// A loop over 10,000 readers takes some 500 times as long as a loop over 20, a search in a tree about 3 times. The
/// bound of 50 is far from both, so that a busy machine does not matter.
#[test]
fn no_operation_is_linear_in_readers() {
    let (mut few, mut many) = (Crowd::of(20), Crowd::of(10_000));
    for (name, operation) in OPERATIONS {
        let (few, many) = (few.time(operation), many.time(operation));
        assert!(many < few * 50, "{name}: {many:?} with 10,000 readers, {few:?} with 20");
    }
}

/// All readers have slots. A loop over 10,000 holds takes some 500 times as long as a loop over 20. The search for a
/// free slot looks at chunks of 64 slots, which are few.
#[test]
fn a_free_slot_is_not_searched_for_among_all_readers() {
    let [few, many] = [20, 10_000].map(|readers| {
        let mut crowd = Crowd::of(0);
        (0..readers).for_each(|number| crowd.enter_with_slot(number));
        crowd.leave(readers / 2);
        crowd.time(|crowd, number| {
            crowd.enter_with_slot(1_000_000 + number);
            crowd.enter_with_slot(2_000_000 + number);
            crowd.leave(1_000_000 + number);
            crowd.leave(2_000_000 + number);
        })
    });
    assert!(many < few * 50, "{many:?} with 10,000 readers, {few:?} with 20");
}

/// Half of the holds have lapsed, and then they are dropped but not freed yet. They have the higher tokens, the lower
/// ones, or every second one.
#[test]
fn no_look_at_a_lock_is_linear_in_lapsed_readers() {
    type Look = fn(&Lock) -> usize;
    let looks: [(&str, Look); 3] = [
        ("the summary", |lock| usize::try_from(lock.summary(LATER).entries).unwrap()),
        ("the first holds", |lock| lock.live_holds(LATER).take(10).count()),
        ("the bytes", Lock::heap_bytes),
    ];
    let orders: [fn(u64, u64) -> bool; 3] =
        [|number, all| number >= all / 2, |number, all| number < all / 2, |number, _| number % 2 == 0];
    for has_lapsed in orders {
        let crowds = [200, 20_000].map(|readers| {
            let mut crowd = Crowd::of(0);
            (0..readers)
                .for_each(|number| crowd.enter_until(number, if has_lapsed(number, readers) { LATER } else { END }));
            let lapsed = crowd.lock.clone();
            crowd.lock.apply(Effect { clock: LATER, change: Change::Sweep }, &mut crowd.memory);
            [lapsed, crowd.lock]
        });
        for (name, look) in looks {
            let [few, many] = crowds.each_ref().map(|locks| {
                let mut time = Duration::ZERO;
                for lock in locks {
                    time += least(|| assert!(black_box(look(black_box(lock))) >= 10));
                }
                time
            });
            assert!(many < few * 30, "{name}: {many:?} with 20,000 readers, {few:?} with 200");
        }
    }
}

/// An operation gets the number of a round, times 97. Owners from 1,000,000 are no readers of the crowd.
type Operation = fn(&mut Crowd, u64);

const OPERATIONS: [(&str, Operation); 8] = [
    ("a reader comes and goes", |crowd, number| {
        crowd.enter(1_000_000 + number);
        crowd.leave(1_000_000 + number);
    }),
    ("a reader enters again and leaves once", |crowd, number| {
        crowd.enter(number % crowd.readers);
        crowd.leave(number % crowd.readers);
    }),
    ("a reader renews", |crowd, number| crowd.renew(number % crowd.readers)),
    ("a writer is refused", |crowd, _| crowd.refuse()),
    ("a token is looked up", |crowd, number| {
        let owner = owner(number % crowd.readers);
        let token = crowd.lock.live_holds_of(&owner, NOW).next().unwrap().token;
        assert!(crowd.lock.deadline_of(token, NOW).is_some());
    }),
    ("the summary", |crowd, _| assert_eq!(crowd.lock.summary(NOW).holders, crowd.readers)),
    ("the last deadline", |crowd, _| assert!(crowd.lock.last_deadline() > Some(NOW))),
    ("whether a hold has lapsed", |crowd, _| assert!(!crowd.lock.has_lapsed(NOW))),
];

/// A lock with readers, whose owners are numbered from 0.
struct Crowd {
    lock: Lock,
    memory: Memory,
    readers: u64,
}

impl Crowd {
    fn of(readers: u64) -> Crowd {
        let mut crowd = Crowd { lock: Lock::default(), memory: Memory::new(), readers };
        (0..readers).for_each(|number| crowd.enter(number));
        crowd
    }

    /// Returns the time that 100 operations take, the least of ten measurements.
    fn time(&mut self, operation: Operation) -> Duration {
        least(|| (0..100).for_each(|number| operation(black_box(self), number * 97)))
    }

    /// Enters a reader with this deadline.
    fn enter_until(&mut self, number: u64, deadline: UnixMs) {
        self.enter(number);
        let hold = self.lock.live_holds_of(&owner(number), NOW).next().unwrap().clone();
        self.lock.apply(
            Effect {
                clock: UnixMs::ZERO,
                change: Change::Put { hold: Hold { deadline, ..hold }, expiry: Expiry::Anew },
            },
            &mut self.memory,
        );
    }

    fn enter(&mut self, number: u64) {
        // The factor scatters the leases, so that the order of deadlines is not that of tokens.
        let lease = LeaseChoice::For(Lease::new(1000 + number * 7919 % 10_007).unwrap());
        let request = Request::new(owner(number), Want::Shared, lease);
        let terms = Terms { default: LEASE, fresh: self.memory.tokens.next(1) };
        let Acquired::Granted(hold, _) = self.lock.acquire(NOW, &request, terms) else {
            panic!("reader {number} is refused");
        };
        self.put(hold);
    }

    /// Enters a reader that asks for a slot.
    fn enter_with_slot(&mut self, number: u64) {
        let request = Request::new(owner(number), Want::Slot { limit: NonZeroU32::MAX }, LeaseChoice::Own);
        let terms = Terms { default: LEASE, fresh: self.memory.tokens.next(1) };
        let Acquired::Granted(hold, _) = self.lock.acquire(NOW, &request, terms) else {
            panic!("reader {number} is refused");
        };
        self.put(hold);
    }

    fn leave(&mut self, number: u64) {
        let request = Release { owner: &owner(number), mode: None, entries: Entries::ONE, token: None, request: None };
        match self.lock.release(NOW, &request) {
            Released::Partly(hold) => self.put(hold),
            Released::Fully(hold) => {
                let mode = Some(hold.mode);
                self.apply(Change::Remove { owner: owner(number), mode });
            }
            Released::Both(..) => self.apply(Change::Remove { owner: owner(number), mode: None }),
            other => panic!("reader {number} leaves: {other:?}"),
        }
    }

    fn renew(&mut self, number: u64) {
        let request = Renew { owner: &owner(number), mode: None, lease: LeaseChoice::Own, token: RenewToken::Any };
        let Renewed::Moved(hold, None, _) = self.lock.renew(NOW, &request) else { panic!("{number} holds nothing") };
        self.put(hold);
    }

    /// Asks for the lock in each way that the readers exclude.
    fn refuse(&self) {
        let full = Want::Permits { permits: NonZeroU32::MIN, limit: NonZeroU32::MIN };
        for want in [Want::Exclusive, Want::ExclusiveOnce, full] {
            let request = Request::new(owner(5), want, LeaseChoice::Own);
            let decision = self.lock.acquire(NOW, &request, Terms { default: LEASE, fresh: None });
            assert!(matches!(decision, Acquired::Refused(_)));
        }
    }

    fn put(&mut self, hold: Hold) {
        self.apply(Change::Put { hold, expiry: Expiry::Anew });
    }

    fn apply(&mut self, change: Change) {
        self.lock.apply(Effect { clock: NOW, change }, &mut self.memory);
    }
}

/// Returns the least of ten measurements: other work of the machine makes them longer.
fn least(mut act: impl FnMut()) -> Duration {
    (0..10).map(|_| on_core(&mut act)).min().unwrap()
}

fn owner(number: u64) -> Owner {
    Owner::from_uuid(u128::from(number).to_be_bytes())
}

const NOW: UnixMs = UnixMs::new(1_000_000);
const LEASE: Lease = Lease::new(1000).unwrap();
const LATER: UnixMs = UnixMs::new(1_000_001);
const END: UnixMs = UnixMs::new(2_000_000);
