//! Builds the commands of the module, and reads their replies.

use std::time::Duration;

use redis::{Cmd, Value, cmd};

use super::fault::Fault;
use crate::binding::{BoundHold, Ticket};
use crate::holding::Hold;
use crate::options::{Keep, Mode, Replicas, Terms};

/// Returns the request of an acquisition. `block`: the ms to wait in the queue (0: without limit; `None`: no wait).
pub(super) fn acquire(terms: &Terms, ticket: Option<&Ticket>, block: Option<u64>) -> Cmd {
    let mut acquire = match terms.mode {
        Mode::Exclusive => on(terms, "DLOCK.ACQUIRE"),
        Mode::Read => on(terms, "DLOCK.RLOCK"),
        Mode::Write => on(terms, "DLOCK.WLOCK"),
        Mode::Permits { limit, permits } => {
            let mut acquire = on(terms, "DLOCK.SACQUIRE");
            acquire.arg(limit);
            if terms.wants_slot {
                acquire.arg("SLOT")
            } else {
                acquire.arg("PERMITS").arg(permits)
            };
            acquire
        }
        Mode::Together => {
            let mut acquire = cmd("DLOCK.MACQUIRE");
            acquire.arg(terms.names.len()).arg(&terms.names).arg(&terms.owner);
            acquire
        }
    };
    acquire.arg("PX").arg(millis(terms.first_lease())).arg("REQUEST").arg(&terms.request);
    if let Some(block) = block {
        acquire.arg("BLOCK").arg(block);
    }
    if let Some(most) = terms.max_hold {
        acquire.arg("MAXHOLD").arg(millis(most));
    }
    if terms.keep == Keep::Session {
        acquire.arg("SESSION");
    }
    if let Some(ticket) = ticket {
        acquire.arg("SESSIONID").arg(&ticket.id);
    }
    acquire
}

fn on(terms: &Terms, command: &str) -> Cmd {
    let mut command = cmd(command);
    command.arg(terms.name()).arg(&terms.owner);
    command
}

/// Returns the mode of a lock, as `RELEASE` and `RENEW` name it. `None`: the owner has one mode, which needs no name.
fn side(mode: Mode) -> Option<&'static str> {
    match mode {
        Mode::Read => Some("READ"),
        Mode::Exclusive | Mode::Write => Some("WRITE"),
        Mode::Permits { .. } | Mode::Together => None,
    }
}

/// Returns renewals of what an acquisition was granted. They name no token: the owner has no other hold of this mode.
pub(super) fn confirm(terms: &Terms) -> impl Iterator<Item = Cmd> {
    terms.names.iter().map(|name| {
        let mut renew = cmd("DLOCK.RENEW");
        renew.arg(name).arg(&terms.owner).arg("PX").arg(millis(terms.first_lease())).arg(side(terms.mode));
        renew
    })
}

pub(super) fn renew(hold: &Hold, name: &[u8], lease: Duration) -> Cmd {
    let mut renew = cmd("DLOCK.RENEW");
    renew.arg(name).arg(&hold.owner).arg("PX").arg(millis(lease)).arg("TOKEN").arg(hold.token);
    renew
}

/// Returns the command that binds the hold to the connection that sends it, and renews the hold by its own lease.
pub(super) fn bind(hold: &Hold, name: &[u8]) -> Cmd {
    let mut renew = cmd("DLOCK.RENEW");
    renew.arg(name).arg(&hold.owner).arg("TOKEN").arg(hold.token).arg("SESSION");
    renew
}

/// Returns the command that binds the hold to a named session, and renews the hold by its own lease.
pub(super) fn bind_named(hold: &BoundHold, name: &[u8], session: &str) -> Cmd {
    let mut renew = cmd("DLOCK.RENEW");
    renew.arg(name).arg(&hold.owner).arg("TOKEN").arg(hold.token).arg("SESSIONID").arg(session);
    renew
}

pub(super) fn check(hold: &Hold, name: &[u8]) -> Cmd {
    let mut check = cmd("DLOCK.CHECK");
    check.arg(name).arg(hold.token);
    check
}

pub(super) fn release(hold: &Hold, name: &[u8]) -> Cmd {
    let mut release = cmd("DLOCK.RELEASE");
    release.arg(name).arg(&hold.owner).arg("ALL").arg("TOKEN").arg(hold.token);
    release
}

/// Returns the release of what an acquisition was granted. It names no token: the owner has no other hold of this mode.
pub(super) fn release_all(name: &[u8], terms: &Terms) -> Cmd {
    let mut release = cmd("DLOCK.RELEASE");
    release.arg(name).arg(&terms.owner).arg(side(terms.mode)).arg("ALL");
    release
}

/// Returns the command that waits until replicas have what its connection wrote.
pub(super) fn wait(replicas: Replicas) -> Cmd {
    let mut wait = cmd("WAIT");
    wait.arg(replicas.count).arg(millis(replicas.timeout).max(1));
    wait
}

/// Returns the token and the slot of a grant. `None`: nothing was granted.
pub(super) fn granted(reply: &Value) -> Result<Option<(u64, Option<u32>)>, Fault> {
    let token = |token: &i64| u64::try_from(*token).ok().filter(|token| *token > 0);
    let grant = match reply {
        Value::Nil => return Ok(None),
        Value::Int(value) => token(value).map(|token| (token, None)),
        Value::Array(fields) => match fields.as_slice() {
            [Value::Int(value), Value::Int(slot)] => token(value).zip(u32::try_from(*slot).ok().map(Some)),
            _ => None,
        },
        _ => None,
    };
    grant.map(Some).ok_or_else(|| unexpected(reply))
}

/// Checks that the reply to `WAIT` tells of enough replicas.
pub(super) fn acknowledged(reply: &Value, replicas: Replicas) -> Result<(), Fault> {
    match reply {
        Value::Int(count) => match u32::try_from(*count).unwrap_or(0) {
            acknowledged if acknowledged >= replicas.count => Ok(()),
            acknowledged => Err(Fault::TooFewReplicas { acknowledged, wanted: replicas.count }),
        },
        other => Err(unexpected(other)),
    }
}

pub(super) fn unexpected(reply: &Value) -> Fault {
    Fault::Refused(format!("an unexpected reply: {reply:?}").into())
}

pub(super) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
