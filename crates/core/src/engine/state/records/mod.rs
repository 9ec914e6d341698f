//! The engine's memory of locks: a record for each lock that has waiters, or holds that are bound to sessions.

pub(crate) mod attention;
pub(crate) mod databases;
pub(crate) mod record;
pub(crate) mod registry;
pub(crate) mod session_holds;
