//! Renew a lease while the work goes on.

use redis::{Client, RedisResult, cmd};

fn main() -> RedisResult<()> {
    let mut redis = Client::open(address())?.get_connection()?;
    let token: i64 = cmd("DLOCK.ACQUIRE").arg("recipe:renew").arg("alice").arg("PX").arg(10_000).query(&mut redis)?;
    let mut renew = cmd("DLOCK.RENEW");
    renew.arg("recipe:renew").arg("alice").arg("TOKEN").arg(token);

    // Send this whenever about a third of the lease has passed. Without a lease, it keeps the one it has.
    if renew.query::<Option<i64>>(&mut redis)? == Some(1) {
        println!("renewed");
    }
    cmd("DLOCK.RELEASE").arg("recipe:renew").arg("alice").arg("TOKEN").arg(token).exec(&mut redis)?;
    // The lock is lost: stop the work. A renewal never acquires a lock.
    if renew.query::<Option<i64>>(&mut redis)?.is_none() {
        println!("nothing to renew");
    }
    Ok(())
}

fn address() -> String {
    let set = |name, otherwise: &str| std::env::var(name).unwrap_or_else(|_| otherwise.to_owned());
    format!("redis://{}:{}", set("DLOCK_TEST_HOST", "127.0.0.1"), set("DLOCK_TEST_PORT", "6379"))
}
