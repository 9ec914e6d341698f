//! The ids of waiters and records in the tables of the engine.

use slotmap::new_key_type;

new_key_type! {
    /// Identifies a waiter. No later waiter gets the same id.
    pub struct WaiterId;
}

new_key_type! {
    /// Identifies a record, which has what the engine knows of a lock beside its key. No later record gets the same id.
    pub(crate) struct RecordId;
}
