//! `DLOCK.INFO` as a value. Fails unless the reply has exactly the fields of the contract.

use redis::Value;

use crate::client::{Client, Request};
use crate::wire::{bytes_of, int_of, list_of, text_of};

#[derive(Clone, Debug, PartialEq)]
pub struct Info {
    pub mode: String,
    pub holders: i64,
    pub count: i64,
    /// The highest token of a live hold, or 0 if the lock is not held.
    pub token: i64,
    pub ttl: i64,
    pub waiters: i64,
    pub holds: Option<Vec<Hold>>,
    pub queue: Option<Vec<Queued>>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Hold {
    pub owner: Vec<u8>,
    pub mode: String,
    pub count: i64,
    pub token: i64,
    pub ttl: i64,
    pub session: Value,
    /// Milliseconds since the time in the token.
    pub held: i64,
    /// Milliseconds to the cap, if there is one.
    pub cap: Option<i64>,
    /// The number of the permit, if the request asked for one.
    pub slot: Option<i64>,
}

/// A request that waits, as `FULL` shows it.
#[derive(Clone, Debug, PartialEq)]
pub struct Queued {
    pub owner: Vec<u8>,
    pub mode: String,
    /// How long the request has waited, in ms.
    pub waiting: i64,
    /// The id of the client.
    pub client: i64,
    /// How many entries the request asks for.
    pub permits: i64,
    /// The limit of permits, if there is one.
    pub limit: Option<i64>,
    /// How many keys the request waits for.
    pub keys: i64,
    /// The address of the client, if the user may see it.
    pub addr: Option<String>,
    /// The name of the client, if the user may see it.
    pub name: Option<String>,
}

/// Sends `DLOCK.INFO` with these arguments ("k FULL COUNT 0"). Returns `None` if there is neither a live
/// hold nor a waiter.
#[track_caller]
pub fn lock_info(client: &mut Client, arguments: &str) -> Option<Info> {
    info_reply(client, format!("DLOCK.INFO {arguments}"))
}

/// Sends a complete `DLOCK.INFO` command. Returns its reply.
#[track_caller]
pub fn info_reply(client: &mut Client, request: impl Request) -> Option<Info> {
    match client.run(request) {
        Value::Nil => None,
        value => Some(Info::of(&value)),
    }
}

/// Returns the hold of an owner in a mode, if there is one.
#[track_caller]
pub fn hold(client: &mut Client, key: &str, owner: &str, mode: &str) -> Option<Hold> {
    let holds = lock_info(client, &format!("{key} OWNER {owner}"))?.holds.expect("OWNER shows holds");
    holds.into_iter().find(|hold| hold.mode == mode)
}

impl Info {
    #[track_caller]
    pub fn of(value: &Value) -> Self {
        let fields = fields_of(value);
        let names: Vec<_> = fields.iter().map(|(name, _)| name.as_str()).collect();
        let usual = ["mode", "holders", "count", "token", "ttl", "waiters"];
        assert_eq!(names[..6], usual, "the fields, in this order");
        assert!(matches!(names[6..], [] | ["holds"] | ["holds", "queue"]), "{names:?}");
        let list = |at: usize| fields.get(at).map(|(_, value)| list_of(value));
        let mode = text_of(&fields[0].1);
        assert!(["exclusive", "shared", "both", "free"].contains(&mode.as_str()), "{mode}");
        assert_eq!(fields[3].1 == Value::Nil, mode == "free", "a token, or nil if the lock is free: {fields:?}");
        Self {
            token: if mode == "free" { 0 } else { int_of(&fields[3].1) },
            mode,
            holders: int_of(&fields[1].1),
            count: int_of(&fields[2].1),
            ttl: int_of(&fields[4].1),
            waiters: int_of(&fields[5].1),
            holds: list(6).map(|holds| holds.iter().map(Hold::of).collect()),
            queue: list(7).map(|queue| queue.iter().map(Queued::of).collect()),
        }
    }

    /// Returns the holds of `OWNER` or `FULL`.
    #[track_caller]
    pub fn holds(&self) -> &[Hold] {
        self.holds.as_deref().expect("asked with OWNER or FULL")
    }
}

impl Hold {
    #[track_caller]
    fn of(value: &Value) -> Self {
        let fields = fields_of(value);
        let names: Vec<_> = fields.iter().map(|(name, _)| name.as_str()).collect();
        // The previous release, which `make upgrade` runs, has only the first six fields.
        let all = ["owner", "mode", "count", "token", "ttl", "session", "held", "cap", "slot"];
        assert!(names == all || names == all[..6], "{names:?}");
        let later =
            |at: usize| fields.get(at).map(|(_, value)| value).filter(|value| **value != Value::Nil).map(int_of);
        Self {
            owner: bytes_of(&fields[0].1),
            mode: text_of(&fields[1].1),
            count: int_of(&fields[2].1),
            token: int_of(&fields[3].1),
            ttl: int_of(&fields[4].1),
            session: fields[5].1.clone(),
            held: later(6).unwrap_or(0),
            cap: later(7),
            slot: later(8),
        }
    }
}

impl Queued {
    #[track_caller]
    fn of(value: &Value) -> Self {
        let fields = fields_of(value);
        let names: Vec<_> = fields.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["owner", "mode", "waiting", "client", "permits", "limit", "keys", "addr", "name"]);
        let text = |at: usize| (fields[at].1 != Value::Nil).then(|| text_of(&fields[at].1));
        Self {
            owner: bytes_of(&fields[0].1),
            mode: text_of(&fields[1].1),
            waiting: int_of(&fields[2].1),
            client: int_of(&fields[3].1),
            permits: int_of(&fields[4].1),
            limit: (fields[5].1 != Value::Nil).then(|| int_of(&fields[5].1)),
            keys: int_of(&fields[6].1),
            addr: text(7),
            name: text(8),
        }
    }
}

/// Returns the pairs of a map, which is a flat array in RESP2.
#[track_caller]
pub fn fields_of(value: &Value) -> Vec<(String, Value)> {
    let flat = list_of(value);
    assert_eq!(flat.len() % 2, 0, "pairs: {value:?}");
    flat.chunks(2).map(|pair| (text_of(&pair[0]), pair[1].clone())).collect()
}
