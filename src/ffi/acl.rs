//! The ACL category of the module's commands, the users of the ACL, and which commands they may run.

use std::cell::Cell;
use std::ffi::c_int;
use std::ptr::null_mut;

use dlock_core::engine::UserState;
use redis_module::raw;
use smallvec::SmallVec;

use super::context::{Context, log_notice};
use super::strings::{KeyName, bytes_of};
use super::under_lock::UnderLock;

/// Adds the ACL category `dlock`, where the server has categories of modules.
pub fn add_category(context: &Context<'_>) {
    // SAFETY: both functions are optional, and checked; the context is that of the load.
    unsafe {
        let (Some(add), Some(_)) = (raw::RedisModule_AddACLCategory, raw::RedisModule_SetCommandACLCategories) else {
            return log_notice(
                "dlock: this server gives modules no ACL categories: see docs/permissions.md for the rules to write",
            );
        };
        HAS_CATEGORIES.set(add(context.raw, c"dlock".as_ptr()) == super::OK);
    }
}

/// Returns whether [`add_category`] has added the category.
pub fn has_categories() -> bool {
    HAS_CATEGORIES.get()
}

static HAS_CATEGORIES: UnderLock<Cell<bool>> = UnderLock::new(Cell::new(false));

/// Returns the name of the user whose command is running: in a script, that of the script's caller. `None` if another
/// module sent the command without a user.
pub fn user_name(context: &mut Context<'_>) -> Option<KeyName<'static>> {
    if !context.has_user() {
        return None;
    }
    // SAFETY: the function is optional, and checked. The context is live for the call, and its client has a user; the name
    // is a string of ours, since no context of the module has automatic memory.
    unsafe {
        let name = raw::RedisModule_GetCurrentUserName?(context.raw);
        (!name.is_null()).then(|| KeyName::owned(name))
    }
}

/// Returns whether the ACL has the user of this name, and whether the user is enabled.
pub fn user_state(name: &[u8]) -> UserState {
    match User::named(&KeyName::new(name), 0) {
        None => UserState::Unknown,
        Some(user) if user.is_disabled() => UserState::Disabled,
        Some(_) => UserState::Enabled,
    }
}

/// A user of the ACL, and the database of the commands that are asked about.
pub struct User {
    raw: *mut raw::RedisModuleUser,
    db: c_int,
}

/// The function that tells whether a user may run a command in a database: Valkey 9.1 and later have such rights.
type CheckInDb = unsafe extern "C" fn(
    *mut raw::RedisModuleUser,
    *mut *mut raw::RedisModuleString,
    c_int,
    c_int,
    *mut c_int,
) -> c_int;

static CHECK_IN_DB: UnderLock<Cell<Option<CheckInDb>>> = UnderLock::new(Cell::new(None));

/// Looks up the function of [`CheckInDb`], which the crate `redis_module` does not have. Called once, during the load.
pub fn look_up_check() {
    let mut found: Option<CheckInDb> = None;
    // SAFETY: the function is optional, and checked. The server fills in the function of this name, which has this type, or
    // leaves it empty.
    unsafe {
        if let Some(get) = raw::RedisModule_GetApi {
            get(c"RedisModule_ACLCheckPermissions".as_ptr(), (&raw mut found).cast());
        }
    }
    CHECK_IN_DB.set(found);
}

impl User {
    /// Returns the user whose command is running. `None` if another module sent the command without a user, or if the
    /// ACL does not know the user.
    pub fn of(context: &mut Context<'_>) -> Option<User> {
        User::named(&user_name(context)?, context.db())
    }

    /// Returns the user of this name; `None` if the ACL does not know it.
    pub(super) fn named(name: &KeyName<'_>, db: c_int) -> Option<User> {
        // SAFETY: the function is optional, and checked; the name is live for the call, and the copy is freed once.
        let user = unsafe { raw::RedisModule_GetModuleUserFromUserName?(name.raw()) };
        (!user.is_null()).then(|| User { raw: user, db })
    }

    /// Returns whether the user may run this command, on the keys that it names.
    pub fn may_run<const N: usize>(&self, words: [&[u8]; N]) -> bool {
        self.may_send(words.map(KeyName::new).iter().map(KeyName::raw))
    }

    /// Returns the first of these commands that the server has, and whether the user may run it. `None` if the server
    /// has none of them: an operator may have taken commands away (`rename-command`).
    pub fn may_run_first<'a>(&self, commands: &[&'a [&'a [u8]]]) -> Option<(&'a [&'a [u8]], bool)> {
        commands.iter().find_map(|words| {
            let names: SmallVec<[KeyName<'_>; 4]> = words.iter().map(|word| KeyName::new(word)).collect();
            // SAFETY: `errno` belongs to this thread.
            unsafe { *libc::__errno_location() = 0 };
            let may = self.may_send(names.iter().map(KeyName::raw));
            // `ENOENT` or `EINVAL`: the server has no such command.
            // SAFETY: as above.
            let is_unknown = !may && matches!(unsafe { *libc::__errno_location() }, libc::ENOENT | libc::EINVAL);
            (!is_unknown).then_some((*words, may))
        })
    }

    /// Returns the user `default`.
    pub fn default() -> Option<User> {
        User::named(&KeyName::new(b"default"), 0)
    }

    /// Returns whether the user may send the command of these words, which are live for the call.
    pub(super) fn may_send(&self, words: impl Iterator<Item = *mut raw::RedisModuleString>) -> bool {
        let mut arguments: SmallVec<[_; 16]> = words.collect();
        let count = c_int::try_from(arguments.len()).unwrap_or(0);
        // SAFETY: the functions are optional, and checked; user and words are live for the call. The reason is not asked for.
        unsafe {
            match CHECK_IN_DB.get() {
                Some(check) => check(self.raw, arguments.as_mut_ptr(), count, self.db, null_mut()) == super::OK,
                None => raw::RedisModule_ACLCheckCommandPermissions
                    .is_some_and(|check| check(self.raw, arguments.as_mut_ptr(), count) == super::OK),
            }
        }
    }

    /// Returns whether an operator has disabled the user: then nobody can log in under the name. The server describes
    /// the user by a text that begins with `on` or `off`, and that it keeps for the next question.
    pub(super) fn is_disabled(&self) -> bool {
        // SAFETY: the function is optional, and checked; the user is live for the call, and the text is freed once.
        unsafe {
            raw::RedisModule_GetModuleUserACLString.is_some_and(|describe| {
                let text = describe(self.raw);
                let is_off = !text.is_null() && bytes_of(text).starts_with(b"off");
                if !text.is_null() {
                    api!(RedisModule_FreeString(null_mut(), text));
                }
                is_off
            })
        }
    }
}

impl Drop for User {
    fn drop(&mut self) {
        // SAFETY: made by `User::named`, freed once. The user itself is the server's and stays.
        unsafe { api!(RedisModule_FreeModuleUser(self.raw)) };
    }
}
