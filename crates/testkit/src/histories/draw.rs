//! Draws histories from the bytes of a fuzzer or of a property test.
//!
//! A step takes a few bytes, so that most changes of a byte change only that step. The corpora of the fuzzer consist of
//! such bytes: they become worthless if the meaning of the bytes changes.

use dlock_core::engine::{OpenIf, Permission};
use dlock_core::{Entries, Mode};

use super::how::How;
use super::ops::{History, Op, Step};
use crate::bytes::Bytes;
use crate::histories::drawn::{key, lease};
use crate::histories::values::{
    CLIENTS, CROWD, LONG_SESSION_MS, OWNERS, SHORT_LEASE_MS, SHORT_SESSION_MS, Somebody, TokenPick, TokenRule,
    USUAL_LEASE_MS,
};

impl History {
    /// Reads the bytes as a history: first the settings, then the steps.
    pub fn of_bytes(bytes: &[u8]) -> History {
        let mut bytes = Bytes::new(bytes);
        let mut history = settings(&mut bytes);
        while !bytes.is_over() && history.steps.len() < MAX_STEPS {
            history.steps.push(step(&mut bytes));
        }
        history
    }

    /// Reads a history from the bytes of its settings and of each step, so that a caller can leave out a step.
    ///
    /// # Panics
    ///
    /// Panics if the settings or a step need more bytes: the choices that these bytes make would never vary.
    pub fn of_frames<'a>(settings_of: &[u8], frames: impl IntoIterator<Item = &'a [u8]>) -> History {
        let mut history = framed(settings_of, settings);
        history.steps.extend(frames.into_iter().map(|frame| framed(frame, step)));
        history
    }
}

/// Draws something from bytes that must suffice for it.
fn framed<T>(frame: &[u8], draw: fn(&mut Bytes) -> T) -> T {
    let mut bytes = Bytes::new(frame);
    let drawn = draw(&mut bytes);
    assert!(!bytes.is_overrun(), "{} bytes are too few", frame.len());
    drawn
}

fn settings(bytes: &mut Bytes) -> History {
    let default_lease = bytes.pick(&[SHORT_LEASE_MS, USUAL_LEASE_MS]);
    let grace = bytes.pick(&[None, None, Some(30), Some(600)]);
    let max_waiters = bytes.pick(&[None, None, None, Some(0), Some(2), Some(4)]);
    // A history in 16 begins with a crowd of readers.
    let crowd = if bytes.below(16) == 15 { CROWD } else { 0 };
    History { grace, max_waiters, crowd, ..History::new(default_lease) }
}

fn enter(bytes: &mut Bytes) -> Op {
    let (client, owner, keys, how) = How::draw(bytes);
    Op::Enter { client, owner, keys, how }
}

/// Draws an operation, and whether the timer runs after it.
fn step(bytes: &mut Bytes) -> Step {
    let byte = bytes.byte();
    Step { op: op(byte >> 2, bytes), then_tick: byte & 3 != 0 }
}

/// Draws an operation. `kind` is below 64: an operation with more numbers comes more often.
fn op(kind: u8, bytes: &mut Bytes) -> Op {
    match kind {
        0..=21 => enter(bytes),
        22 | 23 => Op::Resend { client: client(bytes), block: bytes.flag() },
        24..=33 => release(bytes),
        34..=38 => renew(bytes),
        39..=43 => Op::Wait(bytes.number(256) * 150 + 1),
        44 => Op::Wait(bytes.number(256) * 1500 + 40_000),
        45 => Op::Idle(1 + bytes.below(8)),
        46 => session(bytes),
        47 => Op::Abandon(bytes.below(6)),
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
        60 => {
            let permissions = [Permission::Full, Permission::ReleaseOnly, Permission::Elsewhere];
            Op::SetPermission(key(bytes), bytes.pick(&permissions))
        }
        61 => bytes.pick(&[Op::Demote, Op::Promote, Op::Promote]),
        62 => bytes.pick(&[Op::Blind(true), Op::Blind(false)]),
        _ => match bytes.below(3) {
            0 => Op::Persist(key(bytes)),
            1 => Op::MoveAway(key(bytes)),
            _ => Op::ExpireActively,
        },
    }
}

fn release(bytes: &mut Bytes) -> Op {
    let (key, who, mode) = (key(bytes), somebody(bytes), mode(bytes));
    let two = Entries::Some(std::num::NonZeroU32::MIN.saturating_add(1));
    let entries = bytes.pick(&[Entries::ONE, Entries::ONE, Entries::All, two]);
    let token = (bytes.below(4) == 0).then(|| token_pick(bytes));
    Op::Release { key, who, mode, entries, token, id: bytes.pick(&[None, None, Some(0), Some(1)]) }
}

fn renew(bytes: &mut Bytes) -> Op {
    let (byte, key, who, mode) = (bytes.below(256), key(bytes), somebody(bytes), mode(bytes));
    let (client, named) = (byte % CLIENTS, (byte & 4 == 4).then_some((byte >> 3) & 1));
    let token = match bytes.below(4) {
        0 => TokenRule::Is(token_pick(bytes)),
        1 => TokenRule::AtLeast(token_pick(bytes), bytes.number(256) * 10),
        _ => TokenRule::Any,
    };
    let (lease, binds) = (lease(bytes), bytes.flag());
    // The parser refuses a session with an absolute lease, or with a lease under 300 ms.
    Op::Renew {
        client,
        key,
        who,
        mode,
        lease: if binds { lease.for_session() } else { lease },
        token,
        binds,
        named: named.filter(|_| binds),
    }
}

/// Draws a heartbeat or an end of a named session. Only the timeouts of session 0 are short, so that no two sessions
/// end in one turn of the timer.
fn session(bytes: &mut Bytes) -> Op {
    let byte = bytes.below(256);
    let (client, session) = (byte % CLIENTS, (byte >> 2) & 1);
    let timeout = if session == 0 { SHORT_SESSION_MS + bytes.number(256) * 2 } else { LONG_SESSION_MS };
    let only = match byte >> 3 {
        0..=4 => return Op::Close(client, session),
        5..=8 => OpenIf::New,
        9..=14 => OpenIf::Open,
        _ => OpenIf::Any,
    };
    Op::Beat { client, session, only, timeout }
}

fn client(bytes: &mut Bytes) -> usize {
    bytes.below(256) % CLIENTS
}

fn mode(bytes: &mut Bytes) -> Option<Mode> {
    bytes.pick(&[None, Some(Mode::Exclusive), Some(Mode::Shared)])
}

/// Draws an owner: three times in four, one that holds the lock.
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

/// The most steps of a history. Longer ones are slower and rarely find more.
const MAX_STEPS: usize = 64;
