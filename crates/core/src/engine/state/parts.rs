//! The parts of the engine that all locks share, and changes of a record that need no open key.

use crate::engine::state::budget::{Budget, SearchBudget};
use crate::engine::state::due::Backlog;
use crate::engine::state::fault::Fault;
use crate::engine::state::outbox::{Outbox, Output};
use crate::engine::state::records::record::Record;
use crate::engine::state::records::registry::Since;
use crate::engine::state::records::session_holds::SessionEnd;
use crate::engine::state::sessions::{Sessions, Wanted};
use crate::engine::state::waiting::Waiters;
use crate::lock::Terms;
use crate::settings::Settings;
use crate::{ClientId, Lease, LeaseChoice, Memory, Now, Request, SessionKey, Token};

#[derive(Clone, Debug)]
pub(crate) struct Parts<T> {
    pub settings: Settings,
    /// The token clock, and the pieces of large locks that are not freed yet.
    pub memory: Memory,
    pub waiters: Waiters<T>,
    pub searches: SearchBudget,
    pub sessions: Sessions,
    pub backlog: Backlog,
    pub outbox: Outbox<T>,
    /// Returns whether the client of a waiting request still has the rights to send that request.
    pub has_rights: fn(&T) -> bool,
}

impl<T> Parts<T> {
    /// Returns the server's terms for a grant.
    pub(crate) fn terms(&self, now: Now, request: &Request) -> Terms {
        let least = request.min_token.map_or(0, Token::get);
        Terms { default: self.settings.default_lease, fresh: self.memory.tokens.next(now.us().max(least)) }
    }

    /// Checks that a request that is not granted now can be bound to its session later. `own` is the lease of the hold
    /// that the request would enter again. `locks` has, for each lock, its record and the length of its key.
    pub(crate) fn check_waiting<'r>(
        &self,
        client: ClientId,
        request: &Request,
        own: Option<Lease>,
        locks: impl IntoIterator<Item = (Option<&'r Record>, usize)>,
    ) -> Result<(), Fault> {
        let lease = match request.lease {
            LeaseChoice::For(lease) => lease,
            LeaseChoice::Own | LeaseChoice::Until(_) => {
                own.unwrap_or(request.default_lease(self.settings.default_lease))
            }
        };
        let wanted = locks.into_iter().map(|(record, key_len)| Wanted { record, key_len, lease });
        self.sessions.check(client, request, wanted)
    }

    /// Schedules a visit of a record before the end of the turn.
    pub(crate) fn mark_due(&mut self, record: &mut Record) {
        let payer = self.waiters.payer(&record.queue);
        self.backlog.mark_due(record, payer);
    }

    /// Schedules the next visit of a record.
    pub(crate) fn schedule(&mut self, record: &mut Record) {
        let payer = self.waiters.payer(&record.queue);
        self.backlog.schedule(record, payer);
    }

    /// Leaves the rest of a long queue to the timer.
    pub(crate) fn leave_rest(&mut self, record: &mut Record, budget: &mut Budget) {
        budget.should_yield = true;
        self.mark_due(record);
    }

    /// Brings a record up to date with the events on its database, and with the ends of sessions of its holds.
    pub(crate) fn refresh(&mut self, record: &mut Record, since: Since) {
        self.take_in(record, since);
        for (key, end) in self.sessions.take_ended_of(record) {
            self.end_session_on(record, key, end);
        }
    }

    /// Brings a record up to date with the events on its database since the last look.
    pub(crate) fn take_in(&mut self, record: &mut Record, since: Since) {
        match since {
            Since::Nothing => {}
            // The time at which the record is due may be wrong, so the record is due now.
            Since::Doubted => {
                self.backlog.unschedule(record);
                self.mark_due(record);
            }
            Since::Void => self.forget_lock(record),
        }
    }

    /// Ends a session on one lock: the session's holds there count as released at once, or after the grace.
    pub(crate) fn end_session_on(&mut self, record: &mut Record, key: SessionKey, end: SessionEnd) {
        if record.bound.end(key, end) {
            self.mark_due(record);
        }
    }

    /// Unbinds all holds of a lock whose key is gone or has another value.
    pub(crate) fn forget_bound(&mut self, record: &mut Record) {
        record.has_ttl_grace = false;
        if record.bound.is_empty() {
            return;
        }
        let bound = std::mem::take(&mut record.bound);
        self.backlog.note_unbound(record);
        self.sessions.discard(record, bound);
    }

    /// Forgets a lock whose key is gone or has another value. Its bindings are void, and its queue is served next.
    pub(crate) fn forget_lock(&mut self, record: &mut Record) {
        self.forget_bound(record);
        self.mark_due(record);
    }

    /// Tells clients that track the key when the last waiter of a free lock has left: `INFO` of the lock becomes nil.
    pub(crate) fn note_lost_waiter(&mut self, record: &mut Record, is_free: bool) {
        let has_lost = std::mem::take(&mut record.lost_last_waiter);
        if has_lost && is_free && record.queue.is_empty() {
            self.outbox.push(Output::Modified(record.db, std::rc::Rc::clone(&record.key)));
        }
    }
}
