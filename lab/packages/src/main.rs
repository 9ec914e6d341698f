//! Pairs of the Rust client, or of the plain lock on the same driver. See `lab/packages/run.py`.

use std::time::{Duration, Instant};

use dlock_client::Client;
use nix::sys::resource::{UsageWho, getrusage};
use redis::aio::MultiplexedConnection;

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

const RELEASE: &str = "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0";

const LEASE: Duration = Duration::from_secs(30);

enum Lock {
    Plain(MultiplexedConnection, String),
    Lease(Client),
    Kept(Client),
}

impl Lock {
    async fn of(kind: &str, url: &str) -> Outcome<Self> {
        Ok(match kind {
            "plain" => {
                let client = redis::Client::open(url)?;
                let mut connection = client.get_multiplexed_async_connection().await?;
                let script = redis::cmd("SCRIPT").arg("LOAD").arg(RELEASE).query_async(&mut connection).await?;
                Self::Plain(connection, script)
            }
            "lease" => Self::Lease(Client::open(url)?),
            "kept" => Self::Kept(Client::open(url)?),
            _ => return Err(format!("no such kind: {kind}").into()),
        })
    }

    /// Acquires and releases.
    async fn pair(&mut self, number: u64) -> Outcome<()> {
        match self {
            Self::Plain(connection, script) => {
                let value = format!("{number:032x}");
                let set = redis::cmd("SET").arg("job").arg(&value).arg("NX").arg("PX").arg(30_000).to_owned();
                let taken: Option<String> = set.query_async(connection).await?;
                let release = redis::cmd("EVALSHA").arg(&*script).arg(1).arg("job").arg(&value).to_owned();
                let released: i64 = release.query_async(connection).await?;
                if taken.is_none() || released != 1 {
                    return Err("the lock is not free".into());
                }
            }
            Self::Lease(client) => client.acquire("job").lease(LEASE).no_renewal().await?.release().await?,
            Self::Kept(client) => client.acquire("job").lease(LEASE).await?.release().await?,
        }
        Ok(())
    }
}

fn cpu() -> Outcome<i64> {
    let usage = getrusage(UsageWho::RUSAGE_SELF)?;
    let micros = |time: nix::sys::time::TimeVal| time.tv_sec() * 1_000_000 + time.tv_usec();
    Ok(micros(usage.user_time()) + micros(usage.system_time()))
}

#[tokio::main(worker_threads = 2)]
async fn main() -> Outcome<()> {
    let words: Vec<String> = std::env::args().collect();
    let [_, port, kind, pairs] = words.as_slice() else { return Err("PORT KIND PAIRS".into()) };
    let (mut lock, pairs) = (Lock::of(kind, &format!("redis://127.0.0.1:{port}")).await?, pairs.parse::<u64>()?);
    for number in 0..pairs / 10 {
        lock.pair(number).await?;
    }
    let (began, before) = (Instant::now(), cpu()?);
    for number in 0..pairs {
        lock.pair(number).await?;
    }
    println!("{} {}", cpu()? - before, began.elapsed().as_micros());
    Ok(())
}
