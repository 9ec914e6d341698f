//! The rights of a client that waits. They are checked again when its turn comes: an operator may have taken them away.

use std::cell::RefCell;
use std::ffi::c_int;

use dlock_core::spec::Spec;
use smallvec::SmallVec;

use super::acl::User;
use super::command::Arguments;
use super::strings::{Held, KeyName};

/// A user, and the words of its command on which its right to the command depends: kept while the request waits.
pub struct Rights {
    user: KeyName<'static>,
    words: SmallVec<[Held; 4]>,
    db: c_int,
}

impl Rights {
    /// Returns the rights that the running command of this user needs; `None` if the ACL does not know the user, whom
    /// another module has made.
    pub fn of(
        user: KeyName<'static>,
        known: &KnownUser,
        db: c_int,
        arguments: &Arguments<'_>,
        spec: &Spec,
    ) -> Option<Rights> {
        known.is(&user, db).then(|| Rights { user, words: arguments.held(spec), db })
    }

    /// Returns whether the user still exists, is enabled, and may run the command on its keys. Runs no command.
    pub fn are_left(&self) -> bool {
        User::named(&self.user, self.db)
            .is_some_and(|user| !user.is_disabled() && user.may_send(self.words.iter().map(Held::raw)))
    }
}

/// The user that the ACL was last found to know. When many requests of one user wait, the ACL is asked only once.
pub struct KnownUser(RefCell<Option<Box<[u8]>>>);

impl KnownUser {
    /// Returns the value in which no user is known yet.
    pub const fn none() -> KnownUser {
        KnownUser(RefCell::new(None))
    }

    /// Returns whether the ACL knows the user, or knew it before: [`Rights::are_left`] finds out later if the user has
    /// been deleted since.
    fn is(&self, user: &KeyName<'_>, db: c_int) -> bool {
        let mut known = self.0.borrow_mut();
        if known.as_deref() == Some(user.bytes()) {
            return true;
        }
        let is_known = User::named(user, db).is_some();
        if is_known {
            *known = Some(user.bytes().into());
        }
        is_known
    }
}
