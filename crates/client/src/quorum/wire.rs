//! A connection to one server of a quorum.

use std::time::{Duration, Instant};

use dlock_quorum::Facts;
use redis::{Cmd, Value};

use crate::server::fault::Fault;
use crate::server::link::Link;

/// A connection, and what the server said of itself on it.
pub(super) struct Wire {
    pub link: Link,
    pub facts: Facts,
    /// When the facts were read.
    pub read: Instant,
    /// The id of the connection, for `CLIENT UNBLOCK`.
    pub client_id: i64,
}

impl Wire {
    pub fn is_closed(&self) -> bool {
        self.link.is_closed()
    }

    /// Returns whether both lead to the same process.
    pub fn is_to_process_of(&self, other: &Self) -> bool {
        self.facts.run_id == other.facts.run_id
    }

    /// Sends a command and waits for the reply; `None`: for as long as it takes.
    pub async fn ask(&self, command: &Cmd, within: Option<Duration>) -> Result<Value, Fault> {
        self.link.ask(command, within).await
    }

    /// Sends two commands in one packet. Returns both replies. Fails only if the first reply is an error.
    pub async fn ask_both(
        &self,
        command: &Cmd,
        other: &Cmd,
        within: Option<Duration>,
    ) -> Result<(Value, Value), Fault> {
        self.link.ask_both(command, other, within).await
    }
}
