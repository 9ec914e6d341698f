//! Bytes of a lock (RDB, `DUMP`) and of an effect (replication, AOF).
//!
//! Each encoding begins with a version. Decoding is total: any bytes give a valid value or an error. Numbers are
//! LEB128; differences, which may be negative, are zigzagged.
//!
//! ```text
//! lock    = version, holds, hold × holds             (times relative to 0)
//! effect  = 16 × version + kind, clock, body         (times relative to the clock)
//! version = 1; 2 if there is a kind or a request that version 1 does not know; 3 if a hold has a cap or
//!           a slot
//! kind    = 0 put, TTL anew | 1 put, TTL kept | 2 remove exclusive | 3 remove shared | 4 remove both | 5 sweep |
//!           6 put, TTL left alone (version 2 and later); releases before 0.2 add 8 while there are waiters, which is
//!           ignored
//! body    = put: hold | remove: owner flag, owner | sweep: nothing
//! hold    = flags, owner, count, lease, [deadline,] token, [request,] [cap,] [slot]
//! flags   = 1 shared | 2 owner is a UUID | 4 deadline is reference + lease, and left out | 8 has a request |
//!           16 has a cap (version 3) | 32 is shared and has a slot (version 3)
//! request = 0 acquire | 1 racquire | 2 rlock | 3 wlock | 4 release | 5 sacquire | 6 macquire, length, id
//! owner   = 16 bytes | length, bytes
//! token   = relative to the reference in µs
//! cap     = ms behind the deadline
//! slot    = 0 to 2^32 - 2; no two holds of a lock have the same
//! ```

use core::fmt;

use crate::holds::{Holds, Trash};
use crate::sink::{SHORT, Short, Sink};
use crate::{Bond, Change, Command, Effect, Expiry, Extras, Hold, Lease, Lock, Mode, Owner, RequestId, Token, UnixMs};

/// Why bytes are not a lock or an effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DecodeError {
    /// The bytes end too early.
    Truncated,
    /// The bytes go on after the end.
    TrailingBytes,
    /// The bytes are of a version that this build does not know.
    Version(u8),
    /// A value is out of range, or contradicts another.
    Invalid(&'static str),
}

impl std::error::Error for DecodeError {}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DecodeError::Truncated => write!(f, "the data end too early"),
            DecodeError::TrailingBytes => write!(f, "the data continue after their end"),
            DecodeError::Version(version) => write!(f, "format version {version} is unknown: is this module too old?"),
            DecodeError::Invalid(what) => write!(f, "invalid {what}"),
        }
    }
}

/// Appends the bytes of a lock with all its stored holds.
pub fn encode_lock(lock: &Lock, out: &mut Vec<u8>) {
    out.push(lock.stored_holds().map(version_of).max().unwrap_or(VERSION_1));
    put_number(out, lock.stored() as u64);
    for hold in lock.stored_holds() {
        put_hold(out, hold, UnixMs::ZERO);
    }
}

