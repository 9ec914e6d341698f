//! Values that are valid by their types: constructors check them, and no other code has to.

use core::num::NonZeroU64;

use crate::Owner;

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
    /// The latest time there is: 2^53 ms, so that its sum with a lease fits every integer that a server uses.
    pub const MAX: UnixMs = UnixMs(1 << 53);
    /// The first time, before every deadline: by this clock, no hold has lapsed.
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

    /// Returns the milliseconds from `earlier` until this time; 0 if `earlier` is not earlier.
    pub const fn since(self, earlier: UnixMs) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}

/// The time at which a command or a timer runs, by the server's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Now {
    us: u64,
    /// The time in milliseconds, rounded down: most rules use it.
    ms: UnixMs,
}

impl Now {
    /// Returns the time `us` microseconds after the epoch.
    pub const fn from_us(us: u64) -> Now {
        Now { us, ms: UnixMs::new(us / 1000) }
    }

    /// Returns the microseconds after the epoch, the unit of fencing tokens.
    pub const fn us(self) -> u64 {
        self.us
    }

    /// Returns the milliseconds after the epoch, rounded down, the unit of leases.
    pub const fn ms(self) -> UnixMs {
        self.ms
    }

    /// Returns the time `ms` milliseconds later.
    pub(crate) const fn ms_later(self, ms: u64) -> UnixMs {
        UnixMs::new(self.ms.get() + ms)
    }
}

/// The time of a monotonic clock: microseconds since some start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Uptime(u64);

impl Uptime {
    /// Returns the time `us` microseconds after the start.
    pub const fn from_us(us: u64) -> Uptime {
        Uptime(us)
    }

    /// Returns the microseconds after the start.
    pub const fn us(self) -> u64 {
        self.0
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

/// Borrows a name whose key is owned.
impl<'a> From<&'a (i32, Vec<u8>)> for Name<'a> {
    fn from((db, key): &'a (i32, Vec<u8>)) -> Name<'a> {
        Name { db: *db, key }
    }
}

/// How long a hold was given, in milliseconds: 1 to [`Lease::MAX`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Lease(NonZeroU64);

impl Lease {
    /// 365 days.
    pub const MAX: Lease = Lease(NonZeroU64::new(31_536_000_000).unwrap());

    /// The shortest lease of a hold that is bound to a session, 300 ms: a shorter one could not be extended in time.
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

    /// Returns whether a hold with this lease can be bound to a session: it is [`Lease::MIN_BOUND`] or longer.
    pub fn can_be_bound(self) -> bool {
        self >= Self::MIN_BOUND
    }
}

/// The lease that a command asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeaseChoice {
    /// The command names none: the lease that the hold has, or the default for a new hold.
    Own,
    /// For this many milliseconds from now on (`EX`, `PX`).
    For(Lease),
    /// Until this time (`EXAT`, `PXAT`).
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

impl Command {
    /// All commands, once each.
    pub const ALL: [Command; 7] = [
        Command::Acquire,
        Command::Racquire,
        Command::Rlock,
        Command::Wlock,
        Command::Sacquire,
        Command::Macquire,
        Command::Release,
    ];

    /// Returns the name in upper case, without `DLOCK.`.
    pub const fn name(self) -> &'static str {
        match self {
            Command::Acquire => "ACQUIRE",
            Command::Racquire => "RACQUIRE",
            Command::Rlock => "RLOCK",
            Command::Wlock => "WLOCK",
            Command::Sacquire => "SACQUIRE",
            Command::Macquire => "MACQUIRE",
            Command::Release => "RELEASE",
        }
    }

    /// Returns the command with this name in upper case, with or without `DLOCK.`.
    pub fn named(name: &str) -> Option<Command> {
        let name = name.strip_prefix("DLOCK.").unwrap_or(name);
        Command::ALL.into_iter().find(|command| command.name() == name)
    }

    /// Returns the command with this name, if it acquires.
    pub fn acquiring(name: &str) -> Option<Command> {
        Command::named(name).filter(|command| *command != Command::Release)
    }
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

/// A hold: one owner has the lock in one mode.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hold {
    /// The owner.
    pub owner: Owner,
    /// The mode.
    pub mode: Mode,
    /// The number of entries, 1 or more.
    pub count: u32,
    /// The lease of the last grant or renewal, or of a later re-entry with a longer one.
    pub lease: Lease,
    /// The time at which the hold lapses. It is live before that.
    pub deadline: UnixMs,
    /// The fencing token.
    pub token: Token,
    /// Fields that few holds have.
    pub extras: Option<Box<Extras>>,
    /// The bond of the lock, while this is the only hold. It is in no file and in no effect.
    pub bond: Bond,
}

/// Ties the value of a key to the bindings that this server remembers for it. A value from elsewhere with the same name
/// (a slot that left and came back, a `RESTORE`) has no bond, even if it has the same holds.
///
/// A bond does not count in comparisons of holds: any two bonds are equal.
#[derive(Clone, Copy, Debug, Default)]
pub struct Bond(u16);

impl Bond {
    /// No session of this server has bound a hold of the value.
    pub const NONE: Bond = Bond(0);

