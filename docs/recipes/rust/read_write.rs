//! Readers share a lock, a writer excludes all others.

use redis::{Client, Connection, RedisResult, cmd};

fn main() -> RedisResult<()> {
    let mut redis = Client::open(address())?.get_connection()?;
    let alice = take(&mut redis, "DLOCK.RLOCK", "alice")?;
    let bob = take(&mut redis, "DLOCK.RLOCK", "bob")?;
    if alice.is_some() && bob.is_some() {
        println!("alice and bob: reading");
    }
    if take(&mut redis, "DLOCK.WLOCK", "carol")?.is_none() {
        println!("carol: not granted");
    }

    release(&mut redis, "alice", alice)?;
    release(&mut redis, "bob", bob)?;
    let carol = take(&mut redis, "DLOCK.WLOCK", "carol")?;
    if carol.is_some() {
        println!("carol: writing");
    }
    release(&mut redis, "carol", carol)
}

fn take(redis: &mut Connection, command: &str, owner: &str) -> RedisResult<Option<i64>> {
    cmd(command).arg("recipe:read_write").arg(owner).arg("PX").arg(30_000).query(redis)
}

fn release(redis: &mut Connection, owner: &str, token: Option<i64>) -> RedisResult<()> {
    cmd("DLOCK.RELEASE").arg("recipe:read_write").arg(owner).arg("TOKEN").arg(token).exec(redis)
}

fn address() -> String {
    let set = |name, otherwise: &str| std::env::var(name).unwrap_or_else(|_| otherwise.to_owned());
    format!("redis://{}:{}", set("DLOCK_TEST_HOST", "127.0.0.1"), set("DLOCK_TEST_PORT", "6379"))
}
