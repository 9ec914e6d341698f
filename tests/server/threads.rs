//! Commands that a second module runs in a thread that has the server's lock, or by calls that may block, and events
//! that a panic of this module loses. In each case, no lock stays behind.

use std::time::Duration;

use crate::support::process::module_path;
use crate::support::replica::counter;
use crate::support::skip::skipped;
use crate::support::{Client, Server, Setup, lock_info, req, soon};

fn server() -> (Server, Client) {
    Setup::new().hooks().start().with_client()
}

/// Runs a command in a thread. Returns its reply, as the protocol has it.
fn in_thread(client: &mut Client, command: &str) -> String {
    client.ok(format!("DLOCK.THREAD {command}"));
    last_reply(client)
}

/// Returns the reply of the last command in a thread, or of one that may block.
fn last_reply(client: &mut Client) -> String {
    let mut reply = redis::Value::Nil;
    soon("the reply is there", || {
        reply = client.run("DLOCK.THREAD");
        reply != redis::Value::Nil
    });
    match reply {
        redis::Value::BulkString(bytes) => String::from_utf8_lossy(&bytes).trim_end().to_owned(),
        reply => panic!("{reply:?}"),
    }
}

/// A client that waits for the key.
fn waiter(server: &Server, client: &mut Client) -> Client {
    let before = lock_info(client, "k").map_or(0, |info| info.waiters);
    let mut waiter = server.client();
    waiter.send("DLOCK.ACQUIRE k waiter PX 3600000 BLOCK 60000");
    soon("it waits", || lock_info(client, "k").is_some_and(|info| info.waiters == before + 1));
    waiter
}

#[test]
fn freeing_a_lock_in_a_thread_serves_its_queue() {
    let (server, mut client) = server();
    for command in [
        "DEL k",
        "UNLINK k",
        "RENAME k other",
        "MOVE k 3",
        "PEXPIREAT k 1",
        "FLUSHDB",
        "FLUSHALL",
        "FLUSHALL ASYNC",
        "SWAPDB 0 5",
        "DLOCK.RELEASE k holder",
        "CLIENT KILL ID",
    ] {
        let mut holder = server.client();
        holder.int("DLOCK.ACQUIRE k holder PX 3600000 SESSION");
        let mut waiter = waiter(&server, &mut client);
        let id = holder.int("CLIENT ID");
        let command = if command.ends_with(" ID") { format!("{command} {id}") } else { command.to_owned() };
        let reply = in_thread(&mut client, &command);
        assert!(!reply.starts_with('-'), "{command}: {reply}");
        let granted = waiter.poll(Duration::from_secs(10));
        assert!(matches!(granted, Some(redis::Value::Int(_))), "{command}: {granted:?}");
        soon("nothing is bound", || counter(&mut client, "sessions") == 0);
        client.ok("FLUSHALL");
    }
    assert_eq!(counter(&mut client, "internal_errors"), 0);
    assert!(!server.log().contains("panic"), "{}", server.log());
}

#[test]
fn commands_in_a_thread_are_carried_out() {
    let (server, mut client) = server();
    let token = in_thread(&mut client, "DLOCK.ACQUIRE k a PX 3600000");
    let token: i64 = token.strip_prefix(':').expect("a token").parse().unwrap();
    assert!(client.int(format!("DLOCK.CHECK k {token}")) > 0);
    assert_eq!(in_thread(&mut client, "DLOCK.RENEW k a PX 60000"), ":1");
    assert_eq!(in_thread(&mut client, "DLOCK.ACQUIRE k b BLOCK 1000"), "$-1");
    assert!(in_thread(&mut client, "DLOCK.INFO k").contains("exclusive"));
    assert!(in_thread(&mut client, &format!("DLOCK.CHECK k {token}")).starts_with(':'));
    assert!(in_thread(&mut client, "DLOCK.MACQUIRE 2 x y c PX 60000").starts_with(':'));
    assert!(in_thread(&mut client, "DLOCK.ACQUIRE z a SESSION").starts_with("-ERR SESSION"));
    assert!(in_thread(&mut client, "DLOCK.LOG LEN").starts_with(':'));
    assert!(in_thread(&mut client, "DLOCK.HELP").starts_with('*'));
    assert!(in_thread(&mut client, "INFO dlock").contains("dlock_grants:3"));
    assert!(in_thread(&mut client, "DEBUG RELOAD").starts_with('+'));
    assert!(client.int(format!("DLOCK.CHECK k {token}")) > 0);
    assert_eq!(in_thread(&mut client, "CONFIG SET dlock.max-lease 1000"), "+OK");
    assert!(client.error("DLOCK.ACQUIRE other a PX 2000").contains("dlock.max-lease"));
    assert_eq!(in_thread(&mut client, "CONFIG SET dlock.log-max-len 0"), "+OK");
    assert_eq!(client.int("DLOCK.LOG LEN"), 0);
    // A waiter gets its answer from the release in a thread.
    let mut waiter = server.client();
    waiter.send("DLOCK.ACQUIRE k w PX 1000 BLOCK 60000");
    soon("it waits", || lock_info(&mut client, "k").is_some_and(|info| info.waiters == 1));
    assert_eq!(in_thread(&mut client, "DLOCK.RELEASE k a"), ":1");
    assert!(matches!(waiter.poll(Duration::from_secs(10)), Some(redis::Value::Int(_))));
    assert_eq!(counter(&mut client, "internal_errors"), 0);
}

