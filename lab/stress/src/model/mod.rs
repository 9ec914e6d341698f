//! What the contract says of a whole server: locks and lines as the naive ones of the testkit, one for each key, and
//! beside them sessions, databases and the search for those who would wait for ever.
//!
//! Nothing of the module or of what its core decides is in here. Leases are long: what lapses is told
//! ([`Model::lapse`]). Of a new hold the model makes up a token, above [`UNKNOWN`], until the server shows the real one.
//!
//! | file | knows |
//! |---|---|
//! | `commands` | the commands of the module, who waits, whose turn it is |
//! | `keys` | what other commands do to a key that is a lock |

mod commands;
mod keys;

use std::collections::{BTreeMap, BTreeSet};

pub use commands::{Ask, Lease, Renew};
use dlock_testkit::histories::{naive, naive_line};
pub use naive::{Asked, Fence, What};

/// A key: its database and its name.
pub type Key = (u8, &'static str);

/// The number of a connection, as it is given out by the server.
pub type Client = u64;

pub type Owner = Vec<u8>;
pub type Hold = naive::Hold<Owner>;
pub type Lock = naive::Naive<Owner>;
pub type Leave = naive::Leave<Owner>;
pub type Line = naive_line::NaiveLine<Owner>;

/// What a key holds.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    Lock(Lock),
    /// Something else.
    Text,
}

/// What a client is answered.
#[derive(Clone, Debug, PartialEq)]
pub enum Reply {
    /// This token, or any new one if it is not known.
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
#[derive(Clone, Debug)]
pub struct Model {
    pub keys: BTreeMap<Key, Value>,
    /// The ticket of a waiter is its client.
    pub lines: BTreeMap<Key, Line>,
    /// How many may wait; 0 for no limit.
    pub max_waiters: usize,
    /// Who else is answered, in order.
    pub told: Vec<(Client, Reply)>,
    /// The last token that was made up.
    last: u64,
    /// The real tokens of those that were made up, as far as they were seen.
    pub tokens: BTreeMap<u64, u64>,
    /// Every real token that was seen.
    pub seen: BTreeSet<u64>,
}

impl Model {
    /// A server without locks that has given out these tokens.
    pub fn new(max_waiters: usize, seen: BTreeSet<u64>) -> Model {
        let (keys, lines, told, tokens) = (BTreeMap::new(), BTreeMap::new(), Vec::new(), BTreeMap::new());
        Model { keys, lines, max_waiters, told, last: UNKNOWN, tokens, seen }
    }

    /// How many wait.
    pub fn waiters(&self) -> usize {
        self.lines.values().map(|line| line.0.len()).sum()
    }

    /// How many lines somebody waits in.
    pub fn queues(&self) -> usize {
        self.lines.values().filter(|line| !line.0.is_empty()).count()
    }

    /// How many holds are bound.
    pub fn sessions(&self) -> usize {
        self.all_holds().filter(|(_, hold)| hold.session.is_some()).count()
    }

    /// The holds of one key.
    pub fn holds(&self, key: Key) -> &[Hold] {
        match self.keys.get(&key) {
            Some(Value::Lock(lock)) => &lock.holds,
            Some(Value::Text) | None => &[],
        }
    }

    /// Every hold there is.
    pub fn all_holds(&self) -> impl Iterator<Item = (Key, &Hold)> {
        self.keys.keys().flat_map(|key| self.holds(*key).iter().map(|hold| (*key, hold)))
    }

    pub fn all_holds_mut(&mut self) -> impl Iterator<Item = &mut Hold> {
        self.keys.values_mut().flat_map(|value| match value {
            Value::Lock(lock) => lock.holds.iter_mut(),
            Value::Text => [].iter_mut(),
        })
    }

    /// Whether a client waits.
    pub fn is_waiting(&self, client: Client) -> bool {
        self.lines.values().flat_map(|line| &line.0).any(|waiter| waiter.ticket == client)
    }

    /// Takes note of the real token of one that was made up: a new one, above this.
    pub fn learn(&mut self, made_up: u64, token: u64, floor: u64) -> Result<(), String> {
        self.seen.insert(token);
        match self.tokens.insert(made_up, token) {
            None if token > floor => Ok(()),
            None => Err(format!("a new token, {token}, is not above {floor}")),
            Some(old) if old == token => Ok(()),
            Some(old) => Err(format!("the token is {token}, and was {old}")),
        }
    }

    /// A key without a hold is gone.
    fn drop_empty(&mut self, key: Key) {
        if matches!(self.keys.get(&key), Some(Value::Lock(lock)) if lock.holds.is_empty()) {
            self.keys.remove(&key);
        }
    }
}

/// Tokens above this are made up: the server's count microseconds.
pub const UNKNOWN: u64 = 1 << 62;
