//! `dlock release` and `dlock break`: taking a lock from its holder.

use std::io::{self, BufRead, IsTerminal, Write};

use dlock_client::{Client, Error, LockInfo};

use crate::output::{print, say, shown};
use crate::{exit, fail, list};

pub async fn release(client: &Client, name: &[u8], owner: &[u8]) -> Result<u8, Error> {
    if client.evict(name, owner, None).await? {
        return Ok(0);
    }
    Ok(fail(exit::NOT_GOT, &format!("{} is not held by {}", shown(name), shown(owner))))
}

pub async fn break_lock(client: &Client, name: &[u8], yes: bool) -> Result<u8, Error> {
    let Some(lock) = client.info(name).await? else {
        print(&format!("{} is free", shown(name)));
        return Ok(0);
    };
    if !yes {
        if !io::stdin().is_terminal() {
            return Ok(fail(exit::USAGE, "there is nobody to ask: --yes breaks it without asking"));
        }
        if !confirmed(&lock) {
            return Ok(exit::NOT_GOT);
        }
    }
    // Those who were shown, by their tokens: whoever got in meanwhile keeps it.
    for hold in &lock.holds {
        client.evict(name, &hold.owner, Some(hold.token)).await?;
    }
    Ok(0)
}

/// Shows the lock and asks. On standard error, which is on the terminal if anything is.
fn confirmed(lock: &LockInfo) -> bool {
    for line in list::describe(lock) {
        say(&line);
    }
    let _ = write!(
        io::stderr(),
        "\nTake the lock away? Its holders are not stopped, they learn of it when they next renew. [y/N] "
    );
    let _ = io::stderr().flush();
    let mut answer = String::new();
    let read = io::stdin().lock().read_line(&mut answer);
    read.is_ok() && matches!(answer.trim(), "y" | "Y" | "yes")
}
