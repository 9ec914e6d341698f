//! A transaction that takes effect only if the lock is still held: WATCH the lock, check it, then MULTI.

use redis::{Client, Connection, RedisResult, Value, cmd, pipe};

fn main() -> RedisResult<()> {
    let client = Client::open(address())?;
    let (mut redis, mut other) = (client.get_connection()?, client.get_connection()?);
    let mut acquire = cmd("DLOCK.ACQUIRE");
    let token: i64 = acquire.arg("recipe:watch_multi").arg("alice").arg("PX").arg(30_000).query(&mut redis)?;

    if write(&mut redis, token, "one", || Ok(()))? {
        println!("alice: written");
    }
    if !write(&mut redis, token, "two", || cmd("DEL").arg("recipe:watch_multi").exec(&mut other))? {
        println!("alice: not written, the lock was lost");
    }
    Ok(())
}

fn write(
    redis: &mut Connection,
    token: i64,
    value: &str,
    meanwhile: impl FnOnce() -> RedisResult<()>,
) -> RedisResult<bool> {
    cmd("WATCH").arg("recipe:watch_multi").exec(redis)?;
    if cmd("DLOCK.CHECK").arg("recipe:watch_multi").arg(token).query::<Option<i64>>(redis)?.is_none() {
        cmd("UNWATCH").exec(redis)?;
        return Ok(false);
    }
    meanwhile()?;
    let replies: Value = pipe().atomic().cmd("SET").arg("recipe:value").arg(value).query(redis)?;
    Ok(replies != Value::Nil)
}

fn address() -> String {
    let set = |name, otherwise: &str| std::env::var(name).unwrap_or_else(|_| otherwise.to_owned());
    format!("redis://{}:{}", set("DLOCK_TEST_HOST", "127.0.0.1"), set("DLOCK_TEST_PORT", "6379"))
}
