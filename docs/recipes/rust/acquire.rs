//! Acquire a lock, or learn at once that another owner holds it.

use redis::{Client, RedisResult, cmd};

fn main() -> RedisResult<()> {
    let mut redis = Client::open(address())?.get_connection()?;
    // Returns the token, or `None` if the reply is nil.
    let mut acquire = |owner: &str| -> RedisResult<Option<i64>> {
        cmd("DLOCK.ACQUIRE").arg("recipe:acquire").arg(owner).arg("PX").arg(30_000).query(&mut redis)
    };
    let alice = acquire("alice")?;
    let bob = acquire("bob")?;
    if alice.is_some() {
        println!("alice: granted");
    }
    if bob.is_none() {
        println!("bob: not granted");
    }

    // The release carries the token, so a late release cannot affect the next hold.
    let mut release = cmd("DLOCK.RELEASE");
    release.arg("recipe:acquire").arg("alice").arg("TOKEN").arg(alice);
    if release.query::<Option<i64>>(&mut redis)? == Some(1) {
        println!("alice: released");
    }
    Ok(())
}

fn address() -> String {
    let set = |name, otherwise: &str| std::env::var(name).unwrap_or_else(|_| otherwise.to_owned());
    format!("redis://{}:{}", set("DLOCK_TEST_HOST", "127.0.0.1"), set("DLOCK_TEST_PORT", "6379"))
}
