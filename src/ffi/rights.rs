//! The rights of a client that waits, asked about again when its turn comes: an operator may have taken them away.

use std::ffi::c_int;

use super::acl::User;
use super::command::Arguments;
use super::strings::KeyName;

/// A command and its user, to be asked about later, when the command is not running any more.
pub struct Rights {
    user: KeyName<'static>,
    words: Box<[KeyName<'static>]>,
    db: c_int,
}

impl Rights {
    /// Returns the rights that the running command of this user has needed; `None` if the ACL does not know the user,
    /// because another module has made it.
    pub fn of(user: KeyName<'static>, db: c_int, arguments: &Arguments<'_>) -> Option<Rights> {
        User::named(&user, db)?;
        Some(Rights { user, words: arguments.held(), db })
    }

    /// Returns whether the user still is there, is enabled, and may run the command on its keys. Runs no command.
    pub fn are_left(&self) -> bool {
        User::named(&self.user, self.db).is_some_and(|user| !user.is_disabled() && user.may_send(&self.words))
    }
}
