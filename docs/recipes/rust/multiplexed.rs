//! A connection for many owners, and a second one for waiting.

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, RedisResult, cmd};

#[tokio::main(flavor = "current_thread")]
async fn main() -> RedisResult<()> {
    let client = Client::open(address())?;
    let shared = client.get_multiplexed_async_connection().await?;

    // The owner names tell the holds on a connection apart. Their session locks all end with it.
    let (mut first, mut second) = (shared.clone(), shared.clone());
    let (alice, bob) = tokio::try_join!(
        acquire(&mut first, "recipe:multiplexed:a", "alice", &["PX", "10000", "SESSION"]),
        acquire(&mut second, "recipe:multiplexed:b", "bob", &["PX", "200"]),
    )?;
    if alice.is_some() && bob.is_some() {
        println!("alice and bob: granted on one connection");
    }

    // BLOCK would delay all commands on the shared connection, so carol waits on her own, without SESSION.
    let patient = AsyncConnectionConfig::new().set_response_timeout(None);
    let mut line = client.get_multiplexed_async_connection_with_config(&patient).await?;
    let carol = acquire(&mut line, "recipe:multiplexed:b", "carol", &["PX", "10000", "BLOCK", "5000"]).await?;
    let mut renew = cmd("DLOCK.RENEW");
    renew.arg("recipe:multiplexed:b").arg("carol").arg("TOKEN").arg(carol).arg("SESSION");
    if renew.query_async::<Option<i64>>(&mut first).await? == Some(1) {
        drop(line);
        println!("carol: waited on another, bound to the first");
    }

    release(&mut first, "recipe:multiplexed:a", "alice", alice).await?;
    release(&mut first, "recipe:multiplexed:b", "carol", carol).await
}

async fn acquire(
    redis: &mut MultiplexedConnection,
    key: &str,
    owner: &str,
    options: &[&str],
) -> RedisResult<Option<i64>> {
    cmd("DLOCK.ACQUIRE").arg(key).arg(owner).arg(options).query_async(redis).await
}

async fn release(redis: &mut MultiplexedConnection, key: &str, owner: &str, token: Option<i64>) -> RedisResult<()> {
    cmd("DLOCK.RELEASE").arg(key).arg(owner).arg("TOKEN").arg(token).exec_async(redis).await
}

fn address() -> String {
    let set = |name, otherwise: &str| std::env::var(name).unwrap_or_else(|_| otherwise.to_owned());
    format!("redis://{}:{}", set("DLOCK_TEST_HOST", "127.0.0.1"), set("DLOCK_TEST_PORT", "6379"))
}
