//! Sessions: one heartbeat keeps all guards of a program.

use std::sync::mpsc;
use std::time::{Duration, Instant};

use dlock_client::{Client, Error, Guard, Session};
use dlock_testkit::proxy::Proxy;
use dlock_testkit::redis::Value;
use dlock_testkit::{Server, Setup, lock_info, soon};

use crate::{client_of, contention, freed, in_queue, in_time, is_held, lost, not_yet, server_and_client};

const TIMEOUT: Duration = Duration::from_secs(3);

async fn open(client: &Client, timeout: Duration) -> Session {
    in_time(Session::open(client, timeout)).await.expect("a session")
}

async fn locks(client: &Client, session: &Session, number: usize) -> Vec<Guard> {
    let mut guards = Vec::new();
    for number in 0..number {
        guards.push(in_time(client.acquire(format!("job:{number}")).in_session(session)).await.expect("a lock"));
    }
    guards
}

/// Returns how many holds the server has bound to the session.
fn bound(server: &Server, session: &Session) -> Option<usize> {
    match server.client().run(format!("DLOCK.SESSION {} LIST COUNT 0", session.id())) {
        Value::Array(holds) => Some(holds.len()),
        _ => None,
    }
}

/// Fails if a lock counts as held. The server may still have to delete the keys: it does so for many locks in pieces.
fn are_free(server: &Server, number: usize) {
    let mut client = server.client();
    for number in 0..number {
        assert_eq!(client.run(format!("DLOCK.INFO job:{number}")), Value::Nil, "{number}");
    }
}

fn is_lost(guard: &Guard) -> bool {
    guard.remaining().is_zero()
}

#[tokio::test(flavor = "multi_thread")]
async fn one_heartbeat_keeps_all_locks() {
    let (server, client) = server_and_client();
    let session = open(&client, TIMEOUT).await;
    let guards = locks(&client, &session, 40).await;
    let short =
        in_time(client.acquire("short").lease(Duration::from_secs(1)).in_session(&session)).await.expect("a lock");
    let mut watch = server.client();
    assert!(watch.int("PTTL short") > 8000, "at least three times the timeout");
    watch.ok("CONFIG RESETSTAT");
    let began = Instant::now();
    let end = watch.end_of("short");
    soon("the server has renewed it", || watch.end_of("short") > end + 2000);
    let beats = watch.calls("dlock.session");
    assert!(beats >= 2 && beats <= began.elapsed().as_secs() as i64 + 2, "{beats} heartbeats");
    assert_eq!(watch.calls("dlock.renew"), 0);
    for guard in guards.iter().chain([&short]) {
        assert!(!is_lost(guard) && guard.remaining() <= TIMEOUT);
    }
    not_yet(guards[0].lost()).await;
    not_yet(session.lost()).await;
    is_held(&server, &guards[7]);
    assert!(short.release().await.is_ok());
    assert_eq!(bound(&server, &session), Some(40));
}

#[tokio::test(flavor = "multi_thread")]
async fn closing_frees_everything_in_one_command() {
    let (server, client) = server_and_client();
    // No heartbeat is due meanwhile.
    let session = open(&client, Duration::from_secs(120)).await;
    let guards = locks(&client, &session, 20).await;
    let mut watch = server.client();
    watch.ok("CONFIG RESETSTAT");
    assert!(session.close().await.is_ok());
    are_free(&server, 20);
    assert_eq!((watch.calls("dlock.session"), watch.calls("dlock.release")), (1, 0));
    for guard in guards {
        in_time(guard.lost()).await;
        assert!(is_lost(&guard));
        lost(guard.release().await);
    }
    in_time(session.lost()).await;
    let outcome = in_time(client.acquire("job").in_session(&session)).await;
    assert!(matches!(&outcome, Err(Error::SessionEnded(why)) if why.contains("closed")), "{outcome:?}");
    assert!(session.close().await.is_ok() && !session.is_open());
}

