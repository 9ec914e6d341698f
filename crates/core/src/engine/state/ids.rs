//! The keys of waiters and records in the tables of the engine.

use slotmap::new_key_type;

new_key_type! {
    /// Identifies a waiter. No later waiter gets the same id.
    pub struct WaiterId;
}

new_key_type! {
    pub(crate) struct RecordId;
}
