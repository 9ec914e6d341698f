//! Sessions of connections, and waiting for the end of a connection.

use redis::Value;

use crate::client::Client;
use crate::lock::hold;
use crate::wait::soon;
use crate::wire::int_of;

/// The time in which a server handles the end of a connection that it has closed, in ms.
const TURNS_MS: i64 = 30;

impl Client {
    /// Returns the id of the connection that an owner's hold is bound to, if any. Fails without a hold.
    #[track_caller]
    pub fn session_of(&mut self, key: &str, owner: &str, mode: &str) -> Option<i64> {
        let hold = hold(self, key, owner, mode).unwrap_or_else(|| panic!("no {mode} hold of {owner} on {key}"));
        match hold.session {
            Value::Nil => None,
            id => Some(int_of(&id)),
        }
    }

    /// Waits until another connection is closed and the server has handled its end.
    #[track_caller]
    pub fn outlive_client(&mut self, id: i64) {
        soon("the connection is closed", || self.text(format!("CLIENT LIST ID {id}")).is_empty());
        self.pass_ms(TURNS_MS);
    }

    /// Closes another connection, and waits until the server has handled its end.
    #[track_caller]
    pub fn watch_close(&mut self, mut other: Self) {
        let id = other.id();
        drop(other);
        self.outlive_client(id);
    }
}