/// A hundred readers are more than one visit settles: the rest only counts as released.
#[test]
fn holds_that_a_thread_removed_are_not_taken_for_later_ones() {
    let (server, mut client) = server();
    for command in ["DEL k", "FLUSHALL", "SWAPDB 0 7", "RENAME k other"] {
        let mut session = server.client();
        let id = session.int("CLIENT ID");
        session.pour((0..100).map(|n| format!("DLOCK.RLOCK k r{n} PX 3600000 SESSION")));
        in_thread(&mut client, command);
        let token = client.int("DLOCK.RLOCK k new PX 3600000");
        client.send(format!("CLIENT KILL ID {id}"));
        client.send("DLOCK.ACQUIRE k writer");
        client.read().expect("the client is killed");
        assert_eq!(client.read(), Ok(redis::Value::Nil), "{command}");
        assert!(client.int(format!("DLOCK.CHECK k {token}")) > 0, "{command}");
        client.ok("FLUSHALL");
    }
}

#[test]
fn a_lapse_that_a_thread_meets_is_counted() {
    let (_server, mut client) = server();
    client.ok("DEBUG SET-ACTIVE-EXPIRE 0");
    for command in ["EXISTS k", "DLOCK.ACQUIRE k b PX 1", "GET k"] {
        let before = counter(&mut client, "lapses");
        client.int("DLOCK.ACQUIRE k a PX 1");
        client.pass_ms(20);
        in_thread(&mut client, command);
        soon("it is counted", || counter(&mut client, "lapses") > before);
        client.ok("FLUSHALL");
    }
}

#[test]
fn a_lost_event_leaves_nobody_behind() {
    // The entry of the module that panics, how often it runs before that, and the act that makes it run.
    for (entry, skipped, act) in [
        ("unlink", 0, "DEL k"),
        ("server event", 1, "FLUSHALL"),
        ("server event", 0, "SWAPDB 0 5"),
        ("server event", 0, "hang up"),
        ("timer", 0, "DEL k"),
        ("timer", 0, "hang up"),
        ("open", 0, "DEL k"),
        ("open", 0, "hang up"),
        ("note", 0, "DLOCK.MEDDLE k"),
    ] {
        let (mut server, mut client) = server();
        server.tolerate("panic");
        let mut holder = server.client();
        holder.int("DLOCK.ACQUIRE k holder PX 3600000 SESSION");
        let mut waiter = waiter(&server, &mut client);
        client.ok(req!["DLOCK.PANIC", "k", "IN", entry, skipped]);
        match act {
            "hang up" => drop(holder),
            "DLOCK.MEDDLE k" => {
                // The key expires while the engine works, and another module deletes the lock meanwhile.
                client.ok("DEBUG SET-ACTIVE-EXPIRE 0");
                client.ok("DLOCK.MEDDLE k");
                client.int("DLOCK.ACQUIRE x a PX 1");
                client.pass_ms(20);
                client.int("DLOCK.ACQUIRE x a PX 1000");
            }
            command => drop(client.run(command)),
        }
        let granted = waiter.poll(Duration::from_secs(10));
        assert!(matches!(granted, Some(redis::Value::Int(_))), "{entry}, {act}: {granted:?}");
        assert_eq!(counter(&mut client, "internal_errors"), 1, "{entry}, {act}");
        soon("nothing is bound", || counter(&mut client, "sessions") == 0);
    }
}

