//! Locks and effects to encode: chosen ones, and random ones that include every limit.

use dlock_core::{
    Bond, Change, Command, Effect, Expiry, Extras, Hold, Lease, Lock, Memory, Mode, Owner, RequestId, Token, UnixMs,
};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

pub const UUID: &str = "0f8fad5b-d9cb-469f-a165-70867728950e";

pub fn hold(owner: &[u8], mode: Mode, count: u32, lease: u64, deadline: u64, token: u64) -> Hold {
    Hold {
        owner: Owner::new(owner).expect("a good owner"),
        mode,
        count,
        lease: Lease::new(lease).expect("a good lease"),
        deadline: UnixMs::new(deadline),
        token: Token::new(token).expect("a good token"),
        extras: None,
        bond: Bond::NONE,
    }
}

/// Returns a lock with these holds. Each replaces the earlier ones that it excludes.
pub fn lock(holds: impl IntoIterator<Item = Hold>) -> Lock {
    let mut lock = Lock::default();
    for hold in holds {
        let change = Change::Put { hold, expiry: Expiry::Anew };
        lock.apply(Effect { clock: UnixMs::ZERO, change }, &mut Memory::new());
    }
    lock
}

pub fn any_lock() -> impl Strategy<Value = Lock> {
    // A deadline of 0 has lapsed by any clock.
    let hold = || capped(any_hold().prop_map(|hold| Hold { deadline: hold.deadline.max(UnixMs::new(1)), ..hold }));
    let both = (hold(), hold()).prop_map(|(a, b)| {
        let owner = a.owner.clone();
        let extras = Extras::of(a.request().cloned(), a.cap(), None);
        lock([Hold { mode: Mode::Exclusive, extras, ..a }, Hold { owner, mode: Mode::Shared, ..b }])
    });
    prop_oneof![vec(hold(), 1..20).prop_map(lock), both]
}

pub fn any_effect() -> impl Strategy<Value = Effect> {
    let expiry = prop_oneof![Just(Expiry::Anew), Just(Expiry::Keep), Just(Expiry::Leave)];
    let puts = (any_time(), capped(any_hold()), expiry);
    // The bytes leave out the deadline of a full lease. Random times would never draw one.
    let full_leases = (any_time(), any_hold()).prop_map(|(clock, hold)| {
        let hold = Hold { deadline: clock.plus(hold.lease), ..hold };
        (clock, Change::Put { hold, expiry: Expiry::Anew })
    });
    let removes = (any_time(), any_owner(), option::of(any_mode()));
    let change = prop_oneof![
        puts.prop_map(|(clock, hold, expiry)| (clock, Change::Put { hold, expiry })),
        full_leases,
        removes.prop_map(|(clock, owner, mode)| (clock, Change::Remove { owner, mode })),
        any_time().prop_map(|clock| (clock, Change::Sweep)),
    ];
    change.prop_map(|(clock, change)| Effect { clock, change })
}

fn any_hold() -> impl Strategy<Value = Hold> {
    let lease = number(1, Lease::MAX.get()).prop_map(|ms| Lease::new(ms).expect("in range"));
    let token = number(1, Token::MAX.get()).prop_map(|n| Token::new(n).expect("in range"));
    let count = number(1, u64::from(u32::MAX)).prop_map(|n| u32::try_from(n).expect("in range"));
    let slot = number(0, u64::from(u32::MAX - 1)).prop_map(|n| u32::try_from(n).expect("in range"));
    let extras = (option::of(any_request()), option::weighted(0.3, slot));
    (any_owner(), any_mode(), count, lease, any_time(), token, extras).prop_map(
        |(owner, mode, count, lease, deadline, token, (request, slot))| {
            let slot = slot.filter(|_| mode == Mode::Shared);
            let extras = Extras::of(request, None, slot);
            Hold { owner, mode, count, lease, deadline, token, extras, bond: Bond::NONE }
        },
    )
}

/// Gives some of the holds a cap.
fn capped(holds: impl Strategy<Value = Hold>) -> impl Strategy<Value = Hold> {
    (holds, option::weighted(0.3, number(0, Lease::MAX.get()))).prop_map(|(hold, more)| {
        let cap = more.map(|more| UnixMs::new(hold.deadline.get() + more));
        Hold { extras: Extras::of(hold.request().cloned(), cap, hold.slot()), ..hold }
    })
}

fn any_request() -> impl Strategy<Value = RequestId> {
    let command = proptest::sample::select(&Command::ALL[..]);
    (command, vec(any::<u8>(), 1..=RequestId::MAX_LEN))
        .prop_map(|(command, id)| RequestId::new(command, &id).expect("a good id"))
}

fn any_owner() -> impl Strategy<Value = Owner> {
    let bytes = prop_oneof![
        8 => vec(any::<u8>(), 1..40),
        1 => vec(any::<u8>(), Owner::MAX_LEN),
        1 => Just(UUID.to_uppercase().into_bytes()),
    ];
    let bytes = bytes.prop_map(|bytes| Owner::new(&bytes).expect("a good length"));
    prop_oneof![bytes, any::<[u8; 16]>().prop_map(Owner::from_uuid)]
}

fn any_mode() -> impl Strategy<Value = Mode> {
    prop_oneof![1 => Just(Mode::Exclusive), 4 => Just(Mode::Shared)]
}

fn any_time() -> impl Strategy<Value = UnixMs> {
    number(0, UnixMs::MAX.get()).prop_map(UnixMs::new)
}

/// Draws a number of any length in bits, and the limits more often than by chance.
fn number(least: u64, most: u64) -> impl Strategy<Value = u64> {
    let any_length = (0..=53_u32, least..=most).prop_map(move |(shift, number)| (number >> shift).max(least));
    prop_oneof![8 => any_length, 1 => Just(least), 1 => Just(most)]
}
