//! Bytes of a lock (RDB, `DUMP`) and of an effect (replication, AOF).
//!
//! Both begin with a version. Decoding is total: any bytes give a value that keeps every rule of the types, or an
//! error. Numbers are LEB128; those that may be on either side of a reference are zigzagged.
//!
//! ```text
//! lock   = 0x01, holds, hold × holds               (times relative to 0)
//! effect = 0x10 + waiters + kind, clock, body               (times relative to the clock)
//! kind   = 0 put, time to live anew | 1 put, kept | 2 remove exclusive | 3 remove shared | 4 remove both | 5 sweep
//! waiters = 8 if somebody waits
//! body   = put: hold | remove: owner flag, owner | sweep: nothing
//! hold   = flags, owner, count, lease, [deadline,] token, [request]
//! flags  = 1 shared | 2 owner is a UUID | 4 deadline is reference + lease, and left out | 8 has a request
//! request = 0 acquire | 1 racquire | 2 rlock | 3 wlock | 4 release, length, id
//! owner  = 16 bytes | length, bytes
//! token  = relative to the reference in µs
//! ```

use core::fmt;

use crate::holds::Holds;
use crate::{Change, Command, Effect, Expiry, Hold, Lease, Lock, Mode, Owner, Request, Token, UnixMs, Waiters};

/// Why bytes are not a lock or an effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DecodeError {
    /// They end too early.
    Truncated,
    /// They go on after the end.
    TrailingBytes,
    /// They are of a version this build does not know.
    Version(u8),
    /// A value in them cannot be.
    Invalid(&'static str),
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DecodeError::Truncated => write!(f, "it ends too early"),
            DecodeError::TrailingBytes => write!(f, "it goes on after its end"),
            DecodeError::Version(version) => write!(f, "its version {version} is not known"),
            DecodeError::Invalid(what) => write!(f, "its {what} cannot be"),
        }
    }
}

/// Appends the bytes of a lock with all its stored holds.
pub fn encode_lock(lock: &Lock, out: &mut Vec<u8>) {
    out.push(LOCK_VERSION);
    put_number(out, lock.stored() as u64);
    for hold in lock.stored_holds() {
        put_hold(out, hold, UnixMs::ZERO);
    }
}

/// A lock from the bytes of [`encode_lock`]. It has at least one hold.
pub fn decode_lock(bytes: &[u8]) -> Result<Lock, DecodeError> {
    let mut reader = Reader(bytes);
    match reader.byte()? {
        LOCK_VERSION => {}
        version => return Err(DecodeError::Version(version)),
    }
    let count = reader.number()?;
    let mut holds = Holds::default();
    for added in 0..count {
        holds.put(reader.hold(UnixMs::ZERO)?);
        // A hold that took the place of another, or of one it excludes, means that the bytes are no lock.
        if holds.len() as u64 != added + 1 {
            return Err(DecodeError::Invalid("set of holds"));
        }
    }
    reader.end()?;
    if count == 0 {
        return Err(DecodeError::Invalid("number of holds"));
    }
    Ok(Lock { holds })
}

/// Appends the bytes of an effect.
pub fn encode_effect(effect: &Effect, out: &mut Vec<u8>) {
    let kind = match &effect.change {
        Change::Put { expiry: Expiry::Anew, .. } => PUT_ANEW,
        Change::Put { expiry: Expiry::Keep, .. } => PUT_KEEP,
        Change::Remove { mode: Some(Mode::Exclusive), .. } => REMOVE_EXCLUSIVE,
        Change::Remove { mode: Some(Mode::Shared), .. } => REMOVE_SHARED,
        Change::Remove { mode: None, .. } => REMOVE_BOTH,
        Change::Sweep => SWEEP,
    };
    let waiters = match effect.waiters {
        Waiters::None => 0,
        Waiters::Some => SOMEBODY_WAITS,
    };
    out.push(EFFECT_VERSION | waiters | kind);
    put_number(out, effect.clock.get());
    match &effect.change {
        Change::Put { hold, .. } => put_hold(out, hold, effect.clock),
        Change::Remove { owner, .. } => {
            out.push(owner_flag(owner));
            put_owner(out, owner);
        }
        Change::Sweep => {}
    }
}