#[test]
fn a_client_whose_end_was_missed_gets_no_lock() {
    for entry in ["disconnect", "free of a waiter"] {
        let (mut server, mut client) = server();
        server.tolerate("panic");
        client.int("DLOCK.ACQUIRE k holder PX 3600000");
        let (ghost, mut second) = (waiter(&server, &mut client), waiter(&server, &mut client));
        for entry in ["disconnect", entry] {
            client.ok(req!["DLOCK.PANIC", "k", "IN", entry, 0]);
        }
        drop(ghost);
        soon("it panicked", || counter(&mut client, "internal_errors") == 1);
        assert_eq!(client.int("DLOCK.RELEASE k holder"), 1);
        let granted = second.poll(Duration::from_secs(10));
        assert!(matches!(granted, Some(redis::Value::Int(_))), "{entry}: {granted:?}");
    }
}

/// A server that saves without a fork does not open every key for writing at once.
#[test]
fn a_key_that_the_server_does_not_open_now_is_neither_free_nor_gone() {
    let (server, mut client) = server();
    let mut waiters: Vec<Client> = (0..8).map(|_| server.client()).collect();
    client.ok("DLOCK.PANIC k REFUSE 3");
    // Every client takes the lock twenty times. The token of each grant is higher than the last one.
    let mut last = 0;
    let mut left = vec![20; waiters.len()];
    let mut waits = vec![false; waiters.len()];
    while left.iter().any(|left| *left > 0) {
        for (number, waiter) in waiters.iter_mut().enumerate() {
            if left[number] == 0 {
                continue;
            }
            if !waits[number] {
                let session = if number % 2 == 0 { "SESSION" } else { "" };
                let several = number % 4 == 3;
                let lock = if several { "MACQUIRE 2 k j" } else { "ACQUIRE k" };
                waiter.send(format!("DLOCK.{lock} w{number} PX 60000 BLOCK 0 {session}").trim_end());
                waits[number] = true;
            }
            let Some(reply) = waiter.poll(Duration::from_millis(5)) else { continue };
            waits[number] = false;
            let token = match reply {
                redis::Value::Int(token) => token,
                redis::Value::ServerError(error) => {
                    assert_eq!(error.code(), "TRYAGAIN");
                    continue;
                }
                reply => panic!("{reply:?}"),
            };
            left[number] -= 1;
            assert!(token > last, "{token} after {last}");
            last = token;
            for key in if number % 4 == 3 { &["k", "j"][..] } else { &["k"] } {
                assert!(client.int(format!("DLOCK.CHECK {key} {token}")) > 0, "{key}");
                let holders = lock_info(&mut client, &format!("{key} FULL")).unwrap();
                assert_eq!(holders.holds()[0].owner, format!("w{number}").as_bytes());
                while waiter.attempt(format!("DLOCK.RELEASE {key} w{number}")).is_err() {}
            }
        }
    }
    client.ok("DLOCK.PANIC k REFUSE 0");
    soon("nothing is bound", || counter(&mut client, "sessions") == 0);
    assert_eq!(counter(&mut client, "waiters"), 0);
    assert_eq!(counter(&mut client, "internal_errors"), 0);
}

