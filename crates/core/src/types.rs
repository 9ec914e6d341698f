//! Values that cannot be wrong: a constructor checks, everybody else trusts.

use core::fmt;
use core::num::NonZeroU64;
use core::ops::Deref;

/// Whether a hold excludes every other owner or only writers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Mode {
    /// The write mode: no other owner holds the lock in any mode.
    Exclusive,
    /// The read mode: no other owner holds the lock exclusively.
    Shared,
}

/// A point in time: unix milliseconds of the server's clock, at most [`UnixMs::MAX`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UnixMs(u64);

impl UnixMs {
    /// The latest time there is: 2^53 ms, so that sums with a lease fit every integer a server uses.
    pub const MAX: UnixMs = UnixMs(1 << 53);
    /// Before every deadline: by this clock no hold has lapsed.
    pub const ZERO: UnixMs = UnixMs(0);

    /// Returns `ms` milliseconds after the epoch, or the latest time there is.
    pub const fn new(ms: u64) -> UnixMs {
        if ms > Self::MAX.0 { Self::MAX } else { UnixMs(ms) }
    }

    /// Returns the milliseconds after the epoch.
    pub const fn get(self) -> u64 {
        self.0
    }

    /// Returns the time `lease` later.
    pub const fn plus(self, lease: Lease) -> UnixMs {
        UnixMs::new(self.0.saturating_add(lease.get()))
    }

    /// Returns the milliseconds from `earlier` until this time, 0 if it is not earlier.
    pub const fn since(self, earlier: UnixMs) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}

/// The time at which a command or a timer runs: unix microseconds of the server's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Now(u64);

impl Now {
    /// Returns the time `us` microseconds after the epoch.
    pub const fn from_us(us: u64) -> Now {
        Now(us)
    }

    /// Returns the microseconds after the epoch, the unit of fencing tokens.
    pub const fn us(self) -> u64 {
        self.0
    }

    /// Returns the milliseconds after the epoch, rounded down, the unit of leases.
    pub const fn ms(self) -> UnixMs {
        UnixMs::new(self.0 / 1000)
    }
}

/// The id of a client connection, as `CLIENT ID` prints it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClientId(pub u64);

/// Where a lock is: a database and the name of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name<'a> {
    /// The number of the database.
    pub db: i32,
    /// The name of the key: any bytes.
    pub key: &'a [u8],
}

/// How long a hold was given, in milliseconds: 1 to [`Lease::MAX`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Lease(NonZeroU64);

impl Lease {
    /// 365 days.
    pub const MAX: Lease = Lease(NonZeroU64::new(31_536_000_000).unwrap());

    /// The shortest of a hold that is bound to a connection (`SESSION`), 300 ms: a shorter one could not be moved on in
    /// time.
    pub const MIN_BOUND: Lease = Lease(NonZeroU64::new(300).unwrap());

    /// Returns `ms` milliseconds, unless that is 0 or over [`Lease::MAX`].
    pub const fn new(ms: u64) -> Option<Lease> {
        match NonZeroU64::new(ms) {
            Some(lease) if ms <= Self::MAX.get() => Some(Lease(lease)),
            _ => None,
        }
    }

    /// Returns the milliseconds.
    pub const fn get(self) -> u64 {
        self.0.get()
    }

    /// Returns whether a hold with it can be bound to a connection: it is [`Lease::MIN_BOUND`] or longer.
    pub fn can_be_bound(self) -> bool {
        self >= Self::MIN_BOUND
    }
}

/// A command's word on the lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeaseChoice {
    /// Nothing: the hold's own, or the default for a new hold.
    Own,
    /// So many milliseconds from the moment it is granted (`EX`, `PX`).
    For(Lease),
    /// Until then (`EXAT`, `PXAT`).
    Until(UnixMs),
}

