//! The ways to wait for a lock, by name.

use std::time::Duration;

#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Way {
    /// `ACQUIRE BLOCK`, `RELEASE`.
    Dlock,
    /// `SACQUIRE BLOCK` of the one permit of a semaphore, `RELEASE`.
    Permit,
    /// `BLPOP` of the one element of a list, `LPUSH`. No owner, no lease.
    Element,
    /// `SET NX PX`; a refused client subscribes and tries again at every message; the script that releases publishes one.
    Message,
    /// `SET NX PX` again and again, with a pause.
    Poll10,
    Poll100,
}

impl Way {
    pub const ALL: [Self; 6] = [Self::Dlock, Self::Permit, Self::Element, Self::Message, Self::Poll10, Self::Poll100];

    /// Returns the name in the ledger.
    pub fn name(self) -> &'static str {
        match self {
            Self::Dlock => "dlock",
            Self::Permit => "permit",
            Self::Element => "blpop",
            Self::Message => "pubsub",
            Self::Poll10 => "poll-10",
            Self::Poll100 => "poll-100",
        }
    }

    /// Returns the name in tables.
    pub fn label(self) -> &'static str {
        match self {
            Self::Dlock => "ACQUIRE BLOCK",
            Self::Permit => "SACQUIRE BLOCK, limit 1",
            Self::Element => "BLPOP token",
            Self::Message => "SET NX + pub/sub",
            Self::Poll10 => "SET NX every 10 ms",
            Self::Poll100 => "SET NX every 100 ms",
        }
    }

    /// Returns how long one round is looked at, at least.
    pub fn window(self) -> Duration {
        match self {
            Self::Dlock | Self::Permit | Self::Element | Self::Message | Self::Poll10 => Duration::from_millis(150),
            Self::Poll100 => Duration::from_millis(400),
        }
    }
}

#[derive(Debug, PartialEq)]
pub enum Entry {
    Granted,
    Over,
}

pub const KEY: &[u8] = b"lock:000000";

pub const CHANNEL: &[u8] = b"lock:000000:free";
