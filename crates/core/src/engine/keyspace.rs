//! The server's keys, as the engine sees them, and an open lock.

use std::time::Duration;

use crate::{Applied, Bond, Effect, Expiry, Lock, Memory, Name, Now, UnixMs, Uptime};

/// The keys of a server, its clock and its users.
///
/// Opening a key borrows the keyspace: functions that may run a command or expire a key cannot be called meanwhile.
pub trait Keyspace {
    /// A key that is open for change.
    type Key<'k>: OpenKey
    where
        Self: 'k;

    /// Opens a key for change. The server may remove an expired key first.
    ///
    /// # Errors
    /// [`NotOpen`]; nothing was changed.
    fn open(&mut self, name: Name<'_>) -> Result<Self::Key<'_>, NotOpen>;

    /// Opens a key that has to be open now: a server that refuses is asked again, for a while.
    ///
    /// # Errors
    /// [`NotOpen`]; nothing was changed.
    fn open_at_last(&mut self, name: Name<'_>) -> Result<Self::Key<'_>, NotOpen>;

    /// Returns whether the server may refuse to open a key for change, though only for now.
    fn may_refuse(&self) -> bool;

    /// Looks at the lock in a key without counting as a use of the key. The server may remove an expired key first.
    ///
    /// # Errors
    /// [`WrongType`] if the key holds another type.
    fn peek<R>(&mut self, name: Name<'_>, look: impl FnOnce(&Lock) -> R) -> Result<R, WrongType>;

    /// Returns what the server lets a timer do to this key now. May run commands, and remove an expired key.
    fn permission(&mut self, name: Name<'_>) -> Permission;

    /// Returns whether the last [`Keyspace::peek`] or [`Keyspace::permission`] removed an expired key with a lock.
    /// No event tells the engine of that.
    fn has_removed(&self) -> bool;

    /// Returns whether the client of the running command may run `DLOCK.INFO` on this key, and how long the check took,
    /// in ns: a user may have many key patterns. A timer may read every key.
    fn may_read(&mut self, name: Name<'_>) -> (bool, u64);

    /// Returns the name of the user whose command is running; `None` if it has none, and in timers.
    fn user(&mut self) -> Option<Vec<u8>>;

    /// Returns what the server knows of a user. Runs no command.
    fn user_state(&mut self, user: &[u8]) -> UserState;

    /// Returns the machine's time.
    fn now(&self) -> Now;

    /// Returns the time of the machine's monotonic clock, which does not jump when the machine's time is set.
    fn uptime(&self) -> Uptime;

    /// Returns for how long the server has worked, or waited for its disk or for something to do. Time in which it
    /// could have worked and the machine ran other programs instead does not count.
    fn worked(&self) -> Duration;
}

/// A key that is open for change. It is closed when dropped.
pub trait OpenKey {
    /// Returns its database and name.
    fn name(&self) -> Name<'_>;

    /// Returns the lock in the key; `None` if there is no key.
    fn lock(&self) -> Option<&Lock>;

    /// Returns the lock in the key, to be changed; `None` if there is no key.
    fn lock_mut(&mut self) -> Option<&mut Lock>;

    /// Returns when the key expires; `None`: never, or there is no key.
    fn expiry(&self) -> Option<UnixMs>;

    /// Returns whether opening removed an expired key.
    fn was_removed(&self) -> bool;

    /// Replicates an effect on this key.
    fn replicate(&mut self, effect: &Effect);

    /// Replicates the running command as it came.
    fn replicate_verbatim(&mut self);

    /// Closes the key as `end` says: the caller uses it no more. `signal` says whether `WATCH` and `CLIENT TRACKING`
    /// are told.
    fn close(&mut self, end: KeyEnd, signal: Signal);
}

/// The server's knowledge of a user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UserState {
    /// The user is known, and may log in.
    Enabled,
    /// An operator has switched the user off.
    Disabled,
    /// The server knows no user of this name: it was deleted, or another module has made it.
    Unknown,
}

/// The end of a key when the lock is closed.
#[derive(Debug)]
pub enum KeyEnd {
    /// The key stays as it is.
    Untouched,
    /// The key is deleted, if there is one.
    Deleted,
    /// The key expires at this time.
    At(UnixMs),
    /// The key is created with this lock, and expires at this time; `None`: never.
    Created(Box<Lock>, Option<UnixMs>),
}

/// Whether `WATCH` and `CLIENT TRACKING` hear of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// `WATCH` and `CLIENT TRACKING` hear of the change.
    Modified,
    /// No client hears of the change.
    Silent,
}

/// The key holds another type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WrongType;

/// The reason why a key is not open for change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotOpen {
    /// The key holds another type.
    WrongType,
    /// The server saves the key without a fork, and permits no change of it for now. Whether there is a lock is
    /// unknown.
    NotNow,
}

impl From<WrongType> for NotOpen {
    fn from(WrongType: WrongType) -> NotOpen {
        NotOpen::WrongType
    }
}

/// The access that the server gives a timer to a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Permission {
    /// Everything.
    Full,
    /// Only releases: the server accepts no writes (`NOREPLICAS`, `MISCONF`).
    ReleaseOnly,
    /// Only releases, and nobody may wait: the key has left, or is leaving, for another node of the cluster.
    Elsewhere,
}

/// How a change is replicated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Replication {
    /// As its effect.
    Effect,
    /// As the running command, which has the same effect on every copy of the lock.
    Verbatim,
}

