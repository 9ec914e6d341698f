//! A lock counts only if a replica has it, too. Here there is none, so it does not.

use redis::{Client, RedisResult, cmd, pipe};

fn main() -> RedisResult<()> {
    let mut redis = Client::open(address())?.get_connection()?;
    // WAIT is for what its own connection has written. After a grant that was waited for (BLOCK), renew first: Redis
    // 7.0.0 to 7.0.11 do not count that grant as a write of the connection.
    let mut both = pipe();
    both.cmd("DLOCK.ACQUIRE").arg("recipe:replicas").arg("alice").arg("PX").arg(30_000);
    both.cmd("WAIT").arg(1).arg(50);
    let (token, replicas): (Option<i64>, u32) = both.query(&mut redis)?;
    if token.is_some() {
        println!("alice: granted");
    }
    if replicas < 1 {
        cmd("DLOCK.RELEASE").arg("recipe:replicas").arg("alice").arg("TOKEN").arg(token).exec(&mut redis)?;
        println!("alice: released, no replica has it");
    }
    Ok(())
}

fn address() -> String {
    let set = |name, otherwise: &str| std::env::var(name).unwrap_or_else(|_| otherwise.to_owned());
    format!("redis://{}:{}", set("DLOCK_TEST_HOST", "127.0.0.1"), set("DLOCK_TEST_PORT", "6379"))
}
