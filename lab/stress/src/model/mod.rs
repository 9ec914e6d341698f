//! What the contract says of a whole server: locks, lines and sessions, as lists and loops over them.
//!
//! Nothing of the module or its core is in here. Leases are long: what lapses is told ([`Model::lapse`]).
//!
//! | file | knows |
//! |---|---|
//! | `lock` | the locking rules |
//! | `line` | who waits, whose turn it is, who would wait for ever |
//! | `keys` | what other commands do to a key that is a lock |

mod keys;
mod line;
mod lock;

use std::collections::BTreeMap;

pub use line::Waiter;
pub use lock::{Ask, Entries, Fence, Hold, Lease, Mode, Reentry, Release, Renew};

/// A key: its database and its name.
pub type Key = (u8, &'static str);

/// The number of a connection, as it is given out by the server.
pub type Client = u64;

/// What a key holds.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// A lock, with its holds in no order.
    Lock(Vec<Hold>),
    /// Something else.
    Text,
}

/// What a client is answered.
#[derive(Clone, Debug, PartialEq)]
pub enum Reply {
    /// The token of the hold with this serial number.
    Token(u64),
    /// The same, and an owner that the server makes up.
    FreshOwner(u64),
    Integer(i64),
    /// A number above zero.
    Positive,
    Nil,
    Ok,
    /// An error that begins so.
    Error(&'static str),
    /// Those of a transaction.
    All(Vec<Reply>),
    /// None yet: the client waits.
    Later,
}

/// A server.
#[derive(Clone, Debug, Default)]
pub struct Model {
    pub keys: BTreeMap<Key, Value>,
    pub lines: BTreeMap<Key, Vec<Waiter>>,
    /// How many may wait; 0 for no limit.
    pub max_waiters: usize,
    /// Who else is answered, in order.
    pub told: Vec<(Client, Reply)>,
    /// How many holds there ever were: the serial number of the last.
    pub serials: u64,
    /// Tokens by serial number, as far as they were seen.
    pub tokens: BTreeMap<u64, u64>,
}

impl Model {
    /// How many wait.
    pub fn waiters(&self) -> usize {
        self.lines.values().map(Vec::len).sum()
    }

    /// How many lines somebody waits in.
    pub fn queues(&self) -> usize {
        self.lines.values().filter(|line| !line.is_empty()).count()
    }

    /// How many holds are bound.
    pub fn sessions(&self) -> usize {
        self.all_holds().filter(|(_, hold)| hold.session.is_some()).count()
    }

    /// The holds of one key.
    pub fn holds(&self, key: Key) -> &[Hold] {
        match self.keys.get(&key) {
            Some(Value::Lock(holds)) => holds,
            Some(Value::Text) | None => &[],
        }
    }

    /// Every hold there is.
    pub fn all_holds(&self) -> impl Iterator<Item = (Key, &Hold)> {
        self.keys.keys().flat_map(|key| self.holds(*key).iter().map(|hold| (*key, hold)))
    }

    /// Whether a client waits.
    pub fn is_waiting(&self, client: Client) -> bool {
        self.lines.values().flatten().any(|waiter| waiter.client == client)
    }
}
