//! The lock commands of an agent over a quorum of three servers.

use dlock_testkit::redis::Value;
use dlock_testkit::skip::skipped;
use dlock_testkit::{Client, Server, Stopwatch, bytes_of, hold, list_of, lock_info, req, soon};
use std::time::Duration;

use crate::process::{Agent, freed, queued, trio};

#[test]
fn a_lock_is_held_on_a_majority_from_the_grant_to_the_release() {
    let (servers, _agent, mut client) = trio();
    let token = client.int("DLOCK.ACQUIRE k a PX 20000");
    let held = servers.iter().filter(|server| !server.holders("k").is_empty()).count();
    assert!(held >= 2, "{held}");
    let left = client.int(format!("DLOCK.CHECK k {token}"));
    assert!((1..=20_000).contains(&left), "{left}");
    client.nil("DLOCK.ACQUIRE k b");
    client.nil(format!("DLOCK.CHECK k {}", token + 1));
    client.nil("DLOCK.RELEASE k b");
    client.nil(format!("DLOCK.RELEASE k a TOKEN {}", token + 1));
    client.nil("DLOCK.RELEASE k a READ");
    client.nil("DLOCK.RELEASE k a PERMITS 2");
    assert_eq!(client.int(format!("DLOCK.RELEASE k a TOKEN {token}")), 1);
    client.nil("DLOCK.RELEASE k a");
    client.nil(format!("DLOCK.CHECK k {token}"));
    freed(&servers, "k");
    assert!(client.int("DLOCK.ACQUIRE k b") > token);
}

#[test]
fn waiters_are_granted_in_order_and_a_wait_ends_in_time() {
    let (servers, agent, mut client) = trio();
    client.int("DLOCK.ACQUIRE k a");
    let mut waiters: Vec<_> = (0..3).map(|_| agent.client()).collect();
    for (at, waiter) in waiters.iter_mut().enumerate() {
        waiter.send(format!("DLOCK.ACQUIRE k w{at} BLOCK 0"));
        queued(&servers, at + 1, "k");
    }
    let watch = Stopwatch::start();
    client.nil("DLOCK.ACQUIRE k late BLOCK 300");
    watch.is_between(Duration::from_millis(300), Duration::from_millis(900), "a wait");
    let mut last = 0;
    assert_eq!(client.int("DLOCK.RELEASE k a"), 1);
    for (at, waiter) in waiters.iter_mut().enumerate() {
        let token = waiter.granted();
        assert!(token > last);
        last = token;
        assert_eq!(waiter.int(format!("DLOCK.RELEASE k w{at}")), 1);
    }
}

#[test]
fn a_waiter_that_disconnects_leaves_the_queue() {
    let (servers, agent, mut client) = trio();
    client.int("DLOCK.ACQUIRE k a");
    let mut waiter = agent.client();
    waiter.send("DLOCK.ACQUIRE k b BLOCK 0");
    queued(&servers, 1, "k");
    drop(waiter);
    queued(&servers, 0, "k");
}

#[test]
fn readers_share_and_writers_do_not() {
    let (_servers, _agent, mut client) = trio();
    client.int("DLOCK.RLOCK k a PX 20000");
    client.int("DLOCK.RLOCK k b PX 20000");
    client.nil("DLOCK.WLOCK k c");
    let info = lock_info(&mut client, "k FULL").expect("a lock");
    assert_eq!((info.mode.as_str(), info.holders, info.count), ("shared", 2, 2));
    assert_eq!(client.int("DLOCK.RELEASE k a READ"), 1);
    assert_eq!(client.int("DLOCK.RELEASE k b ALL"), 1);
    client.int("DLOCK.WLOCK k c PX 20000");
    client.nil("DLOCK.RLOCK k a");
}

