//! Leases and `BLOCK`. By [`LIMITS`], the clock is at 5000 ms, and the longest lease is 100 s.

use dlock_core::args::{Acquire, BadLease, Limits, Malformed, Syntax};
use dlock_core::{BindTo, Command, Lease, LeaseChoice, SessionId, UnixMs};

use super::{LIMITS, acquire, lasting, renew, words};

#[test]
fn block_is_at_most_the_latest_time() {
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
        assert_eq!(leases(lease), [Ok(said), Ok(said)], "{lease}");
    }
}

#[test]
fn a_lease_out_of_range_is_refused() {
    for (lease, why) in [
        ("PX x", Malformed::Integer("PX")),
        ("PX ''", Malformed::Integer("PX")),
        ("EX 1.5", Malformed::Integer("EX")),
        ("PX 9223372036854775808", Malformed::Integer("PX")),
        ("PX 0", Malformed::ExpireTime("PX", BadLease::NotPositive)),
        ("PX -1", Malformed::ExpireTime("PX", BadLease::NotPositive)),
        ("EX 0", Malformed::ExpireTime("EX", BadLease::NotPositive)),
        ("EX -1", Malformed::ExpireTime("EX", BadLease::NotPositive)),
        // The time has passed.
        ("PXAT 0", Malformed::ExpireTime("PXAT", BadLease::Past)),
        ("PXAT 4999", Malformed::ExpireTime("PXAT", BadLease::Past)),
        ("PXAT 5000", Malformed::ExpireTime("PXAT", BadLease::Past)),
        ("EXAT 5", Malformed::ExpireTime("EXAT", BadLease::Past)),
        ("EXAT -6", Malformed::ExpireTime("EXAT", BadLease::Past)),
        ("PX 100001", too_long("PX")),
        ("EX 101", too_long("EX")),
        ("PXAT 105001", too_long("PXAT")),
        ("EXAT 106", too_long("EXAT")),
        // At the limit of 64 bits: the deadline exceeds it, or the lease itself does.
        ("PX 9223372036854770807", too_long("PX")),
        ("PX 9223372036854770808", Malformed::ExpireTime("PX", BadLease::TooLarge)),
        ("PX 9223372036854775807", Malformed::ExpireTime("PX", BadLease::TooLarge)),
        ("PXAT 9223372036854775807", too_long("PXAT")),
        ("EX 9223372036854775", Malformed::ExpireTime("EX", BadLease::TooLarge)),
        ("EX 9223372036854776", Malformed::ExpireTime("EX", BadLease::TooLarge)),
        ("EXAT 9223372036854775", too_long("EXAT")),
        ("EXAT 9223372036854776", Malformed::ExpireTime("EXAT", BadLease::TooLarge)),
    ] {
        assert_eq!(leases(lease), [Err(why.clone()), Err(why)], "{lease}");
    }
}

#[test]
fn no_lease_is_over_a_year() {
    let limits = Limits { max_lease: Lease::MAX, ..LIMITS };
    let lease = |ms: u64| Acquire::parse(words(&format!("alice PX {ms}")), Command::Wlock, limits);
    assert_eq!(lease(Lease::MAX.get()).unwrap().lease, LeaseChoice::For(Lease::MAX));
    assert_eq!(lease(Lease::MAX.get() + 1), Err(Malformed::LeaseTooLong("PX", Lease::MAX)));
}

#[test]
fn a_session_needs_a_lease_that_can_be_extended_in_time() {
    for (lease, said) in [
        ("SESSION", Ok(BindTo::Connection)),
        ("SESSION PX 300", Ok(BindTo::Connection)),
        ("EX 1 SESSION", Ok(BindTo::Connection)),
        ("SESSION PX 299", Err(Malformed::SessionLease)),
        ("PXAT 6000 SESSION", together("SESSION", "PXAT")),
        ("SESSION EXAT 6", together("SESSION", "EXAT")),
    ] {
        assert_eq!(acquire(&format!("alice {lease}")).map(|args| args.session), said.clone(), "{lease}");
        assert_eq!(renew(&format!("alice {lease}")).map(|args| args.session), said, "{lease}");
    }
    // Errors in other arguments come before the lease of a session.
    assert_eq!(acquire("* PX 1 SESSION REQUEST r"), Err(Malformed::RequestOfFreshOwner));
    assert_eq!(renew("alice PX 1 SESSION MINTOKEN 9007199254740992"), Err(Malformed::TokenAhead(7)));
    assert_eq!([299, 300].map(|ms| Lease::new(ms).unwrap().can_be_bound()), [false, true]);
}

fn too_long(option: &'static str) -> Malformed {
    Malformed::LeaseTooLong(option, LIMITS.max_lease)
}

fn together(option: &'static str, before: &'static str) -> Result<BindTo<SessionId>, Malformed> {
    Err(Malformed::Syntax(Syntax::Together(option, before)))
}

/// Returns the lease as `ACQUIRE` and `RENEW` read it.
fn leases(lease: &str) -> [Result<LeaseChoice, Malformed>; 2] {
    let line = format!("alice {lease}");
    [acquire(&line).map(|said| said.lease), renew(&line).map(|said| said.lease)]
}
