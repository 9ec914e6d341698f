//! `DLOCK.RENEW key owner [EX s | PX ms | EXAT s | PXAT ms] [READ | WRITE] [SESSION | SESSIONID id] [TOKEN token | MINTOKEN token]`
//!
//! Replies 1, 0 if the cap of a hold cut it, or nil if the owner has no such hold. Never creates or revives a hold.

use dlock_core::args::Renew as Args;
use dlock_core::engine::Call;
use dlock_core::{Name, Reach};

use super::acquire::{client, look_up};
use super::may_write;
use crate::config::limits;
use crate::error::Error;
use crate::ffi::command::{Arguments, Command};
use crate::ffi::context::{Context, now};
use crate::keyspace::ServerKeys;
use crate::outputs::begin;
use crate::state::engine;
use dlock_core::spec::{RENEW, Spec};

/// Sets the deadline of an owner's holds.
pub struct Renew;

impl Command for Renew {
    type Error = Error;
    const SPEC: Spec = RENEW;

    fn run(context: &mut Context<'_>, arguments: &Arguments<'_>) -> Result<(), Error> {
        let (own, now) = ([arguments.key()?], now());
        let Args { owner, lease, mode, token, session } = Args::parse(arguments.after_key(), limits(now))?;
        let flags = context.flags();
        let client = client(context, flags, &session, false)?;
        may_write(flags)?;
        let request = dlock_core::Renew { owner: &owner, mode, lease, token };
        let [key] = &own;
        let name = Name { db: context.db(), key: key.bytes() };
        let call = Call { name, now, client };
        let session = look_up(context, session)?;
        let mut keys = ServerKeys::new(context, name.db, &own);
        let mut engine = engine()?;
        let renewed = engine.renew(&mut keys, call, &request, session);
        let rest = begin(context, &own, engine);
        let replied = renewed.map_err(Error::from).map(|renewed| match renewed {
            Some(Reach::Asked) => context.reply_integer(1),
            Some(Reach::Cap) => context.reply_integer(0),
            None => context.reply_nil(),
        });
        rest.finish(context, &Self::SPEC, replied);
        Ok(())
    }
}
