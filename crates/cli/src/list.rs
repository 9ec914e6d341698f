//! `dlock info` and `dlock ls`.

use dlock_client::{Client, Error, LockInfo};
use serde_json::Value;

use crate::exit;
use crate::output::Format;
use crate::output::{self, columns_within, complain, moment, place, print, shown, table, time};
use crate::period::next_run;
use crate::waiting::{HAS_RUN, SECONDS};

pub async fn info(client: &Client, name: &[u8], format: Format) -> Result<u8, Error> {
    let lock = client.info(name).await?;
    match &lock {
        _ if !format.table() => print(&lock.as_ref().map_or(Value::Null, output::lock).to_string()),
        Some(lock) => describe(lock, usize::MAX).iter().for_each(|line| print(line)),
        None => print(&format!("{} is free", shown(name))),
    }
    // A free lock may have a queue.
    Ok(if lock.is_some_and(|lock| lock.holders > 0) { 0 } else { exit::NEGATIVE })
}

/// Lists the locks of all servers that answer.
pub async fn ls(client: &Client, pattern: &[u8], format: Format) -> Result<u8, Error> {
    let found = client.survey(pattern, 1).await?;
    if found.answers.is_empty() && !found.missing.is_empty() {
        complain(&found.missing);
        return Ok(exit::UNAVAILABLE);
    }
    let mut locks: Vec<_> = found.answers.into_iter().flat_map(|(_, locks)| locks).collect();
    // Two nodes may report a lock whose slot moves between them.
    locks.sort_by(|one, other| one.name.cmp(&other.name));
    locks.dedup_by(|one, other| one.name == other.name);
    if format.table() {
        table(&locks).iter().for_each(|line| print(line));
    } else {
        print(&Value::Array(locks.iter().map(output::lock).collect()).to_string());
    }
    complain(&found.missing);
    Ok(if found.missing.is_empty() { 0 } else { exit::UNAVAILABLE })
}

/// Describes a lock for people, with all its holds and waiters. `most`: the width within which their tables stay.
pub fn describe(lock: &LockInfo, most: usize) -> Vec<String> {
    let permits = if lock.count > lock.holders { format!(", {} entries", lock.count) } else { String::new() };
    let mut lines = vec![format!("{}: {}{permits}", shown(&lock.name), lock.mode)];
    if let Some(next) = next_run(lock) {
        let next = moment(next);
        lines.push(format!(
            "{HAS_RUN} (dlock run --once); the next run can begin at {} UTC",
            next.get(..SECONDS).unwrap_or(&next)
        ));
    }
    if !lock.holds.is_empty() {
        // The column of caps is empty, and so left out, if no hold has a cap. So is the column of slots.
        let cap = column("CAP", lock.holds.iter().any(|hold| hold.cap.is_some()));
        let slot = column("SLOT", lock.holds.iter().any(|hold| hold.slot.is_some()));
        let heading =
            ["HELD BY", "MODE", "PERMITS", "AGE", "TTL", "TOKEN", "SESSION", cap.0, slot.0].map(str::to_owned);
        let holds = lock.holds.iter().map(|hold| {
            let session = match (hold.session, &hold.named_session) {
                (Some(id), _) => id.to_string(),
                (None, Some(id)) => shown(id),
                (None, None) => "-".to_owned(),
            };
            let (mode, permits, token) = (hold.mode.to_string(), hold.count.to_string(), hold.token.to_string());
            let cap = hold.cap.map_or(cap.1.to_owned(), time);
            let slot = hold.slot.map_or(slot.1.to_owned(), |slot| slot.to_string());
            [shown(&hold.owner), mode, permits, time(hold.age), time(hold.ttl), token, session, cap, slot]
        });
        lines.push(String::new());
        lines.extend(columns_within(&std::iter::once(heading).chain(holds).collect::<Vec<_>>(), most));
    }
    if !lock.queue.is_empty() {
        let heading = ["WAITING", "MODE", "PERMITS", "LIMIT", "LOCKS", "FOR", "CLIENT"].map(str::to_owned);
        let queue = lock.queue.iter().map(|waiter| {
            let limit = waiter.limit.map_or("-".to_owned(), |limit| limit.to_string());
            let (mode, permits, keys) = (waiter.mode.to_string(), waiter.permits.to_string(), waiter.keys.to_string());
            [shown(&waiter.owner), mode, permits, limit, keys, time(waiter.waiting), place(waiter)]
        });
        lines.push(String::new());
        lines.extend(columns_within(&std::iter::once(heading).chain(queue).collect::<Vec<_>>(), most));
    }
    lines
}

/// Returns the heading of a column, and what it shows for a hold without a value; both empty if no hold has one.
fn column(heading: &'static str, is_there: bool) -> (&'static str, &'static str) {
    if is_there { (heading, "-") } else { ("", "") }
}