    /// Returns the next bond, which is neither this one nor [`Bond::NONE`].
    pub(crate) fn next(self) -> Bond {
        Bond(self.0.checked_add(1).unwrap_or(1))
    }

    pub(crate) fn is_same(self, other: Bond) -> bool {
        self.0 == other.0
    }

    pub(crate) fn is_none(self) -> bool {
        self.is_same(Bond::NONE)
    }
}

impl PartialEq for Bond {
    fn eq(&self, _: &Bond) -> bool {
        true
    }
}

impl Eq for Bond {}

/// Fields that few holds have. They take no room in other holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Extras {
    request: Option<RequestId>,
    cap: Option<UnixMs>,
    slot: Option<u32>,
}

impl Extras {
    /// Returns the extras of a hold: its last request with an id, its cap, and its number, which only shared holds
    /// have. `None` if it has none of the three.
    #[inline]
    pub fn of(request: Option<RequestId>, cap: Option<UnixMs>, slot: Option<u32>) -> Option<Box<Extras>> {
        if request.is_none() && cap.is_none() && slot.is_none() {
            return None;
        }
        Some(Box::new(Extras { request, cap, slot }))
    }
}

impl Hold {
    /// Returns the last request for this hold that named an id.
    #[inline]
    pub fn request(&self) -> Option<&RequestId> {
        self.extras.as_ref()?.request.as_ref()
    }

    /// Returns the latest time that the deadline can ever have, if there is a limit (`MAXHOLD`). The deadline is not
    /// later.
    #[inline]
    pub fn cap(&self) -> Option<UnixMs> {
        self.extras.as_ref()?.cap
    }

    /// Returns the number, if the request asked for one (`SLOT`). No other hold of the lock has the same.
    #[inline]
    pub fn slot(&self) -> Option<u32> {
        self.extras.as_ref()?.slot
    }

    /// Returns the time, or the cap if that is earlier.
    #[inline]
    pub(crate) fn up_to_cap(&self, time: UnixMs) -> UnixMs {
        self.cap().map_or(time, |cap| time.min(cap))
    }

    /// Returns whether the deadline is the cap, so that nothing can extend the hold.
    pub fn has_reached_cap(&self) -> bool {
        self.cap() == Some(self.deadline)
    }

    /// Records a request for this hold, if the request names an id. The record stays until the next such request.
    pub(crate) fn record(&mut self, request: Option<&RequestId>) {
        if let Some(request) = request {
            self.extras = Extras::of(Some(request.clone()), self.cap(), self.slot());
        }
    }

    /// Returns whether the last request for this hold that named an id was this one.
    pub fn repeats(&self, request: Option<&RequestId>) -> bool {
        request.is_some() && self.request() == request
    }

    /// Returns the bytes on the heap beside the hold itself.
    pub fn heap_bytes(&self) -> usize {
        let id = self.request().map_or(0, |request| request.id.len());
        self.owner.heap_bytes() + self.extras.as_ref().map_or(0, |_| size_of::<Extras>() + id)
    }

    /// Returns whether the hold has not lapsed at `now`.
    pub fn is_live(&self, now: UnixMs) -> bool {
        now < self.deadline
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
    fn optional_leases_and_tokens_take_no_more_room() {
        assert_eq!((size_of::<Option<Lease>>(), size_of::<Option<Token>>()), (8, 8));
    }

    #[test]
    fn a_hold_fits_a_size_class_of_64_bytes() {
        assert!(size_of::<Hold>() <= 64, "a hold takes {} bytes", size_of::<Hold>());
    }
}
