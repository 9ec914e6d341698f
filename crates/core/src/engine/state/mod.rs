//! The engine's memory: all state that is not in the keys. No file here opens a key or decides what happens to a lock.
//!
//! From the lowest level up: `waiting` has the requests that wait, `records` what is known of each lock, `due` which
//! lock is visited next, `sessions` the locks of each session, `outbox` what the caller has to send. `Parts` has what
//! all locks share, and the `Engine` the records as well. The other files have values that these use: ids, errors,
//! limits, and the running command.

pub(crate) mod budget;
pub(crate) mod call;
pub(crate) mod due;
pub(crate) mod engine;
pub(crate) mod fault;
pub(crate) mod ids;
pub(crate) mod load;
pub(crate) mod outbox;
pub(crate) mod parts;
pub(crate) mod records;
pub(crate) mod sessions;
pub(crate) mod waiting;