/// A call that may block comes from a client without a connection.
#[test]
fn calls_that_may_block_have_no_client() {
    let (server, mut client) = server();
    client.int("DLOCK.ACQUIRE k holder PX 3600000");
    if client.text("DLOCK.PROMISE DLOCK.CHECK k 1") == "NONE" {
        return skipped("this server has no calls that may block");
    }
    client.ok("CONFIG SET dlock.log-hold 0");
    client.ok("CONFIG SET dlock.log-wait 0");
    let mut call = |command: &str| {
        client.ok(format!("DLOCK.PROMISE {command}"));
        last_reply(&mut client)
    };
    // The log looks up the client of a deadlock, a release and a wait.
    assert!(call("DLOCK.ACQUIRE k holder BLOCK 0").starts_with("-DEADLOCK"));
    assert!(call("DLOCK.MACQUIRE 2 k x holder BLOCK 0").starts_with("-DEADLOCK"));
    assert_eq!(call("DLOCK.ACQUIRE k other BLOCK 20"), "$-1");
    assert_eq!(call("DLOCK.RELEASE k holder"), ":1");
    for command in ["ACQUIRE", "RACQUIRE", "RLOCK", "WLOCK"] {
        assert!(call(&format!("DLOCK.{command} s a SESSION BLOCK 0")).starts_with("-ERR SESSION needs"), "{command}");
        assert!(call(&format!("DLOCK.{command} s a SESSION")).starts_with("-ERR SESSION needs"), "{command}");
    }
    assert!(call("DLOCK.SACQUIRE s a 3 SESSION").starts_with("-ERR SESSION needs"));
    assert!(call("DLOCK.MACQUIRE 2 s t a SESSION").starts_with("-ERR SESSION needs"));
    assert!(call("DLOCK.ACQUIRE s a").starts_with(':'));
    assert!(call("DLOCK.RENEW s a SESSION").starts_with("-ERR SESSION needs"));
    assert_eq!(counter(&mut client, "sessions"), 0);
    // A call in a transaction has no client, either.
    client.ok("MULTI");
    client.queued("DLOCK.CALL DLOCK.ACQUIRE m a SESSION");
    let replies = client.run("EXEC");
    assert!(format!("{replies:?}").contains("SESSION needs"), "{replies:?}");
    // A waiter without a client is counted, survives a look at all clients, and gets the lock.
    client.ok("DLOCK.PROMISE DLOCK.ACQUIRE s b PX 3600000 BLOCK 0");
    client.ok("DLOCK.PROMISE DLOCK.MACQUIRE 2 s t c PX 3600000 BLOCK 0");
    let shown = lock_info(&mut client, "s FULL").unwrap();
    assert_eq!(shown.waiters, 2);
    client.run("DLOCK.LOG GET -1");
    client.run("INFO everything");
    client.run("CLIENT LIST");
    assert_eq!(client.int("DLOCK.RELEASE s a"), 1);
    soon("the first has it", || lock_info(&mut client, "s FULL").is_some_and(|info| info.holds()[0].owner == b"b"));
    assert_eq!(client.int("DLOCK.RELEASE s b"), 1);
    assert!(last_reply(&mut client).starts_with(':'));
    assert!(server.log().lines().all(|line| !line.contains("panic")));
}

/// The module knows the clients that connected before it was loaded.
/// A pause postpones the commands of clients. A call that may block comes from no client.
#[test]
fn calls_that_may_block_write_nothing_in_a_pause() {
    for aof in ["no", "yes"] {
        let (server, mut client) = Setup::new().hooks().conf(&format!("appendonly {aof}")).start().with_client();
        client.int("DLOCK.ACQUIRE lapses holder PX 300");
        client.int("DLOCK.ACQUIRE held holder PX 3600000");
        if client.text("DLOCK.PROMISE DLOCK.CHECK held 1") == "NONE" {
            return skipped("this server has no calls that may block");
        }
        client.ok("CLIENT PAUSE 3600000 WRITE");
        soon("the lease has lapsed", || lock_info(&mut client, "lapses").is_none());
        for request in [
            "ACQUIRE lapses other PX 3600000",
            "ACQUIRE free other PX 3600000",
            "MACQUIRE 2 lapses free other BLOCK 100",
            "SACQUIRE free other 3",
            "RELEASE held holder",
            "RENEW held holder PX 60000",
        ] {
            client.ok(format!("DLOCK.PROMISE DLOCK.{request}"));
            let reply = last_reply(&mut client);
            assert!(reply.starts_with("-TRYAGAIN"), "appendonly {aof}, {request}: {reply}");
        }
        client.ok("CLIENT UNPAUSE");
        client.int("DLOCK.ACQUIRE lapses third PX 3600000");
        assert_eq!(client.int("DLOCK.RELEASE held holder"), 1);
        assert!(server.log().lines().all(|line| !line.contains("panic")));
    }
}

#[test]
fn a_client_that_was_connected_before_the_load_may_have_a_session() {
    let (server, mut client) = Setup::plain().conf("enable-module-command yes").start().with_client();
    let module = module_path();
    let mut second = server.client();
    client.ok(req!["MODULE", "LOAD", module.to_str().unwrap()]);
    second.int("DLOCK.ACQUIRE k a PX 3600000 SESSION");
    client.int("DLOCK.ACQUIRE j a PX 3600000 SESSION");
    drop(second);
    soon("it is released", || lock_info(&mut client, "k").is_none());
    assert_eq!(counter(&mut client, "sessions"), 1);
}
