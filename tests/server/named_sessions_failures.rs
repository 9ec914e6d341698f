//! Named sessions when servers fail, stall or refuse writes, beyond the table of failures (`failures`).

use std::time::{Duration, Instant};

use redis::Value;

use crate::support::cluster::Cluster;
use crate::support::replica::{counter, info_field};
use crate::support::{Client, Server, list_of, lock_info, soon};

const TIMEOUT: Duration = Duration::from_millis(600);
/// The timeout, the 200 ms in which the server notices the end, and time for a busy machine.
const NOTICED: Duration = Duration::from_millis(1800);

const OPEN: &str = "DLOCK.SESSION s PX 600 NX";
const BEAT: &str = "DLOCK.SESSION s PX 600 XX";

fn is_gone(error: &str) -> bool {
    error.starts_with("NOSESSION")
}

#[test]
fn after_a_crash_of_the_server_the_session_is_opened_and_its_holds_are_bound_again() {
    let (mut server, mut client) = Server::conf("appendonly yes\nappendfsync always").with_client();
    client.int("DLOCK.SESSION s PX 60000 NX");
    let token = client.int("DLOCK.ACQUIRE k a PX 20000 SESSIONID s");
    server.kill9();
    server.boot();
    let mut client = server.client();
    is_bound_again(&mut client, token);
}

#[test]
fn after_a_failover_the_session_is_opened_and_its_holds_are_bound_again() {
    let (primary, replica) = Server::start().with_replica();
    let mut client = primary.client();
    client.int("DLOCK.SESSION s PX 60000 NX");
    let token = client.int("DLOCK.ACQUIRE k a PX 20000 SESSIONID s");
    replica.wait_synced(&primary);
    assert!(replica.client().error("DLOCK.SESSION s PX 60000 XX").starts_with("READONLY"));
    drop(primary);
    replica.promote();
    is_bound_again(&mut replica.client(), token);
}

#[test]
fn a_demoted_primary_forgets_its_named_sessions() {
    let (server, mut client) = Server::start().with_client();
    client.int("DLOCK.SESSION s PX 60000 NX");
    let token = client.int("DLOCK.ACQUIRE k a PX 20000 SESSIONID s");
    client.ok("REPLICAOF 127.0.0.1 1");
    assert!(client.error("DLOCK.SESSION s PX 60000").starts_with("READONLY"));
    server.promote();
    is_bound_again(&mut client, token);
}

/// The hold lives, unbound, until its client opens the session and binds it.
#[track_caller]
fn is_bound_again(client: &mut Client, token: i64) {
    assert!(is_gone(&client.error("DLOCK.SESSION s PX 60000 XX")));
    assert_eq!(counter(client, "sessions"), 0);
    assert_eq!(counter(client, "named_sessions"), 0);
    assert_eq!(client.int("DLOCK.SESSION s PX 60000 NX"), 0);
    let bind = format!("DLOCK.RENEW k a TOKEN {token} SESSIONID s");
    assert_eq!(client.int(&bind), 1);
    assert_eq!(client.int("DLOCK.SESSION s CLOSE"), 1);
    assert!(lock_info(client, "k").is_none());
    client.int("DLOCK.SESSION s PX 60000 NX");
    client.nil(bind);
}

#[test]
fn a_slot_that_moves_leaves_the_named_session_behind() {
    let (cluster, from, to) = Cluster::of_two("k");
    let mut here = cluster.client(from);
    here.int("DLOCK.SESSION s PX 60000 NX");
    let token = here.int("DLOCK.ACQUIRE k a PX 20000 SESSIONID s");
    cluster.begin_move("k", from, to);
    cluster.migrate("k", from, to);
    cluster.end_move("k", to);
    assert_eq!(here.int("DLOCK.SESSION s PX 60000 XX"), 0);
    assert_eq!(here.int("DLOCK.SESSION s CLOSE"), 0);
    is_bound_again(&mut cluster.client(to), token);
}

/// Sends heartbeats for this time, without waiting for their replies. Returns how many.
fn beat_meanwhile(client: &mut Client, time: Duration) -> usize {
    let start = Instant::now();
    let mut sent = 0;
    while start.elapsed() < time {
        client.send(BEAT);
        sent += 1;
        std::thread::sleep(Duration::from_millis(100));
    }
    sent
}

/// Asserts that a stall, longer than the timeouts, ends the session without heartbeats, and not the session whose
/// heartbeats wait in a socket.
#[track_caller]
fn outlives(server: &Server, stall: impl FnOnce(&mut Client), go_on: impl FnOnce(&mut Client)) {
    let [mut alive, mut gone, mut client] = [(); 3].map(|()| server.client());
    alive.int(OPEN);
    gone.int("DLOCK.SESSION gone PX 600 NX");
    alive.int("DLOCK.ACQUIRE k a PX 600000 SESSIONID s");
    gone.int("DLOCK.ACQUIRE l a PX 600000 SESSIONID gone");
    stall(&mut client);
    let sent = beat_meanwhile(&mut alive, 4 * TIMEOUT);
    go_on(&mut client);
    for _ in 0..sent {
        assert!(alive.read().is_ok(), "its heartbeats were read first");
    }
    let start = Instant::now();
    while lock_info(&mut client, "l").is_some() {
        assert_eq!(alive.int(BEAT), 1);
        assert!(start.elapsed() < NOTICED, "who is gone is noticed all the same");
    }
    client.nil("DLOCK.ACQUIRE k b");
}

#[test]
fn a_server_that_is_stopped_ends_no_session_whose_heartbeats_wait() {
    let server = Server::start();
    outlives(&server, |_| server.freeze(), |_| server.thaw());
}