/// An open lock. Effects alone change it, apart from its bond.
///
/// The lock and the replicas change with each effect; the key (its existence and its TTL) when the lock is closed. A
/// lock that is freed and taken in one go therefore keeps its key.
#[derive(Debug)]
#[must_use = "a lock that was opened is closed"]
pub struct OpenLock<K: OpenKey> {
    key: K,
    /// The index of its key among those of the running command; `None` if the key is not among them.
    pub own: Option<usize>,
    /// The lock, while there is no key to keep it in.
    fresh: Option<Box<Lock>>,
    /// The key after the effects; `None` without an effect.
    after: Option<After>,
    is_visible: bool,
}

/// The key after effects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct After {
    ttl: Ttl,
    /// The last deadline of the lock; `None` if no hold is left.
    last: Option<UnixMs>,
}

/// The TTL of a key after effects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ttl {
    /// The last deadline.
    Last,
    /// An earlier time, which a client set.
    Early(UnixMs),
    /// As it was.
    Untouched,
}

/// How much longer than its last deadline a primary keeps a key with waiters, in ms: a timer then finds the key still
/// there and hands the lock over in place. To delete the key and create it again would wake every waiter without a
/// grant.
pub const GRACE_MS: u64 = 50;

impl<K: OpenKey> OpenLock<K> {
    /// Returns the lock in an open key; it is empty if there is no key.
    pub fn new(key: K, own: Option<usize>) -> OpenLock<K> {
        OpenLock { key, own, fresh: None, after: None, is_visible: false }
    }

    /// Returns the lock as it is now.
    #[inline]
    pub fn lock(&self) -> &Lock {
        static EMPTY: Lock = Lock::EMPTY;
        match self.key.lock() {
            Some(lock) => lock,
            None => self.fresh.as_deref().unwrap_or(&EMPTY),
        }
    }

    /// Ties the lock to its bindings.
    pub(in crate::engine) fn set_bond(&mut self, bond: Bond) {
        if let Some(lock) = self.key.lock_mut().or(self.fresh.as_deref_mut()) {
            lock.holds.set_bond(bond);
        }
    }

