//! A write that a database rejects if a later owner of the lock has written. (It runs the
//! command sqlite3, because only the statement matters here.)

use std::error::Error;
use std::process::Command;

use redis::{Client, Connection, RedisResult, cmd};

const SCHEMA: &str = "CREATE TABLE report (id INTEGER PRIMARY KEY, body TEXT, fence INTEGER NOT NULL);
                      INSERT INTO report VALUES (1, '', 0);";

fn main() -> Result<(), Box<dyn Error>> {
    let mut redis = Client::open(address())?.get_connection()?;
    let acquire = |redis: &mut Connection, owner: &str| -> RedisResult<i64> {
        cmd("DLOCK.ACQUIRE").arg("recipe:fencing").arg(owner).arg("PX").arg(30_000).query(redis)
    };
    let alice = acquire(&mut redis, "alice")?;
    cmd("DEL").arg("recipe:fencing").exec(&mut redis)?; // her lease ended while she was paused
    let bob = acquire(&mut redis, "bob")?;

    // The number of rows that each statement has changed.
    let changes = sqlite(&format!("{SCHEMA} {} {}", write("by bob", bob), write("by alice", alice)))?;
    let mut changes = changes.lines();
    if changes.next() == Some("1") {
        println!("bob: written");
    }
    if changes.next() == Some("0") {
        println!("alice: refused, her token is the older one");
    }
    cmd("DLOCK.RELEASE").arg("recipe:fencing").arg("bob").arg("TOKEN").arg(bob).exec(&mut redis)?;
    Ok(())
}

fn write(body: &str, token: i64) -> String {
    format!("UPDATE report SET body = '{body}', fence = {token} WHERE id = 1 AND fence <= {token}; SELECT changes();")
}

fn sqlite(statements: &str) -> Result<String, Box<dyn Error>> {
    let ran = Command::new("sqlite3").arg(":memory:").arg(statements).output()?;
    if !ran.status.success() {
        return Err(String::from_utf8_lossy(&ran.stderr).into());
    }
    Ok(String::from_utf8(ran.stdout)?)
}

fn address() -> String {
    let set = |name, otherwise: &str| std::env::var(name).unwrap_or_else(|_| otherwise.to_owned());
    format!("redis://{}:{}", set("DLOCK_TEST_HOST", "127.0.0.1"), set("DLOCK_TEST_PORT", "6379"))
}
