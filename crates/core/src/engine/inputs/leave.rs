//! How a waiter leaves its queues.

use crate::Now;
use crate::engine::state::engine::Engine;
use crate::engine::state::ids::WaiterId;
use crate::engine::state::outbox::Answer;
use crate::engine::state::waiting::Waiter;

impl<T> Engine<T> {
    /// Takes a waiter out of all its queues. Where it was the head, the next waiter may get in before the end of the
    /// turn.
    pub(super) fn take_waiter(&mut self, id: WaiterId) -> Option<Waiter<T>> {
        let waiter = self.parts.waiters.remove(id)?;
        for record in &waiter.records {
            let Some(record) = self.registry.get_mut(*record) else { continue };
            let was_head = record.queue.head() == Some(id);
            self.parts.waiters.leave(&waiter, &mut record.queue);
            if record.queue.is_empty() {
                record.queue_due = None;
                record.lost_last_waiter = true;
            }
            if was_head {
                self.parts.mark_due(record);
            }
        }
        Some(waiter)
    }

    /// Takes a waiter out of all its queues, and answers it.
    pub(super) fn answer(&mut self, id: WaiterId, answer: Answer) {
        if let Some(waiter) = self.take_waiter(id) {
            self.parts.outbox.answer(waiter, answer);
        }
    }

    /// Logs a wait that ends without a grant, if it was long.
    pub(super) fn note_timeout(&mut self, id: WaiterId, now: Now) {
        let Some(waiter) = self.parts.waiters.get(id) else { return };
        if let Some(record) = waiter.records.first().and_then(|id| self.registry.get(*id)) {
            self.parts.outbox.note_timeout(waiter, record.name(), now);
        }
    }
}
