//! The engine's memory: what the keys do not say. No file here opens a key or decides what happens to a lock.
//!
//! The folders are named from the ground up: `waiting` has the requests that wait; `records` what is known of one lock;
//! `due` which lock is visited next; `sessions` the locks of a session; `outbox` what the caller has to send. `Parts` is
//! what all locks share, and the `Engine` has the records, too.

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
