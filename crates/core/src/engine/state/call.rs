//! The running command.

use crate::{ClientId, Name, Now};

/// The lock, the time and the client of a command.
#[derive(Clone, Copy, Debug)]
pub struct Call<'a> {
    /// The name of the lock.
    pub name: Name<'a>,
    /// The time at which the command runs.
    pub now: Now,
    /// The client that sent the command; 0 for a request that neither waits nor binds a hold to its connection.
    pub client: ClientId,
}
