//! A command that is being carried out.

use std::cell::RefMut;
use std::rc::Rc;

use dlock_core::Now;

use super::client::Client;
use super::out::Out;
use crate::resp::Request;

/// The text of the error that refuses a command.
pub(super) type Refused = String;

/// The end of a command: the reply is written, or the command is refused.
pub(super) type Done = Result<(), Refused>;

/// A function that carries a command out on the server.
pub(super) type Run<S> = fn(&mut S, &Call<'_>) -> Done;

/// A command that is being carried out.
pub(super) struct Call<'a> {
    pub client: &'a Rc<Client>,
    pub request: &'a Request,
    /// The time of the command. All commands of a transaction have the time at which it began.
    pub now: Now,
    pub is_in_transaction: bool,
    /// See [`Call::shown_name`].
    pub name: &'static str,
}

impl<'a> Call<'a> {
    /// Returns the name of the command, in upper case.
    pub fn shown_name(&self) -> &'static str {
        self.name
    }

    /// Returns argument 1, the key of most commands.
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

    /// Returns the number of words, including the name.
    pub fn len(&self) -> usize {
        self.request.words().len()
    }

    pub fn out(&self) -> RefMut<'a, Out> {
        self.client.out.borrow_mut()
    }

    /// Replies with `OK`, and ends the command.
    #[allow(clippy::unnecessary_wraps, reason = "the end of a command")]
    pub fn ok(&self) -> Done {
        self.out().status("OK");
        Ok(())
    }
}
