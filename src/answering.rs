//! How the wait of a client ends: what the server calls then.

use std::cell::Cell;

use dlock_core::engine::Answer;

use crate::ffi::blocking::{Blocked, Ticket};
use crate::ffi::context::Context;
use crate::state::tell;
use crate::waiter::Waiter;
use dlock_core::reply;

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
                if let Some(id) = self.id.take() {
                    tell(move |engine, now| engine.time_out(id, now));
                }
                context.reply_nil();
            }
        }
    }

    fn gone(&self) {
        if let Some(id) = self.id.take() {
            tell(move |engine, _| drop(engine.abandon(id)));
        }
    }
}
