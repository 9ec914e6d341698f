//! The rights of a client that waits, asked about again when its turn comes: an operator may have taken them away.

use std::ffi::c_int;

use super::acl::{User, user_name};
use super::command::Arguments;
use super::context::Context;
use super::strings::KeyName;

/// A command and its user, to be asked about later, when the command is not running any more.
pub struct Rights {
    user: KeyName<'static>,
    words: Box<[KeyName<'static>]>,
    db: c_int,
}

impl Rights {
    /// Returns the rights that the running command has needed; `None` if the ACL has none of them: the command has
    /// no user, because another module sent it, or one that another module has made.
    pub fn of(context: &mut Context<'_>, arguments: &Arguments<'_>) -> Option<Rights> {
        let user = KeyName::new(&user_name(context)?);
        let db = context.db();
        User::named(&user, db)?;
        Some(Rights { user, words: arguments.held(), db })
    }

    /// Returns whether the user still is there, is enabled, and may run the command on its keys. Runs no command.
    pub fn are_left(&self) -> bool {
        User::named(&self.user, self.db).is_some_and(|user| !user.is_disabled() && user.may_send(&self.words))
    }
}
