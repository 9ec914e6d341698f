//! A lock that ends with its connection: the server renews it, and releases it when the connection closes.

use redis::{Client, RedisResult, cmd};

fn main() -> RedisResult<()> {
    let client = Client::open(address())?;
    // Not from a pool, and not a ConnectionManager, which reconnects silently.
    let mut alice = client.get_connection()?;
    cmd("DLOCK.ACQUIRE").arg("recipe:session").arg("alice").arg("PX").arg(10_000).arg("SESSION").exec(&mut alice)?;
    drop(alice); // or the process dies

    let mut bob = client.get_connection()?;
    let mut acquire = cmd("DLOCK.ACQUIRE");
    acquire.arg("recipe:session").arg("bob").arg("PX").arg(10_000).arg("BLOCK").arg(5_000);
    let token: Option<i64> = acquire.query(&mut bob)?;
    if token.is_some() {
        println!("bob: granted when the connection of alice ended");
    }
    cmd("DLOCK.RELEASE").arg("recipe:session").arg("bob").arg("TOKEN").arg(token).exec(&mut bob)
}

fn address() -> String {
    let set = |name, otherwise: &str| std::env::var(name).unwrap_or_else(|_| otherwise.to_owned());
    format!("redis://{}:{}", set("DLOCK_TEST_HOST", "127.0.0.1"), set("DLOCK_TEST_PORT", "6379"))
}
