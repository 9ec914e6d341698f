//! Let at most two of four tasks work at a time. The limit holds for the tasks of all programs together.
//!
//! Start a server with the module (`make run`), then `cargo run -p dlock-client --example limit_tasks`.
//! `DLOCK_URL` names another server.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use dlock_client::{Client, Error, Semaphore};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Error> {
    let semaphore = Client::open(&url())?.semaphore("example:downloads", 2);
    let (working, most) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
    let download = |semaphore: Semaphore| {
        let (working, most) = (working.clone(), most.clone());
        async move {
            let permit = semaphore.acquire().await?;
            most.fetch_max(working.fetch_add(1, Ordering::Relaxed) + 1, Ordering::Relaxed);
            tokio::time::sleep(Duration::from_millis(10)).await;
            working.fetch_sub(1, Ordering::Relaxed);
            permit.release().await
        }
    };
    let tasks: Vec<_> = (0..4).map(|_| tokio::spawn(download(semaphore.clone()))).collect();
    for task in tasks {
        task.await.map_err(|error| Error::Invalid(error.to_string()))??;
    }
    println!("never more than two at a time: {}", most.load(Ordering::Relaxed) <= 2);
    Ok(())
}

fn url() -> String {
    std::env::var("DLOCK_URL").unwrap_or_else(|_| "redis://127.0.0.1:6379".to_owned())
}
