//! Counts, tokens and times at their limits.

#![allow(clippy::unwrap_used, reason = "a test that panics has failed, which is what it is for")]

use std::num::NonZeroU32;

use dlock_core::{
    Acquired, Bond, Change, Command, Effect, Entry, Expiry, Extras, Hold, Lease, LeaseChoice, Lock, Memory, Mode,
    Owner, Refusal, Renew, RenewToken, Renewed, Request, RequestId, Terms, Token, TokenClock, UnixMs, Want,
};

const NOW: UnixMs = UnixMs::new(1_000_000);
const LEASE: Lease = Lease::new(1000).unwrap();
const TERMS: Terms = Terms { default: LEASE, fresh: Token::new(1) };

#[test]
fn entries_are_counted_up_to_four_billion() {
    let owner = owner("alice");
    let lock = held(Hold { count: u32::MAX - 1, ..hold("alice") });
    let Acquired::Granted(hold, Entry::Again) = enter(&lock, NOW, &owner, LeaseChoice::Own) else {
        panic!("the last entry is refused");
    };
    assert_eq!(hold.count, u32::MAX);
    let full = held(hold);
    assert_eq!(enter(&full, NOW, &owner, LeaseChoice::Own), Acquired::Refused(Refusal::TooManyEntries));
}

#[test]
fn permits_beyond_four_billion_over_all_owners_are_refused() {
    let most = NonZeroU32::MAX;
    let (alice, bob) = (owner("alice"), owner("bob"));
    let all = Hold { count: u32::MAX, mode: Mode::Shared, ..hold("alice") };
    let lock = held(all);
    let ask = |owner: &Owner, permits| {
        let want = Want::Permits { permits, limit: most };
        lock.acquire(NOW, &Request::new(owner.clone(), want, LeaseChoice::Own), TERMS)
    };
    assert_eq!(ask(&bob, NonZeroU32::MIN), Acquired::Refused(Refusal::Held));
    assert_eq!(ask(&bob, most), Acquired::Refused(Refusal::Held));
    assert_eq!(ask(&alice, most), Acquired::Refused(Refusal::OverLimit));
}

#[test]
fn without_a_token_there_is_no_new_hold() {
    let (alice, bob) = (owner("alice"), owner("bob"));
    let acquire =
        |lock: &Lock, owner| lock.acquire(NOW, &request(owner, LeaseChoice::Own), Terms { fresh: None, ..TERMS });
    assert_eq!(acquire(&Lock::default(), &alice), Acquired::Refused(Refusal::NoToken));
    let lock = held(hold("alice"));
    assert_eq!(acquire(&lock, &bob), Acquired::Refused(Refusal::Held));
    assert!(matches!(acquire(&lock, &alice), Acquired::Granted(_, Entry::Again)), "a re-entry needs no new token");
}

/// An empty lock decides by a shortcut. The decision must be that of a lock whose holds have all lapsed.
#[test]
fn an_empty_lock_decides_as_one_with_lapsed_holds() {
    let id = RequestId::new(Command::Acquire, b"r").map(Box::new);
    let lapsed = |name, mode, id: Option<&RequestId>| {
        let hold = Hold { mode, deadline: NOW, extras: Extras::of(id.cloned(), None, None), ..hold(name) };
        let mut lock = Lock::default();
        let change = Change::Put { hold, expiry: Expiry::Anew };
        lock.apply(Effect { clock: UnixMs::ZERO, change }, &mut Memory::new());
        assert!(!lock.is_empty() && lock.has_lapsed(NOW));
        lock
    };
    let gone = [("alice", Mode::Exclusive), ("alice", Mode::Shared), ("bob", Mode::Exclusive), ("bob", Mode::Shared)]
        .map(|(name, mode)| lapsed(name, mode, id.as_deref()));
    let most = NonZeroU32::MAX;
    let permits = |permits, limit| Want::Permits { permits, limit };
    let one = NonZeroU32::MIN;
    for want in [
        Want::ExclusiveOnce,
        Want::Exclusive,
        Want::Shared,
        permits(one, one),
        permits(most, most),
        permits(most, one),
        Want::Slot { limit: one },
        Want::Slot { limit: most },
    ] {
        for lease in
            [LeaseChoice::Own, LeaseChoice::For(LEASE), LeaseChoice::Until(NOW), LeaseChoice::Until(UnixMs::MAX)]
        {
            for fresh in [None, Token::new(7)] {
                for (id, cap) in
                    [(None, None), (id.clone(), None), (id.clone(), Lease::new(1)), (None, Some(Lease::MAX))]
                {
                    let request = Request { id, cap, ..Request::new(owner("alice"), want, lease) };
                    let terms = Terms { fresh, ..TERMS };
                    let empty = Lock::default().acquire(NOW, &request, terms);
                    for lapsed in &gone {
                        assert_eq!(empty, lapsed.acquire(NOW, &request, terms), "{request:?} {lapsed:?}");
                    }
                }
            }
        }
    }
}

