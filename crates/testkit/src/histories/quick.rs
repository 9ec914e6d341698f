//! The short ways say what the long ones decide, and are taken wherever they can be.

use dlock_core::{
    Acquire, Acquired, Applied, Change, Effect, Expiry, Hold, Lease, Lock, Release, Released, Renew, Renewed, Token,
    TokenClock, UnixMs, Waiters, encode_put,
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
        let taken = request.first_hold(now, default, fresh);
        match (&taken, decided) {
            (Ok(hold), Acquired::Granted { effect, .. }) => check_put(lock, now, hold, effect, IsVisible(true)),
            (Err(taken), Acquired::Refused(refusal)) => assert_eq!(taken, refusal),
            _ => panic!("{taken:?} {decided:?}"),
        }
    }
}

/// The last hold goes, and the command says so.
pub fn check_release(lock: &Lock, now: UnixMs, request: &Release, decided: &Released) {
    let is_last = |effect: &Effect| {
        let mut left = lock.clone();
        let applied = left.apply(effect.clone(), &mut TokenClock::new());
        let is_told = applied.is_visible && applied.lapsed == 0;
        is_told && lock.stored() == 1 && left.is_empty() && lock.is_told_by_command(now, effect, Waiters::None)
    };
    let expected = matches!(decided, Released::Fully(effect) if is_last(effect));
    assert_eq!(lock.is_emptied_by(now, request), expected, "{lock:?} {request:?}");
}

/// The only hold is renewed.
pub fn check_renewal(lock: &Lock, now: UnixMs, request: &Renew, decided: &Renewed) {
    match (lock.renewed_only(now, request), decided) {
        (Some(hold), Renewed::Moved(effect, None)) => check_put(lock, now, &hold, effect, IsVisible(false)),
        (None, Renewed::Moved(..)) => assert!(lock.stored() > 1, "{lock:?} {request:?}"),
        (None, Renewed::NotHeld) => {}
        (renewed, _) => panic!("{renewed:?} {decided:?}"),
    }
}

struct IsVisible(bool);

/// The lock has this hold then and no other, its key ends with it, and who watches is told or not.
fn check_put(lock: &Lock, now: UnixMs, hold: &Hold, effect: &Effect, IsVisible(is_visible): IsVisible) {
    let change = Change::Put { hold: hold.clone(), expiry: Expiry::Anew };
    assert_eq!(*effect, Effect { clock: now, change, waiters: Waiters::None });
    let (mut put, mut tokens) = (lock.clone(), TokenClock::new());
    let applied = put.apply(effect.clone(), &mut tokens);
    assert_eq!(applied, Applied { lapsed: 0, expiry: Expiry::Anew, waiters: Waiters::None, is_visible });
    assert!(put.stored_holds().eq([hold]) && Lock::from(hold.clone()).stored_holds().eq([hold]));
    assert_eq!((put.last_deadline(), tokens.last()), (Some(hold.deadline), hold.token.get()));
}

/// What is sent is the same.
pub fn check_bytes(effect: &Effect, bytes: &[u8]) {
    if let Effect { clock, change: Change::Put { hold, expiry: Expiry::Anew }, waiters: Waiters::None } = effect {
        let mut put = Vec::new();
        encode_put(*clock, hold, &mut put);
        assert_eq!(put, bytes);
    }
}
