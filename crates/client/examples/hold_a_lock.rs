//! Waits for a lock, works for as long as the lock is held, and releases it.
//!
//! Start a server with the module (`make run`), then `cargo run -p dlock-client --example hold_a_lock`.
//! `DLOCK_URL` names another server.

use std::time::Duration;

use dlock_client::{Client, Error};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Error> {
    let client = Client::open(&url())?;
    let guard = match client.acquire("example:report").wait(Duration::from_secs(10)).await {
        Ok(guard) => guard,
        Err(Error::Contention) => {
            println!("another client writes the report");
            return Ok(());
        }
        Err(error) => return Err(error),
    };
    tokio::select! {
        // The lease ended, or an operator released the lock: another client may have it. Stop the work.
        () = guard.lost() => return Err(Error::Lost),
        () = write_report(guard.token()) => {}
    }
    guard.release().await?;
    println!("released");
    Ok(())
}

/// Stands for the work. A resource that refuses a token lower than the last one that it saw is safe from a late client.
async fn write_report(token: u64) {
    tokio::time::sleep(Duration::from_millis(10)).await;
    println!("the report is written, with a fencing token: {}", token > 0);
}

fn url() -> String {
    std::env::var("DLOCK_URL").unwrap_or_else(|_| "redis://127.0.0.1:6379".to_owned())
}
