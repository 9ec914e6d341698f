//! A replica is equal to its primary, answers for itself, and does nothing by itself.

use std::time::Duration;

use redis::Value;

use crate::refusals::WRITES;
use crate::support::state::{assert_same, state};
use crate::support::story::story;
use crate::support::workload::random_operations;
use crate::support::{Client, Server, Setup, lock_info, req, soon};

#[test]
fn replicas_equal_the_primary_after_random_operations() {
    let (primary, replica) = Server::start().with_replica();
    let second = replica.replica();
    let mut client = primary.client();
    random_operations(&mut client, 42);
    replica.wait_synced(&primary);
    second.wait_synced(&replica);
    let expected = state(&mut client);
    assert_same("replica", &expected, &state(&mut replica.client()));
    assert_same("replica of the replica", &expected, &state(&mut second.client()));
    // A replica that comes later, by a full copy.
    let late = primary.replica();
    assert_same("full copy", &expected, &state(&mut late.client()));
    replica.promote();
    assert_same("promoted", &expected, &state(&mut replica.client()));
}

#[test]
fn every_command_leaves_replica_and_primary_equal() {
    let (primary, replica) = Server::start().with_replica();
    let (mut client, mut copy) = (primary.client(), replica.client());
    for request in [
        "DLOCK.ACQUIRE k a PX 600000",
        "DLOCK.RELEASE k a",
        "DLOCK.RACQUIRE k a",
        "DLOCK.RACQUIRE k a EX 900",
        "DLOCK.RLOCK k a",
        "DLOCK.RENEW k a PX 700000",
        "DLOCK.RENEW k a READ",
        "DLOCK.RELEASE k a READ",
        "DLOCK.RELEASE k a",
        "DLOCK.RELEASE k a",
        "DLOCK.RLOCK k a",
        "DLOCK.RLOCK k b PX 50000",
        "DLOCK.RLOCK k *",
        "DLOCK.RELEASE k b",
        "PEXPIRE k 9000",
        "DLOCK.RLOCK k b",
        "DLOCK.RLOCK k b",
        "DLOCK.RELEASE k b ALL",
        "RENAME k l",
        "DLOCK.ACQUIRE k z",
        "MOVE k 1",
        "SWAPDB 1 0",
        "DEL k",
        "DLOCK.WLOCK k a",
        "FLUSHALL",
        "DLOCK.SACQUIRE s a 4 PERMITS 2",
        "DLOCK.SACQUIRE s b 4 SLOT PX 500000",
        "DLOCK.SACQUIRE s c 4 SLOT REQUEST r",
        "DLOCK.RELEASE s a",
        "DLOCK.MACQUIRE 2 m n a PX 600000",
        "DLOCK.RENEW m a PX 700000 MINTOKEN AHEAD",
        "DLOCK.RELEASE n a BREAK",
        "DLOCK.ACQUIRE n a PX 600000 MAXHOLD 800000",
        "DLOCK.RENEW n a PX 900000",
        "DLOCK.WLOCK k a",
        "SET k v",
    ] {
        // A token that only MINTOKEN can give.
        let request = &request.replace("AHEAD", &(client.now_us() + 5_000_000).to_string());
        assert_ne!(client.run(request), Value::Nil, "{request}");
        replica.wait_synced(&primary);
        let expected = state(&mut client);
        assert_same(request, &expected, &state(&mut copy));
    }
}

#[test]
fn lapsed_holds_leave_the_replica_when_they_leave_the_primary() {
    let (primary, replica) = Server::start().with_replica();
    let mut client = primary.client();
    let acts = [
        "RLOCK k new PX 600000",
        "RLOCK k b PX 700000",
        "RENEW k b PX 800000",
        "RELEASE k b",
        "RELEASE k c ALL",
        "RLOCK k a PX 600000",
    ];
    for (n, act) in acts.iter().enumerate() {
        let key = format!("k{n}x");
        for (owner, lease) in [("a", 1), ("b", 600_000), ("lapsed", 1), ("c", 600_000), ("c", 600_000)] {
            client.int(format!("DLOCK.RLOCK {key} {owner} PX {lease}"));
        }
        client.pass_ms(1);
        client.run(format!("DLOCK.{}", act.replacen(" k", &format!(" {key}"), 1)));
        replica.wait_synced(&primary);
        let expected = state(&mut client);
        assert_same(act, &expected, &state(&mut replica.client()));
        let count = lock_info(&mut client, &key).map(|info| info.count);
        assert_eq!(lock_info(&mut replica.client(), &key).map(|info| info.count), count);
        for owner in ["a", "b", "c", "new"] {
            client.run(format!("DLOCK.RELEASE {key} {owner} ALL"));
        }
        replica.wait_synced(&primary);
        assert_eq!(client.int(format!("EXISTS {key}")), 0, "{act}");
        assert_same(act, &state(&mut client), &state(&mut replica.client()));
    }
}