/// Returns a lock from the bytes of [`encode_lock`]. It has at least one hold.
pub fn decode_lock(bytes: &[u8]) -> Result<Lock, DecodeError> {
    let mut reader = Reader::of_lock(bytes)?;
    let count = reader.number()?;
    let mut holds = Holds::default();
    for added in 0..count {
        holds.put(reader.hold(UnixMs::ZERO)?, &mut Trash::new());
        // A hold that replaced an earlier one, or excludes it, means that the bytes are no lock.
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
    put_effect(effect, out);
}

/// Runs `body` with the bytes of an effect. Short ones, which nearly all are, are not allocated.
#[inline(never)]
pub fn with_encoded_effect<R>(effect: &Effect, body: impl FnOnce(&[u8]) -> R) -> R {
    let mut place = [0; SHORT];
    let mut short = Short::new(&mut place);
    put_effect(effect, &mut short);
    match short.bytes() {
        Some(bytes) => body(bytes),
        None => body(&encoded(effect)),
    }
}

#[cold]
fn encoded(effect: &Effect) -> Vec<u8> {
    let mut bytes = Vec::new();
    put_effect(effect, &mut bytes);
    bytes
}

#[inline(always)]
fn put_effect(effect: &Effect, out: &mut impl Sink) {
    match &effect.change {
        Change::Put { expiry, hold } => {
            let version = version_of(hold);
            out.put(match expiry {
                Expiry::Anew => head(version, PUT_ANEW),
                Expiry::Keep => head(version, PUT_KEEP),
                Expiry::Leave => head(version.max(VERSION_2), PUT_LEAVE),
            });
            put_time(out, effect.clock);
            put_hold(out, hold, effect.clock);
        }
        Change::Remove { owner, mode } => {
            let kind = match mode {
                Some(Mode::Exclusive) => REMOVE_EXCLUSIVE,
                Some(Mode::Shared) => REMOVE_SHARED,
                None => REMOVE_BOTH,
            };
            out.put(head(VERSION_1, kind));
            put_time(out, effect.clock);
            out.put(owner_flag(owner));
            put_owner(out, owner);
        }
        Change::Sweep => {
            out.put(head(VERSION_1, SWEEP));
            put_time(out, effect.clock);
        }
    }
}

/// Appends the bytes of the effect that gives this hold: a [`Change::Put`] that sets the TTL again.
pub fn encode_put(clock: UnixMs, hold: &Hold, out: &mut Vec<u8>) {
    out.put(head(version_of(hold), PUT_ANEW));
    put_time(out, clock);
    put_hold(out, hold, clock);
}

/// Returns the effect with the bytes of [`encode_effect`].
pub fn decode_effect(bytes: &[u8]) -> Result<Effect, DecodeError> {
    let (mut reader, kind) = Reader::of_effect(bytes)?;
    let clock = reader.time()?;
    let change = match kind {
        PUT_ANEW => Change::Put { hold: reader.hold(clock)?, expiry: Expiry::Anew },
        PUT_KEEP => Change::Put { hold: reader.hold(clock)?, expiry: Expiry::Keep },
        PUT_LEAVE if reader.version >= VERSION_2 => Change::Put { hold: reader.hold(clock)?, expiry: Expiry::Leave },
        REMOVE_EXCLUSIVE => Change::Remove { owner: reader.flagged_owner()?, mode: Some(Mode::Exclusive) },
        REMOVE_SHARED => Change::Remove { owner: reader.flagged_owner()?, mode: Some(Mode::Shared) },
        REMOVE_BOTH => Change::Remove { owner: reader.flagged_owner()?, mode: None },
        SWEEP => Change::Sweep,
        _ => return Err(DecodeError::Invalid("kind")),
    };
    reader.end()?;
    Ok(Effect { clock, change })
}

/// Returns the first version that can encode all fields of a hold.
fn version_of(hold: &Hold) -> u8 {
    if hold.extras.is_none() {
        return VERSION_1;
    }
    match hold.request().map(RequestId::command) {
        _ if hold.cap().is_some() || hold.slot().is_some() => VERSION_3,
        Some(Command::Sacquire | Command::Macquire) => VERSION_2,
        _ => VERSION_1,
    }
}

const fn head(version: u8, kind: u8) -> u8 {
    version << 4 | kind
}

#[inline(always)]
fn put_hold(out: &mut impl Sink, hold: &Hold, reference: UnixMs) {
    let has_full_lease = hold.deadline == reference.plus(hold.lease);
    let mode = match hold.mode {
        Mode::Exclusive => 0,
        Mode::Shared => FLAG_SHARED,
    };
    let extras = if hold.extras.is_some() { flags_of_extras(hold) } else { 0 };
    out.put(mode | owner_flag(&hold.owner) | has(FLAG_FULL_LEASE, has_full_lease) | extras);
    put_owner(out, &hold.owner);
    put_number(out, u64::from(hold.count));
    put_number(out, hold.lease.get());
    if !has_full_lease {
        put_difference(out, hold.deadline.get(), reference.get());
    }
    put_difference(out, hold.token.get(), micros(reference));
    if hold.extras.is_some() {
        put_extras(out, hold);
    }
}

const fn has(flag: u8, is_there: bool) -> u8 {
    if is_there { flag } else { 0 }
}

fn flags_of_extras(hold: &Hold) -> u8 {
    has(FLAG_REQUEST, hold.request().is_some())
        | has(FLAG_CAP, hold.cap().is_some())
        | has(FLAG_SLOT, hold.slot().is_some())
}

fn put_extras(out: &mut impl Sink, hold: &Hold) {
    if let Some(request) = hold.request() {
        out.put(match request.command() {
            Command::Acquire => ACQUIRE,
            Command::Racquire => RACQUIRE,
            Command::Rlock => RLOCK,
            Command::Wlock => WLOCK,
            Command::Release => RELEASE,
            Command::Sacquire => SACQUIRE,
            Command::Macquire => MACQUIRE,
        });
        put_number(out, request.id().len() as u64);
        out.put_all(request.id());
    }
    if let Some(cap) = hold.cap() {
        put_number(out, cap.since(hold.deadline));
    }
    if let Some(slot) = hold.slot() {
        put_number(out, u64::from(slot));
    }
}

fn owner_flag(owner: &Owner) -> u8 {
    if owner.as_uuid().is_some() { FLAG_UUID } else { 0 }
}

fn put_owner(out: &mut impl Sink, owner: &Owner) {
    match owner.as_uuid() {
        Some(bytes) => out.put_all(&bytes),
        None => {
            let text = owner.text();
            put_number(out, text.len() as u64);
            out.put_all(&text);
        }
    }
}

fn put_difference(out: &mut impl Sink, value: u64, reference: u64) {
    let difference = value.wrapping_sub(reference).cast_signed();
    put_number(out, ((difference << 1) ^ (difference >> 63)).cast_unsigned());
}

/// Appends a time: nearly always it has six groups of seven bits, five of which are appended at once.
fn put_time(out: &mut impl Sink, time: UnixMs) {
    let number = time.get();
    if number >> 35 == 0 {
        return put_number(out, number);
    }
    let group = |shift: u32| (number >> shift).to_le_bytes()[0] | 0x80;
    out.put_all(&[group(0), group(7), group(14), group(21), group(28)]);
    put_number(out, number >> 35);
}

#[inline]
fn put_number(out: &mut impl Sink, mut number: u64) {
    while number >= 0x80 {
        out.put(number.to_le_bytes()[0] | 0x80);
        number >>= 7;
    }
    out.put(number.to_le_bytes()[0]);
}

fn micros(time: UnixMs) -> u64 {
    time.get().saturating_mul(1000)
}

struct Reader<'a> {
    bytes: &'a [u8],
    version: u8,
}

