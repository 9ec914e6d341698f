//! A command that is being carried out.

use std::cell::RefMut;
use std::rc::Rc;

use dlock_core::Now;

use super::client::Client;
use super::out::Out;
use crate::resp::Request;

/// The text of an error.
pub(super) type Refused = String;

/// The end of a command: it has replied, or is refused.
pub(super) type Done = Result<(), Refused>;

/// Carries a command out on a server.
pub(super) type Run<S> = fn(&mut S, &Call<'_>) -> Done;

/// A command that is being carried out.
pub(super) struct Call<'a> {
    pub client: &'a Rc<Client>,
    pub request: &'a Request,
    /// The time of the command: in a transaction, that of its beginning.
    pub now: Now,
    pub is_in_transaction: bool,
    /// The name of the command in upper case.
    pub name: &'static str,
}

impl<'a> Call<'a> {
    /// Returns the name in upper case.
    pub fn shown_name(&self) -> &'static str {
        self.name
    }

    /// Returns argument 1.
    pub fn key(&self) -> &'a [u8] {
        self.word(1)
    }

    /// Returns a word; empty if there is none.
    pub fn word(&self, at: usize) -> &'a [u8] {
        self.request.word(at).unwrap_or_default()
    }

    /// Returns a word in upper case.
    pub fn upper(&self, at: usize) -> String {
        String::from_utf8_lossy(self.word(at)).to_ascii_uppercase()
    }

    /// Returns the words from this place on.
    pub fn after(&self, at: usize) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        self.request.after(at)
    }

    /// Returns how many words there are, with the name.
    pub fn len(&self) -> usize {
        self.request.words().len()
    }

    pub fn out(&self) -> RefMut<'a, Out> {
        self.client.out.borrow_mut()
    }

    /// Replies with `OK`.
    #[allow(clippy::unnecessary_wraps, reason = "the end of a command")]
    pub fn ok(&self) -> Done {
        self.out().status("OK");
        Ok(())
    }
}
