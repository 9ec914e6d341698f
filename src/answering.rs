//! How the wait of a client ends: what the server calls then.

use std::cell::Cell;
use std::rc::Rc;

use dlock_core::Now;
use dlock_core::engine::{Answer, WaiterId};

use crate::ffi::blocking::{Blocked, Ticket};
use crate::ffi::context::Context;
use crate::state::{ServerEngine, tell};
use crate::waiter::Waiter;
use dlock_core::reply;

impl Waiter {
    /// Has the engine take the request out of its queues, if it waits. The engine may be at work, and give the place to
    /// a repeat of the request before it hears of this: the repeat stays.
    fn leave(&self, take_out: fn(&mut ServerEngine, WaiterId, Now)) {
        let Some(id) = self.id.take() else { return };
        let own: *const Waiter = self;
        let own = own.addr();
        tell(move |engine, now| {
            if engine.ticket(id).is_some_and(|ticket| Rc::as_ptr(ticket).addr() == own) {
                take_out(engine, id, now);
            }
        });
    }
}

impl Ticket for Waiter {
    fn blocked(&self) -> &Cell<Option<Blocked>> {
        &self.blocked
    }

    fn answer(&self, context: &mut Context<'_>) {
        match self.answer.take() {
            Some(Answer::Granted(grant, owner)) => reply::granted(context, grant, owner.as_ref()),
            Some(Answer::Nil) => context.reply_nil(),
            Some(Answer::Fault(fault)) => context.reply_error(&fault.to_string()),
            None => {
                self.leave(ServerEngine::time_out);
                context.reply_nil();
            }
        }
    }

    fn gone(&self) {
        self.leave(|engine, id, _| drop(engine.abandon(id)));
    }
}
