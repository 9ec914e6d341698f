//! Names and logins of a client's connections, and clients made from those of the crate `redis`.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use dlock_client::{Client, Credentials, Error};
use dlock_testkit::Server;

use crate::in_time;

fn url(server: &Server) -> String {
    format!("redis://127.0.0.1:{}", server.port())
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_have_the_name_that_was_given() {
    let server = Server::start();
    let client = Client::builder(&url(&server)).client_name("billing").open().expect("a client");
    let _guard = in_time(client.acquire("job").session()).await.expect("a lock");
    let list = server.client().text("CLIENT LIST");
    assert!(list.contains("name=billing"), "{list}");
    let wrong = Client::builder(&url(&server)).client_name("two words").open();
    assert!(matches!(wrong, Err(Error::Invalid(_))));
}

#[tokio::test(flavor = "multi_thread")]
async fn credentials_are_asked_for_before_each_connection() {
    let (server, mut admin) = Server::start().with_client();
    admin.ok("ACL SETUSER worker on >first ~* +@all");
    let asked = Arc::new(AtomicUsize::new(0));
    let count = asked.clone();
    let client = Client::builder(&url(&server)).credentials(move || {
        let number = count.fetch_add(1, Ordering::Relaxed);
        async move {
            match number {
                0 => Ok(Credentials::new(Some("worker"), "first")),
                1 => Ok(Credentials::new(Some("worker"), "second")),
                _ => Err("no more".into()),
            }
        }
    });
    let client = client.open().expect("a client");
    let _shared = in_time(client.acquire("one").no_wait()).await.expect("a lock");
    assert!(admin.text("CLIENT LIST").contains("user=worker"));
    admin.ok("ACL SETUSER worker resetpass >second");
    let _own = in_time(client.acquire("two").session()).await.expect("a lock");
    assert_eq!(asked.load(Ordering::Relaxed), 2);
    let outcome = in_time(client.try_acquire("three").session().outage(std::time::Duration::from_secs(1))).await;
    let Err(Error::Unreachable(why)) = outcome else { panic!("{outcome:?}") };
    assert!(why.message().contains("no credentials: no more"), "{why}");
}

/// A task renews the hold. A panic of the provider must not end this task.
#[tokio::test(flavor = "multi_thread")]
async fn a_provider_that_panics_at_once_or_later_costs_no_lock() {
    let (server, mut admin) = Server::start().with_client();
    let asked = Arc::new(AtomicUsize::new(0));
    let count = asked.clone();
    let client = Client::builder(&url(&server)).credentials(move || {
        let number = count.fetch_add(1, Ordering::Relaxed);
        assert_ne!(number, 1, "a provider that panics at once");
        async move {
            assert_ne!(number, 2, "a provider that panics later");
            Ok(Credentials::new(None, ""))
        }
    });
    let client = client.open().expect("a client");
    let lease = std::time::Duration::from_secs(3);
    let guard = in_time(client.acquire("job").lease(lease)).await.expect("a lock");
    admin.run("CLIENT KILL TYPE normal SKIPME yes");
    dlock_testkit::soon("the provider is asked after both panics", || asked.load(Ordering::Relaxed) > 3);
    tokio::time::sleep(lease).await;
    in_time(guard.release()).await.expect("held");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_of_the_crate_redis_says_where_to_connect() {
    let server = Server::start();
    let redis = redis::Client::open(format!("{}/3", url(&server))).expect("a client");
    let guard = in_time(Client::from_redis(&redis).acquire("job")).await.expect("a lock");
    let mut client = server.client();
    client.ok("SELECT 3");
    assert_eq!(dlock_testkit::lock_info(&mut client, "job").expect("taken").token as u64, guard.token());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_that_the_program_has_is_used_until_it_breaks() {
    let (server, mut admin) = Server::start().with_client();
    let redis = redis::Client::open(url(&server)).expect("a client");
    let connection = redis.get_multiplexed_async_connection().await.expect("a connection");
    let client = Client::from_connection(&redis, connection);
    let connections = |admin: &mut dlock_testkit::Client| admin.text("CLIENT LIST").lines().count();
    // The connections of `admin` and of the program.
    let before = 2;
    dlock_testkit::soon("the connections of the server's start have ended", || connections(&mut admin) == before);
    let guard = in_time(client.try_acquire("job").lease(std::time::Duration::from_secs(20))).await.expect("a lock");
    in_time(guard.renew()).await.expect("held");
    assert_eq!(in_time(client.info("job")).await.expect("an answer").expect("taken").holds.len(), 1);
    assert_eq!(connections(&mut admin), before);
    admin.run("CLIENT KILL TYPE normal SKIPME yes");
    // Each renewal is one attempt, so that the first ones may fail.
    dlock_testkit::soon("a renewal has found another connection", || {
        tokio::task::block_in_place(|| tokio::runtime::Handle::current().block_on(guard.renew())).is_ok()
    });
    in_time(guard.release()).await.expect("held");
    let _session = in_time(client.acquire("job").session()).await.expect("a lock");
    assert_eq!(connections(&mut admin), before + 1);
}

/// The program may have selected a database or logged in since it made the connection.
#[tokio::test(flavor = "multi_thread")]
async fn a_wait_has_the_database_of_the_connection_that_the_program_has() {
    let server = Server::start();
    let redis = redis::Client::open(url(&server)).expect("a client");
    let mut connection = redis.get_multiplexed_async_connection().await.expect("a connection");
    let client = Client::from_connection(&redis, connection.clone());
    for db in [6, 3] {
        redis::cmd("SELECT").arg(db).exec_async(&mut connection).await.expect("a database");
        let guard = in_time(client.try_acquire("job")).await.expect("a lock");
        let wait = std::time::Duration::from_millis(100);
        crate::contention(in_time(client.acquire("job").wait(wait)).await);
        let bound = in_time(client.acquire("other").session()).await.expect("a lock");
        let mut direct = server.client();
        direct.ok(format!("SELECT {db}"));
        assert_eq!(direct.int("EXISTS job other"), 2);
        in_time(guard.release()).await.expect("held");
        in_time(bound.release()).await.expect("held");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wait_is_refused_if_the_program_has_logged_in_as_another_user() {
    let (server, mut admin) = Server::start().with_client();
    admin.ok("ACL SETUSER worker on >secret ~* +@all");
    let redis = redis::Client::open(url(&server)).expect("a client");
    let mut connection = redis.get_multiplexed_async_connection().await.expect("a connection");
    let client = Client::from_connection(&redis, connection.clone());
    redis::cmd("AUTH").arg("worker").arg("secret").exec_async(&mut connection).await.expect("a login");
    let outcome = in_time(client.acquire("job").session()).await;
    assert!(matches!(&outcome, Err(Error::Refused(why)) if why.message().contains("user worker")), "{outcome:?}");
    assert!(!admin.text("CLIENT LIST").contains("cmd=dlock"));
}
