//! Leases and times to wait.

use dlock_core::args::{Acquire, Limits, Malformed};
use dlock_core::{Command, Lease, LeaseChoice, UnixMs};

use super::{LIMITS, TOO_LONG, acquire, lasting, renew, words};

#[test]
fn a_wait_is_as_long_as_there_is_time() {
    let block = |ms: u64| acquire(&format!("alice BLOCK {ms}")).map(|said| said.block);
    for ms in [0, 1, UnixMs::MAX.get()] {
        assert_eq!(block(ms), Ok(Some(ms)));
    }
    assert_eq!(block(UnixMs::MAX.get() + 1), Err(Malformed::Timeout));
}

#[test]
fn a_lease_is_a_length_or_an_end() {
    let until = |ms| LeaseChoice::Until(UnixMs::new(ms));
    for (lease, said) in [
        ("PX 1", lasting(1)),
        ("PX 100000", lasting(100_000)),
        ("EX 1", lasting(1000)),
        ("EX 100", lasting(100_000)),
        ("PXAT 5001", until(5001)),
        ("PXAT 105000", until(105_000)),
        ("EXAT 6", until(6000)),
        ("EXAT 105", until(105_000)),
        ("pXaT 5001", until(5001)),
    ] {
        assert_eq!(leases(lease), [Ok(said); 2], "{lease}");
    }
}

#[test]
fn a_lease_that_cannot_be_is_refused() {
    for (lease, why) in [
        ("PX x", Malformed::Integer),
        ("PX ''", Malformed::Integer),
        ("EX 1.5", Malformed::Integer),
        ("PX 9223372036854775808", Malformed::Integer),
        ("PX 0", Malformed::ExpireTime),
        ("PX -1", Malformed::ExpireTime),
        ("EX 0", Malformed::ExpireTime),
        ("EX -1", Malformed::ExpireTime),
        // It has passed.
        ("PXAT 0", Malformed::ExpireTime),
        ("PXAT 4999", Malformed::ExpireTime),
        ("PXAT 5000", Malformed::ExpireTime),
        ("EXAT 5", Malformed::ExpireTime),
        ("EXAT -6", Malformed::ExpireTime),
        ("PX 100001", TOO_LONG),
        ("EX 101", TOO_LONG),
        ("PXAT 105001", TOO_LONG),
        ("EXAT 106", TOO_LONG),
        // At the edge of 64 bits, which the end or the lease itself passes.
        ("PX 9223372036854770807", TOO_LONG),
        ("PX 9223372036854770808", Malformed::ExpireTime),
        ("PX 9223372036854775807", Malformed::ExpireTime),
        ("PXAT 9223372036854775807", TOO_LONG),
        ("EX 9223372036854775", Malformed::ExpireTime),
        ("EX 9223372036854776", Malformed::ExpireTime),
        ("EXAT 9223372036854775", TOO_LONG),
        ("EXAT 9223372036854776", Malformed::ExpireTime),
    ] {
        assert_eq!(leases(lease), [Err(why); 2], "{lease}");
    }
}

#[test]
fn no_lease_is_over_a_year() {
    let limits = Limits { max_lease: Lease::MAX, ..LIMITS };
    let lease = |ms: u64| Acquire::parse(words(&format!("alice PX {ms}")), Command::Wlock, limits);
    assert_eq!(lease(Lease::MAX.get()).unwrap().lease, LeaseChoice::For(Lease::MAX));
    assert_eq!(lease(Lease::MAX.get() + 1), Err(Malformed::LeaseTooLong(Lease::MAX)));
}

#[test]
fn a_session_has_a_lease_that_can_be_moved_on_in_time() {
    for (lease, said) in [
        ("SESSION", Ok(true)),
        ("SESSION PX 300", Ok(true)),
        ("EX 1 SESSION", Ok(true)),
        ("SESSION PX 299", Err(Malformed::SessionLease)),
        ("PXAT 6000 SESSION", Err(Malformed::Syntax)),
        ("SESSION EXAT 6", Err(Malformed::Syntax)),
    ] {
        assert_eq!(acquire(&format!("alice {lease}")).map(|args| args.session), said, "{lease}");
        assert_eq!(renew(&format!("alice {lease}")).map(|args| args.session), said, "{lease}");
    }
    // What else is wrong is said first.
    assert_eq!(acquire("* PX 1 SESSION REQUEST r"), Err(Malformed::RequestOfFreshOwner));
    assert_eq!(renew("alice PX 1 SESSION MINTOKEN 9007199254740992"), Err(Malformed::TokenAhead));
    assert_eq!([299, 300].map(|ms| Lease::new(ms).unwrap().can_be_bound()), [false, true]);
}

/// What the commands that have a lease make of it.
fn leases(lease: &str) -> [Result<LeaseChoice, Malformed>; 2] {
    let line = format!("alice {lease}");
    [acquire(&line).map(|said| said.lease), renew(&line).map(|said| said.lease)]
}