#[test]
fn a_server_that_is_paused_ends_no_session_whose_heartbeats_wait() {
    // The pause ends by itself: the server reads no command that would end it.
    outlives(&Server::start(), |client| client.ok("CLIENT PAUSE 2500 ALL"), |_| ());
}

/// `DLOCK.SESSION` is no write command.
#[test]
fn heartbeats_go_through_whatever_refuses_writes() {
    type Refuse = fn(&Server, &mut Client);
    let refusals: [(&str, Refuse); 4] = [
        ("NOREPLICAS", |_, client| client.ok("CONFIG SET min-replicas-to-write 1")),
        ("OOM", |_, client| client.ok("CONFIG SET maxmemory 1")),
        ("MISCONF", |server, client| {
            // The file cannot take the place of a directory.
            std::fs::create_dir_all(server.path("dump.rdb/in-the-way")).expect("a writable directory");
            client.run("BGSAVE");
            soon("the save fails", || {
                info_field(client, "persistence", "rdb_last_bgsave_status").as_deref() == Some("err")
            });
        }),
        ("a pause", |_, client| client.ok("CLIENT PAUSE 60000 WRITE")),
    ];
    for (what, refuse) in refusals {
        let (server, mut client) = Server::conf("save 3600 1000000").with_client();
        client.int("DLOCK.SESSION s PX 60000 NX");
        client.int("DLOCK.ACQUIRE k a PX 60000 SESSIONID s");
        refuse(&server, &mut client);
        if what != "a pause" {
            assert!(client.error("DLOCK.ACQUIRE l b").starts_with(what), "{what}");
        }
        assert_eq!(client.int("DLOCK.SESSION s PX 60000 XX"), 1, "{what}");
        assert_eq!(client.int("DLOCK.SESSION t PX 60000 NX"), 0, "{what}");
        assert_eq!(client.int("DLOCK.SESSION s CLOSE"), 1, "{what}");
        assert!(lock_info(&mut client, "k").is_none(), "{what}");
    }
}

#[test]
fn no_more_sessions_than_the_limit() {
    let (_server, mut client) = Server::conf("dlock.max-sessions 2").with_client();
    client.int("DLOCK.SESSION s PX 60000");
    client.int("DLOCK.SESSION t PX 60000");
    assert!(client.error("DLOCK.SESSION u PX 60000").ends_with("dlock.max-sessions"));
    assert_eq!(client.int("DLOCK.SESSION s PX 60000"), 0);
    client.int("DLOCK.SESSION t CLOSE");
    client.int("DLOCK.SESSION u PX 60000");
    assert_eq!(counter(&mut client, "named_sessions"), 2);
}

/// A request for a session that has ended is in nobody's way, even before a timer has sent it away.
#[test]
fn a_waiting_request_of_a_closed_session_is_in_nobodys_way() {
    let (server, mut client) = Server::start().with_client();
    client.int("DLOCK.ACQUIRE held a PX 60000");
    let _first = server.waiter("DLOCK.ACQUIRE held first BLOCK 0");
    let wait = |client: &mut Client, session: &str| {
        client.int(format!("DLOCK.SESSION {session} PX 60000 NX"));
        server.waiter(format!("DLOCK.MACQUIRE 2 held free w PX 60000 BLOCK 0 SESSIONID {session}").as_str())
    };

    let mut waiter = wait(&mut client, "in-a-pause");
    let mut newcomer = server.client();
    client.ok("CLIENT PAUSE 60000 WRITE");
    assert_eq!(client.int("DLOCK.SESSION in-a-pause CLOSE"), 0);
    newcomer.send("DLOCK.ACQUIRE free b");
    soon("the pause holds it back", || client.text("CLIENT LIST").to_lowercase().contains("cmd=dlock.acquire"));
    client.ok("CLIENT UNPAUSE");
    assert!(matches!(newcomer.read(), Ok(Value::Int(_))), "in a pause");
    assert!(waiter.read().is_err_and(|error| is_gone(&error)));
    newcomer.int("DLOCK.RELEASE free b");

    let mut waiter = wait(&mut client, "in-a-transaction");
    client.ok("MULTI");
    client.queued("DLOCK.SESSION in-a-transaction CLOSE");
    client.queued("DLOCK.ACQUIRE free b");
    let replies = list_of(&client.run("EXEC"));
    assert!(matches!(replies.last(), Some(Value::Int(token)) if *token > 0), "{replies:?}");
    assert!(waiter.read().is_err_and(|error| is_gone(&error)));
}

/// Nobody is refused because of a cycle through a request that the timer is about to send away.
#[test]
fn a_closed_session_closes_no_cycle() {
    let (server, mut client) = Server::start().with_client();
    client.int("DLOCK.ACQUIRE its w PX 60000");
    client.int("DLOCK.ACQUIRE other b PX 60000");
    client.int("DLOCK.SESSION s PX 60000 NX");
    let mut gone = server.waiter("DLOCK.ACQUIRE other w PX 60000 BLOCK 0 SESSIONID s");
    let mut waits = server.client();
    client.ok("CLIENT PAUSE 60000 WRITE");
    assert_eq!(client.int("DLOCK.SESSION s CLOSE"), 0);
    waits.send("DLOCK.ACQUIRE its b BLOCK 0");
    soon("the pause holds it back", || client.text("CLIENT LIST").to_lowercase().contains("cmd=dlock.acquire"));
    client.ok("CLIENT UNPAUSE");
    assert!(gone.read().is_err_and(|error| is_gone(&error)));
    soon("it waits", || counter(&mut client, "waiters") == 1);
    client.int("DLOCK.RELEASE its w");
    assert!(matches!(waits.read(), Ok(Value::Int(_))));
}
