//! The keys of waiters and records in the tables of the engine.

use slotmap::new_key_type;

new_key_type! {
    /// Identifies a waiter for as long as it waits, and nobody else afterwards.
    pub struct WaiterId;
}

new_key_type! {
    pub(crate) struct RecordId;
}