#[test]
fn a_deadline_is_never_after_the_last_time() {
    let late = UnixMs::new(UnixMs::MAX.get() - 1);
    let granted = enter(&Lock::default(), late, &owner("alice"), LeaseChoice::For(Lease::MAX));
    let Acquired::Granted(hold, Entry::First) = granted else { panic!("{granted:?}") };
    assert_eq!((hold.deadline, hold.lease), (UnixMs::MAX, Lease::MAX));
}

#[test]
fn an_absolute_lease_is_not_longer_than_the_longest_lease() {
    let until = |ms| LeaseChoice::Until(UnixMs::new(NOW.get() + ms)).resolve(NOW, LEASE).map(|(lease, _)| lease.get());
    let longest = Lease::MAX.get();
    assert_eq!([until(0), until(1), until(longest), until(longest + 1)], [None, Some(1), Some(longest), None]);
    assert_eq!(LeaseChoice::Until(UnixMs::ZERO).resolve(NOW, LEASE), None);
}

#[test]
fn a_hold_is_live_before_its_deadline() {
    let hold = hold("alice");
    let at = |ms| hold.is_live(UnixMs::new(ms));
    let deadline = hold.deadline.get();
    assert_eq!([at(0), at(deadline - 1), at(deadline), at(deadline + 1)], [true, true, false, false]);
}

#[test]
fn a_hold_may_have_the_highest_token() {
    let lock = held(hold("alice"));
    let token = RenewToken::AtLeast(Token::MAX);
    let request = Renew { owner: &owner("alice"), mode: None, lease: LeaseChoice::Own, token };
    let Renewed::Moved(hold, None, _) = lock.renew(NOW, &request) else { panic!("the hold is not renewed") };
    let mut memory = Memory::new();
    let mut lock = lock;
    lock.apply(Effect { clock: NOW, change: Change::Put { hold, expiry: Expiry::Anew } }, &mut memory);
    assert_eq!(lock.deadline_of(Token::MAX, NOW), Some(NOW.plus(LEASE)));
    assert_eq!((memory.tokens.last(), memory.tokens.next(1)), (Token::MAX.get(), None));
}

#[test]
fn the_token_clock_advances_to_the_highest_token_of_many_holds() {
    let token = |n| Token::new(n).unwrap();
    let holds = [5, 9, 7].map(|n| Hold { token: token(n), ..hold("alice") });
    let mut tokens = TokenClock::new();
    tokens.observe_all(holds.iter());
    assert_eq!((tokens.last(), tokens.next(1)), (9, Some(token(10))));
    tokens.observe_all([].iter());
    assert_eq!(tokens.last(), 9);
}

#[test]
fn a_token_clock_begins_without_a_token() {
    assert_eq!(TokenClock::new(), TokenClock::default());
    assert_eq!((TokenClock::new().last(), TokenClock::new().next(0)), (0, Token::new(1)));
}

#[test]
fn an_owner_is_shown_as_text_that_can_be_read() {
    assert_eq!(format!("{:?}", owner("al\nice")), "Owner(al\\nice)");
    let uuid = "0f8fad5b-d9cb-469f-a165-70867728950e";
    assert_eq!(format!("{:?}", owner(uuid)), format!("Owner({uuid})"));
}

/// Asks for the lock exclusively, or enters it again.
fn enter(lock: &Lock, now: UnixMs, owner: &Owner, lease: LeaseChoice) -> Acquired {
    lock.acquire(now, &request(owner, lease), TERMS)
}

fn request(owner: &Owner, lease: LeaseChoice) -> Request {
    Request::new(owner.clone(), Want::Exclusive, lease)
}

fn held(hold: Hold) -> Lock {
    let mut lock = Lock::default();
    let change = Change::Put { hold, expiry: Expiry::Anew };
    lock.apply(Effect { clock: NOW, change }, &mut Memory::new());
    lock
}

/// Returns an exclusive hold of this owner.
fn hold(name: &str) -> Hold {
    let token = Token::new(1).unwrap();
    Hold {
        owner: owner(name),
        mode: Mode::Exclusive,
        count: 1,
        lease: LEASE,
        deadline: NOW.plus(LEASE),
        token,
        extras: None,
        bond: Bond::NONE,
    }
}

fn owner(name: &str) -> Owner {
    Owner::new(name.as_bytes()).unwrap()
}
