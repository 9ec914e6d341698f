//! Two locks or none, in one request. In a cluster both names are in one slot: the same {word}.

use redis::{Client, Connection, RedisResult, Value, cmd};

const FROM: &str = "{recipe}:from";
const TO: &str = "{recipe}:to";
const OTHER: &str = "{recipe}:other";

fn main() -> RedisResult<()> {
    let mut redis = Client::open(address())?.get_connection()?;
    let alice = acquire(&mut redis, [FROM, TO], "alice")?;
    if alice.is_some() {
        println!("alice: has both");
    }
    let bob = acquire(&mut redis, [TO, OTHER], "bob")?;
    let other: Value = cmd("DLOCK.INFO").arg(OTHER).query(&mut redis)?;
    if bob.is_none() && other == Value::Nil {
        println!("bob: has neither");
    }

    release(&mut redis, [FROM, TO], "alice", alice)?;
    let bob = acquire(&mut redis, [TO, OTHER], "bob")?;
    if bob.is_some() {
        println!("bob: has both");
    }
    release(&mut redis, [TO, OTHER], "bob", bob)
}

/// A single token for both.
fn acquire(redis: &mut Connection, names: [&str; 2], owner: &str) -> RedisResult<Option<i64>> {
    let mut acquire = cmd("DLOCK.MACQUIRE");
    acquire.arg(names.len()).arg(&names).arg(owner).arg("PX").arg(30_000).arg("BLOCK").arg(50).query(redis)
}

/// Each by its name.
fn release(redis: &mut Connection, names: [&str; 2], owner: &str, token: Option<i64>) -> RedisResult<()> {
    names.iter().try_for_each(|name| cmd("DLOCK.RELEASE").arg(name).arg(owner).arg("TOKEN").arg(token).exec(redis))
}

fn address() -> String {
    let set = |name, otherwise: &str| std::env::var(name).unwrap_or_else(|_| otherwise.to_owned());
    format!("redis://{}:{}", set("DLOCK_TEST_HOST", "127.0.0.1"), set("DLOCK_TEST_PORT", "6379"))
}
