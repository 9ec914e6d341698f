//! A majority is enough, and less is not.

use std::time::Duration;

use dlock_client::Error;

use crate::{client_of, freed, in_time, quorum, servers, servers_and_client};
use dlock_testkit::{Stopwatch, lock_info, soon};

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_is_held_on_all_servers_with_its_token_on_a_majority_and_freed_on_all() {
    let (servers, client) = servers_and_client(3);
    let guard = in_time(client.acquire("job")).await.expect("a lock");
    for server in &servers {
        soon("it is held there", || server.holders("job") == [guard.owner()]);
    }
    // The servers that were asked to confirm know the token: a majority.
    let token =
        |server| lock_info(&mut dlock_testkit::Server::client(server), "job FULL").expect("held").holds()[0].token;
    let confirmed = servers.iter().filter(|server| token(server) as u64 == guard.token()).count();
    assert!(confirmed >= 2, "{confirmed}");
    in_time(guard.release()).await.expect("held");
    freed(&servers, "job");
}

#[tokio::test(flavor = "multi_thread")]
async fn contention_is_not_an_outage() {
    let servers = servers(3);
    let (client, other) = (client_of(&servers), client_of(&servers));
    let guard = in_time(client.acquire("job")).await.expect("a lock");
    let refused = in_time(other.try_acquire("job")).await;
    assert!(matches!(refused, Err(Error::Contention)), "{refused:?}");
    let refused = in_time(other.acquire("job").wait(Duration::from_millis(50))).await;
    assert!(matches!(refused, Err(Error::Contention)), "{refused:?}");
    in_time(guard.release()).await.expect("held");
    let later = in_time(other.try_acquire("job")).await.expect("free");
    assert!(in_time(later.release()).await.is_ok());
}