#[tokio::test(flavor = "multi_thread")]
async fn locks_outlive_every_connection() {
    let (server, client) = server_and_client();
    let session = open(&client, TIMEOUT).await;
    let guard = in_time(client.acquire("job").in_session(&session)).await.expect("a lock");
    let mut watch = server.client();
    for _ in 0..3 {
        watch.int("CLIENT KILL TYPE normal SKIPME yes");
        let before = watch.calls("dlock.session");
        soon("a heartbeat follows", || watch.calls("dlock.session") > before);
    }
    not_yet(guard.lost()).await;
    is_held(&server, &guard);
    assert!(guard.renew().await.is_ok());
    assert!(guard.release().await.is_ok());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hung_server_costs_the_locks_after_the_timeout() {
    let (server, client) = server_and_client();
    let session = open(&client, Duration::from_secs(2)).await;
    let guard = in_time(client.acquire("job").in_session(&session)).await.expect("a lock");
    server.freeze();
    let began = Instant::now();
    in_time(guard.lost()).await;
    in_time(session.lost()).await;
    assert!(began.elapsed() > Duration::from_secs(1) && is_lost(&guard) && !session.is_open());
    let outcome = in_time(client.acquire("other").in_session(&session)).await;
    assert!(matches!(&outcome, Err(Error::SessionEnded(why)) if why.contains("no heartbeat")), "{outcome:?}");
    server.thaw();
    freed(&server, "job");
    lost(guard.release().await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_guard_never_outlives_the_last_confirmed_heartbeat() {
    let (mut server, client) = server_and_client();
    let session = open(&client, Duration::from_secs(2)).await;
    let guard = in_time(client.acquire("job").in_session(&session)).await.expect("a lock");
    server.kill9();
    let (left, began) = (guard.remaining(), Instant::now());
    in_time(guard.lost()).await;
    assert!(left <= session.timeout() && began.elapsed() >= left.saturating_sub(Duration::from_millis(1)));
    assert!(matches!(in_time(session.close()).await, Ok(())), "a lost session has nothing to close");
}

#[tokio::test(flavor = "multi_thread")]
async fn after_a_restart_locks_are_bound_again_or_lost() {
    let mut server = Setup::new().conf("appendonly yes\nappendfsync always").start();
    let client = client_of(&server);
    let session = open(&client, Duration::from_secs(12)).await;
    let kept = in_time(client.acquire("kept").in_session(&session)).await.expect("a lock");
    let gone = in_time(client.acquire("gone").in_session(&session)).await.expect("a lock");
    server.crash();
    server.client().int("DEL gone");
    in_time(gone.lost()).await;
    soon("it is bound again", || bound(&server, &session) == Some(1));
    not_yet(kept.lost()).await;
    is_held(&server, &kept);
    let new = in_time(client.acquire("new").in_session(&session)).await.expect("a lock");
    assert!(session.close().await.is_ok());
    assert_eq!(server.client().int("DBSIZE"), 0);
    drop((kept, gone, new));
}

#[tokio::test(flavor = "multi_thread")]
async fn after_a_failover_locks_are_bound_on_the_next_primary() {
    for hangs in [false, true] {
        let (mut primary, replica) = Server::start().with_replica();
        let url = format!("redis://127.0.0.1:{},127.0.0.1:{}", primary.port(), replica.port());
        let client = Client::open(&url).expect("URLs");
        let session = open(&client, Duration::from_secs(12)).await;
        let guards = locks(&client, &session, 120).await;
        replica.wait_synced(&primary);
        if hangs {
            primary.freeze()
        } else {
            primary.kill9()
        }
        replica.promote();
        replica.client().int("DEL job:7");
        soon("they are bound there", || bound(&replica, &session) == Some(119));
        in_time(guards[7].lost()).await;
        assert_eq!(guards.iter().filter(|guard| is_lost(guard)).count(), 1);
        is_held(&replica, &guards[119]);
        assert!(session.close().await.is_ok());
        are_free(&replica, 120);
        if hangs {
            primary.thaw();
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deleted_lock_is_lost_with_the_next_heartbeat() {
    let (server, client) = server_and_client();
    let session = open(&client, TIMEOUT).await;
    let guards = locks(&client, &session, 2).await;
    server.client().int("DEL job:1");
    in_time(guards[1].lost()).await;
    assert!(!is_lost(&guards[0]) && session.is_open());
}

/// The server has fewer bindings than the session has locks, and refuses to bind them again.
#[tokio::test(flavor = "multi_thread")]
async fn heartbeats_do_not_keep_a_deleted_lock_that_cannot_be_bound_again() {
    let server = Server::start();
    let mut admin = server.client();
    admin.ok("ACL SETUSER worker reset on >secret ~* &* +@all");
    let client = Client::open(&format!("redis://worker:secret@127.0.0.1:{}", server.port())).expect("a URL");
    let session = open(&client, TIMEOUT).await;
    let guard = in_time(client.acquire("job").in_session(&session)).await.expect("a lock");
    admin.ok("ACL SETUSER worker -dlock.renew");
    let deleted = Instant::now();
    admin.int("DEL job");
    admin.int("DLOCK.ACQUIRE job other PX 60000");
    in_time(guard.lost()).await;
    let took = deleted.elapsed();
    // The last heartbeat that counted the lock was sent before the deletion.
    assert!(took < TIMEOUT + Duration::from_secs(1), "{took:?}");
    assert!(is_lost(&guard) && session.is_open());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_that_an_operator_closed_is_opened_again() {
    let (server, client) = server_and_client();
    let session = open(&client, TIMEOUT).await;
    let guard = in_time(client.acquire("job").in_session(&session)).await.expect("a lock");
    server.client().int(format!("DLOCK.SESSION {} CLOSE", session.id()));
    // The next request finds out.
    let other = in_time(client.try_acquire("other").in_session(&session)).await.expect("a lock");
    in_time(guard.lost()).await;
    assert_eq!(bound(&server, &session), Some(1));
    assert!(session.is_open() && !is_lost(&other));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wait_outlives_its_session_on_the_server() {
    let (server, client) = server_and_client();
    let session = open(&client, TIMEOUT).await;
    let mut other = server.client();
    other.int("DLOCK.ACQUIRE job somebody");
    contention(in_time(client.try_acquire("job").in_session(&session)).await);
    let waiting = in_queue(&server, client.acquire("job").in_session(&session));
    for _ in 0..2 {
        other.int(format!("DLOCK.SESSION {} CLOSE", session.id()));
        soon("it waits again", || server.waiting() == 1 && bound(&server, &session).is_some());
    }
    other.int("DLOCK.RELEASE job somebody");
    let guard = in_time(waiting).await.expect("a task").expect("a lock");
    soon("it is bound", || bound(&server, &session) == Some(1));
    is_held(&server, &guard);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_release_that_failed_is_repeated() {
    let (server, client) = server_and_client();
    let session = open(&client, TIMEOUT).await;
    let guard = in_time(client.acquire("job").in_session(&session)).await.expect("a lock");
    server.client().ok("CONFIG SET min-replicas-to-write 1");
    let outcome = in_time(guard.release()).await;
    assert!(matches!(&outcome, Err(Error::Refused(cause)) if cause.code() == Some("NOREPLICAS")), "{outcome:?}");
    server.client().ok("CONFIG SET min-replicas-to-write 0");
    freed(&server, "job");
    assert!(session.is_open());
}

#[tokio::test(flavor = "multi_thread")]
async fn only_beats_keep_a_manual_session() {
    let (server, client) = server_and_client();
    let session = in_time(Session::open_manual(&client, TIMEOUT)).await.expect("a session");
    let guard = in_time(client.acquire("job").in_session(&session)).await.expect("a lock");
    let end = Instant::now() + Duration::from_secs(5);
    while Instant::now() < end {
        session.beat();
        not_yet(guard.lost()).await;
    }
    in_time(guard.lost()).await;
    freed(&server, "job");
}

/// Opens a session that the program keeps, and takes a lock. When a heartbeat is due, the network holds it back.
async fn manual_with_a_lost_heartbeat(server: &Server) -> (Session, Guard) {
    let proxy = Proxy::to(server);
    let client = Client::open(&proxy.url()).expect("a URL");
    let session = in_time(Session::open_manual(&client, TIMEOUT)).await.expect("a session");
    let guard = in_time(client.acquire("job").in_session(&session)).await.expect("a lock");
    tokio::time::sleep(TIMEOUT * 2 / 5).await;
    proxy.keep_commands();
    session.beat();
    (session, guard)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_heartbeat_gives_no_more_time_to_a_program_that_hangs() {
    let server = Server::start();
    let (_session, guard) = manual_with_a_lost_heartbeat(&server).await;
    let beaten = Instant::now();
    freed(&server, "job");
    let took = beaten.elapsed();
    assert!(took < TIMEOUT, "the last heartbeat before was sent earlier: {took:?}");
    in_time(guard.lost()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_heartbeat_is_repeated_for_a_program_that_goes_on() {
    let server = Server::start();
    let (session, guard) = manual_with_a_lost_heartbeat(&server).await;
    let end = Instant::now() + TIMEOUT;
    while Instant::now() < end {
        not_yet(guard.lost()).await;
        session.beat();
    }
    is_held(&server, &guard);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_ends_with_its_last_clone_and_guard() {
    let (server, client) = server_and_client();
    let session = open(&client, TIMEOUT).await;
    let guard = in_time(client.acquire("job").in_session(&session)).await.expect("a lock");
    let id = session.id().to_owned();
    drop(session);
    is_held(&server, &guard);
    drop(guard);
    freed(&server, "job");
    let mut watch = server.client();
    soon("it is closed", || watch.run(format!("DLOCK.SESSION {id} LIST")) == Value::Nil);
}

#[tokio::test(flavor = "multi_thread")]
async fn all_kinds_of_locks_can_be_in_a_session() {
    let (server, client) = server_and_client();
    let session = open(&client, TIMEOUT).await;
    let permits = in_time(client.semaphore("pool", 5).acquire_many(3).in_session(&session)).await.expect("permits");
    let both = in_time(client.acquire_all(["a", "b"]).in_session(&session)).await.expect("the locks");
    let reader = in_time(client.read("doc").in_session(&session)).await.expect("a lock");
    assert_eq!(bound(&server, &session), Some(4));
    let writer = in_time(reader.upgrade().expect("an upgrade")).await.expect("a lock");
    assert_eq!(bound(&server, &session), Some(5));
    assert!(matches!(writer.extend(TIMEOUT).await, Err(Error::Invalid(_))), "its lease is the session's");
    assert!(writer.release().await.is_ok() && reader.release().await.is_ok());
    server.client().int("DEL b");
    in_time(both.lost()).await;
    assert!(permits.release().await.is_ok());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_accepts_only_what_it_can_keep() {
    let (server, client) = server_and_client();
    for timeout in [Duration::from_millis(299), Duration::from_secs(3601)] {
        assert!(matches!(Session::open(&client, timeout).await, Err(Error::Invalid(_))));
    }
    let session = open(&client, TIMEOUT).await;
    let outcome = in_time(client_of(&server).acquire("job").in_session(&session)).await;
    assert!(matches!(&outcome, Err(Error::Invalid(why)) if why.contains("another client")), "{outcome:?}");
    let quorum = Client::quorum(["redis://127.0.0.1:1"], TIMEOUT).open().expect("a quorum");
    assert!(matches!(Session::open(&quorum, TIMEOUT).await, Err(Error::Invalid(_))));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_does_not_open_without_a_server_or_the_module() {
    let (server, client) = server_and_client();
    server.freeze();
    let began = Instant::now();
    let outcome = in_time(Session::open(&client, TIMEOUT)).await;
    assert!(matches!(outcome, Err(Error::Unreachable(_))) && began.elapsed() >= Duration::from_secs(1), "{outcome:?}");
    server.thaw();
    open(&client, TIMEOUT).await;
    let plain = Setup::plain().start();
    let outcome = in_time(Session::open(&client_of(&plain), TIMEOUT)).await;
    assert!(matches!(&outcome, Err(Error::Refused(cause)) if cause.is_module_missing()), "{outcome:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_that_hangs_keeps_nothing() {
    let (server, client) = server_and_client();
    let url = format!("redis://127.0.0.1:{}", server.port());
    let (goes_on, hangs) = mpsc::channel();
    let program = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(async {
            let client = Client::open(&url).expect("a URL");
            let session = open(&client, Duration::from_millis(1500)).await;
            let guard = client.acquire("job").in_session(&session).await.expect("a lock");
            hangs.recv().expect("to go on");
            assert!(is_lost(&guard) && !session.is_open(), "by the clock, before anything else has run");
            in_time(guard.lost()).await;
        });
    });
    soon("it holds the lock", || lock_info(&mut server.client(), "job").is_some());
    let guard = in_time(client.acquire("job").lease(Duration::from_secs(60))).await.expect("a lock");
    goes_on.send(()).expect("a program");
    program.join().expect("its assertions");
    is_held(&server, &guard);
}

/// The session asks once for the cap of a lock that is held for long.
#[tokio::test(flavor = "multi_thread")]
async fn a_lock_ends_at_the_operators_cap_and_the_others_go_on() {
    let (server, client) = server_and_client();
    let session = open(&client, Duration::from_secs(1)).await;
    let lease = Duration::from_secs(3);
    let goes_on = in_time(client.acquire("other").lease(lease).in_session(&session)).await.expect("a lock");
    let mut watch = server.client();
    let cap = 6000;
    watch.ok(format!("CONFIG SET dlock.max-hold {cap}"));
    let capped = in_time(client.acquire("capped").lease(lease).in_session(&session)).await;
    let capped = capped.expect("a lock");
    let began = Instant::now();
    in_time(capped.lost()).await;
    let end = (capped.token() / 1000) as i64 + cap;
    // The clock is read after the loss.
    assert!(watch.now() <= end + 100, "{} ms too late", watch.now() - end);
    assert!(began.elapsed() > lease && is_lost(&capped), "it was renewed: {:?}", began.elapsed());
    assert!(!is_lost(&goes_on) && session.is_open());
    is_held(&server, &goes_on);
    assert_eq!(watch.calls("dlock.info"), 3, "once for each lock, and once by `is_held`");
    lost(capped.release().await);
}
