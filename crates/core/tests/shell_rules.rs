//! What the module asks of a lock beside its commands: whether a release speaks for itself, whether a hold is still the
//! one that was bound, whether a key lives too long.

#![allow(clippy::unwrap_used, reason = "a test that panics has failed, which is what it is for")]

use dlock_core::{
    Change, Effect, Entries, Expiry, Hold, Lease, Lock, Mode, Owner, Release, Released, Token, TokenClock, UnixMs,
    Waiters,
};

const NOW: UnixMs = UnixMs::new(1_000_000);

#[test]
fn a_release_speaks_for_itself_if_nobody_waits_and_nothing_has_lapsed() {
    let readers = lock([hold("alice", 5), hold("bob", 9)]);
    let release = fully(&readers, "alice");
    assert!(readers.is_told_by_command(NOW, &release, Waiters::None));
    assert!(!readers.is_told_by_command(NOW, &release, Waiters::Some), "bob's key is to live longer");
    let then = UnixMs::new(NOW.get() + 5);
    assert!(!readers.is_told_by_command(then, &fully(&readers, "bob"), Waiters::None), "alice has lapsed");
}

#[test]
fn the_release_of_the_last_hold_speaks_for_itself_even_if_somebody_waits() {
    let alone = lock([hold("alice", 5)]);
    assert!(alone.is_told_by_command(NOW, &fully(&alone, "alice"), Waiters::Some));
    let both = lock([Hold { mode: Mode::Exclusive, ..hold("alice", 5) }, hold("alice", 5)]);
    let alice = owner("alice");
    let all = Release { entries: Entries::All, ..release(&alice, None) };
    assert!(both.is_told_by_command(NOW, &effect(both.release(NOW, &all)), Waiters::Some));
    let one = effect(both.release(NOW, &release(&alice, Some(Mode::Shared))));
    assert!(!both.is_told_by_command(NOW, &one, Waiters::Some), "the exclusive hold is left");
}

#[test]
fn a_partial_release_speaks_for_itself_only_if_nobody_waits() {
    let twice = lock([Hold { count: 2, ..hold("alice", 5) }]);
    let alice = owner("alice");
    let Released::Partly(partly) = twice.release(NOW, &release(&alice, None)) else { panic!("an entry is left") };
    assert!(twice.is_told_by_command(NOW, &partly, Waiters::None));
    assert!(!twice.is_told_by_command(NOW, &partly, Waiters::Some));
}

#[test]
fn a_session_ends_with_the_hold_it_was_bound_to() {
    let (lock, alice) = (lock([hold("alice", 5)]), owner("alice"));
    let end = |mode, token| lock.end_session(NOW, &alice, mode, Token::new(token).unwrap(), None);
    assert!(end(Mode::Shared, 7).is_some_and(|gone| gone.hold().is_none()));
    let grace = lock.end_session(NOW, &alice, Mode::Shared, Token::new(7).unwrap(), Lease::new(3)).unwrap();
    assert_eq!(grace.hold().map(|hold| hold.deadline), Some(UnixMs::new(NOW.get() + 3)));
    assert_eq!(end(Mode::Shared, 8), None, "another hold of that owner");
    assert_eq!(end(Mode::Exclusive, 7), None);
}

#[test]
fn a_key_may_outlive_its_holds_by_the_grace_of_those_who_wait() {
    let lock = lock([hold("alice", 5), hold("bob", 9)]);
    let end = |after: u64| Some(UnixMs::new(NOW.get() + 9 + after));
    for (waiters, grace) in [(Waiters::None, 0), (Waiters::Some, Waiters::GRACE_MS)] {
        assert!(lock.is_outlived(None, waiters), "it never ends");
        assert!(lock.is_outlived(end(grace + 1), waiters));
        assert!(!lock.is_outlived(end(grace), waiters));
        assert!(!lock.is_outlived(Some(NOW), waiters), "an early end is somebody's wish");
        assert!(!Lock::default().is_outlived(None, waiters));
    }
}

/// A reader with token 7 whose lease ends in so many ms.
fn hold(name: &str, left: u64) -> Hold {
    let (lease, deadline) = (Lease::new(left).unwrap(), UnixMs::new(NOW.get() + left));
    let token = Token::new(7).unwrap();
    Hold { owner: owner(name), mode: Mode::Shared, count: 1, lease, deadline, token, request: None }
}

fn lock(holds: impl IntoIterator<Item = Hold>) -> Lock {
    let mut lock = Lock::default();
    for hold in holds {
        let change = Change::Put { hold, expiry: Expiry::Anew };
        lock.apply(Effect { clock: NOW, change, waiters: Waiters::None }, &mut TokenClock::new());
    }
    lock
}

fn fully(lock: &Lock, name: &str) -> Effect {
    effect(lock.release(NOW, &release(&owner(name), None)))
}

fn effect(released: Released) -> Effect {
    match released {
        Released::Fully(effect) => effect,
        other => panic!("{other:?}"),
    }
}

fn release(owner: &Owner, mode: Option<Mode>) -> Release<'_> {
    Release { owner, mode, entries: Entries::One, token: None, request: None }
}

fn owner(name: &str) -> Owner {
    Owner::new(name.as_bytes()).unwrap()
}