#[test]
fn an_expiry_set_by_others_is_the_same_on_the_replica() {
    let (primary, replica) = Server::start().with_replica();
    let (mut client, mut copy) = (primary.client(), replica.client());
    for way in ["PERSIST k", "PEXPIRE k 900000", "PEXPIRE k 5000"] {
        client.int("DLOCK.ACQUIRE k a PX 600000");
        client.int(way);
        replica.wait_synced(&primary);
        let expected = state(&mut client);
        assert_same(way, &expected, &state(&mut copy));
        client.int("DLOCK.RENEW k a");
        replica.wait_synced(&primary);
        assert_eq!(client.end_of("k"), copy.end_of("k"), "{way}");
        client.int("DEL k");
    }
}

#[test]
fn transactions_scripts_and_functions_replicate_their_effects() {
    let (primary, replica) = Server::start().with_replica();
    let mut client = primary.client();
    client.ok("MULTI");
    for request in ["DLOCK.RACQUIRE k a", "DLOCK.RACQUIRE k a", "SET x 1", "DLOCK.RELEASE k a", "DLOCK.RLOCK r a"] {
        client.text(request);
    }
    client.run("EXEC");
    let script = "redis.call('DLOCK.ACQUIRE', KEYS[1], 'a') redis.call('DLOCK.RLOCK', KEYS[1], 'a', 'PX', 500000)
        return redis.call('DLOCK.RELEASE', KEYS[1], 'a', 'WRITE')";
    assert_eq!(client.int(req!["EVAL", script, 1, "s"]), 1);
    replica.wait_synced(&primary);
    let expected = state(&mut client);
    assert_eq!(expected.len(), 4);
    assert_same("replica", &expected, &state(&mut replica.client()));
}

#[test]
fn replicas_refuse_to_write() {
    let (primary, replica) = Server::start().with_replica();
    let mut client = primary.client();
    client.int("DLOCK.WLOCK k a");
    replica.wait_synced(&primary);
    let mut copy = replica.client();
    for read_only in ["yes", "no"] {
        copy.ok(format!("CONFIG SET replica-read-only {read_only}"));
        let before = state(&mut copy);
        for request in WRITES {
            let error = copy.error(format!("DLOCK.{request}"));
            assert!(error.starts_with("READONLY "), "read-only {read_only}: {request}: {error}");
            let script = req!["EVAL", "return redis.call(unpack(ARGV))", 0];
            let script = format!("DLOCK.{request}").split(' ').fold(script, |mut script, word| {
                script.arg(word);
                script
            });
            let error = copy.error(script);
            assert!(error.contains("READONLY"), "read-only {read_only}, script: {request}: {error}");
        }
        assert_same("refused writes", &before, &state(&mut copy));
    }
    assert_eq!(client.int("DLOCK.RELEASE k a"), 1);
}

#[test]
fn a_replica_refuses_acquisitions_releases_and_renewals_with_any_options() {
    let (primary, replica) = Server::start().with_replica();
    let mut client = primary.client();
    let token = client.int("DLOCK.RACQUIRE k a PX 600000 REQUEST id");
    replica.wait_synced(&primary);
    let mut copy = replica.client();
    for read_only in ["yes", "no"] {
        copy.ok(format!("CONFIG SET replica-read-only {read_only}"));
        for command in ["ACQUIRE", "RACQUIRE", "RLOCK", "WLOCK"] {
            for options in
                ["", "PX 5000", "BLOCK 0", "BLOCK 50", "SESSION", "SESSION BLOCK 0", "REQUEST id", "BLOCK 0 REQUEST id"]
            {
                for words in ["k a", "k b", "k *", "new a"] {
                    if words == "k *" && options.contains("REQUEST") {
                        continue;
                    }
                    let error = copy.error(format!("DLOCK.{command} {words} {options}"));
                    assert!(error.starts_with("READONLY "), "{read_only}: {command} {words} {options}: {error}");
                }
            }
        }
        for request in [
            "RELEASE k a".to_owned(),
            "RELEASE k b".to_owned(),
            "RELEASE none a".to_owned(),
            format!("RELEASE k a TOKEN {token}"),
            "RELEASE k a ALL REQUEST x".to_owned(),
            "RENEW k a".to_owned(),
            "RENEW k b PX 5000".to_owned(),
            "RENEW none a".to_owned(),
            "RENEW k a SESSION".to_owned(),
            format!("RENEW k a MINTOKEN {}", token + 1),
        ] {
            let error = copy.error(format!("DLOCK.{request}"));
            assert!(error.starts_with("READONLY "), "{read_only}: {request}: {error}");
        }
        copy.ok("MULTI");
        let queued = copy.attempt("DLOCK.ACQUIRE new a");
        let done = copy.attempt("EXEC");
        let refused = [queued, done].into_iter().any(|reply| format!("{reply:?}").contains("READONLY"));
        assert!(refused, "{read_only}: in a transaction");
        assert!(copy.int(format!("DLOCK.CHECK k {token}")) > 0);
        assert_eq!(lock_info(&mut copy, "k FULL").unwrap().queue, Some(vec![]), "a replica has no queue");
    }
    assert_eq!((copy.int("EXISTS new"), copy.int("DBSIZE")), (0, 1));
    assert_same("unchanged", &state(&mut client), &state(&mut copy));
}

