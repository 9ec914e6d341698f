//! Locks without tokio.

use std::time::{Duration, Instant};

use dlock_client::Error;
use dlock_client::blocking::Client;
use dlock_testkit::{Server, lock_info, soon};

fn client_of(server: &Server) -> Client {
    Client::open(&format!("redis://127.0.0.1:{}", server.port())).expect("a client")
}

#[test]
fn a_lock_is_acquired_renewed_and_released() {
    let server = Server::start();
    let client = client_of(&server);
    let lease = Duration::from_millis(1200);
    let guard = client.lock(|client| client.acquire("job").lease(lease)).expect("a lock");
    let mut watch = server.client();
    assert_eq!(lock_info(&mut watch, "job").expect("taken").token as u64, guard.token());
    let end = watch.end_of("job");
    soon("it outlives its lease", || watch.end_of("job") > end + 1200);
    assert!(guard.renew().is_ok() && !guard.is_lost());
    let other = client.clone();
    let refused = std::thread::spawn(move || other.lock(|client| client.try_acquire("job")));
    assert!(matches!(refused.join().expect("a thread"), Err(Error::Contention)));
    assert!(guard.release().is_ok());
    assert_eq!(lock_info(&mut watch, "job"), None);
}

#[test]
fn a_guard_that_is_dropped_after_its_client_is_released() {
    let server = Server::start();
    let client = client_of(&server);
    let guard = client.lock(|client| client.acquire("job").lease(Duration::from_secs(600))).expect("a lock");
    drop(client);
    assert!(guard.renew().is_ok());
    drop(guard);
    assert_eq!(lock_info(&mut server.client(), "job"), None);
}

#[test]
fn the_drop_of_a_client_does_not_wait_for_the_connections_of_an_asynchronous_clone() {
    let server = Server::start();
    let asynchronous = dlock_client::Client::open(&format!("redis://127.0.0.1:{}", server.port())).expect("a client");
    let client = Client::new(asynchronous.clone()).expect("a thread");
    let guard = client.lock(|client| client.acquire("job").lease(Duration::from_secs(600))).expect("a lock");
    drop(guard);
    let begun = Instant::now();
    drop(client);
    assert!(begun.elapsed() < Duration::from_secs(4), "dropped after {:?}", begun.elapsed());
    assert_eq!(lock_info(&mut server.client(), "job"), None);
    drop(asynchronous);
}

#[test]
fn a_lost_lock_is_reported() {
    let server = Server::start();
    let client = client_of(&server);
    let guard = client.lock(|client| client.acquire("job").session()).expect("a lock");
    let owner = guard.owner().to_owned();
    let mut killer = server.client();
    let session = killer.session_of("job", &owner, "exclusive").expect("a session");
    killer.int(format!("CLIENT KILL ID {session}"));
    guard.wait_until_lost();
    assert!(guard.is_lost());
    assert!(matches!(guard.release(), Err(Error::Lost)));
    assert_eq!(client.block_on(client.asynchronous().info("job")).expect("an answer"), None);
}

#[test]
fn a_lock_is_entered_again_upgraded_and_downgraded() {
    let server = Server::start();
    let client = client_of(&server);
    let reader = client.lock(|client| client.read("doc")).expect("a lock");
    assert!(reader.enter().expect("held").release().is_ok());
    let writer = reader.upgrade().expect("nobody else reads");
    assert!(writer.release().is_ok() && reader.release().is_ok());
    let writer = client.lock(|client| client.write("doc")).expect("a lock");
    let reader = writer.downgrade().expect("held");
    assert!(client.lock(|client| client.read("doc").no_wait()).is_ok());
    assert!(reader.release().is_ok());
}
