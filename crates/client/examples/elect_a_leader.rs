//! Elect a leader, and watch who leads: the holder of a lock is the leader, for as long as its connection is open.
//!
//! Start a server with the module (`make run`), then `cargo run -p dlock-client --example elect_a_leader`.
//! `DLOCK_URL` names another server.

use dlock_client::{Client, Error};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Error> {
    let client = Client::open(&url())?;
    let mut watch = client.watch("example:leader")?;
    println!("at first: {}", leader(watch.next().await)?);

    let guard = client.acquire("example:leader").owner_label("node-1").session().await?;
    println!("after the election: {}", leader(watch.next().await)?);

    guard.release().await?;
    println!("after the resignation: {}", leader(watch.next().await)?);
    Ok(())
}

/// Returns the label of the leader, without the random part of its owner; `nobody` if there is no leader.
fn leader(change: Option<Result<Vec<dlock_client::HoldInfo>, Error>>) -> Result<String, Error> {
    let holders = change.unwrap_or(Err(Error::Lost))?;
    let Some(leader) = holders.first() else { return Ok("nobody".to_owned()) };
    let owner = String::from_utf8_lossy(&leader.owner);
    Ok(owner.split(':').next().unwrap_or_default().to_owned())
}

fn url() -> String {
    std::env::var("DLOCK_URL").unwrap_or_else(|_| "redis://127.0.0.1:6379".to_owned())
}
