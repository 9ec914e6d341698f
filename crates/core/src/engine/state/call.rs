//! The running command.

use crate::{ClientId, Name, Now};

/// Where and when a command runs, and for which client.
#[derive(Clone, Copy, Debug)]
pub struct Call<'a> {
    /// The lock.
    pub name: Name<'a>,
    /// The time.
    pub now: Now,
    /// The client that sent the command.
    pub client: ClientId,
}
