//! The end of a command.

use crate::error::Error;
use crate::ffi::context::Context;
use crate::ffi::spec::Spec;
use crate::ffi::strings::KeyName;
use crate::outputs::send_events;
use crate::state::Outputs;

/// Sends what a command leads to: events on its keys `own`, its reply, and the answers to those who waited.
#[inline]
pub fn finish<R>(
    context: &mut Context<'_>,
    own: &[KeyName<'_>],
    spec: &Spec,
    result: Result<(R, Outputs), Error>,
    reply: impl FnOnce(&mut Context<'_>, R) -> Result<(), Error>,
) {
    let (result, outputs) = match result {
        Ok(done) => done,
        Err(error) => return context.reply_error(&error.text(spec.name)),
    };
    let answers = send_events(context, own, outputs);
    if let Err(error) = reply(context, result) {
        context.reply_error(&error.text(spec.name));
    }
    answers.send();
}
