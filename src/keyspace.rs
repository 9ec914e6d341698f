//! The engine's access to the server's keys.

use std::time::Duration;

use dlock_core::engine::{Keyspace, NotOpen, OpenKey, Permission, UserState, WrongType};
use dlock_core::{Lock, Name, Now, Uptime};

use crate::ffi::acl::{User, user_name, user_state};
use crate::ffi::context::{Context, Stopwatch, granted_time, machine_time, uptime};
use crate::ffi::key::{self, Access, Key};
use crate::ffi::strings::KeyName;

/// The keys of the server, for a command or the timer.
pub struct ServerKeys<'a, 'call> {
    context: &'a mut Context<'call>,
    /// The keys of the running command; none in the timer.
    own: &'a [KeyName<'a>],
    db: i32,
    /// The name of the last key that is not among the command's own.
    other: Option<KeyName<'static>>,
    /// The name of the command's user, if the engine has asked for it.
    user_name: Option<KeyName<'static>>,
    /// The client's user, once looked up; `Some(None)` if the ACL does not know the user.
    user: Option<Option<User>>,
    /// The last `peek` or `permission` removed the key, because it had expired.
    has_removed: bool,
    /// The last answer of [`key::permission`] was [`Permission::Full`]. Outside a cluster, this answer holds for every
    /// key during the call.
    accepts_writes: bool,
}

impl<'a, 'call> ServerKeys<'a, 'call> {
    /// Returns the keys for a command that names the keys `own`, or for the timer, which names none. The context is in
    /// database `db`.
    #[inline]
    pub fn new(context: &'a mut Context<'call>, db: i32, own: &'a [KeyName<'a>]) -> ServerKeys<'a, 'call> {
        ServerKeys {
            context,
            own,
            db,
            other: None,
            user_name: None,
            user: None,
            has_removed: false,
            accepts_writes: false,
        }
    }

    /// Returns the name of the command's user, if the engine has asked for it, as it does for a request that waits.
    #[inline]
    pub fn into_user_name(self) -> Option<KeyName<'static>> {
        self.user_name
    }

    /// Selects the database of a name. Returns the context, and the name as a string of the server: the command's own
    /// string, or a new one.
    #[inline]
    fn find<'s>(&'s mut self, name: Name<'_>) -> (&'s mut Context<'call>, &'s KeyName<'s>) {
        // The server does not refuse the selection: it has told the number of the database of each name, and it has the
        // same databases until it ends.
        if name.db != self.db && self.context.select_db(name.db) {
            self.db = name.db;
        }
        // Compares addresses: the engine passes on the bytes that it got from the command.
        let is_it = |own: &&KeyName<'a>| std::ptr::eq(own.bytes(), name.key);
        let string = match self.own.iter().find(is_it) {
            Some(own) => own,
            None => self.other.insert(KeyName::new(name.key)),
        };
        (self.context, string)
    }
}

impl Keyspace for ServerKeys<'_, '_> {
    type Key<'k>
        = Key<'k>
    where
        Self: 'k;

    #[inline]
    fn open(&mut self, name: Name<'_>) -> Result<Key<'_>, NotOpen> {
        let (context, string) = self.find(name);
        Key::open(context, string, Access::Write)
    }

    fn open_at_last(&mut self, name: Name<'_>) -> Result<Key<'_>, NotOpen> {
        let (context, string) = self.find(name);
        Key::open(context, string, Access::WriteAtLast)
    }

    #[inline]
    fn may_refuse(&self) -> bool {
        key::may_refuse()
    }

    fn peek<R>(&mut self, name: Name<'_>, look: impl FnOnce(&Lock) -> R) -> Result<R, WrongType> {
        let (context, string) = self.find(name);
        let (seen, has_removed) = match Key::open(context, string, Access::Peek) {
            Ok(key) => (Ok(look(key.lock().unwrap_or(&Lock::EMPTY))), key.was_removed()),
            Err(_) => (Err(WrongType), false),
        };
        self.has_removed = has_removed;
        seen
    }

    fn permission(&mut self, name: Name<'_>) -> Permission {
        // While a command runs, the server accepts writes; in a cluster, only to the command's own keys.
        let is_known = self.accepts_writes || !self.own.is_empty();
        if is_known && !self.context.flags().is_cluster() {
            self.has_removed = false;
            return Permission::Full;
        }
        let (context, string) = self.find(name);
        let (permission, has_removed) = key::permission(context, string);
        self.has_removed = has_removed;
        self.accepts_writes = permission == Permission::Full;
        permission
    }

    fn has_removed(&self) -> bool {
        self.has_removed
    }

    fn may_read(&mut self, name: Name<'_>) -> (bool, u64) {
        if self.own.is_empty() {
            return (true, 0);
        }
        // `may_run` copies the name. Freed first, the copy of the last name leaves its memory to the new one; new
        // memory for a long name would take longer than a search for a deadlock may.
        self.other = None;
        let stopwatch = Stopwatch::start();
        let user = self.user.get_or_insert_with(|| User::of(self.context));
        // Asks about the whole command: a user may have the right to `INFO` by one selector, and to the key by another.
        let may_read = user.as_ref().is_some_and(|user| user.may_run([b"DLOCK.INFO", name.key]));
        (may_read, stopwatch.ns())
    }

    fn user(&mut self) -> Option<Vec<u8>> {
        self.user_name = user_name(self.context);
        self.user_name.as_ref().map(|name| name.bytes().to_vec())
    }

    fn user_state(&mut self, user: &[u8]) -> UserState {
        user_state(user)
    }

    fn now(&self) -> Now {
        machine_time()
    }

    fn uptime(&self) -> Uptime {
        uptime()
    }

    fn worked(&self) -> Duration {
        granted_time()
    }
}