#[test]
fn a_lease_ends_and_a_renewal_puts_it_off() {
    let (servers, _agent, mut client) = trio();
    let token = client.int("DLOCK.ACQUIRE k a PX 2000");
    let watch = Stopwatch::start();
    while watch.elapsed() < Duration::from_millis(2500) {
        assert_eq!(client.int(format!("DLOCK.RENEW k a TOKEN {token}")), 1);
        std::thread::sleep(Duration::from_millis(100));
    }
    assert_eq!(client.int("DLOCK.RENEW k a PX 2000"), 1);
    // The lease began before the reply to the renewal, and so before this watch.
    let renewed = Stopwatch::start();
    let left = client.int(format!("DLOCK.CHECK k {token}"));
    assert!(left <= 2000, "{left}");
    soon("the hold lapses", || {
        let asked = renewed.elapsed();
        // An error (`None`) says that too few servers answered in time, and nothing about the hold.
        let left = client.ask(format!("DLOCK.CHECK k {token}"));
        let is_held = matches!(left, Some(Value::Int(_)));
        assert!(!is_held || asked < Duration::from_millis(2000), "{asked:?}");
        left == Some(Value::Nil)
    });
    freed(&servers, "k");
    client.nil("DLOCK.RENEW k a");
    client.nil("DLOCK.RELEASE k a");
    client.int("DLOCK.ACQUIRE k a PX 2000");
    let error = client.error("DLOCK.RENEW k a PX 4000");
    assert!(error.contains("longer than the one of the grant"), "{error}");
}

#[test]
fn a_lease_that_has_passed_is_over_while_the_servers_still_hold_it() {
    let (servers, _agent, mut client) = trio();
    let releases = |may: char| {
        for server in &servers {
            server.client().ok(format!("ACL SETUSER default {may}dlock.release"));
        }
    };
    // On a busy machine, the servers' leases may end before the first check. Then the next lock is tried.
    let mut checks = 0;
    for key in ["k", "l", "m", "n", "o"] {
        let asked = Stopwatch::start();
        let token = client.int(format!("DLOCK.ACQUIRE {key} a PX 4000"));
        let granted = Stopwatch::start();
        let left = |server: &Server| {
            Duration::from_millis(u64::try_from(server.client().int(format!("PTTL {key}"))).unwrap_or(0))
        };
        // Without the right to release, the agent cannot remove the hold when the client's lease has passed.
        releases('-');
        for server in &servers {
            // The agent asks the servers for 4085 ms, because clocks drift.
            assert!(left(server) + asked.elapsed() > Duration::from_millis(4050), "the servers' lease is not longer");
        }
        soon("the client's lease has passed", || granted.elapsed() >= Duration::from_millis(4000));
        while servers.iter().any(|server| !left(server).is_zero()) {
            client.nil(format!("DLOCK.CHECK {key} {token}"));
            checks += 1;
        }
        if checks > 0 {
            break;
        }
        releases('+');
    }
    assert!(checks > 0, "no lock was checked while the servers still held it");
}

/// The agent stands still from the grant until its guard has ended, while the servers still have the lease.
#[test]
fn a_late_agent_does_not_say_that_a_lease_that_has_passed_is_held() {
    let (servers, agent, mut client) = trio();
    servers.iter().for_each(|server| server.client().ok("ACL SETUSER default -dlock.release"));
    let mut checks = 0;
    for key in ["k", "l", "m"] {
        let token = client.int(format!("DLOCK.ACQUIRE {key} a PX 10000"));
        let granted = Stopwatch::start();
        agent.signal(libc::SIGSTOP);
        // The agent asks the servers for 10205 ms, of which the guard counts on 10101.
        soon("the guard has ended", || granted.elapsed() >= Duration::from_millis(10_110));
        agent.signal(libc::SIGCONT);
        let is_held = || servers.iter().all(|server| !server.holders(key).is_empty());
        while is_held() {
            client.nil(format!("DLOCK.CHECK {key} {token}"));
            checks += usize::from(is_held());
        }
        if checks > 0 {
            return;
        }
    }
    skipped("the machine was too late to check a lock while the servers still held it");
}