impl<'a> Reader<'a> {
    fn of_lock(bytes: &'a [u8]) -> Result<Reader<'a>, DecodeError> {
        match bytes.split_first().ok_or(DecodeError::Truncated)? {
            (version @ &(VERSION_1 | VERSION_2 | VERSION_3), bytes) => Ok(Reader { bytes, version: *version }),
            (version, _) => Err(DecodeError::Version(*version)),
        }
    }

    fn of_effect(bytes: &'a [u8]) -> Result<(Reader<'a>, u8), DecodeError> {
        let (head, bytes) = bytes.split_first().ok_or(DecodeError::Truncated)?;
        match head >> 4 {
            version @ VERSION_1 => Ok((Reader { bytes, version }, head & 0x07)),
            version @ (VERSION_2 | VERSION_3) => Ok((Reader { bytes, version }, head & 0x0f)),
            version => Err(DecodeError::Version(version)),
        }
    }

    fn hold(&mut self, reference: UnixMs) -> Result<Hold, DecodeError> {
        let flags = self.byte()?;
        let new = if self.version >= VERSION_3 { FLAG_CAP | FLAG_SLOT } else { 0 };
        if flags & !(FLAG_SHARED | FLAG_UUID | FLAG_FULL_LEASE | FLAG_REQUEST | new) != 0 {
            return Err(DecodeError::Invalid("flags"));
        }
        let mode = if flags & FLAG_SHARED == 0 { Mode::Exclusive } else { Mode::Shared };
        let owner = self.owner(flags)?;
        let count = u32::try_from(self.number()?).ok().filter(|count| *count >= 1);
        let lease = Lease::new(self.number()?).ok_or(DecodeError::Invalid("lease"))?;
        let deadline = match flags & FLAG_FULL_LEASE {
            0 => time(self.difference(reference.get())?)?,
            _ => reference.plus(lease),
        };
        let token = Token::new(self.difference(micros(reference))?).ok_or(DecodeError::Invalid("token"))?;
        let request = if flags & FLAG_REQUEST == 0 { None } else { Some(self.request()?) };
        let cap = if flags & FLAG_CAP == 0 { None } else { Some(self.cap(deadline)?) };
        let slot = if flags & FLAG_SLOT == 0 { None } else { Some(self.slot(mode)?) };
        let extras = Extras::of(request, cap, slot);
        let (count, bond) = (count.ok_or(DecodeError::Invalid("count"))?, Bond::NONE);
        Ok(Hold { owner, mode, count, lease, deadline, token, extras, bond })
    }

    fn request(&mut self) -> Result<RequestId, DecodeError> {
        let command = match self.byte()? {
            ACQUIRE => Command::Acquire,
            RACQUIRE => Command::Racquire,
            RLOCK => Command::Rlock,
            WLOCK => Command::Wlock,
            RELEASE => Command::Release,
            SACQUIRE if self.version >= VERSION_2 => Command::Sacquire,
            MACQUIRE if self.version >= VERSION_2 => Command::Macquire,
            _ => return Err(DecodeError::Invalid("command")),
        };
        RequestId::new(command, self.bytes()?).ok_or(DecodeError::Invalid("request"))
    }

    fn cap(&mut self, deadline: UnixMs) -> Result<UnixMs, DecodeError> {
        let cap = deadline.get().checked_add(self.number()?).filter(|cap| *cap <= UnixMs::MAX.get());
        cap.map(UnixMs::new).ok_or(DecodeError::Invalid("cap"))
    }

    fn slot(&mut self, mode: Mode) -> Result<u32, DecodeError> {
        let slot = u32::try_from(self.number()?).ok().filter(|slot| *slot < u32::MAX && mode == Mode::Shared);
        slot.ok_or(DecodeError::Invalid("slot"))
    }

    fn flagged_owner(&mut self) -> Result<Owner, DecodeError> {
        match self.byte()? {
            flags @ (0 | FLAG_UUID) => self.owner(flags),
            _ => Err(DecodeError::Invalid("flags")),
        }
    }

    fn owner(&mut self, flags: u8) -> Result<Owner, DecodeError> {
        if flags & FLAG_UUID != 0 {
            let (bytes, rest) = self.bytes.split_first_chunk::<16>().ok_or(DecodeError::Truncated)?;
            self.bytes = rest;
            return Ok(Owner::from_uuid(*bytes));
        }
        Owner::new(self.bytes()?).ok_or(DecodeError::Invalid("owner"))
    }

    fn bytes(&mut self) -> Result<&'a [u8], DecodeError> {
        let len = usize::try_from(self.number()?).map_err(|_| DecodeError::Truncated)?;
        let (bytes, rest) = self.bytes.split_at_checked(len).ok_or(DecodeError::Truncated)?;
        self.bytes = rest;
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
        let (byte, rest) = self.bytes.split_first().ok_or(DecodeError::Truncated)?;
        self.bytes = rest;
        Ok(*byte)
    }

