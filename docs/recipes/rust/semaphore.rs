//! At most two at a time.

use redis::{Client, Connection, RedisResult, cmd};

fn main() -> RedisResult<()> {
    let mut redis = Client::open(address())?.get_connection()?;
    let alice = enter(&mut redis, "alice")?;
    let bob = enter(&mut redis, "bob")?;
    if alice.is_some() && bob.is_some() {
        println!("alice and bob: working");
    }
    if enter(&mut redis, "carol")?.is_none() {
        println!("carol: not granted");
    }

    leave(&mut redis, "bob", bob)?;
    let carol = enter(&mut redis, "carol")?;
    if carol.is_some() {
        println!("carol: working");
    }
    leave(&mut redis, "carol", carol)?;
    leave(&mut redis, "alice", alice)
}

fn enter(redis: &mut Connection, owner: &str) -> RedisResult<Option<i64>> {
    cmd("DLOCK.SACQUIRE").arg("recipe:semaphore").arg(owner).arg(2).arg("PX").arg(30_000).query(redis)
}

fn leave(redis: &mut Connection, owner: &str, token: Option<i64>) -> RedisResult<()> {
    cmd("DLOCK.RELEASE").arg("recipe:semaphore").arg(owner).arg("TOKEN").arg(token).exec(redis)
}

fn address() -> String {
    let set = |name, otherwise: &str| std::env::var(name).unwrap_or_else(|_| otherwise.to_owned());
    format!("redis://{}:{}", set("DLOCK_TEST_HOST", "127.0.0.1"), set("DLOCK_TEST_PORT", "6379"))
}