#[test]
fn the_owner_asterisk_becomes_a_random_owner() {
    let (_servers, _agent, mut client) = trio();
    let reply = list_of(&client.run("DLOCK.ACQUIRE k *"));
    let owner = String::from_utf8(bytes_of(&reply[0])).unwrap();
    assert_eq!(owner.len(), 36, "the length of a UUID");
    assert_eq!(client.int(req!["DLOCK.RELEASE", "k", &owner]), 1);
}

#[test]
fn info_shows_own_holds_with_their_owners_and_other_holds_as_a_majority_has_them() {
    let (servers, agent, mut client) = trio();
    client.nil("DLOCK.INFO k");
    let token = client.int("DLOCK.ACQUIRE k a PX 20000");
    let mut waiter = agent.client();
    waiter.send("DLOCK.ACQUIRE k b BLOCK 0");
    queued(&servers, 1, "k");
    let shown = hold(&mut client, "k", "a", "exclusive").expect("a hold");
    assert_eq!((shown.token, shown.count), (token, 1));
    let info = lock_info(&mut client, "k FULL").expect("a lock");
    assert_eq!((info.mode.as_str(), info.token, info.waiters), ("exclusive", token, 1));
    // A second agent sees the lock of the first one.
    let other = Agent::over(&servers);
    let mut stranger = other.client();
    // The waiter waits on one server. If that server is late, the other two answer without it.
    soon("the waiter shows", || lock_info(&mut stranger, "k").expect("a lock").waiters == 1);
    let info = lock_info(&mut stranger, "k FULL").expect("a lock");
    assert_eq!((info.token, info.holders), (token, 1));
    assert!(String::from_utf8_lossy(&info.holds()[0].owner).starts_with("a:"), "{info:?}");
    // The second agent shows the lease on the servers, which is about 400 ms longer than the client's.
    let left = stranger.int(format!("DLOCK.CHECK k {token}"));
    assert!((1..=20_500).contains(&left), "{left}");
    stranger.nil("DLOCK.RELEASE k a");
    stranger.nil("DLOCK.ACQUIRE k a");
    assert_eq!(stranger.int("EXISTS k free"), 1);
}

#[test]
fn what_a_quorum_cannot_offer_is_an_error_that_says_why() {
    let (_servers, _agent, mut client) = trio();
    for (request, reason) in [
        ("DLOCK.SACQUIRE k a 3", "more than the limit"),
        ("DLOCK.MACQUIRE 1 k a", "a queue of their own"),
        ("DLOCK.ACQUIRE k a MINTOKEN 5", "MINTOKEN"),
        ("DLOCK.ACQUIRE k a MAXHOLD 50000", "MAXHOLD"),
        ("DLOCK.ACQUIRE k a EXAT 4000000000", "EXAT"),
        ("DLOCK.LOG GET", "dlock log"),
    ] {
        let error = client.error(request);
        assert!(error.starts_with("ERR ") && error.contains(reason), "{request}: {error}");
    }
    client.nil("DLOCK.INFO k");
    client.int("DLOCK.RLOCK k a");
    for request in ["DLOCK.RLOCK k a", "DLOCK.WLOCK k a BLOCK 10"] {
        let error = client.error(request);
        assert!(error.contains("not reentrant"), "{request}: {error}");
    }
    assert!(client.error("DLOCK.RACQUIRE k a").contains("not reentrant"));
    client.int("DLOCK.RACQUIRE other a");
    assert!(client.error("DLOCK.RACQUIRE other a").contains("not reentrant"));
    client.nil("DLOCK.ACQUIRE k a");
    assert!(client.error("DLOCK.ACQUIRE k a BLOCK 10").starts_with("DEADLOCK "));
}

