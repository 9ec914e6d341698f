//! ACL categories of the module's commands, and which commands a client may run.

use std::cell::Cell;
use std::ffi::c_int;

use redis_module::raw;

use super::context::{Context, log_notice};
use super::main_thread::MainThread;
use super::strings::{KeyName, bytes_of};

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

/// Returns whether the server has ACL categories of modules, as [`add_category`] has found.
pub fn has_categories() -> bool {
    HAS_CATEGORIES.get()
}

static HAS_CATEGORIES: MainThread<Cell<bool>> = MainThread::new(Cell::new(false));

/// Returns the name of the user whose command is running: in a script, the caller's. `None` if there is none, because
/// another module sent the command.
pub fn user_name(context: &mut Context<'_>) -> Option<Vec<u8>> {
    if !context.has_user() {
        return None;
    }
    // SAFETY: the function is optional, and checked. The context is live for the call, and its client has a user; the name
    // is copied, and freed once.
    unsafe {
        let name = raw::RedisModule_GetCurrentUserName?(context.raw);
        if name.is_null() {
            return None;
        }
        let bytes = bytes_of(name).to_vec();
        api!(RedisModule_FreeString(context.raw, name));
        Some(bytes)
    }
}

/// The user of the client whose command is running.
pub struct User(*mut raw::RedisModuleUser);

impl User {
    /// Returns the user; `None` if there is none, because another module sent the command, or if the ACL does not know
    /// it.
    pub fn of(context: &mut Context<'_>) -> Option<User> {
        if !context.has_user() {
            return None;
        }
        // SAFETY: the functions are optional, and checked. The context is live for the call, and its client has a user,
        // whose name the server reads; the copy is freed once.
        unsafe {
            let (name_of, user_of) =
                (raw::RedisModule_GetCurrentUserName?, raw::RedisModule_GetModuleUserFromUserName?);
            let name = name_of(context.raw);
            if name.is_null() {
                return None;
            }
            let user = user_of(name);
            api!(RedisModule_FreeString(context.raw, name));
            (!user.is_null()).then_some(User(user))
        }
    }

    /// Returns whether the user may run this command, on the keys that it names.
    pub fn may_run<const N: usize>(&self, words: [&[u8]; N]) -> bool {
        let words = words.map(KeyName::new);
        let mut arguments = words.each_ref().map(KeyName::raw);
        let count = c_int::try_from(N).unwrap_or(0);
        // SAFETY: the function is optional, and checked; user and words are live for the call.
        unsafe {
            raw::RedisModule_ACLCheckCommandPermissions
                .is_some_and(|check| check(self.0, arguments.as_mut_ptr(), count) == super::OK)
        }
    }
}

impl Drop for User {
    fn drop(&mut self) {
        // SAFETY: made by `User::of`, freed once. The user itself is the server's and stays.
        unsafe { api!(RedisModule_FreeModuleUser(self.0)) };
    }
}
