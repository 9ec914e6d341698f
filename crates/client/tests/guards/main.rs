//! The promises of guards, on real servers: those of `DLOCK_SERVER` and `DLOCK_MODULE`, as for `tests/server/`.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    missing_docs,
    reason = "a test that panics has failed, which is what it is for"
)]

mod abandoned;
mod again;
mod blocking;
mod broken;
mod capped;
mod given_up;
mod inspected;
mod kept;
mod late;
mod late_releases;
mod left_holds;
mod limits;
mod logins;
mod lost;
mod lost_answers;
mod named;
mod named_cluster;
mod outages;
mod permissions;
mod places;
mod programs;
mod queue;
mod replicas;
mod semaphore;
mod session;
mod several;
mod stays;
mod taken;
#[cfg(feature = "tls")]
mod tls;
mod watched;

use std::future::{Future, IntoFuture};
use std::time::Duration;

use dlock_client::{Client, Error, Guard};
use tokio::task::JoinHandle;

use dlock_testkit::wait::PATIENCE;
use dlock_testkit::{Server, lock_info};

/// Returns a client of this server.
fn client_of(server: &Server) -> Client {
    Client::open(&format!("redis://127.0.0.1:{}", server.port())).expect("a URL")
}

/// Starts a server, and returns it with a client of it.
#[track_caller]
fn server_and_client() -> (Server, Client) {
    let server = Server::start();
    let client = client_of(&server);
    (server, client)
}

/// Sends a request that waits, and returns when the server's queue has it.
#[track_caller]
fn in_queue<R>(server: &Server, request: R) -> JoinHandle<R::Output>
where
    R: IntoFuture<Output: Send + 'static, IntoFuture: Send + 'static>,
{
    let before = server.waiting();
    let waiting = tokio::spawn(request.into_future());
    server.left_waiting(before + 1);
    waiting
}

fn connections(server: &Server) -> usize {
    server.client().text("CLIENT LIST TYPE normal").lines().count()
}

/// Returns the output of the future. Fails if it takes longer than `PATIENCE`.
async fn in_time<F: IntoFuture>(future: F) -> F::Output {
    tokio::time::timeout(PATIENCE, future.into_future()).await.expect("in time")
}

/// Waits until nobody holds the lock on the server.
#[track_caller]
fn freed(server: &Server, name: &str) {
    let mut client = server.client();
    dlock_testkit::soon("the lock is free", || lock_info(&mut client, name).is_none());
}

/// Fails if the future resolves within a moment.
async fn not_yet(future: impl Future<Output = ()>) {
    let early = tokio::time::timeout(Duration::from_millis(20), future).await;
    assert!(early.is_err(), "too early");
}

fn contention<T: std::fmt::Debug>(outcome: Result<T, Error>) {
    assert!(matches!(outcome, Err(Error::Contention)), "{outcome:?}");
}

fn lost<T: std::fmt::Debug>(outcome: Result<T, Error>) {
    assert!(matches!(outcome, Err(Error::Lost)), "{outcome:?}");
}

/// Fails unless the server has exactly this hold.
#[track_caller]
fn is_held(server: &Server, guard: &Guard) {
    let name = String::from_utf8_lossy(guard.name()).into_owned();
    let info = lock_info(&mut server.client(), &format!("{name} OWNER {}", guard.owner())).expect("a lock");
    let tokens: Vec<_> = info.holds().iter().map(|hold| hold.token as u64).collect();
    assert_eq!(tokens, [guard.token()]);
}
