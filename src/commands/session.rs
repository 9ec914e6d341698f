//! `DLOCK.SESSION id PX ms [NX | XX]`, `DLOCK.SESSION id CLOSE` and `DLOCK.SESSION id LIST [COUNT n]`
//!
//! Replies with the number of holds that are bound to the session, or lists them; nil with `NX` if it is open, and with
//! `CLOSE` and `LIST` if the server does not know it.

use dlock_core::NoSession;
use dlock_core::args::{Session as Args, SessionAction};
use dlock_core::engine::{BoundHold, Fault, Heartbeat};

use crate::error::Error;
use crate::ffi::acl::{User, user_name};
use crate::ffi::command::{Arguments, Command};
use crate::ffi::context::{Context, now, uptime};
use crate::ffi::spec::{Argument, Keys, Spec};
use crate::outputs::begin;
use crate::reply;
use crate::state::engine;

/// Opens a named session, keeps it open, ends it, or shows its holds.
pub struct Session;

/// The reply to a call.
enum Reply {
    Holds(Option<usize>),
    List(Option<Vec<BoundHold>>),
}

impl Command for Session {
    type Error = Error;
    const SPEC: Spec = Spec {
        name: "DLOCK.SESSION",
        flags: "fast",
        categories: "dlock fast connection",
        keys: Keys::None,
        arity: -3,
        summary: "Opens a named session, keeps it open, ends it, or lists its holds.",
        complexity: "O(1), O(N) with N the number of holds listed",
        arguments: &[
            Argument::Text("id"),
            Argument::Choice(
                "action",
                &[
                    Argument::Group(
                        "heartbeat",
                        &[
                            Argument::Number("PX", "milliseconds"),
                            Argument::OneOf("condition", &[Argument::Word("NX"), Argument::Word("XX")]),
                        ],
                    ),
                    Argument::Word("CLOSE"),
                    Argument::Group("list", &[Argument::Word("LIST"), Argument::Number("COUNT", "count")]),
                ],
            ),
        ],
    };

    fn run(context: &mut Context<'_>, arguments: &Arguments<'_>) -> Result<(), Error> {
        let Args { id, action } = Args::parse(arguments.all())?;
        if !context.flags().is_primary() {
            return Err(Error::ReadOnly);
        }
        let user = user_name(context).ok_or(Fault::NoSession(NoSession::Userless))?;
        let may_end_all = match action {
            SessionAction::Keep(..) => false,
            SessionAction::Close | SessionAction::List(_) => may_kill(context),
        };
        let by = Some(user.as_slice()).filter(|_| !may_end_all);
        let now = now();
        let mut engine = engine()?;
        let done = match action {
            SessionAction::Keep(timeout, only) => {
                let beat = Heartbeat { id: &id, user: &user, timeout, only };
                engine.keep_session(beat, (uptime(), now)).map(Reply::Holds)
            }
            SessionAction::Close => engine.close_session(&id, by, now).map(Reply::Holds),
            SessionAction::List(most) => engine.list_session(&id, by, most, now).map(Reply::List),
        };
        let rest = begin(context, &[], engine);
        let replied = done.map_err(Error::from).map(|done| match done {
            Reply::Holds(None) | Reply::List(None) => context.reply_nil(),
            Reply::Holds(Some(holds)) => context.reply_integer(holds as u64),
            Reply::List(Some(holds)) => {
                context.reply_array(holds.len());
                holds.iter().for_each(|hold| reply::bound_hold(context, hold));
            }
        });
        rest.finish(context, &Self::SPEC, replied);
        Ok(())
    }
}

/// Returns whether the user may end sessions: every user that may close connections.
fn may_kill(context: &mut Context<'_>) -> bool {
    User::of(context).is_some_and(|user| user.may_run([b"CLIENT".as_slice(), b"KILL", b"ID", b"1"]))
}
