//! `dlock break`: takes a lock from its holders.

use std::io::{self, BufRead, IsTerminal, Write};

use dlock_client::{Client, Error, HoldInfo, LockInfo};
use serde_json::json;

use crate::holds::{Hold, Holds};
use crate::output::{print, say, shown, text, time};
use crate::waiting::holders;
use crate::{exit, fail, list};

/// Runs `dlock break`. Returns the exit code.
pub async fn break_lock(client: &Client, name: &[u8], yes: bool, as_json: bool) -> Result<u8, Error> {
    let Some(lock) = client.info(name).await?.filter(|lock| lock.holders > 0) else {
        print(&if as_json { json_report(name, &[], None) } else { format!("{} is free", shown(name)) });
        return Ok(0);
    };
    if !yes {
        if !io::stdin().is_terminal() {
            return Ok(fail(exit::USAGE, "there is nobody to ask: --yes breaks it without asking"));
        }
        if !confirmed(&lock) {
            return Ok(exit::NEGATIVE);
        }
    }
    let (taken, next) = take(client, &lock).await?;
    print(&if as_json { json_report(name, &taken, next.as_ref()) } else { sentence(&lock, &taken, next.as_ref()) });
    Ok(0)
}

/// Takes a lock from the holders in `lock`. Each release names the token of the hold, so an owner that was granted the
/// lock meanwhile keeps it. Returns the holds that were taken, and the lock as it is afterwards, unless it is free.
pub async fn take<'a>(client: &Client, lock: &'a LockInfo) -> Result<(Vec<&'a HoldInfo>, Option<LockInfo>), Error> {
    let holds = Holds::of(client)?;
    let mut taken = Vec::new();
    for hold in &lock.holds {
        if holds.take_away(Hold { name: &lock.name, owner: &hold.owner, token: Some(hold.token) }).await? {
            taken.push(hold);
        }
    }
    // The lock has been taken, even if this look at its new holders fails.
    let next = client.info(&lock.name).await.ok().flatten().filter(|next| next.holders > 0);
    Ok((taken, next))
}

/// Says who lost a lock, and who has it now.
pub fn sentence(lock: &LockInfo, taken: &[&HoldInfo], next: Option<&LockInfo>) -> String {
    let name = shown(&lock.name);
    let next = next.map_or("it is free now".to_owned(), |next| format!("{} has it now", holders(next)));
    let from: Vec<_> = taken.iter().map(|hold| format!("{} (held {})", shown(&hold.owner), time(hold.age))).collect();
    match from.as_slice() {
        [] => format!("{name} was released meanwhile; {next}"),
        from => format!("took {name} from {}; {next}", from.join(" and ")),
    }
}

fn json_report(name: &[u8], taken: &[&HoldInfo], next: Option<&LockInfo>) -> String {
    let hold = |hold: &HoldInfo| json!({"owner": text(&hold.owner), "token": hold.token, "held": hold.age.as_millis()});
    let taken: Vec<_> = taken.iter().map(|one| hold(one)).collect();
    let holders: Vec<_> = next.iter().flat_map(|next| &next.holds).map(hold).collect();
    json!({"name": text(name), "taken": taken, "holders": holders}).to_string()
}

/// Shows the lock and asks for confirmation, on standard error: standard output may be a file.
fn confirmed(lock: &LockInfo) -> bool {
    for line in list::describe(lock, usize::MAX) {
        say(&line);
    }
    let question = "Take the lock away? Its holders are not stopped, they learn of it when they next renew. [y/N] ";
    let _ = write!(io::stderr(), "\n{question}").and_then(|()| io::stderr().flush());
    let mut answer = String::new();
    let read = io::stdin().lock().read_line(&mut answer);
    read.is_ok() && matches!(answer.trim(), "y" | "Y" | "yes")
}
