//! The order of the holds in the bytes does not change how long decoding a large lock takes: a client that may
//! `RESTORE` a key chooses that order.

use std::time::Duration;

use dlock_core::decode_lock;
use dlock_testkit::thread_time::on_core;

/// How many holds the lock has: many, so that a quadratic decoder is much slower in a bad order.
const HOLDS: u64 = 30_000;
/// How many times as long as the natural order another order may take.
const MOST: u32 = 4;

/// Writes a number as the codec does: seven bits in a byte, the lowest first.
fn number(mut number: u64, bytes: &mut Vec<u8>) {
    while number >= 0x80 {
        bytes.push(number.to_le_bytes()[0] | 0x80);
        number >>= 7;
    }
    bytes.push(number.to_le_bytes()[0]);
}

/// The order of the holds: the owner, the deadline, the token and the slot of the nth hold.
struct Order {
    what: &'static str,
    owner: fn(u64) -> u64,
    deadline: fn(u64) -> u64,
    token: fn(u64) -> u64,
    slot: fn(u64) -> u64,
}

fn natural(n: u64) -> u64 {
    n
}

fn falling(n: u64) -> u64 {
    HOLDS - n
}

/// Returns each number once, in no order: the factor and the number of holds have no common divisor.
fn mixed(n: u64) -> u64 {
    n * 7_919 % HOLDS
}

fn bytes(order: &Order) -> Vec<u8> {
    // Version 3, which has slots.
    let mut bytes = vec![3];
    number(HOLDS, &mut bytes);
    for n in 0..HOLDS {
        // The flags: shared, with a slot.
        bytes.push(1 | 32);
        let owner = format!("{:06}", (order.owner)(n));
        number(owner.len() as u64, &mut bytes);
        bytes.extend_from_slice(owner.as_bytes());
        // The count and the lease. The deadline and the token are differences from 0, whose lowest bit is the sign.
        number(1, &mut bytes);
        number(3_600_000, &mut bytes);
        number(2 * (1_000_000 + (order.deadline)(n)), &mut bytes);
        number(2 * (1_000_000 + (order.token)(n)), &mut bytes);
        number((order.slot)(n), &mut bytes);
    }
    bytes
}

fn time_of(order: &Order) -> Duration {
    let bytes = bytes(order);
    let mut lock = None;
    let time = on_core(|| lock = Some(decode_lock(&bytes)));
    let lock = lock.unwrap().unwrap_or_else(|error| panic!("{}: {error}", order.what));
    assert_eq!(lock.stored() as u64, HOLDS);
    time
}

#[test]
fn no_order_of_the_holds_takes_four_times_as_long() {
    let plain = Order { what: "natural", owner: natural, deadline: natural, token: natural, slot: natural };
    let orders = [
        Order { what: "numbers fall", slot: falling, ..plain },
        Order { what: "numbers 64 apart", slot: |n| n * 64, ..plain },
        Order { what: "numbers 64 apart fall", slot: |n| falling(n) * 64, ..plain },
        Order { what: "numbers 64 apart are mixed", slot: |n| mixed(n) * 64, ..plain },
        Order {
            what: "numbers 65 apart, from both ends",
            slot: |n| if n % 2 == 0 { n } else { 2 * HOLDS - n } * 65,
            ..plain
        },
        Order { what: "deadlines fall", deadline: falling, ..plain },
        Order { what: "deadlines are mixed", deadline: mixed, ..plain },
        Order { what: "deadlines are one", deadline: |_| 0, ..plain },
        Order { what: "tokens fall", token: falling, ..plain },
        Order { what: "tokens are one", token: |_| 0, ..plain },
        Order { what: "owners fall", owner: falling, ..plain },
        Order { what: "all are mixed", owner: mixed, deadline: mixed, token: mixed, slot: |n| mixed(n) * 64 },
    ];
    for order in orders {
        // On a busy machine, others use the caches of the core, so a slow run is repeated, beside the natural order.
        let mut times = Vec::new();
        let is_in_time = (0..15).any(|_| {
            times.push((time_of(&order), time_of(&plain)));
            times.last().is_some_and(|(time, natural)| *time < *natural * MOST)
        });
        assert!(is_in_time, "{}, and the natural order: {times:?}", order.what);
    }
}