#[tokio::test(flavor = "multi_thread")]
async fn readers_share_and_a_writer_waits() {
    let (_servers, client) = servers_and_client(3);
    let readers =
        [in_time(client.read("doc")).await.expect("shared"), in_time(client.read("doc")).await.expect("shared")];
    let refused = in_time(client.write("doc").no_wait()).await;
    assert!(matches!(refused, Err(Error::Contention)), "{refused:?}");
    let highest = readers.iter().map(dlock_client::Guard::token).max();
    for reader in readers {
        in_time(reader.release()).await.expect("held");
    }
    let writer = in_time(client.write("doc")).await.expect("a lock");
    assert!(Some(writer.token()) > highest);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_quorum_with_two_of_five_servers_killed_still_locks() {
    let mut servers = servers(5);
    let client = client_of(&servers);
    let before = in_time(client.acquire("job")).await.expect("a lock");
    // The gate server is one of them.
    servers[0].kill9();
    servers[2].kill9();
    in_time(before.renew()).await.expect("a majority is left");
    let token = before.token();
    in_time(before.release()).await.expect("held");
    let after = in_time(client.acquire("job")).await.expect("a lock");
    assert!(after.token() > token);
    let fresh = client_of(&servers);
    let refused = in_time(fresh.try_acquire("job")).await;
    assert!(matches!(refused, Err(Error::Contention)), "{refused:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_acquisition_with_three_of_five_servers_killed_fails_in_time() {
    let mut servers = servers(5);
    let timeout = Duration::from_secs(2);
    let client = quorum(&servers).server_timeout(timeout).open().expect("a quorum");
    in_time(client.acquire("job")).await.expect("a lock").release().await.expect("held");
    [0, 1, 3].into_iter().for_each(|at| servers[at].kill9());
    for acquire in [client.try_acquire("job"), client.acquire("job").outage(timeout)] {
        let began = Stopwatch::start();
        let outcome = in_time(acquire).await;
        began.is_between(Duration::ZERO, timeout + MARGIN, "the answer");
        let Err(Error::TooFew(why)) = &outcome else { panic!("{outcome:?}") };
        assert!(why.contains("2 of 5") && why.contains(&servers[1].port().to_string()), "{why}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn with_two_of_five_servers_stopped_grants_are_fast_after_a_timeout() {
    let servers = servers(5);
    let timeout = Duration::from_secs(2);
    let client = quorum(&servers).server_timeout(timeout).open().expect("a quorum");
    in_time(client.acquire("job")).await.expect("a lock").release().await.expect("held");
    servers[0].freeze();
    servers[3].freeze();
    let mut took = Vec::new();
    for _ in 0..5 {
        let began = Stopwatch::start();
        let guard = in_time(client.acquire("job")).await.expect("a lock");
        began.is_between(Duration::ZERO, timeout + MARGIN, "a grant");
        took.push(began.elapsed());
        in_time(guard.release()).await.expect("held");
    }
    took.sort_unstable();
    assert!(took[2] < timeout / 2, "{took:?}");
    servers[0].thaw();
    servers[3].thaw();
    freed(&servers, "job");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_guard_is_lost_when_no_majority_can_be_renewed() {
    let mut servers = servers(3);
    let client = client_of(&servers);
    let guard = in_time(client.acquire("job").lease(Duration::from_secs(4))).await.expect("a lock");
    servers[1].kill9();
    in_time(guard.renew()).await.expect("two are left");
    servers[2].kill9();
    let renewed = in_time(guard.renew()).await;
    assert!(matches!(renewed, Err(Error::Unreachable(_))), "{renewed:?}");
    assert!(guard.remaining() > Duration::ZERO);
    in_time(guard.lost()).await;
    assert_eq!(guard.remaining(), Duration::ZERO);
    let released = in_time(guard.release()).await;
    assert!(matches!(released, Err(Error::Lost)), "{released:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_broken_on_a_majority_is_lost() {
    let (servers, client) = servers_and_client(3);
    let guard = in_time(client.acquire("job")).await.expect("a lock");
    servers.iter().for_each(|server| soon("it is held there", || server.holders("job") == [guard.owner()]));
    for server in &servers[1..] {
        server.client().run("DEL job");
    }
    // Servers of a busy machine may all be late.
    let renewed = loop {
        match in_time(guard.renew()).await {
            Err(Error::Unreachable(_)) => {}
            renewed => break renewed,
        }
    };
    assert!(matches!(renewed, Err(Error::Lost)), "{renewed:?}");
    in_time(guard.lost()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn dropped_guards_and_dropped_acquisitions_leave_nothing() {
    let (servers, client) = servers_and_client(3);
    let guard = in_time(client.acquire("job")).await.expect("a lock");
    let waiting =
        tokio::time::timeout(Duration::from_millis(50), std::future::IntoFuture::into_future(client.acquire("job")));
    assert!(waiting.await.is_err());
    drop(guard);
    freed(&servers, "job");
}

/// The time that a busy machine may take on top.
const MARGIN: Duration = Duration::from_millis(700);

#[tokio::test(flavor = "multi_thread")]
async fn a_guard_is_entered_again_and_neither_upgraded_nor_downgraded() {
    let (servers, client) = servers_and_client(3);
    let outer = in_time(client.read("doc")).await.expect("a lock");
    assert!(matches!(outer.upgrade(), Err(Error::Invalid(_))));
    let inner = in_time(outer.enter()).await.expect("held");
    in_time(outer.release()).await.expect("held");
    in_time(inner.renew()).await.expect("held by the one that is left");
    in_time(inner.release()).await.expect("held");
    freed(&servers, "doc");
    let writer = in_time(client.write("doc")).await.expect("a lock");
    let outcome = in_time(writer.downgrade()).await;
    assert!(matches!(outcome, Err(Error::Invalid(_))), "{outcome:?}");
    freed(&servers, "doc");
}

#[test]
fn a_runtime_may_end_while_a_server_has_not_answered() {
    let servers = servers(3);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let client = client_of(&servers);
        let guard = in_time(client.acquire("job")).await.expect("a lock");
        servers.iter().for_each(|server| soon("it is held there", || server.holders("job") == [guard.owner()]));
        servers[2].freeze();
        in_time(guard.release()).await.expect("held");
    });
    drop(runtime);
    servers[2].thaw();
    freed(&servers, "job");
}

#[tokio::test(flavor = "multi_thread")]
async fn each_server_gets_a_release_once() {
    const PAIRS: i64 = 100;
    let (servers, client) = servers_and_client(3);
    let pair = async || in_time(client.acquire("job")).await.expect("a lock").release().await.expect("held");
    // The first pair connects.
    pair().await;
    in_time(client.settled()).await;
    let releases = || servers.iter().map(|server| server.client().calls("dlock.release")).collect::<Vec<_>>();
    let before = releases();
    for _ in 0..PAIRS {
        pair().await;
    }
    in_time(client.settled()).await;
    freed(&servers, "job");
    assert_eq!(releases(), before.iter().map(|before| before + PAIRS).collect::<Vec<_>>());
}