impl LeaseChoice {
    /// Returns the lease and the deadline of a hold whose own (or default) lease is `own`, granted or renewed at `now`.
    ///
    /// `None`: an absolute lease that has passed, or is longer than any lease may be.
    pub fn resolve(self, now: UnixMs, own: Lease) -> Option<(Lease, UnixMs)> {
        match self {
            LeaseChoice::Own => Some((own, now.plus(own))),
            LeaseChoice::For(lease) => Some((lease, now.plus(lease))),
            LeaseChoice::Until(deadline) => Lease::new(deadline.since(now)).map(|lease| (lease, deadline)),
        }
    }
}

/// A fencing token: 1 to 2^53, so that every client language has an exact integer for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Token(NonZeroU64);

impl Token {
    /// 2^53.
    pub const MAX: Token = Token(NonZeroU64::new(1 << 53).unwrap());

    /// Returns `n`, unless that is 0 or over [`Token::MAX`].
    pub const fn new(n: u64) -> Option<Token> {
        match NonZeroU64::new(n) {
            Some(token) if n <= Self::MAX.get() => Some(Token(token)),
            _ => None,
        }
    }

    /// Returns the number.
    pub const fn get(self) -> u64 {
        self.0.get()
    }
}

/// The holder of a lock: 1 to [`Owner::MAX_LEN`] bytes chosen by the client. One owner is one thread of control.
///
/// A UUID in its usual form (36 characters, lower case, hyphens) is kept as its 16 bytes; everything shows the bytes
/// that came in.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Owner(Form);

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Form {
    /// The 16 bytes as two numbers, the first byte on top: they are copied and compared at once.
    Uuid([u64; 2]),
    Bytes(Box<[u8]>),
}

impl Owner {
    /// The longest owner in bytes.
    pub const MAX_LEN: usize = 1024;

    /// Returns an owner of these bytes, unless there are none or too many.
    pub fn new(bytes: &[u8]) -> Option<Owner> {
        if bytes.is_empty() || bytes.len() > Self::MAX_LEN {
            return None;
        }
        Some(Owner(parse_uuid(bytes).map_or_else(|| Form::Bytes(bytes.into()), Form::Uuid)))
    }

    /// Returns the owner whose text is the UUID of these bytes.
    pub fn from_uuid(bytes: [u8; 16]) -> Owner {
        let number = u128::from_be_bytes(bytes);
        #[allow(clippy::cast_possible_truncation, reason = "each takes its half")]
        let halves = [(number >> 64) as u64, number as u64];
        Owner(Form::Uuid(halves))
    }

    /// Returns the 16 bytes, if the owner is a UUID.
    pub fn as_uuid(&self) -> Option<[u8; 16]> {
        match &self.0 {
            Form::Uuid(halves) => Some(uuid_bytes(*halves)),
            Form::Bytes(_) => None,
        }
    }

    /// Returns the bytes the client chose.
    pub fn text(&self) -> OwnerText<'_> {
        match &self.0 {
            Form::Uuid(halves) => OwnerText::Uuid(format_uuid(&uuid_bytes(*halves))),
            Form::Bytes(bytes) => OwnerText::Bytes(bytes),
        }
    }

    /// Returns the bytes on the heap beside the owner itself.
    pub fn heap_bytes(&self) -> usize {
        match &self.0 {
            Form::Uuid(_) => 0,
            Form::Bytes(bytes) => bytes.len(),
        }
    }
}

impl fmt::Debug for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Owner({})", self.text().escape_ascii())
    }
}

/// The bytes of an [`Owner`] as the client sent them.
#[derive(Debug)]
pub enum OwnerText<'a> {
    /// Written out of the 16 bytes.
    Uuid([u8; 36]),
    /// As they are kept.
    Bytes(&'a [u8]),
}

impl Deref for OwnerText<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            OwnerText::Uuid(text) => text,
            OwnerText::Bytes(bytes) => bytes,
        }
    }
}