    fn end(&self) -> Result<(), DecodeError> {
        if self.bytes.is_empty() { Ok(()) } else { Err(DecodeError::TrailingBytes) }
    }
}

fn time(ms: u64) -> Result<UnixMs, DecodeError> {
    if ms <= UnixMs::MAX.get() { Ok(UnixMs::new(ms)) } else { Err(DecodeError::Invalid("time")) }
}

const VERSION_1: u8 = 1;
const VERSION_2: u8 = 2;
const VERSION_3: u8 = 3;

const PUT_ANEW: u8 = 0;
const PUT_KEEP: u8 = 1;
const REMOVE_EXCLUSIVE: u8 = 2;
const REMOVE_SHARED: u8 = 3;
const REMOVE_BOTH: u8 = 4;
const SWEEP: u8 = 5;
const PUT_LEAVE: u8 = 6;

const FLAG_SHARED: u8 = 1;
const FLAG_UUID: u8 = 2;
const FLAG_FULL_LEASE: u8 = 4;
const FLAG_REQUEST: u8 = 8;
const FLAG_CAP: u8 = 16;
const FLAG_SLOT: u8 = 32;

const ACQUIRE: u8 = 0;
const RACQUIRE: u8 = 1;
const RLOCK: u8 = 2;
const WLOCK: u8 = 3;
const RELEASE: u8 = 4;
const SACQUIRE: u8 = 5;
const MACQUIRE: u8 = 6;