/// Appends the bytes of the effect that gives this hold: a [`Change::Put`] which sets the time to live anew, while nobody
/// waits.
pub fn encode_put(clock: UnixMs, hold: &Hold, out: &mut Vec<u8>) {
    out.push(EFFECT_VERSION | PUT_ANEW);
    put_number(out, clock.get());
    put_hold(out, hold, clock);
}

/// An effect from the bytes of [`encode_effect`].
pub fn decode_effect(bytes: &[u8]) -> Result<Effect, DecodeError> {
    let mut reader = Reader(bytes);
    let head = reader.byte()?;
    if head & 0xf0 != EFFECT_VERSION {
        return Err(DecodeError::Version(head >> 4));
    }
    let clock = reader.time()?;
    let change = match head & 0x07 {
        PUT_ANEW => Change::Put { hold: reader.hold(clock)?, expiry: Expiry::Anew },
        PUT_KEEP => Change::Put { hold: reader.hold(clock)?, expiry: Expiry::Keep },
        REMOVE_EXCLUSIVE => Change::Remove { owner: reader.flagged_owner()?, mode: Some(Mode::Exclusive) },
        REMOVE_SHARED => Change::Remove { owner: reader.flagged_owner()?, mode: Some(Mode::Shared) },
        REMOVE_BOTH => Change::Remove { owner: reader.flagged_owner()?, mode: None },
        SWEEP => Change::Sweep,
        _ => return Err(DecodeError::Invalid("kind")),
    };
    reader.end()?;
    let waiters = if head & SOMEBODY_WAITS == 0 { Waiters::None } else { Waiters::Some };
    Ok(Effect { clock, change, waiters })
}

fn put_hold(out: &mut Vec<u8>, hold: &Hold, reference: UnixMs) {
    let due = hold.deadline == reference.plus(hold.lease);
    let mode = match hold.mode {
        Mode::Exclusive => 0,
        Mode::Shared => FLAG_SHARED,
    };
    let request = if hold.request.is_some() { FLAG_REQUEST } else { 0 };
    out.push(mode | owner_flag(&hold.owner) | if due { FLAG_DUE } else { 0 } | request);
    put_owner(out, &hold.owner);
    put_number(out, u64::from(hold.count));
    put_number(out, hold.lease.get());
    if !due {
        put_difference(out, hold.deadline.get(), reference.get());
    }
    put_difference(out, hold.token.get(), micros(reference));
    if let Some(request) = &hold.request {
        out.push(match request.command() {
            Command::Acquire => ACQUIRE,
            Command::Racquire => RACQUIRE,
            Command::Rlock => RLOCK,
            Command::Wlock => WLOCK,
            Command::Release => RELEASE,
        });
        put_number(out, request.id().len() as u64);
        out.extend_from_slice(request.id());
    }
}

fn owner_flag(owner: &Owner) -> u8 {
    if owner.as_uuid().is_some() { FLAG_UUID } else { 0 }
}

fn put_owner(out: &mut Vec<u8>, owner: &Owner) {
    match owner.as_uuid() {
        Some(bytes) => out.extend_from_slice(&bytes),
        None => {
            let text = owner.text();
            put_number(out, text.len() as u64);
            out.extend_from_slice(&text);
        }
    }
}

fn put_difference(out: &mut Vec<u8>, value: u64, reference: u64) {
    let difference = value.wrapping_sub(reference).cast_signed();
    put_number(out, ((difference << 1) ^ (difference >> 63)).cast_unsigned());
}

fn put_number(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(number.to_le_bytes()[0] | 0x80);
        number >>= 7;
    }
    out.push(number.to_le_bytes()[0]);
}

