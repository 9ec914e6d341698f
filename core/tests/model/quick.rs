//! The short ways say what the long ones decide, and are taken wherever they can be.

use dlock_core::{
    Acquire, Acquired, Change, Effect, Expiry, Lease, Lock, Release, Released, Renew, Renewed, Token, TokenClock,
    UnixMs, Waiters, encode_put,
};

/// A lock that is not there is taken.
pub fn check_entry(
    lock: &Lock,
    now: UnixMs,
    request: &Acquire,
    (default, fresh): (Lease, Option<Token>),
    decided: &Acquired,
) {
    if lock.is_empty() {
        let expected = match decided {
            Acquired::Granted { effect, .. } => Ok(effect.hold().cloned().expect("it is given")),
            Acquired::Refused(refusal) => Err(*refusal),
            Acquired::Replayed(_) => panic!("nobody is in"),
        };
        assert_eq!(request.first_hold(now, default, fresh), expected.clone());
        if let Ok(hold) = expected {
            assert!(Lock::from(hold.clone()).stored_holds().eq([&hold]));
        }
    }
}

/// The last hold goes, and the command says so.
pub fn check_release(lock: &Lock, now: UnixMs, request: &Release, decided: &Released) {
    let is_last = |effect: &Effect| {
        let mut left = lock.clone();
        left.apply(effect.clone(), &mut TokenClock::new());
        lock.stored() == 1 && left.is_empty() && lock.is_told_by_command(now, effect, Waiters::None)
    };
    let expected = matches!(decided, Released::Fully(effect) if is_last(effect));
    assert_eq!(lock.is_emptied_by(now, request), expected, "{lock:?} {request:?}");
}

/// The only hold is renewed.
pub fn check_renewal(lock: &Lock, now: UnixMs, request: &Renew, decided: &Renewed) {
    let expected = match decided {
        Renewed::Moved(effect, None) if lock.stored() == 1 => effect.hold().cloned(),
        Renewed::Moved(..) | Renewed::NotHeld => None,
    };
    assert_eq!(lock.renewed_only(now, request), expected, "{lock:?} {request:?}");
}

/// What is sent is the same.
pub fn check_bytes(effect: &Effect, bytes: &[u8]) {
    if let Effect { clock, change: Change::Put { hold, expiry: Expiry::Anew }, waiters: Waiters::None } = effect {
        let mut put = Vec::new();
        encode_put(*clock, hold, &mut put);
        assert_eq!(put, bytes);
    }
}
