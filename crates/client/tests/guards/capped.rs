//! A second hold of an owner ends with the cap of the first, which the reply to its request does not tell.

use std::time::Duration;

use dlock_client::{Acquire, Client, Guard, Session};
use dlock_testkit::{Server, lock_info};
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::{client_of, in_queue, in_time, server_and_client};

/// The cap of the first holds, and the lease of all.
const CAP: Duration = Duration::from_secs(3);

/// How long before the cap the second holds are acquired.
const BEFORE: Duration = Duration::from_millis(700);

/// The options of the second holds.
const KINDS: [&str; 4] = ["renewed", "not-renewed", "of-a-connection", "of-a-session"];

fn with(kind: &str, acquire: Acquire, session: &Session) -> Acquire {
    match kind {
        "not-renewed" => acquire.no_renewal(),
        "of-a-connection" => acquire.session(),
        "of-a-session" => acquire.in_session(session),
        _ => acquire,
    }
}

/// Returns how long the server has the hold of a guard, at most.
pub(crate) fn left_on_server(server: &mut dlock_testkit::Client, guard: &Guard) -> Duration {
    let name = String::from_utf8_lossy(guard.name());
    let info = lock_info(server, &format!("{name} OWNER {}", guard.owner()));
    let ttl = info.and_then(|info| {
        let hold = info.holds().iter().find(|hold| hold.token as u64 == guard.token())?;
        Some(hold.ttl + 1)
    });
    Duration::from_millis(ttl.unwrap_or(0) as u64)
}

/// Fails if the guard says at any time that the lock is held for longer than the server has the hold.
async fn never_longer(server: &Server, guard: Guard, what: &str) {
    let mut server = server.client();
    loop {
        let has = left_on_server(&mut server, &guard);
        let left = guard.remaining();
        assert!(left <= has, "{what}: {left:?} are left, on the server {has:?}");
        if left.is_zero() {
            return;
        }
        sleep(Duration::from_millis(5)).await;
    }
}

/// Acquires a reader and a writer with a cap for each kind. Upgrades the one and downgrades the other shortly before
/// the cap.
async fn second_holds(server: Server, client: Client, cap: impl Fn(Acquire) -> Acquire) {
    let session = in_time(Session::open(&client, Duration::from_secs(1))).await.expect("a session");
    let server = std::sync::Arc::new(server);
    let mut firsts = Vec::new();
    for kind in KINDS {
        let reader = in_time(cap(client.read(format!("up-{kind}")).lease(CAP))).await.expect("a lock");
        let writer = with(kind, client.write(format!("down-{kind}")), &session);
        firsts.push((kind, reader, in_time(cap(writer.lease(CAP))).await.expect("a lock")));
    }
    sleep(CAP - BEFORE).await;
    let mut checks = JoinSet::new();
    for (kind, reader, writer) in firsts {
        let (one, other) = (server.clone(), server.clone());
        let upgrade = with(kind, reader.upgrade().expect("a reader"), &session);
        checks.spawn(async move {
            let second = in_time(upgrade).await.expect("nobody else reads");
            never_longer(&one, second, &format!("an upgrade, {kind}")).await;
            drop(reader);
        });
        checks.spawn(async move {
            let second = in_time(writer.downgrade()).await.expect("held");
            never_longer(&other, second, &format!("a downgrade, {kind}")).await;
        });
    }
    let mut wrong = 0;
    while let Some(check) = checks.join_next().await {
        wrong += usize::from(check.is_err());
    }
    assert_eq!(wrong, 0, "some guards have promised too much");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upgrade_or_a_downgrade_counts_no_longer_than_the_cap_of_the_first_hold() {
    let (server, client) = server_and_client();
    second_holds(server, client, |acquire| acquire.max_hold(CAP)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upgrade_or_a_downgrade_counts_no_longer_than_the_cap_of_the_server() {
    let server = Server::conf(&format!("dlock.max-hold {}", CAP.as_millis()));
    let client = client_of(&server);
    second_holds(server, client, |acquire| acquire).await;
}

/// The upgrade waits in the queue for the other reader.
#[tokio::test(flavor = "multi_thread")]
async fn an_upgrade_that_waited_counts_no_longer_than_the_cap_of_its_reader() {
    let (server, client) = server_and_client();
    let reader = in_time(client.read("doc").lease(CAP).max_hold(CAP)).await.expect("a lock");
    let other = in_time(client.read("doc")).await.expect("a lock");
    sleep(CAP - BEFORE).await;
    let upgrade = in_queue(&server, reader.upgrade().expect("a reader"));
    in_time(other.release()).await.expect("held");
    let writer = in_time(upgrade).await.expect("a task").expect("nobody else reads");
    never_longer(&server, writer, "an upgrade that waited").await;
}
