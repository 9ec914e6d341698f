//! Sends the events and replies of the engine after its work, because the server may call the module meanwhile.
//!
//! The order is: keyspace events, the command's own reply, the answers to waiters. The server writes first to the
//! client that was answered last: to the waiter that is granted, before the client whose command has freed the lock.

use std::cell::RefMut;

use dlock_core::engine::{Event, Output};

use crate::error::Error;
use crate::ffi::command::ErrorReply;
use crate::ffi::context::Context;
use crate::ffi::guarded;
use crate::ffi::strings::KeyName;
use crate::state::{OutputList, Outputs, ServerEngine, outputs, recycle};
use dlock_core::spec::Spec;

/// The answers that follow the own reply of the running command.
#[must_use]
pub struct Rest(Option<OutputList>);

/// Gives the engine back after a piece of work, and sends the keyspace events. The caller then sends the command's own
/// reply, and the rest after it. `own` are the keys of the command.
#[inline(always)]
pub fn begin(context: &mut Context<'_>, own: &[KeyName<'_>], engine: RefMut<'static, ServerEngine>) -> Rest {
    match outputs(engine) {
        Outputs::Own(index, event) => {
            notify_own(context, own, index, event);
            Rest(None)
        }
        Outputs::List(list) => {
            send_events(context, own, &list);
            Rest(Some(list))
        }
    }
}

impl Rest {
    /// Replies with the error, if there is one, and answers the waiters.
    #[inline(always)]
    pub fn finish(self, context: &Context<'_>, spec: &Spec, result: Result<(), Error>) {
        if let Err(error) = result {
            context.reply_error(&error.text(spec.name));
        }
        self.send();
    }

    /// Answers the waiters.
    #[inline(always)]
    pub fn send(self) {
        if let Some(list) = self.0 {
            send_answers(list);
        }
    }
}

/// Sends an event for one of the command's keys, which `index` names.
#[inline(always)]
fn notify_own(context: &mut Context<'_>, own: &[KeyName<'_>], index: usize, event: Event) {
    if let Some(name) = own.get(index) {
        context.notify(event.name(), name);
    }
}

fn send_events(context: &mut Context<'_>, own: &[KeyName<'_>], outputs: &OutputList) {
    for output in outputs {
        match output {
            Output::Own(index, event) => notify_own(context, own, *index, *event),
            Output::Event(db, key, event) => {
                in_database(context, *db, |context| context.notify(event.name(), &KeyName::new(key)));
            }
            Output::Modified(db, key) => {
                in_database(context, *db, |context| context.signal_modified(&KeyName::new(key)));
            }
            Output::Answer(..) => {}
        }
    }
}

fn send_answers(mut outputs: OutputList) {
    for output in outputs.drain(..) {
        if let Output::Answer(waiter, _) = output {
            // If one answer panics, the others are still sent.
            guarded("answer to a waiter", (), || waiter.end());
        }
    }
    recycle(outputs);
}

/// Runs `body` with this database selected.
fn in_database(context: &mut Context<'_>, db: i32, body: impl FnOnce(&mut Context<'_>)) {
    let selected = context.db();
    if db == selected {
        return body(context);
    }
    if context.select_db(db) {
        body(context);
        context.select_db(selected);
    }
}