    /// Returns its database and its key.
    pub fn name(&self) -> Name<'_> {
        self.key.name()
    }

    /// Returns whether opening removed an expired key.
    pub fn was_removed(&self) -> bool {
        self.key.was_removed()
    }

    /// Returns whether an effect was applied since it was opened.
    pub fn is_changed(&self) -> bool {
        self.after.is_some()
    }

    /// Returns when the key ends, if that is before the last deadline.
    pub fn early_end(&self) -> Option<UnixMs> {
        match self.after.map(|after| after.ttl) {
            Some(Ttl::Last) => None,
            Some(Ttl::Early(at)) => Some(at),
            Some(Ttl::Untouched) | None => {
                self.key.expiry().filter(|end| self.lock().last_deadline().is_some_and(|last| *end < last))
            }
        }
    }

    /// Returns whether the key lives longer than its last deadline because there was a waiter, and no effect changed it
    /// since it was opened.
    pub fn has_ttl_grace(&self) -> bool {
        let last = self.lock().last_deadline();
        !self.is_changed() && last.is_some_and(|last| self.key.expiry() == Some(UnixMs::new(last.get() + GRACE_MS)))
    }

    /// Returns whether the key ends when its last lease does: nobody set its TTL, and no effect changed it since it was
    /// opened.
    pub fn ends_with_last_lease(&self) -> bool {
        let last = self.lock().last_deadline();
        !self.is_changed() && last.is_some() && self.key.expiry() == last
    }

    /// Returns whether the key has a TTL.
    pub fn has_expiry(&self) -> bool {
        self.key.expiry().is_some()
    }

    /// Applies an effect, and replicates it.
    #[inline(always)]
    pub fn apply(&mut self, effect: Effect, replication: Replication, memory: &mut Memory) -> Applied {
        match replication {
            Replication::Effect => self.key.replicate(&effect),
            Replication::Verbatim => self.key.replicate_verbatim(),
        }
        let lock = match self.key.lock_mut() {
            Some(lock) => lock,
            None => self.fresh.get_or_insert_default(),
        };
        let before = if effect.sets_ttl_anew() { None } else { lock.last_deadline() };
        let applied = lock.apply(effect, memory);
        let last = lock.last_deadline();
        let ttl = match (applied.expiry, self.after.map(|after| after.ttl)) {
            (Expiry::Anew, _) | (Expiry::Keep, Some(Ttl::Last)) => Ttl::Last,
            (Expiry::Leave, ttl) => ttl.unwrap_or(Ttl::Untouched),
            (Expiry::Keep, Some(Ttl::Early(at))) => Ttl::Early(at),
            // The key is deleted, so its TTL does not matter.
            (Expiry::Keep, _) if last.is_none() => Ttl::Last,
            // A TTL that a client set stays if it was before the last deadline.
            (Expiry::Keep, Some(Ttl::Untouched) | None) => {
                before.and_then(|last| self.key.expiry().filter(|end| *end < last)).map_or(Ttl::Last, Ttl::Early)
            }
        };
        // If no hold is left that lasts longer than the early TTL, the TTL is not early any more. A server that applies
        // the next effect sees the same.
        let ttl = match ttl {
            Ttl::Early(at) if last.is_some_and(|last| last <= at) => Ttl::Last,
            ttl => ttl,
        };
        self.after = Some(After { ttl, last });
        self.is_visible |= applied.is_visible;
        applied
    }

    /// Closes the lock. If effects changed it, its key is deleted if no hold is left, and otherwise expires `grace_ms`
    /// after the last deadline, unless a client set an earlier TTL or the effects leave the TTL as it was.
    #[inline]
    pub fn close(&mut self, grace_ms: u64) {
        let Some(After { ttl, last }) = self.after else { return self.key.close(KeyEnd::Untouched, Signal::Silent) };
        let end = match last {
            None => KeyEnd::Deleted,
            Some(last) => {
                let at = match ttl {
                    Ttl::Last => Some(UnixMs::new(last.get() + grace_ms)),
                    Ttl::Early(at) => Some(at.min(last)),
                    Ttl::Untouched => None,
                };
                match (self.fresh.take(), at) {
                    (Some(lock), at) => KeyEnd::Created(lock, at),
                    (None, Some(at)) => KeyEnd::At(at),
                    (None, None) => KeyEnd::Untouched,
                }
            }
        };
        self.key.close(end, if self.is_visible { Signal::Modified } else { Signal::Silent });
    }

    /// Closes a lock, and lets its key expire `grace_ms` after the last deadline even if no effect changed it. The
    /// caller knows that no client set the TTL.
    pub fn close_with_grace(&mut self, grace_ms: u64) {
        let end = match self.lock().last_deadline() {
            Some(last) if !self.is_changed() => KeyEnd::At(UnixMs::new(last.get() + grace_ms)),
            _ => return self.close(grace_ms),
        };
        self.key.close(end, Signal::Silent);
    }
}

/// Applies what a primary decided: an effect from the replication link or a file. No clock is read, and no queue is
/// served.
///
/// # Errors
/// [`NotOpen`]; nothing was changed.
pub fn replay<S: Keyspace>(space: &mut S, name: Name<'_>, effect: Effect, memory: &mut Memory) -> Result<(), NotOpen> {
    let mut open = OpenLock::new(space.open_at_last(name)?, None);
    open.apply(effect, Replication::Verbatim, memory);
    open.close(0);
    Ok(())
}
