//! `dlock info` and `dlock ls`.

use dlock_client::{Client, Error, LockInfo};
use serde_json::Value;

use crate::exit;
use crate::output::{self, columns, for_people, print, shown, table, time};

pub async fn info(client: &Client, name: &[u8], json: bool) -> Result<u8, Error> {
    let lock = client.info(name).await?;
    match &lock {
        _ if !for_people(json) => print(&lock.as_ref().map_or(Value::Null, output::lock).to_string()),
        Some(lock) => describe(lock).iter().for_each(|line| print(line)),
        None => print(&format!("{} is free", shown(name))),
    }
    Ok(if lock.is_some() { 0 } else { exit::NOT_GOT })
}

pub async fn ls(client: &Client, pattern: &[u8], json: bool) -> Result<u8, Error> {
    let locks = client.locks(pattern).await?;
    if for_people(json) {
        table(&locks).iter().for_each(|line| print(line));
    } else {
        print(&Value::Array(locks.iter().map(output::lock).collect()).to_string());
    }
    Ok(0)
}

/// Everything about a lock, for people.
pub fn describe(lock: &LockInfo) -> Vec<String> {
    let mut lines = vec![format!("{}: {}", shown(&lock.name), lock.mode), String::new()];
    let heading = ["HELD BY", "MODE", "AGE", "TTL", "TOKEN", "SESSION"].map(str::to_owned);
    let holds = lock.holds.iter().map(|hold| {
        let session = hold.session.map_or("-".to_owned(), |id| id.to_string());
        [shown(&hold.owner), hold.mode.to_string(), time(hold.age), time(hold.ttl), hold.token.to_string(), session]
    });
    lines.extend(columns(&std::iter::once(heading).chain(holds).collect::<Vec<_>>()));
    if !lock.queue.is_empty() {
        let heading = ["WAITING", "MODE", "FOR", "CLIENT"].map(str::to_owned);
        let queue = lock.queue.iter().map(|waiter| {
            [shown(&waiter.owner), waiter.mode.to_string(), time(waiter.waiting), waiter.client.to_string()]
        });
        lines.push(String::new());
        lines.extend(columns(&std::iter::once(heading).chain(queue).collect::<Vec<_>>()));
    }
    lines
}