/// A command that `REQUEST` can identify.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// `DLOCK.ACQUIRE`.
    Acquire,
    /// `DLOCK.RACQUIRE`.
    Racquire,
    /// `DLOCK.RLOCK`.
    Rlock,
    /// `DLOCK.WLOCK`.
    Wlock,
    /// `DLOCK.SACQUIRE`.
    Sacquire,
    /// `DLOCK.MACQUIRE`.
    Macquire,
    /// `DLOCK.RELEASE`.
    Release,
}

/// Identifies a command that a client may send twice: the command and an id of 1 to [`RequestId::MAX_LEN`] bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestId {
    command: Command,
    id: Box<[u8]>,
}

impl RequestId {
    /// The longest id in bytes.
    pub const MAX_LEN: usize = 64;

    /// Returns a request with this id, unless it has no bytes or too many.
    pub fn new(command: Command, id: &[u8]) -> Option<RequestId> {
        if id.is_empty() || id.len() > Self::MAX_LEN { None } else { Some(RequestId { command, id: id.into() }) }
    }

    /// Returns the command.
    pub fn command(&self) -> Command {
        self.command
    }

    /// Returns the id.
    pub fn id(&self) -> &[u8] {
        &self.id
    }
}

/// One owner's part of a lock in one mode.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hold {
    /// The owner.
    pub owner: Owner,
    /// In which mode.
    pub mode: Mode,
    /// How many times the owner entered, 1 or more.
    pub count: u32,
    /// The lease it was given.
    pub lease: Lease,
    /// When it ends. The hold is live before that.
    pub deadline: UnixMs,
    /// Its fencing token.
    pub token: Token,
    /// Fields that few holds have.
    pub extras: Option<Box<Extras>>,
}

/// Fields that few holds have: they take no room in the others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Extras {
    request: Option<RequestId>,
    cap: Option<UnixMs>,
    slot: Option<u32>,
}

impl Extras {
    /// Returns the last request on a hold that named an id, its cap and its number; `None` if it has none of them. Only
    /// a shared hold has a number.
    #[inline]
    pub fn of(request: Option<RequestId>, cap: Option<UnixMs>, slot: Option<u32>) -> Option<Box<Extras>> {
        if request.is_none() && cap.is_none() && slot.is_none() {
            return None;
        }
        Some(Box::new(Extras { request, cap, slot }))
    }
}

impl Hold {
    /// Returns the last request on it that named an id.
    #[inline]
    pub fn request(&self) -> Option<&RequestId> {
        self.extras.as_ref()?.request.as_ref()
    }

    /// Returns the latest time that its deadline can ever have, if there is one (`MAXHOLD`). The deadline is not behind
    /// it.
    #[inline]
    pub fn cap(&self) -> Option<UnixMs> {
        self.extras.as_ref()?.cap
    }

    /// Returns its number, if it was asked for (`SLOT`): no other hold of the lock has it.
    #[inline]
    pub fn slot(&self) -> Option<u32> {
        self.extras.as_ref()?.slot
    }

    /// Returns the time, or the cap if that is earlier.
    #[inline]
    pub(crate) fn up_to_cap(&self, time: UnixMs) -> UnixMs {
        self.cap().map_or(time, |cap| time.min(cap))
    }

    /// Returns whether nothing can extend it: its deadline is the cap.
    pub fn has_reached_cap(&self) -> bool {
        self.cap() == Some(self.deadline)
    }

    /// Records a request, if it names an id. A record stays until another request on that hold replaces it.
    pub(crate) fn record(&mut self, request: Option<&RequestId>) {
        if let Some(request) = request {
            self.extras = Extras::of(Some(request.clone()), self.cap(), self.slot());
        }
    }

    /// Returns whether the last request on it that named an id was this one.
    pub fn repeats(&self, request: Option<&RequestId>) -> bool {
        request.is_some() && self.request() == request
    }

