//! The promises of a quorum of real servers: those of `DLOCK_SERVER` and `DLOCK_MODULE`, as for `tests/server/`.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    missing_docs,
    reason = "a test that panics has failed, which is what it is for"
)]

mod faults;
mod figures;
mod limits;
mod lookout;
mod majority;
mod members;
mod queue;
mod redlock;
mod restarts;
mod silence;

use std::future::IntoFuture;
use std::time::Duration;

use dlock_client::{Client, QuorumBuilder};

use dlock_testkit::wait::PATIENCE;
use dlock_testkit::{Server, Setup};

/// The longest lease that the quorum allows: longer than any lease in these tests.
const LONGEST: Duration = Duration::from_secs(30);

/// How long a server may take to answer in tests that measure no time: long, since the machine may be busy.
const RELAXED: Duration = Duration::from_secs(1);

/// Starts servers that keep their locks on disk. A quorum counts others only after the longest lease.
fn servers(count: usize) -> Vec<Server> {
    let setup = Setup::new().conf("appendonly yes\nappendfsync always");
    (0..count).map(|_| setup.clone().start()).collect()
}

fn urls(servers: &[Server]) -> Vec<String> {
    servers.iter().map(|server| format!("redis://127.0.0.1:{}", server.port())).collect()
}

fn quorum(servers: &[Server]) -> QuorumBuilder {
    Client::quorum(urls(servers), LONGEST).persistent()
}

/// Returns a client with a long server timeout.
fn client_of(servers: &[Server]) -> Client {
    quorum(servers).server_timeout(RELAXED).open().expect("a quorum")
}

/// Starts `count` servers, and a client with a long server timeout.
fn servers_and_client(count: usize) -> (Vec<Server>, Client) {
    let servers = servers(count);
    let client = client_of(&servers);
    (servers, client)
}

/// Returns the output of the future, which must not take forever.
async fn in_time<F: IntoFuture>(future: F) -> F::Output {
    tokio::time::timeout(PATIENCE, future.into_future()).await.expect("in time")
}

/// Waits until nobody holds the lock on any of these servers.
#[track_caller]
fn freed<'a>(servers: impl IntoIterator<Item = &'a Server>, name: &str) {
    for server in servers {
        dlock_testkit::soon("the lock is free", || server.holders(name).is_empty());
    }
}
