//! Every public type keeps these promises: it can be sent to and shared with other threads, it can be printed, and
//! printing shows no password.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    missing_docs,
    reason = "a test that panics has failed, which is what it is for"
)]

use std::collections::BTreeSet;
use std::error::Error as _;
use std::fmt::Debug;
use std::future::{Future, IntoFuture};
use std::time::Duration;

use dlock_client::{
    Acquire, Cause, Client, ClientBuilder, Credentials, Error, Guard, HoldInfo, HoldMode, LockInfo, LockMode, LogEntry,
    LogEvent, Node, Operator, PerServer, QuorumBuilder, Relay, RelayLink, Semaphore, ServerStats, Session, Tls,
    Unanswered, WaiterInfo, Watch, blocking,
};

fn is_shared_and_printed<T: Send + Sync + Unpin + Debug + 'static>() {}

/// Checks these types, and returns their names.
macro_rules! checked {
    ($($name:ident $(<$argument:ty>)?),+ $(,)?) => {{
        $( is_shared_and_printed::<$name $(<$argument>)?>(); )+
        BTreeSet::from([$( stringify!($name) ),+])
    }};
}

#[test]
fn every_public_type_is_shared_by_threads_and_printed() {
    let checked = checked![
        Acquire,
        Cause,
        Client,
        ClientBuilder,
        Credentials,
        Error,
        Guard,
        HoldInfo,
        HoldMode,
        LockInfo,
        LockMode,
        LogEntry,
        LogEvent,
        Node,
        Operator,
        PerServer<Vec<LockInfo>>,
        QuorumBuilder,
        Relay,
        RelayLink,
        Semaphore,
        ServerStats,
        Session,
        Tls,
        Unanswered,
        WaiterInfo,
        Watch,
    ];
    is_shared_and_printed::<blocking::Client>();
    is_shared_and_printed::<blocking::Guard>();
    // The list has every type that the crate exports.
    let exported = include_str!("../src/lib.rs").lines().filter_map(|line| line.strip_prefix("pub use "));
    let names = exported.flat_map(|path| path.split(|c: char| !c.is_alphanumeric()));
    let types: BTreeSet<_> = names.filter(|name| name.starts_with(|c: char| c.is_uppercase())).collect();
    assert_eq!(checked, types);
}

#[test]
fn futures_can_be_spawned() {
    fn is_spawned<F: Future + Send>(_: impl FnOnce() -> F) {}
    let client = || Client::open("redis://127.0.0.1").unwrap();
    is_spawned(|| client().acquire("lock").into_future());
    is_spawned(|| async { client().info("lock").await });
    is_spawned(|| async { client().watch("lock")?.next().await.transpose() });
    is_spawned(|| async { client().survey("*", 1).await });
    is_spawned(|| async {
        let guard = client().acquire("lock").await?;
        guard.renew().await?;
        guard.upgrade()?.await?.downgrade().await?.release().await
    });
}

#[test]
fn nothing_that_is_printed_shows_a_password() {
    let url = "redis://user:s3cret@127.0.0.1:7000/2";
    let tls = Tls::new().identity("certificate s3cret", "key s3cret");
    let builder = Client::builder(url)
        .sentinel_login(Some("sentinel"), "s3cret")
        .sentinel_tls(tls.clone())
        .credentials(|| async { Ok(Credentials::new(Some("user"), "s3cret")) });
    let client = Client::open(url).unwrap();
    let sentinels = Client::builder("redis-sentinel://user:s3cret@127.0.0.1:7001/main");
    let sentinels = sentinels.sentinel_login(None, "s3cret").open().unwrap();
    let operator = client.operator().unwrap();
    let quorum = Client::quorum([url, "redis://:s3cret@127.0.0.1:7002"], Duration::from_secs(10));
    let quorum_client = quorum.clone().open().unwrap();
    let semaphore = client.semaphore("downloads", 5);
    let acquire = client.acquire("job").wait(Duration::from_secs(1));
    let blocking = blocking::Client::new(client.clone()).unwrap();
    let nodes = operator.nodes();
    let of_sentinels = sentinels.operator().unwrap();
    let shown: [(&dyn Debug, &str); 14] = [
        (&builder, "ClientBuilder"),
        (&client, "127.0.0.1:7000"),
        (&sentinels, "127.0.0.1:7001/main"),
        (&quorum, "QuorumBuilder"),
        (&quorum_client, "127.0.0.1:7002"),
        (&semaphore, "downloads"),
        (&acquire, "job"),
        (&blocking, "127.0.0.1:7000"),
        (&operator, "127.0.0.1:7000"),
        (&of_sentinels, "127.0.0.1:7001/main"),
        (&of_sentinels.sentinels(), "127.0.0.1:7001"),
        (&nodes, "127.0.0.1:7000"),
        (&Credentials::new(Some("user"), "s3cret"), "user"),
        (&tls, "Tls"),
    ];
    for (value, expected) in shown {
        for text in [format!("{value:?}"), format!("{value:#?}")] {
            assert!(text.contains(expected), "{text}");
            assert!(!text.contains("s3cret"), "{text}");
        }
    }
}

#[test]
fn known_events_are_read_and_an_unknown_one_keeps_its_name() {
    for name in ["wait", "timeout", "hold", "lapse", "cap", "session-end", "break", "delete", "flush", "deadlock"] {
        let event = LogEvent::from(name);
        assert!(!matches!(event, LogEvent::Other(_)), "{name}");
        assert_eq!(event.to_string(), name);
    }
    assert_eq!(LogEvent::from("eclipse"), LogEvent::Other("eclipse".to_owned()));
    assert_eq!(format!("{:>8}", LogEvent::from("eclipse")), " eclipse");
}

/// The source of an error is a `redis::RedisError`, so that programs can look at its kind.
#[tokio::test]
async fn an_error_leads_to_its_source() {
    // Port 1 is reserved, and nobody listens there.
    let acquire = Client::open("redis://127.0.0.1:1").unwrap().try_acquire("lock");
    let error = acquire.outage(Duration::from_millis(50)).await.unwrap_err();
    let Error::Unreachable(cause) = &error else { panic!("{error:?}") };
    let source = error.source().and_then(|source| source.downcast_ref::<redis::RedisError>()).expect("a source");
    assert!(source.is_io_error(), "{source:?}");
    assert!(cause.source().is_some());
    assert!(Error::Lost.source().is_none());
}
