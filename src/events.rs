//! What frees locks or ends sessions without a word about keys.

use crate::ffi::hooks::Event;
use crate::{ended, expiry, sessions, waiting};

/// Called by the server. A hook writes nothing: it notes what is to be done after the running command.
pub fn on_event(event: Event) {
    match event {
        Event::Flushed(db) => {
            sessions::unbind_all(db);
            waiting::stir_all(db);
        }
        // Lines and sessions stay with the number of the database; the locks do not.
        Event::Swapped(first, second) => {
            expiry::on_swap(first, second);
            ended::on_swap(first, second);
            for db in [first, second] {
                sessions::unbind_all(Some(db));
                waiting::stir_all(Some(db));
            }
            // Whoever waited does not any more where the locks are now.
            expiry::patrol();
        }
        Event::Loaded => {
            sessions::unbind_all(None);
            waiting::stir_all(None);
            expiry::patrol();
        }
        Event::ClientGone(client) => sessions::on_client_gone(client),
        Event::RoleChanged => {
            sessions::unbind_all(None);
            expiry::patrol();
        }
    }
}
