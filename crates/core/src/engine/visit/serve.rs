//! How a visit serves the queue: which requests get in, and how waits end.

use crate::broken;
use crate::engine::keyspace::OpenKey;
use crate::engine::state::due::retry;
use crate::engine::state::fault::Fault;
use crate::engine::state::ids::WaiterId;
use crate::engine::state::outbox::Answer;
use crate::engine::state::outbox::grant::Grant;
use crate::engine::state::sessions::Wanted;
use crate::engine::visit::Visit;
use crate::lock::{Acquired, Refusal};

/// The outcome for the head of a queue.
enum Served {
    /// The request leaves the queue with this answer.
    Answered(Answer),
    /// The request stays.
    Waits,
}

impl<T, K: OpenKey> Visit<'_, T, K> {
    /// Serves the queue until its head has to wait: O(1) for each request. The timer serves the rest of a long queue.
    /// Returns the head, if it is a request for several locks, which is served after the key is closed.
    #[inline]
    pub(crate) fn serve(&mut self) -> Option<WaiterId> {
        let several = self.serve_waiters();
        self.reschedule();
        several
    }

    /// Serves the queue as [`Visit::serve`] does, before the work of a command that always sets when the lock is due
    /// next. Reschedules the lock only if it has changed or a hold has lapsed.
    #[inline]
    pub(crate) fn serve_first(&mut self) -> Option<WaiterId> {
        let several = self.serve_waiters();
        if several.is_some() || self.open.is_changed() || self.open.lock().has_lapsed(self.now.ms()) {
            self.reschedule();
        }
        several
    }

    #[inline]
    fn serve_waiters(&mut self) -> Option<WaiterId> {
        let is_empty = self.record.as_ref()?.queue.is_empty();
        if is_empty { None } else { self.serve_queue() }
    }

    // A function of its own, so that a command on a lock without waiters calls nothing.
    #[inline(never)]
    fn serve_queue(&mut self) -> Option<WaiterId> {
        loop {
            let (head, waiter) = self.parts.waiters.head(&self.record.as_ref()?.queue)?;
            if waiter.is_multiple() {
                return Some(head);
            }
            // Holds of the head's owner whose sessions have ended are released first: they must not count.
            if self.record.as_ref()?.bound.has_ended() {
                let owner = waiter.request.owner.clone();
                let want = waiter.request.want;
                self.release_ended_of(&owner);
                self.free_slot(want);
            }
            if self.budget.answers == 0 {
                self.parts.leave_rest(self.record.as_deref_mut()?, self.budget);
                return None;
            }
            match self.serve_one(head) {
                Served::Answered(answer) => {
                    self.budget.answers -= 1;
                    self.answer(head, answer);
                }
                Served::Waits => return None,
            }
        }
    }

    /// Decides on the head of the queue, and carries the decision out.
    fn serve_one(&mut self, head: WaiterId) -> Served {
        let (now, readers) = (self.now, self.readers());
        let Some(waiter) = self.parts.waiters.get(head) else { return Served::Waits };
        if let Err(fault) = self.parts.sessions.check_open(waiter.request.session) {
            return Served::Answered(Answer::Fault(fault));
        }
        let (session, terms) = (waiter.session(), self.parts.terms(now, &waiter.request));
        let want = waiter.request.want;
        let decision = self.open.lock().acquire_counting(now.ms(), &waiter.request, terms, readers);
        if let Acquired::Granted(hold, _) | Acquired::Replayed(hold) = &decision {
            if !(self.parts.has_rights)(&waiter.ticket) {
                return Served::Answered(Answer::Fault(Fault::NoRights));
            }
            // Requests that waited for the same session may have been granted since this one came.
            let record = self.record.as_deref();
            let wanted = Wanted { record, key_len: self.open.name().key.len(), lease: hold.lease };
            if let Err(fault) = self.parts.sessions.check(waiter.client, &waiter.request, [wanted]) {
                return Served::Answered(Answer::Fault(fault));
            }
        }
        Served::Answered(match decision {
            // If the owner got the lock through another connection, the request waits until that hold is gone.
            Acquired::Refused(Refusal::Held | Refusal::Owned | Refusal::OverLimit | Refusal::OnlyHolder) => {
                return Served::Waits;
            }
            Acquired::Refused(refusal) => self.parts.outbox.refuse_waiter(waiter, self.open.name(), refusal, now),
            Acquired::Replayed(hold) => {
                self.parts.outbox.stats.replays += 1;
                if let Some(key) = session {
                    self.bind(&hold, key);
                }
                Answer::Granted(Grant::of(&hold, want), None)
            }
            Acquired::Granted(hold, entry) => {
                let grant = Grant::of(&hold, want);
                self.parts.outbox.note_granted(waiter, self.open.name(), grant.token, now);
                self.grant(hold, entry, session);
                Answer::Granted(grant, None)
            }
        })
    }

    /// Takes the head out of the queue, the only one that it waits in, and answers it.
    fn answer(&mut self, head: WaiterId, answer: Answer) {
        let Some(record) = &mut self.record else { return broken("a waiter's lock has a record") };
        let Some(waiter) = self.parts.waiters.remove(head) else { return broken("the head of a queue waits") };
        self.parts.waiters.leave(&waiter, &mut record.queue);
        record.lost_last_waiter &= !record.queue.is_empty();
        self.parts.outbox.answer(waiter, answer);
    }

    /// Puts off serving a queue, because the server does not allow it now.
    pub(crate) fn retry_later(&mut self) {
        if let Some(record) = self.record.as_mut().filter(|record| !record.queue.is_empty()) {
            record.queue_due = Some(retry(self.now));
        }
    }
}
