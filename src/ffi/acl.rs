//! ACL categories of the module's commands, and what a client may read.

use redis_module::raw;

use super::context::{Context, log_notice};
use super::spec::Categories;
use super::strings::KeyName;

/// Adds the ACL category `dlock`, where the server has categories of modules.
pub fn add_category(context: &Context<'_>) -> Categories {
    // SAFETY: both functions are optional, and checked; the context is that of the load.
    unsafe {
        let (Some(add), Some(_)) = (raw::RedisModule_AddACLCategory, raw::RedisModule_SetCommandACLCategories) else {
            log_notice(
                "dlock: this server gives modules no ACL categories: see docs/operations.md for the rules to write",
            );
            return Categories::ServerOnly;
        };
        if add(context.raw, c"dlock".as_ptr()) == super::OK { Categories::OfModules } else { Categories::ServerOnly }
    }
}

/// The user of the client whose command is running.
pub struct User(*mut raw::RedisModuleUser);

impl User {
    /// The user; `None` if the ACL does not know it.
    pub fn of(context: &Context<'_>) -> Option<User> {
        // SAFETY: the functions are optional, and checked; the context is live for the call, and the name is freed once.
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

    /// Whether the user may read this key.
    pub fn may_read(&self, key: &KeyName<'_>) -> bool {
        // SAFETY: the function is optional, and checked; user and name are live for the call.
        unsafe {
            let Some(check) = raw::RedisModule_ACLCheckKeyPermissions else { return false };
            check(self.0, key.raw(), super::constant(raw::REDISMODULE_CMD_KEY_ACCESS as isize)) == super::OK
        }
    }
}

impl Drop for User {
    fn drop(&mut self) {
        // SAFETY: made by `User::of`, freed once. The user itself is the server's and stays.
        unsafe { api!(RedisModule_FreeModuleUser(self.0)) };
    }
}
