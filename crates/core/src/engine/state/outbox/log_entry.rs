//! An entry of the log.

use crate::{ClientId, Mode, Name, Owner, SessionId, Token, UnixMs};

/// The kinds of events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogEvent {
    /// A request was granted after a long wait.
    Wait,
    /// A request got nil after a long wait.
    Timeout,
    /// A hold was released after a long time.
    Hold,
    /// A lease ran out.
    Lapse,
    /// A hold ended at its cap.
    Cap,
    /// The session of a hold ended.
    SessionEnd,
    /// A client released a hold that was not its own.
    Break,
    /// A key was removed with a live hold.
    Delete,
    /// A flush removed locks.
    Flush,
    /// A request got `DEADLOCK`.
    Deadlock,
}

/// An entry of the log. A field that does not apply is `None`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogEntry {
    /// Rises by 1, and never starts again.
    pub id: u64,
    /// When it happened.
    pub time: UnixMs,
    /// The kind of event.
    pub event: LogEvent,
    /// The database; `None`: all.
    pub db: Option<i32>,
    /// The key, or the first of several. Cut at 128 bytes.
    pub key: Option<Box<[u8]>>,
    /// The owner. Cut at 128 bytes.
    pub owner: Option<Box<[u8]>>,
    /// The mode of the hold or of the request.
    pub mode: Option<Mode>,
    /// The token of the hold.
    pub token: Option<Token>,
    /// How long the request waited, in ms.
    pub waited: Option<u64>,
    /// How long the lock was held, in ms.
    pub held: Option<u64>,
    /// The client that waited or released, or whose session the hold was bound to, if it is connected.
    pub client: Option<(ClientId, Peer)>,
    /// The named session that the hold was bound to.
    pub session: Option<SessionId>,
}

/// The server's knowledge of a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// The address, as `CLIENT LIST` prints it.
    pub addr: Box<[u8]>,
    /// The name, if the client has given itself one.
    pub name: Option<Box<[u8]>>,
}

/// Owner, key and name are cut after this many bytes, and so are the names of clients in `INFO`.
pub const CUT: usize = 128;

impl LogEntry {
    pub(crate) fn new(event: LogEvent, time: UnixMs) -> LogEntry {
        LogEntry {
            id: 0,
            time,
            event,
            db: None,
            key: None,
            owner: None,
            mode: None,
            token: None,
            waited: None,
            held: None,
            client: None,
            session: None,
        }
    }

    pub(crate) fn of(self, name: Name<'_>, owner: &Owner, mode: Mode) -> LogEntry {
        let (key, owner) = (Some(cut(name.key)), Some(cut(&owner.text())));
        LogEntry { db: Some(name.db), key, owner, mode: Some(mode), ..self }
    }

    pub(crate) fn held(self, token: Token, until: UnixMs) -> LogEntry {
        LogEntry { token: Some(token), held: Some(held_ms(token, until)), ..self }
    }
}

/// Returns how long a hold was held, in µs: its token is the time of its grant. A token ahead of the clock gives 0.
pub(crate) fn held_us(token: Token, until_us: u64) -> u64 {
    until_us.saturating_sub(token.get())
}

/// Returns how long a hold was held, in ms, as the log shows it.
pub(crate) fn held_ms(token: Token, until: UnixMs) -> u64 {
    until.get().saturating_sub(token.get() / 1000)
}

/// Returns the bytes, cut after [`CUT`].
pub(crate) fn cut(bytes: &[u8]) -> Box<[u8]> {
    bytes.get(..CUT).unwrap_or(bytes).into()
}
