//! `DLOCK.SESSION id PX ms [NX | XX]`, `DLOCK.SESSION id CLOSE [USER name]`, `DLOCK.SESSION id LIST [USER name] [COUNT n]` and
//! `DLOCK.SESSION LIST [COUNT n]`
//!
//! Replies with the number of holds that are bound to the session, or lists them; nil with `NX` if it is open, and with
//! `CLOSE` and `LIST` if the user has no such session. Without an id, lists the sessions.

use dlock_core::NoSession;
use dlock_core::args::Session as Args;
use dlock_core::engine::{BoundHolds, Fault, Heartbeat, OpenSession};

use crate::error::Error;
use crate::ffi::acl::{User, user_name, user_state};
use crate::ffi::command::{Arguments, Command};
use crate::ffi::context::{Context, now, uptime};
use crate::outputs::begin;
use crate::state::engine;
use dlock_core::reply;
use dlock_core::spec::{SESSIONS, Spec};

/// Opens a named session, keeps it open, ends it, or shows its holds; or shows the sessions.
pub struct Session;

/// The reply to a call.
enum Reply {
    Holds(Option<usize>),
    List(Option<BoundHolds>),
    Sessions(Vec<OpenSession>),
}

impl Command for Session {
    type Error = Error;
    const SPEC: Spec = SESSIONS;

    fn run(context: &mut Context<'_>, arguments: &Arguments<'_>) -> Result<(), Error> {
        let args = Args::parse(arguments.all())?;
        if !context.flags().is_primary() {
            return Err(Error::ReadOnly);
        }
        let user = user_name(context).ok_or(Fault::NoSession(NoSession::Userless))?;
        let own = user.bytes();
        // A user that may close connections may list and close the sessions of all users.
        let names_other = matches!(&args, Args::Close(_, Some(user)) | Args::List(_, Some(user), _) if **user != *own);
        let may_kill = (names_other || matches!(args, Args::ListAll(_))) && may_kill(context);
        if names_other && !may_kill {
            return Err(Error::NotOperator);
        }
        let now = now();
        let mut engine = engine()?;
        let done = match args {
            Args::Keep(id, timeout, only) => {
                let beat = Heartbeat { id: &id, user: own, timeout, only };
                engine.keep_session(beat, (uptime(), now), || user_state(own)).map(Reply::Holds)
            }
            Args::Close(id, user) => Ok(Reply::Holds(engine.close_session(&id, user.unwrap_or(own), now))),
            Args::List(id, user, most) => Ok(Reply::List(engine.list_session(&id, user.unwrap_or(own), most, now))),
            Args::ListAll(most) => {
                Ok(Reply::Sessions(engine.list_sessions(Some(own).filter(|_| !may_kill), most, uptime())))
            }
        };
        let rest = begin(context, &[], engine);
        let replied = done.map_err(Error::from).map(|done| match done {
            Reply::Holds(None) | Reply::List(None) => context.reply_nil(),
            Reply::Holds(Some(holds)) => context.reply_integer(holds as u64),
            Reply::List(Some(holds)) => {
                context.reply_array(holds.len());
                holds.iter().for_each(|hold| reply::bound_hold(context, hold));
            }
            Reply::Sessions(sessions) => {
                context.reply_array(sessions.len());
                sessions.iter().for_each(|session| reply::open_session(context, session));
            }
        });
        rest.finish(context, &Self::SPEC, replied);
        Ok(())
    }
}

/// Returns whether the user may close connections.
fn may_kill(context: &mut Context<'_>) -> bool {
    User::of(context).is_some_and(|user| user.may_run([b"CLIENT".as_slice(), b"KILL", b"ID", b"1"]))
}