    /// Returns the bytes on the heap beside the hold itself.
    pub fn heap_bytes(&self) -> usize {
        let id = self.request().map_or(0, |request| request.id.len());
        self.owner.heap_bytes() + self.extras.as_ref().map_or(0, |_| size_of::<Extras>() + id)
    }

    /// Returns whether the hold exists at `now`: a lapsed hold does not.
    pub fn is_live(&self, now: UnixMs) -> bool {
        now < self.deadline
    }
}

const HYPHENS: [usize; 4] = [8, 13, 18, 23];

/// Eight digits at a time, without a branch before the end: every command reads an owner.
fn parse_uuid(text: &[u8]) -> Option<[u64; 2]> {
    let text: &[u8; 36] = text.try_into().ok()?;
    let four = |at: usize| text.get(at..)?.first_chunk().map(|digits| u64::from(u32::from_be_bytes(*digits)));
    let eight = |high: usize, low: usize| Some(number_of_digits((four(high)? << 32) + four(low)?));
    let hyphens = HYPHENS.into_iter().fold(0, |wrong, at| wrong | text.get(at).map_or(0xff, |found| found ^ b'-'));
    let ((a, a_wrong), (b, b_wrong)) = (eight(0, 4)?, eight(9, 14)?);
    let ((c, c_wrong), (d, d_wrong)) = (eight(19, 24)?, eight(28, 32)?);
    let wrong = a_wrong | b_wrong | c_wrong | d_wrong | u64::from(hyphens);
    (wrong == 0).then_some([(a << 32) + b, (c << 32) + d])
}

/// The number of eight lower case hexadecimal digits, and 0 if that is what they are.
fn number_of_digits(digits: u64) -> (u64, u64) {
    let every = |byte: u64| byte * 0x0101_0101_0101_0101;
    // Letters have this bit: `a` is 0x61, `0` is 0x30.
    let letters = (digits >> 6) & every(1);
    let halves = (digits & every(0x0f)) + letters * 9;
    // Back again: what comes from another character is not that character, or over 15.
    let from_ten = ((halves + every(6)) >> 4) & every(1);
    let wrong = (halves & every(0xf0)) | ((halves + every(0x30) + from_ten * 0x27) ^ digits);
    let bytes = (halves + (halves >> 4)) & 0x00ff_00ff_00ff_00ff;
    let pairs = (bytes + (bytes >> 8)) & 0x0000_ffff_0000_ffff;
    ((pairs + (pairs >> 16)) & 0xffff_ffff, wrong)
}

fn uuid_bytes([first, second]: [u64; 2]) -> [u8; 16] {
    ((u128::from(first) << 64) + u128::from(second)).to_be_bytes()
}

const HEX_DIGITS: &[u8; 16] = b"0123456789abcdef";