#[test]
fn effects_are_not_for_clients_of_replicas_either() {
    let primary = Server::conf("appendonly yes");
    let replica = Setup::new().conf("replica-read-only no").replica_of(&primary);
    primary.client().int("DLOCK.ACQUIRE k a");
    replica.wait_synced(&primary);
    let effect = primary.aof().into_iter().find(|command| command[0] == b"DLOCK.APPLY").expect("an effect");
    let mut copy = replica.client();
    let before = state(&mut copy);
    let error = copy.error(&effect);
    assert!(error.starts_with("NOPERM "), "{error}");
    assert_same("refused effect", &before, &state(&mut copy));
    // A replica that was promoted refuses the effect, too.
    replica.promote();
    assert!(copy.error(&effect).starts_with("NOPERM "));
}

#[test]
fn replicas_answer_by_their_own_clock() {
    let (primary, replica) = Server::start().with_replica();
    let mut client = primary.client();
    let short = client.int("DLOCK.RLOCK k a PX 2000");
    let long = client.int("DLOCK.RLOCK k b PX 600000");
    let gone = client.int("DLOCK.ACQUIRE gone a PX 2000");
    replica.wait_synced(&primary);
    let mut copy = replica.client();
    let left = copy.int(format!("DLOCK.CHECK k {long}"));
    assert!((500_000..=600_000).contains(&left));
    let info = lock_info(&mut copy, "k FULL").unwrap();
    assert_eq!((info.mode.as_str(), info.holders, info.token, info.waiters), ("shared", 2, long, 0));
    assert_eq!(info.queue, Some(vec![]));
    // The primary stands still: nobody tells the replica that a lease is over.
    primary.freeze();
    let end = copy.end_of("gone");
    copy.pass(end);
    copy.nil(format!("DLOCK.CHECK k {short}"));
    copy.nil(format!("DLOCK.CHECK gone {gone}"));
    copy.nil("DLOCK.INFO gone");
    assert_eq!(lock_info(&mut copy, "k FULL").unwrap().holders, 1);
    assert_eq!(lock_info(&mut copy, "k OWNER a").unwrap().holds(), []);
    copy.pass_ms(1200);
    assert_eq!(copy.int("DBSIZE"), 2, "a replica never expires by itself");
    primary.thaw();
    soon("the primary expires it", || copy.int("DBSIZE") == 1);
}

#[test]
fn a_promoted_replica_goes_on_where_the_primary_ended() {
    let (primary, replica) = Server::start().with_replica();
    let mut client = primary.client();
    let tokens = story(
        &mut client,
        "ACQUIRE k a PX 600000     -> t1
         RLOCK r a PX 600000       -> t2
         RLOCK r b PX 600000       -> t3
         RLOCK r c PX 100          -> t4
         ACQUIRE short a PX 100    -> t5",
    );
    let end = client.end_of("k");
    replica.wait_synced(&primary);
    drop(primary);
    replica.promote();
    let mut copy = replica.client();
    copy.pass_ms(100);
    assert_eq!(copy.end_of("k"), end);
    copy.nil("DLOCK.RENEW r c");
    assert!(copy.int("DLOCK.ACQUIRE short b") > tokens["t5"]);
    copy.nil("DLOCK.ACQUIRE k b");
    assert_eq!(copy.int(format!("DLOCK.RENEW k a TOKEN {}", tokens["t1"])), 1);
    assert_eq!(copy.int(format!("DLOCK.RELEASE k a TOKEN {}", tokens["t1"])), 1);
    assert_eq!(lock_info(&mut copy, "r").unwrap().holders, 2);
    assert!(copy.int("DLOCK.ACQUIRE k b") > tokens["t5"]);
}

