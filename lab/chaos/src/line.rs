//! The order of a line when nothing disturbs it: first come, first served, and nobody is forgotten.

use std::time::Duration;

use crate::connection::{Connection, Reply};
use crate::failure::{Doing, Failure, Result};
use crate::server::Server;
use crate::time::wait_until;

/// How many stand in line.
const LENGTH: usize = 8;

/// Puts clients into line one after the other, and lets them through. Returns what must not be.
pub fn check(server: &Server) -> Result<Vec<String>> {
    let mut admin = server.admin()?;
    let first = admin.call("DLOCK.ACQUIRE line first PX 60000").doing("taking a free lock")?;
    if !matches!(first, Reply::Int(_)) {
        return Err(Failure(format!("a free lock is not granted: {first:?}")));
    }
    let mut waiters = Vec::new();
    for number in 0..LENGTH {
        let mut waiter = Connection::open(server.port())?.patient_for(Duration::from_secs(20))?;
        waiter.send(&format!("DLOCK.ACQUIRE line waiter-{number} PX 60000 BLOCK 0"))?;
        if !wait_until(20_000, || waiting(&mut admin) == Some(number + 1)) {
            return Ok(vec![format!("waiter {number} does not get into the line")]);
        }
        waiters.push(waiter);
    }
    let mut found = Vec::new();
    let (mut owner, mut last) = ("first".to_owned(), 0);
    for (number, mut waiter) in waiters.into_iter().enumerate() {
        admin.call(&format!("DLOCK.RELEASE line {owner}")).doing("releasing")?;
        match waiter.receive() {
            Ok(Reply::Int(token)) if token > last => last = token,
            Ok(reply) => found.push(format!("waiter {number} of a line in order got {reply:?} after token {last}")),
            Err(_) => {
                found.push(format!("waiter {number} of a line was forgotten"));
                break;
            }
        }
        owner = format!("waiter-{number}");
    }
    admin.call("DEL line").doing("deleting a lock")?;
    Ok(found)
}

fn waiting(admin: &mut Connection) -> Option<usize> {
    match admin.call("DLOCK.INFO line").ok()? {
        Reply::List(fields) => match fields.last()? {
            Reply::Int(waiters) => usize::try_from(*waiters).ok(),
            _ => None,
        },
        _ => None,
    }
}