fn format_uuid(bytes: &[u8; 16]) -> [u8; 36] {
    let digit = |nibble: u8| HEX_DIGITS.get(usize::from(nibble)).copied().unwrap_or(b'0');
    let mut nibbles = bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]);
    let mut text = [b'-'; 36];
    for (at, place) in text.iter_mut().enumerate() {
        if !HYPHENS.contains(&at) {
            *place = nibbles.next().unwrap_or(b'0');
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_uuid_is_kept_in_16_bytes_and_shown_as_it_came() {
        let text = b"0f8fad5b-d9cb-469f-a165-70867728950e";
        let owner = Owner::new(text).unwrap();
        assert!(owner.as_uuid().is_some());
        assert_eq!(owner.heap_bytes(), 0);
        assert_eq!(&*owner.text(), text);
    }

    /// Two owners are never taken for one: what is kept in 16 bytes is shown as it came, whatever stands where.
    #[test]
    fn every_byte_in_every_place_of_a_uuid_is_shown_as_it_came() {
        for (at, byte) in (0..36).flat_map(|at| (0..=255).map(move |byte| (at, byte))) {
            let mut text = *b"0f8fad5b-d9cb-469f-a165-70867728950e";
            text[at] = byte;
            let owner = Owner::new(&text).unwrap();
            let is_right = if HYPHENS.contains(&at) { byte == b'-' } else { matches!(byte, b'0'..=b'9' | b'a'..=b'f') };
            assert_eq!(owner.as_uuid().is_some(), is_right, "{byte} at {at}");
            assert_eq!(*owner.text(), text);
        }
    }

    #[test]
    fn two_wrong_bytes_do_not_make_up_for_each_other() {
        let pairs = (0..36).flat_map(|one| (0..one).map(move |other| [one, other]));
        for (places, byte) in pairs.flat_map(|places| b"gG-+/:`@\0\x10\x80\xff".map(|byte| (places, byte))) {
            let mut text = *b"00000000-0000-0000-0000-000000000000";
            places.iter().for_each(|place| text[*place] = byte);
            let is_right = byte == b'-' && places.iter().all(|place| HYPHENS.contains(place));
            let owner = Owner::new(&text).unwrap();
            assert_eq!(owner.as_uuid().is_some(), is_right, "{byte} at {places:?}");
            assert_eq!(*owner.text(), text);
        }
    }

    #[test]
    fn a_wrong_digit_does_not_make_up_for_a_wrong_hyphen() {
        // The last digit of each eight is compared in the same byte as a hyphen.
        for at in [7, 17, 27, 35] {
            for (digit, hyphen) in (0..=255).flat_map(|digit| (0..=255).map(move |hyphen| (digit, hyphen))) {
                let mut text = *b"00000000-0000-0000-0000-000000000000";
                (text[at], text[8]) = (digit, hyphen);
                let is_right = hyphen == b'-' && matches!(digit, b'0'..=b'9' | b'a'..=b'f');
                assert_eq!(parse_uuid(&text).is_some(), is_right, "{digit} at {at}, {hyphen}");
            }
        }
    }

    #[test]
    fn what_only_looks_like_a_uuid_is_kept_as_it_is() {
        for text in [
            "0F8FAD5B-D9CB-469F-A165-70867728950E",
            "0f8fad5bd-9cb-469f-a165-70867728950e",
            "0f8fad5b-d9cb-469f-a165-70867728950g",
            "0f8fad5b-d9cb-469f-a165-7086772-950e",
            "0f8fad5bd9cb469fa16570867728950e",
            "0f8fad5b+d9cb+469f+a165+70867728950e",
            "----",
        ] {
            let owner = Owner::new(text.as_bytes()).unwrap();
            assert!(owner.as_uuid().is_none(), "{text}");
            assert_eq!(&*owner.text(), text.as_bytes());
            assert_eq!(owner.heap_bytes(), text.len());
        }
    }

    #[test]
    fn owners_have_1_to_1024_bytes() {
        assert!(Owner::new(b"").is_none());
        assert!(Owner::new(&[0; 1024]).is_some());
        assert!(Owner::new(&[0; 1025]).is_none());
    }

    #[test]
    fn numbers_keep_their_ranges() {
        assert_eq!((Lease::new(0), Lease::new(31_536_000_001)), (None, None));
        assert_eq!(Lease::new(31_536_000_000), Some(Lease::MAX));
        assert_eq!((Token::new(0), Token::new((1 << 53) + 1)), (None, None));
        assert_eq!(Token::new(1 << 53), Some(Token::MAX));
        assert_eq!(UnixMs::new(u64::MAX), UnixMs::MAX);
        assert_eq!(UnixMs::MAX.get(), 1 << 53);
        assert_eq!(UnixMs::MAX.plus(Lease::MAX), UnixMs::MAX);
    }

    #[test]
    fn what_may_be_missing_takes_no_more_room() {
        assert_eq!((size_of::<Option<Lease>>(), size_of::<Option<Token>>()), (8, 8));
    }

    #[test]
    fn a_hold_fits_a_size_class_of_64_bytes() {
        assert!(size_of::<Hold>() <= 64, "{}", size_of::<Hold>());
    }
}