fn micros(time: UnixMs) -> u64 {
    time.get().saturating_mul(1000)
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn hold(&mut self, reference: UnixMs) -> Result<Hold, DecodeError> {
        let flags = self.byte()?;
        if flags & !(FLAG_SHARED | FLAG_UUID | FLAG_DUE | FLAG_REQUEST) != 0 {
            return Err(DecodeError::Invalid("flags"));
        }
        let mode = if flags & FLAG_SHARED == 0 { Mode::Exclusive } else { Mode::Shared };
        let owner = self.owner(flags)?;
        let count = u32::try_from(self.number()?).ok().filter(|count| *count >= 1);
        let lease = Lease::new(self.number()?).ok_or(DecodeError::Invalid("lease"))?;
        let deadline = match flags & FLAG_DUE {
            0 => time(self.difference(reference.get())?)?,
            _ => reference.plus(lease),
        };
        let token = Token::new(self.difference(micros(reference))?).ok_or(DecodeError::Invalid("token"))?;
        let request = if flags & FLAG_REQUEST == 0 { None } else { Some(Box::new(self.request()?)) };
        Ok(Hold { owner, mode, count: count.ok_or(DecodeError::Invalid("count"))?, lease, deadline, token, request })
    }

    fn request(&mut self) -> Result<Request, DecodeError> {
        let command = match self.byte()? {
            ACQUIRE => Command::Acquire,
            RACQUIRE => Command::Racquire,
            RLOCK => Command::Rlock,
            WLOCK => Command::Wlock,
            RELEASE => Command::Release,
            _ => return Err(DecodeError::Invalid("command")),
        };
        Request::new(command, self.bytes()?).ok_or(DecodeError::Invalid("request"))
    }

    fn flagged_owner(&mut self) -> Result<Owner, DecodeError> {
        match self.byte()? {
            flags @ (0 | FLAG_UUID) => self.owner(flags),
            _ => Err(DecodeError::Invalid("flags")),
        }
    }

    fn owner(&mut self, flags: u8) -> Result<Owner, DecodeError> {
        if flags & FLAG_UUID != 0 {
            let (bytes, rest) = self.0.split_first_chunk::<16>().ok_or(DecodeError::Truncated)?;
            self.0 = rest;
            return Ok(Owner::from_uuid(*bytes));
        }
        Owner::new(self.bytes()?).ok_or(DecodeError::Invalid("owner"))
    }

    fn bytes(&mut self) -> Result<&'a [u8], DecodeError> {
        let len = usize::try_from(self.number()?).map_err(|_| DecodeError::Truncated)?;
        let (bytes, rest) = self.0.split_at_checked(len).ok_or(DecodeError::Truncated)?;
        self.0 = rest;
        Ok(bytes)
    }

    fn time(&mut self) -> Result<UnixMs, DecodeError> {
        time(self.number()?)
    }

    fn difference(&mut self, reference: u64) -> Result<u64, DecodeError> {
        let number = self.number()?;
        let difference = (number >> 1).cast_signed() ^ -((number & 1).cast_signed());
        Ok(reference.wrapping_add_signed(difference))
    }

    fn number(&mut self) -> Result<u64, DecodeError> {
        let mut number = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            let part = u64::from(byte & 0x7f);
            if part << shift >> shift != part {
                return Err(DecodeError::Invalid("number"));
            }
            number |= part << shift;
            if byte & 0x80 == 0 {
                return Ok(number);
            }
        }
        Err(DecodeError::Invalid("number"))
    }

    fn byte(&mut self) -> Result<u8, DecodeError> {
        let (byte, rest) = self.0.split_first().ok_or(DecodeError::Truncated)?;
        self.0 = rest;
        Ok(*byte)
    }

    fn end(&self) -> Result<(), DecodeError> {
        if self.0.is_empty() { Ok(()) } else { Err(DecodeError::TrailingBytes) }
    }
}

fn time(ms: u64) -> Result<UnixMs, DecodeError> {
    if ms <= UnixMs::MAX.get() { Ok(UnixMs::new(ms)) } else { Err(DecodeError::Invalid("time")) }
}

const LOCK_VERSION: u8 = 1;
const EFFECT_VERSION: u8 = 0x10;

const PUT_ANEW: u8 = 0;
const PUT_KEEP: u8 = 1;
const REMOVE_EXCLUSIVE: u8 = 2;
const REMOVE_SHARED: u8 = 3;
const REMOVE_BOTH: u8 = 4;
const SWEEP: u8 = 5;
const SOMEBODY_WAITS: u8 = 8;

const FLAG_SHARED: u8 = 1;
const FLAG_UUID: u8 = 2;
const FLAG_DUE: u8 = 4;
const FLAG_REQUEST: u8 = 8;

const ACQUIRE: u8 = 0;
const RACQUIRE: u8 = 1;
const RLOCK: u8 = 2;
const WLOCK: u8 = 3;
const RELEASE: u8 = 4;