/// The texts are those of the module, which parses the arguments with the same code.
#[test]
fn invalid_arguments_get_the_errors_of_the_module() {
    let (servers, _agent, mut client) = trio();
    let mut module: Client = servers[0].client();
    for request in [
        "DLOCK.ACQUIRE k",
        "DLOCK.ACQUIRE k a NX",
        "DLOCK.ACQUIRE k a PX",
        "DLOCK.ACQUIRE k a PX 0",
        "DLOCK.ACQUIRE k a PX ten",
        "DLOCK.ACQUIRE k a EX 5 PX 5",
        "DLOCK.ACQUIRE k a BLOCK -1",
        "DLOCK.ACQUIRE k a SESSION PX 100",
        "DLOCK.ACQUIRE k a SESSIONID nobody",
        "DLOCK.ACQUIRE k * REQUEST 1",
        "DLOCK.RELEASE k a ALL PERMITS 2",
        "DLOCK.RELEASE k a TOKEN 0",
        "DLOCK.RENEW k a TOKEN 1 MINTOKEN 1",
        "DLOCK.RENEW k a SESSIONID nobody",
        "DLOCK.CHECK k",
        "DLOCK.CHECK k 0",
        "DLOCK.INFO k COUNT 1",
        "DLOCK.INFO k FULL COUNT -1",
        "DLOCK.SESSION s PX 1",
        "DLOCK.SESSION s XX",
        "DLOCK.SESSION s PX 500 XX",
    ] {
        assert_eq!(client.error(request), module.error(request), "{request}");
    }
    assert_eq!(client.error(["DLOCK.ACQUIRE", "", "a"]), module.error(["DLOCK.ACQUIRE", "", "a"]));
    for request in ["DLOCK.ACQUIRE k a EX 3600", "DLOCK.RENEW k a EX 3600"] {
        let error = client.error(request);
        assert!(error.starts_with("ERR lease is longer than the agent's --longest-lease allows ("), "{error}");
        assert!(error.ends_with(" ms): EX"), "{error}");
    }
}

#[test]
fn an_outage_is_an_error_and_not_a_refusal() {
    let (mut servers, _agent, mut client) = trio();
    let token = client.int("DLOCK.ACQUIRE held a PX 5000");
    servers[1].kill9();
    client.int("DLOCK.ACQUIRE one a");
    servers[2].kill9();
    for request in ["DLOCK.ACQUIRE k a", "DLOCK.ACQUIRE k a BLOCK 300", "DLOCK.INFO k", "DLOCK.RENEW held a"] {
        let error = client.error(request);
        assert!(error.starts_with("LOADING "), "{request}: {error}");
    }
    // The agent answers by itself for its own hold, whose lease has not passed yet.
    assert!(client.int(format!("DLOCK.CHECK held {token}")) > 0);
    // Without a majority, every release fails until the lease has passed.
    assert!(client.error("PING").starts_with("LOADING "));
    for _ in 0..3 {
        assert!(client.error("DLOCK.RELEASE held a").starts_with("LOADING "));
    }
    soon("the lease ends", || client.attempt("DLOCK.RELEASE held a") == Ok(Value::Nil));
    client.nil("DLOCK.RENEW held a");
    assert!(client.outcome(format!("DLOCK.CHECK held {token}")).unwrap().is_err());
    servers[2].boot();
    soon("a majority is back", || client.outcome("DLOCK.ACQUIRE k a").unwrap().is_ok());
}

#[test]
fn clients_that_ping_at_once_without_a_majority_get_their_errors_together() {
    let (servers, agent, mut client) = trio();
    assert_eq!(client.text("PING"), "PONG");
    servers[..2].iter().for_each(Server::freeze);
    let found = || matches!(agent.client().outcome("PING"), Ok(Err(error)) if error.starts_with("LOADING "));
    soon("the agent notices that the majority is gone", found);
    let watch = Stopwatch::start();
    let mut clients: Vec<_> = (0..20).map(|_| agent.client()).collect();
    clients.iter_mut().for_each(|client| client.send("PING"));
    clients.iter_mut().for_each(|client| assert!(client.fails().starts_with("LOADING ")));
    // The 20 requests would take a second each if they were answered one after the other.
    assert!(watch.elapsed() < Duration::from_secs(8), "{:?}", watch.elapsed());
}
