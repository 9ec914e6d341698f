//! Wait in the queue: one command on a connection of its own.

use redis::{Client, RedisResult, cmd};

fn main() -> RedisResult<()> {
    let client = Client::open(address())?;
    let mut redis = client.get_connection()?;
    // Her lease ends in a moment.
    cmd("DLOCK.ACQUIRE").arg("recipe:wait").arg("alice").arg("PX").arg(200).exec(&mut redis)?;

    // Without set_read_timeout, which is the default. An asynchronous connection has a response timeout of 500 ms,
    // unless AsyncConnectionConfig::set_response_timeout(None) takes it away.
    let mut line = client.get_connection()?;
    let mut acquire = cmd("DLOCK.ACQUIRE");
    acquire.arg("recipe:wait").arg("bob").arg("PX").arg(30_000).arg("BLOCK").arg(60_000).arg("REQUEST").arg("1");
    let token: Option<i64> = acquire.query(&mut line)?;

    // Without a token, the 60 seconds are over.
    if let Some(token) = token {
        println!("bob: granted after waiting");
        cmd("DLOCK.RELEASE").arg("recipe:wait").arg("bob").arg("TOKEN").arg(token).exec(&mut redis)?;
    }
    Ok(())
}

fn address() -> String {
    let set = |name, otherwise: &str| std::env::var(name).unwrap_or_else(|_| otherwise.to_owned());
    format!("redis://{}:{}", set("DLOCK_TEST_HOST", "127.0.0.1"), set("DLOCK_TEST_PORT", "6379"))
}
