//! Histories of a server, played on the engine and on the model.
//!
//! Every step is made of a few bytes, few of each kind, so that a fuzzer that changes a byte changes a step.

use std::num::NonZeroU32;

use dlock_core::{Entries, Mode};
use dlock_testkit::histories::{
    Acquiring, CLIENTS, History, KEYS, KeyNo, Lease, OWNERS, Op, Permit, Somebody, Step, TokenPick, TokenRule, What,
    World, long,
};

use crate::bytes::Bytes;

/// Plays the bytes as a history.
pub fn machine(bytes: &[u8]) {
    let mut bytes = Bytes::new(bytes);
    World::play(&history(&mut bytes));
}

fn history(bytes: &mut Bytes) -> History {
    let default_lease = bytes.pick(&[60, 500]);
    let grace = bytes.pick(&[None, None, Some(30), Some(600)]);
    let max_waiters = bytes.pick(&[None, None, None, Some(0), Some(2), Some(4)]);
    let crowd = if bytes.below(16) == 15 { 70 } else { 0 };
    let mut steps = Vec::new();
    while !bytes.is_over() && steps.len() < MAX_STEPS {
        let byte = bytes.byte();
        steps.push(Step { op: op(byte >> 2, bytes), then_tick: byte & 3 != 0 });
    }
    History { default_lease, grace, max_waiters, crowd, steps }
}

/// What happens: `kind` is below 64.
fn op(kind: u8, bytes: &mut Bytes) -> Op {
    match kind {
        0..=21 => Op::Acquire(acquiring(bytes)),
        22 | 23 => Op::Resend { client: client(bytes), block: bytes.flag() },
        24..=33 => release(bytes),
        34..=38 => renew(bytes),
        39..=43 => Op::Wait(bytes.number(256) * 150 + 1),
        44 | 45 => Op::Wait(bytes.number(256) * 1500 + 40_000),
        46 | 47 => Op::Abandon(bytes.below(6)),
        48..=50 => Op::ClientGone(client(bytes)),
        51 => Op::Expire(key(bytes), bytes.number(256)),
        52 => bytes.pick(&[Op::Pause, Op::Resume]),
        53 => Op::Resume,
        54 => Op::Delete(key(bytes)),
        55 => Op::Rename(key(bytes), key(bytes)),
        56 => Op::Restore(key(bytes), key(bytes), bytes.pick(&[None, Some(40), Some(200)])),
        57 => Op::Flush(bytes.pick(&[None, Some(0), Some(1)])),
        58 => bytes.pick(&[Op::Swap, Op::Reload, Op::ExpireActively]),
        59 => Op::Overwrite(key(bytes)),
        60 => Op::Permit(key(bytes), bytes.pick(&[Permit::Full, Permit::ReleaseOnly, Permit::Elsewhere])),
        61 => bytes.pick(&[Op::Demote, Op::Promote, Op::Promote]),
        62 => bytes.pick(&[Op::Blind(true), Op::Blind(false)]),
        _ => match bytes.below(3) {
            0 => Op::Persist(key(bytes)),
            1 => Op::MoveAway(key(bytes)),
            _ => Op::ExpireActively,
        },
    }
}

fn acquiring(bytes: &mut Bytes) -> Acquiring {
    let what = match bytes.below(18) {
        0..=2 => What::Acquire(key(bytes)),
        3..=5 => What::Racquire(key(bytes)),
        6..=9 => What::Rlock(key(bytes)),
        10..=13 => {
            let (key, permits, limit) = (key(bytes), number(bytes, 3), number(bytes, 5));
            What::Sacquire(key, permits.min(limit), limit)
        }
        several => What::Macquire(SEVERAL[several - 14].to_vec()),
    };
    // One byte says how: whether it waits, is bound, has an id, is of a drawn owner, has a MINTOKEN.
    let (who, how) = (bytes.below(16), bytes.byte());
    let owner = (how & 15 != 15).then_some(who % OWNERS);
    let binds = how & 16 == 16;
    let id = (how & 32 == 32 && owner.is_some()).then_some(how >> 7);
    let lease = lease(bytes);
    let lease = if binds { long(lease) } else { lease };
    let is_plain = !matches!(what, What::Sacquire(..) | What::Macquire(_));
    let ahead = (how & 64 == 64 && is_plain).then_some(5_000);
    Acquiring { client: who % CLIENTS, owner, what, lease, block: how & 3 != 0, binds, ahead, id }
}

fn release(bytes: &mut Bytes) -> Op {
    let (key, who, mode) = (key(bytes), somebody(bytes), mode(bytes));
    let entries = bytes.pick(&[Entries::ONE, Entries::ONE, Entries::All, Entries::Some(nonzero(2))]);
    let token = (bytes.below(4) == 0).then(|| token_pick(bytes));
    Op::Release { key, who, mode, entries, token, id: bytes.pick(&[None, None, Some(0), Some(1)]) }
}

fn renew(bytes: &mut Bytes) -> Op {
    let (client, key, who, mode) = (client(bytes), key(bytes), somebody(bytes), mode(bytes));
    let token = match bytes.below(4) {
        0 => TokenRule::Is(token_pick(bytes)),
        1 => TokenRule::AtLeast(token_pick(bytes), bytes.number(256) * 10),
        _ => TokenRule::Any,
    };
    let (lease, binds) = (lease(bytes), bytes.flag());
    Op::Renew { client, key, who, mode, lease: if binds { long(lease) } else { lease }, token, binds }
}

fn key(bytes: &mut Bytes) -> KeyNo {
    // Those of the first database are met more often.
    bytes.pick(&[0, 0, 0, 1, 1, 2, 3]) % KEYS.len()
}

fn client(bytes: &mut Bytes) -> usize {
    bytes.below(256) % CLIENTS
}

fn lease(bytes: &mut Bytes) -> Lease {
    match bytes.byte() {
        0..=60 => Lease::Own,
        ms @ 61..=160 => Lease::For(u64::from(ms) - 60),
        ms @ 161..=220 => Lease::For(u64::from(ms - 161) * 10 + 300),
        ms => Lease::Until(u64::from(ms - 220) * 4),
    }
}

fn mode(bytes: &mut Bytes) -> Option<Mode> {
    bytes.pick(&[None, Some(Mode::Exclusive), Some(Mode::Shared)])
}

fn somebody(bytes: &mut Bytes) -> Somebody {
    let byte = bytes.below(256);
    if byte < 192 { Somebody::Holder(byte) } else { Somebody::Any(byte % OWNERS) }
}

fn token_pick(bytes: &mut Bytes) -> TokenPick {
    match bytes.below(8) {
        0..=2 => TokenPick::Mine(Mode::Exclusive),
        3..=4 => TokenPick::Mine(Mode::Shared),
        5..=6 => TokenPick::Of(bytes.below(8)),
        _ => TokenPick::Never,
    }
}

/// From 1 to `most`.
fn number(bytes: &mut Bytes, most: u16) -> NonZeroU32 {
    nonzero(u32::try_from(bytes.below(most)).unwrap() + 1)
}

fn nonzero(number: u32) -> NonZeroU32 {
    NonZeroU32::new(number).unwrap()
}

/// The keys of requests for several locks.
const SEVERAL: [&[KeyNo]; 4] = [&[0, 1], &[1, 0], &[0, 1, 2], &[2, 1]];

/// A longer history is slower, and seldom worth more.
const MAX_STEPS: usize = 64;
