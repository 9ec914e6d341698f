//! Use locks in a program without tokio: a thread in the background renews them.
//!
//! Start a server with the module (`make run`), then `cargo run -p dlock-client --example without_tokio`.
//! `DLOCK_URL` names another server.

use std::time::Duration;

use dlock_client::{Error, blocking::Client};

fn main() -> Result<(), Error> {
    let client = Client::open(&url())?;
    let reader = client.lock(|client| client.read("example:page").wait(Duration::from_secs(10)))?;
    println!("reads");

    // A writer must wait for the reader. This request does not wait, so that the server refuses it.
    match client.lock(|client| client.write("example:page").no_wait()) {
        Err(Error::Contention) => println!("nobody writes meanwhile"),
        other => drop(other?),
    }
    reader.release()?;

    let writer = client.lock(|client| client.write("example:page").wait(Duration::from_secs(10)))?;
    println!("writes");
    writer.release()
}

fn url() -> String {
    std::env::var("DLOCK_URL").unwrap_or_else(|_| "redis://127.0.0.1:6379".to_owned())
}
