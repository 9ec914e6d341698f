//! Locks over TLS.

use std::time::Duration;

use dlock_client::{Client, Error, Tls};

use crate::{freed, in_queue, in_time, is_held};
use dlock_testkit::certified::{ANYBODY, Authority};
use dlock_testkit::replica::{counter, info_field};
use dlock_testkit::sentinel::Sentinels;
use dlock_testkit::{Server, soon};

const HOST: &str = "127.0.0.1";

/// A server and a client that trusts it.
fn trusted() -> Option<(Server, Client)> {
    let authority = Authority::new();
    let (server, port) = authority.server(HOST, ANYBODY)?;
    let tls = Tls::new().ca(authority.pem());
    let client = Client::open_with_tls(&format!("rediss://{HOST}:{port}"), &tls).expect("a URL and a certificate");
    Some((server, client))
}

/// Returns why the server counts as unreachable.
async fn refusal(client: &Client) -> String {
    match in_time(client.acquire("job").outage(Duration::from_secs(1))).await {
        Err(Error::Unreachable(why)) => why.to_string(),
        other => panic!("unreachable, not {other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_is_taken_renewed_and_released() {
    let Some((server, client)) = trusted() else { return };
    let guard = in_time(client.acquire("job")).await.expect("a lock");
    is_held(&server, &guard);
    assert!(guard.renew().await.is_ok());
    assert!(guard.release().await.is_ok());
    freed(&server, "job");
}

#[tokio::test(flavor = "multi_thread")]
async fn waiters_are_served_and_leave_the_queue() {
    let Some((server, client)) = trusted() else { return };
    let first = in_time(client.acquire("job")).await.expect("a lock");
    let waiting = in_queue(&server, client.acquire("job"));
    let leaving = in_queue(&server, client.acquire("job"));
    leaving.abort();
    server.left_waiting(1);
    assert!(first.release().await.is_ok());
    is_held(&server, &in_time(waiting).await.expect("a task").expect("a lock"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broken_connection_is_replaced() {
    let Some((server, client)) = trusted() else { return };
    let guard = in_time(client.acquire("job").lease(Duration::from_secs(600))).await.expect("a lock");
    let waiting = in_queue(&server, client.acquire("job"));
    let mut watch = server.client();
    assert!(watch.int("CLIENT KILL TYPE normal SKIPME yes") >= 2);
    soon("it waits again", || counter(&mut watch, "waits") == 2);
    assert!(guard.renew().await.is_ok() || guard.renew().await.is_ok(), "renewed on a new connection");
    assert!(guard.release().await.is_ok());
    is_held(&server, &in_time(waiting).await.expect("a task").expect("a lock"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_ends_with_its_connection() {
    let Some((server, client)) = trusted() else { return };
    let guard = in_time(client.acquire("job").lease(Duration::from_secs(600)).session()).await.expect("a lock");
    server.client().int("CLIENT KILL TYPE normal SKIPME yes");
    in_time(guard.lost()).await;
    freed(&server, "job");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_with_an_untrusted_certificate_is_refused() {
    let authority = Authority::new();
    let Some((server, port)) = authority.server(HOST, ANYBODY) else { return };
    let url = format!("rediss://{HOST}:{port}");
    let other = Tls::new().ca(Authority::new().pem());
    for client in [Client::open(&url), Client::open_with_tls(&url, &other)] {
        let why = refusal(&client.expect("a URL")).await;
        assert!(why.contains(&port.to_string()) && why.contains("invalid peer certificate"), "{why}");
    }
    freed(&server, "job");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_certificate_for_another_name_is_refused() {
    let authority = Authority::new();
    let Some((_server, port)) = authority.server("elsewhere.example", ANYBODY) else { return };
    let tls = Tls::new().ca(authority.pem());
    let client = Client::open_with_tls(&format!("rediss://{HOST}:{port}"), &tls).expect("a URL and a certificate");
    let why = refusal(&client).await;
    assert!(why.contains("not valid for name"), "{why}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_asks_for_a_certificate_is_shown_one() {
    let authority = Authority::new();
    let Some((server, port)) = authority.server(HOST, "tls-auth-clients yes") else { return };
    let url = format!("rediss://{HOST}:{port}");
    let tls = Tls::new().ca(authority.pem());
    let why = refusal(&Client::open_with_tls(&url, &tls).expect("a URL and a certificate")).await;
    assert!(why.contains("CertificateRequired"), "{why}");
    let [certificate, key] = authority.sign("worker");
    let known = Client::open_with_tls(&url, &tls.identity(certificate, key)).expect("a URL and certificates");
    is_held(&server, &in_time(known.acquire("job")).await.expect("a lock"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_quorum_locks_over_tls() {
    let authority = Authority::new();
    let conf = format!("{ANYBODY}\nappendonly yes\nappendfsync always");
    let Some((server, port)) = authority.server(HOST, &conf) else { return };
    let quorum = Client::quorum([format!("rediss://{HOST}:{port}")], Duration::from_secs(60)).persistent();
    let client = quorum.tls(Tls::new().ca(authority.pem())).server_timeout(Duration::from_secs(5)).open();
    let guard = in_time(client.expect("a quorum").acquire("job")).await.expect("a lock");
    is_held(&server, &guard);
}

#[tokio::test(flavor = "multi_thread")]
async fn sentinels_may_have_tls_of_their_own() {
    let authority = Authority::new();
    let Some((primary, _)) = authority.server(HOST, ANYBODY) else { return };
    let (port, conf) = authority.conf(HOST);
    let _sentinels = Sentinels::one(&primary, &format!("{conf}\n{ANYBODY}"));
    let url = format!("redis-sentinel://{HOST}:{port}/locks");
    let trusting = |tls: &Authority| Client::builder(&url).sentinel_tls(Tls::new().ca(tls.pem()));
    let client = trusting(&authority).open().expect("a client");
    is_held(&primary, &in_time(client.acquire("job")).await.expect("a lock"));
    for other in [Client::builder(&url), trusting(&Authority::new())] {
        let outcome =
            in_time(other.open().expect("a client").try_acquire("other").outage(Duration::from_secs(1))).await;
        assert!(matches!(outcome, Err(Error::Unreachable(_))), "{outcome:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn sentinels_may_do_without_tls() {
    let authority = Authority::new();
    let Some((primary, port)) = authority.server(HOST, ANYBODY) else { return };
    // The Sentinel itself reaches the server over TLS. Its clients reach it without.
    let (_, conf) = authority.conf(HOST);
    let conf = format!("{conf}\n{ANYBODY}\ntls-replication yes\nsentinel monitor secure {HOST} {port} 1");
    let sentinels = Sentinels::one(&primary, &conf);
    let sentinel = sentinels.ports()[0];
    let mut admin = dlock_testkit::Client::connect(sentinel).expect("a Sentinel");
    soon("the Sentinel has reached the server over TLS", || {
        let of = |master: &str| info_field(&mut admin, "sentinel", master).unwrap_or_default();
        let known = format!("name=secure,status=ok,address={HOST}:{port}");
        ["master0", "master1"].map(of).iter().any(|field| field.starts_with(&known))
    });
    let builder = || {
        let url = format!("rediss-sentinel://{HOST}:{sentinel}/secure");
        Client::builder(&url).tls(Tls::new().ca(authority.pem()))
    };
    let client = builder().sentinel_plain().open().expect("a client");
    let guard = in_time(client.acquire("job")).await.expect("a lock");
    is_held(&primary, &guard);
    assert!(guard.release().await.is_ok());
    let outcome = in_time(builder().open().expect("a client").try_acquire("job").outage(Duration::from_secs(1))).await;
    assert!(matches!(outcome, Err(Error::Unreachable(_))), "{outcome:?}");
}

#[test]
fn unreadable_certificates_and_urls_without_tls_are_refused_before_anything_is_sent() {
    let authority = Authority::new();
    let [certificate, key] = authority.sign("worker");
    let good = Tls::new().ca(authority.pem());
    let cases = [
        ("rediss://localhost", Tls::new().ca("")),
        ("rediss://localhost", Tls::new().ca(key.as_str())),
        ("rediss://localhost", Tls::new().identity("", key.as_str())),
        ("rediss://localhost", Tls::new().identity(certificate.as_str(), "no key")),
        ("redis://localhost", good.clone()),
        ("redis-sentinel://localhost/main", good.clone()),
        ("unix:///run/redis.sock", good.clone()),
        ("rediss://localhost/#insecure", good.clone()),
    ];
    for (url, tls) in cases {
        let outcome = Client::open_with_tls(url, &tls).map(|_| url);
        assert!(matches!(outcome, Err(Error::Invalid(_))), "{url}: {outcome:?}");
    }
    assert!(Client::open_with_tls("rediss-sentinel://localhost/main", &good).is_ok());
}
