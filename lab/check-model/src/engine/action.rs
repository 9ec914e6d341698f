//! What may happen.

use std::fmt;
use std::num::NonZeroU32;

use dlock_core::{Command, Mode, Owner, RequestId, Want};
use dlock_testkit::keyspace::KeyName;

pub type KeyNo = usize;
pub type Who = usize;
/// The number of a connection. One that is gone is followed by another with this number.
pub type ClientNo = usize;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    Enter(Enter),
    Release(Release),
    Renew(Renew),
    /// Time goes on until something is due.
    Pass,
    /// Time goes on a little.
    PassHalf,
    /// The timer runs.
    Tick,
    Delete(KeyNo),
    Flush,
    /// `CLIENT UNBLOCK`, or the time of a wait is over.
    Unblock(ClientNo),
    /// A connection ends.
    Gone(ClientNo),
    /// `CLIENT PAUSE`.
    Pause,
    Resume,
    /// The server accepts no writes (`NOREPLICAS`).
    RefuseWrites,
    AcceptWrites,
    Demote,
    Promote,
    /// The primary dies, and its replica takes over.
    FailOver,
}

/// A request to enter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Enter {
    /// `None`: a connection that never waits and binds nothing.
    pub client: Option<ClientNo>,
    pub owner: Who,
    pub keys: Vec<KeyNo>,
    pub how: How,
}

/// What a request asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct How {
    pub want: Wanted,
    /// In ms.
    pub lease: u64,
    pub blocks: bool,
    pub binds: bool,
    pub request: Option<u8>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// `ACQUIRE`.
    Once,
    /// `RACQUIRE`, `WLOCK`.
    Again,
    /// `RLOCK`.
    Read,
    /// `SACQUIRE`: permits, limit.
    Permits(u32, u32),
    /// `MACQUIRE` on all keys.
    All,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Release {
    pub key: KeyNo,
    pub owner: Who,
    pub how: ReleaseHow,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReleaseHow {
    pub mode: Option<Mode>,
    /// `None`: all.
    pub entries: Option<u32>,
    pub token: Fence,
    pub request: Option<u8>,
}

/// Which token a command names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fence {
    None,
    /// That of the owner's last hold on the key.
    Mine,
    /// That of another hold.
    Other,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Renew {
    pub client: Option<ClientNo>,
    pub key: KeyNo,
    pub owner: Who,
    pub how: RenewHow,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RenewHow {
    /// In ms; `None`: the hold's own.
    pub lease: Option<u64>,
    pub binds: bool,
    pub token: Fence,
}

impl Wanted {
    pub fn want(self) -> Want {
        match self {
            Wanted::Once | Wanted::All => Want::ExclusiveOnce,
            Wanted::Again => Want::Exclusive,
            Wanted::Read => Want::Shared,
            Wanted::Permits(permits, limit) => Want::Permits { permits: number(permits), limit: number(limit) },
        }
    }

    pub fn command(self) -> Command {
        match self {
            Wanted::Once => Command::Acquire,
            Wanted::All => Command::Macquire,
            Wanted::Again => Command::Racquire,
            Wanted::Read => Command::Rlock,
            Wanted::Permits(..) => Command::Sacquire,
        }
    }
}

pub fn number(number: u32) -> NonZeroU32 {
    NonZeroU32::new(number).expect("not zero")
}

pub fn owner(who: Who) -> Owner {
    let mut bytes = [0; 16];
    bytes[15] = who as u8;
    Owner::from_uuid(bytes)
}

pub fn who(owner: &Owner) -> Who {
    usize::from(owner.as_uuid().expect("an owner of this file")[15])
}

pub fn key_name(key: KeyNo) -> KeyName {
    (0, vec![b'a' + key as u8])
}

pub fn request(command: Command, id: u8) -> RequestId {
    RequestId::new(command, &[id]).expect("an id of one byte")
}

const OWNERS: [&str; 4] = ["alice", "bob", "carol", "dave"];

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Action::Enter(Enter { client, owner, keys, how }) => {
                let (name, rest) = match how.want {
                    Wanted::Once => ("ACQUIRE", String::new()),
                    Wanted::Again => ("RACQUIRE", String::new()),
                    Wanted::Read => ("RLOCK", String::new()),
                    Wanted::Permits(permits, limit) => ("SACQUIRE", format!(" {limit} PERMITS {permits}")),
                    Wanted::All => ("MACQUIRE", String::new()),
                };
                let keys: Vec<String> = keys.iter().map(|key| letter(*key)).collect();
                write!(f, "{name} {} {}{rest} PX {}", keys.join(","), OWNERS[*owner], how.lease)?;
                f.write_str(if how.blocks { " BLOCK 0" } else { "" })?;
                f.write_str(if how.binds { " SESSION" } else { "" })?;
                write_request(f, how.request)?;
                client.map_or(Ok(()), |client| write!(f, "  (connection {client})"))
            }
            Action::Release(Release { key, owner, how }) => {
                write!(f, "RELEASE {} {}", letter(*key), OWNERS[*owner])?;
                match how.mode {
                    None => {}
                    Some(Mode::Shared) => f.write_str(" READ")?,
                    Some(Mode::Exclusive) => f.write_str(" WRITE")?,
                }
                match how.entries {
                    None => f.write_str(" ALL")?,
                    Some(1) => {}
                    Some(entries) => write!(f, " PERMITS {entries}")?,
                }
                write_fence(f, how.token)?;
                write_request(f, how.request)
            }
            Action::Renew(Renew { client, key, owner, how }) => {
                write!(f, "RENEW {} {}", letter(*key), OWNERS[*owner])?;
                how.lease.map_or(Ok(()), |lease| write!(f, " PX {lease}"))?;
                f.write_str(if how.binds { " SESSION" } else { "" })?;
                write_fence(f, how.token)?;
                client.map_or(Ok(()), |client| write!(f, "  (connection {client})"))
            }
            Action::Pass => f.write_str("time passes until something is due"),
            Action::PassHalf => f.write_str("50 ms pass"),
            Action::Tick => f.write_str("the timer runs"),
            Action::Delete(key) => write!(f, "DEL {}", letter(*key)),
            Action::Flush => f.write_str("FLUSHALL"),
            Action::Unblock(client) => write!(f, "CLIENT UNBLOCK (connection {client})"),
            Action::Gone(client) => write!(f, "connection {client} ends"),
            Action::Pause => f.write_str("CLIENT PAUSE"),
            Action::Resume => f.write_str("CLIENT UNPAUSE"),
            Action::RefuseWrites => f.write_str("the server accepts no writes"),
            Action::AcceptWrites => f.write_str("the server accepts writes"),
            Action::Demote => f.write_str("the primary becomes a replica"),
            Action::Promote => f.write_str("the replica becomes a primary"),
            Action::FailOver => f.write_str("the primary dies, its replica takes over"),
        }
    }
}

fn letter(key: KeyNo) -> String {
    String::from_utf8_lossy(&key_name(key).1).into_owned()
}

fn write_request(f: &mut fmt::Formatter<'_>, request: Option<u8>) -> fmt::Result {
    request.map_or(Ok(()), |id| write!(f, " REQUEST {id}"))
}

fn write_fence(f: &mut fmt::Formatter<'_>, fence: Fence) -> fmt::Result {
    match fence {
        Fence::None => Ok(()),
        Fence::Mine => f.write_str(" TOKEN of that hold"),
        Fence::Other => f.write_str(" TOKEN of another hold"),
    }
}