#[test]
fn a_demoted_primary_takes_over_the_others_state() {
    let (old, new) = (Server::start(), Server::start());
    old.client().int("DLOCK.ACQUIRE mine a");
    new.client().int("DLOCK.ACQUIRE theirs a");
    new.client().int("DLOCK.RLOCK readers a PX 600000");
    old.follow(&new);
    let expected = state(&mut new.client());
    assert_same("demoted", &expected, &state(&mut old.client()));
    assert!(old.client().error("DLOCK.ACQUIRE mine b").starts_with("READONLY "));
}

#[test]
fn full_copies_of_every_kind_carry_locks() {
    let (primary, mut client) = Server::start().with_client();
    for n in 0..100 {
        client.int(format!("DLOCK.RLOCK k{n} a PX 600000"));
        client.int(format!("DLOCK.RLOCK k{n} b PX 1"));
    }
    let expected = state(&mut client);
    for (diskless, load) in [("yes", "disabled"), ("no", "disabled"), ("yes", "swapdb"), ("yes", "on-empty-db")] {
        client.ok(format!("CONFIG SET repl-diskless-sync {diskless}"));
        let replica = Setup::new().conf(&format!("repl-diskless-load {load}"));
        let replica = replica.replica_of(&primary);
        assert_same(&format!("diskless {diskless}, load {load}"), &expected, &state(&mut replica.client()));
        // The file is loaded once more over what the server has.
        replica.promote();
        replica.client().int("DLOCK.ACQUIRE own a");
        replica.follow(&primary);
        assert_same(&format!("again: diskless {diskless}, load {load}"), &expected, &state(&mut replica.client()));
    }
}

#[test]
fn wait_counts_the_replicas_that_have_a_grant() {
    let (primary, replica) = Server::start().with_replica();
    let mut client = primary.client();
    client.int("DLOCK.ACQUIRE k a");
    assert_eq!(client.int("WAIT 1 10000"), 1);
    assert!(lock_info(&mut replica.client(), "k").is_some());
    replica.freeze();
    client.int("DLOCK.RENEW k a PX 700000");
    assert_eq!(client.int("WAIT 1 50"), 0, "a renewal is in the stream, too");
    replica.thaw();
}

#[test]
fn a_replica_of_a_frozen_primary_keeps_its_locks_over_a_restart() {
    let primary = Server::start();
    let mut replica = Setup::new().conf("appendonly yes").replica_of(&primary);
    replica.wait_saved();
    let mut client = primary.client();
    client.int("DLOCK.RLOCK k a PX 50");
    client.int("DLOCK.RLOCK k b PX 600000");
    replica.wait_synced(&primary);
    let expected = state(&mut client);
    client.pass_ms(50);
    replica.reconfigure(|setup| setup.conf(&format!("replicaof 127.0.0.1 {}", primary.port())));
    primary.freeze();
    replica.crash();
    assert_same("restarted replica", &expected, &state(&mut replica.client()));
    primary.thaw();
    replica.wait_synced(&primary);
    assert_same("and in sync again", &expected, &state(&mut replica.client()));
}

#[test]
fn replica_and_primary_agree_on_leases_that_end_beside_commands() {
    let (primary, replica) = Server::start().with_replica();
    let mut client = primary.client();
    // Releases and renewals in the very milliseconds in which leases end.
    let mut requests = Vec::new();
    for round in 0..40 {
        for n in 0..20 {
            requests.push(format!("DLOCK.RLOCK k{n} long{round} PX 600000"));
            requests.push(format!("DLOCK.RLOCK k{n} short{round} PX {}", 1 + n % 4));
            requests.push(format!("DLOCK.RENEW k{n} short{round} PX {}", 1 + n % 3));
            requests.push(format!("DLOCK.RELEASE k{n} long{} ALL", round.max(1) - 1));
            requests.push(format!("DLOCK.RELEASE k{n} short{round}"));
        }
    }
    run_slowly(&mut client, &requests);
    replica.wait_synced(&primary);
    client.pass_ms(10);
    let expected = state(&mut client);
    assert_same("replica", &expected, &state(&mut replica.client()));
}

fn run_slowly(client: &mut Client, requests: &[String]) {
    for chunk in requests.chunks(5) {
        let replies = client.pipeline(chunk);
        assert!(replies.iter().all(|reply| matches!(reply, Ok(Value::Int(_) | Value::Nil))), "{replies:?}");
        std::thread::sleep(Duration::from_micros(300));
    }
}
