//! Locks survive restarts, whatever keeps them, and leases go on while the server is down.

use std::collections::BTreeSet;
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::time::{Duration, Instant};

use redis::Value;

use crate::support::payload::{body, seal};
use crate::support::state::{State, assert_same, state};
use crate::support::story::story;
use crate::support::workload::random_operations;
use crate::support::{Client, Server, Setup, eventually, list_of, lock_info, req, soon, text_of};

/// Holds of every kind: modes, counts, leases, owners, databases, an early end, lapsed holds beside live ones.
#[track_caller]
fn variety(client: &mut Client) -> State {
    story(
        client,
        "RLOCK lapsed a PX 1            -> t1
         RLOCK lapsed b PX 600000       -> t2
         RLOCK lapsed c PX 1            -> t3
         WLOCK mine a PX 1              -> t4
         RLOCK mine a PX 600000         -> t5
         ACQUIRE exclusive a            -> t6
         RACQUIRE entered a PX 500000   -> t7
         RACQUIRE entered a             -> t7
         RACQUIRE entered a             -> t7
         WLOCK both a PX 400000         -> t8
         RLOCK both a PX 500000         -> t9
         RLOCK both a                   -> t9
         RLOCK early a PX 600000        -> t10
         PEXPIRE early 500000           -> 1
         SELECT 2                       -> OK
         RLOCK k a PX 600000            -> t11
         SELECT 0                       -> OK",
    );
    let ahead = client.now_us() + 1_000_000;
    client.int(format!("DLOCK.RENEW both a READ MINTOKEN {ahead}"));
    for owner in [b"\0\r\n\xff".as_slice(), b"0f8fad5b-d9cb-469f-a165-70867728950e", &[b'x'; 1024]] {
        client.int(req!["DLOCK.RLOCK", b"\xff\0", owner, "PX", 600_000]);
    }
    let readers: Vec<_> = (0..500).map(|n| format!("DLOCK.RLOCK readers r{n} PX {}", 600_000 + n)).collect();
    client.pipeline(&readers);
    client.pass_ms(2);
    state(client)
}

/// A way to keep data over a restart: its name, the configuration, and what to do before the end.
type Way = (&'static str, Setup, fn(&Server));

fn ways() -> Vec<Way> {
    fn nothing(_: &Server) {}
    fn save(server: &Server) {
        server.client().ok("SAVE");
    }
    fn rewrite(server: &Server) {
        server.client().run("BGREWRITEAOF");
        server.wait_saved();
    }
    let aof = "appendonly yes\nappendfsync always";
    let preamble = |word: &str| Setup::new().conf(&format!("{aof}\naof-use-rdb-preamble {word}"));
    vec![
        ("RDB", Setup::new(), save),
        ("AOF", preamble("yes"), nothing),
        ("AOF rewritten with an RDB preamble", preamble("yes"), rewrite),
        ("AOF rewritten as commands", preamble("no"), rewrite),
    ]
}

#[test]
fn a_restart_keeps_every_lock_as_it_was() {
    for (way, setup, keep) in ways() {
        let (mut server, mut client) = setup.start().with_client();
        let before = variety(&mut client);
        let shown = list_of(&client.run("DLOCK.INFO readers FULL COUNT 0"));
        keep(&server);
        server.crash();
        let mut client = server.client();
        assert_same(way, &before, &state(&mut client));
        assert_eq!(list_of(&client.run("DLOCK.INFO readers FULL COUNT 0")).len(), shown.len());
        story(
            &mut client,
            "INFO lapsed FULL       -> mode=shared holders=1 holds=b
             INFO mine              -> mode=shared holders=1 count=1
             INFO exclusive         -> mode=exclusive
             INFO entered           -> count=3
             INFO both              -> mode=both count=3
             ACQUIRE exclusive b    -> nil
             RELEASE entered a      -> 0
             RELEASE both a WRITE   -> 1
             RELEASE mine a         -> 1
             RENEW lapsed a         -> nil
             RLOCK lapsed a         -> t1",
        );
        // A hold's own lease is kept, too.
        client.leaves("entered", 500_000, "DLOCK.RENEW entered a");
        client.leaves("exclusive", 30_000, "DLOCK.RENEW exclusive a");
    }
}

#[test]
fn orderly_ends_and_reloads_keep_every_lock() {
    let (mut server, mut client) = Server::start().with_client();
    let before = variety(&mut client);
    client.ok("DEBUG RELOAD");
    assert_same("DEBUG RELOAD", &before, &state(&mut client));
    client.run("BGSAVE");
    server.wait_saved();
    client.send("SHUTDOWN SAVE");
    server.ended();
    server.boot();
    assert_same("SHUTDOWN SAVE", &before, &state(&mut server.client()));
    server.client().ok("CONFIG SET appendonly yes");
    server.wait_saved();
    server.client().ok("DEBUG LOADAOF");
    assert_same("DEBUG LOADAOF", &before, &state(&mut server.client()));
}

#[test]
fn leases_run_on_while_the_server_is_down() {
    for (way, setup, keep) in ways() {
        let (mut server, mut client) = setup.start().with_client();
        let gone = client.int("DLOCK.RACQUIRE gone a PX 2500");
        client.int("DLOCK.RLOCK some a PX 2500");
        // `some` ends after `gone`.
        let end = client.end_of("some");
        let stays = client.int("DLOCK.RLOCK some b PX 600000");
        let last = client.end_of("some");
        keep(&server);
        let asked = Instant::now();
        let left = client.int(format!("DLOCK.CHECK gone {gone}"));
        assert!(left > 0, "the test is too slow");
        server.kill9();
        let left = Duration::from_millis(left.unsigned_abs() + 10);
        eventually(Duration::from_secs(5), "downtime", || asked.elapsed() > left);
        server.boot();
        let mut client = server.client();
        client.pass(end);
        client.nil(format!("DLOCK.CHECK gone {gone}"));
        client.nil("DLOCK.RENEW gone a");
        assert!(client.int("DLOCK.RACQUIRE gone b") > stays, "{way}");
        assert_eq!(client.end_of("some"), last, "{way}");
        assert_eq!(lock_info(&mut client, "some FULL").unwrap().holders, 1);
        client.nil("DLOCK.RENEW some a");
        assert_eq!(client.int(format!("DLOCK.RELEASE some b TOKEN {stays}")), 1);
        assert_eq!(client.int("EXISTS some"), 0, "{way}");
    }
}

#[test]
fn a_restart_does_not_lengthen_a_lease() {
    for (way, setup, keep) in ways() {
        let (mut server, mut client) = setup.start().with_client();
        let token = client.int("DLOCK.ACQUIRE k a PX 20000");
        let end = client.end_of("k");
        keep(&server);
        for _ in 0..2 {
            server.crash();
            let mut client = server.client();
            let (now, left) = (client.now(), client.int(format!("DLOCK.CHECK k {token}")));
            assert!(now + left <= end, "{way}");
            assert_eq!(client.end_of("k"), end, "{way}");
        }
    }
}

#[test]
fn a_grant_that_was_answered_survives_kill_9() {
    let mut server = Server::conf("appendonly yes\nappendfsync always");
    let mut writers: Vec<_> = (0..4)
        .map(|writer| {
            let mut client = server.client();
            std::thread::spawn(move || {
                let mut held = Vec::new();
                for n in 0.. {
                    let key = format!("k{writer}-{n}");
                    let Some(token) = client.ask(format!("DLOCK.ACQUIRE {key} a PX 600000")) else { break };
                    if n % 3 > 0 {
                        held.push((key, Some(token)));
                    } else if client.ask(format!("DLOCK.RELEASE {key} a")).is_some() {
                        held.push((key, None));
                    }
                }
                held
            })
        })
        .collect();
    let mut client = server.client();
    eventually(Duration::from_secs(20), "some locks", || client.int("DBSIZE") > 300);
    server.kill9();
    let held: Vec<_> = writers.drain(..).flat_map(|writer| writer.join().unwrap()).collect();
    server.boot();
    let mut client = server.client();
    for (key, token) in &held {
        let found = lock_info(&mut client, key).map(|info| redis::Value::Int(info.token));
        assert_eq!(found, *token, "{key}");
    }
}

#[test]
fn an_end_set_by_others_survives_a_restart_and_extends_no_lease() {
    for (way, setup, keep) in ways() {
        let (mut server, mut client) = setup.start().with_client();
        for (key, act) in
            [("none", "PERSIST none"), ("later", "PEXPIRE later 900000"), ("early", "PEXPIRE early 60000")]
        {
            client.int(format!("DLOCK.RLOCK {key} a PX 600000"));
            client.int(format!("DLOCK.RLOCK {key} b PX 1500"));
            client.int(act);
        }
        client.int("DLOCK.ACQUIRE lapsed a PX 1500");
        client.int("PERSIST lapsed");
        let (now, before) = (client.now(), state(&mut client));
        keep(&server);
        server.crash();
        let mut client = server.client();
        assert_same(way, &before, &state(&mut client));
        for (key, most) in [("none", 600_000), ("later", 600_000), ("early", 60_000)] {
            assert!(lock_info(&mut client, key).unwrap().ttl <= most, "{way}: {key}");
        }
        client.pass(now + 1500);
        client.nil("DLOCK.INFO lapsed");
        assert_eq!(lock_info(&mut client, "none FULL").unwrap().holders, 1, "{way}");
        client.leaves("lapsed", 5000, "DLOCK.ACQUIRE lapsed b PX 5000");
    }
}

#[test]
fn the_rdb_of_a_server_without_locks_loads_without_the_module() {
    let (mut server, mut client) = Server::start().with_client();
    client.ok("SET text v");
    for idle in ["DLOCK.INFO k", "DLOCK.CHECK k 1", "DLOCK.RELEASE k a", "DLOCK.RENEW k a"] {
        client.nil(idle);
    }
    client.ok("SAVE");
    server.kill9();
    server.reconfigure(Setup::without_module);
    server.boot();
    let mut client = server.client();
    assert_eq!(client.text("GET text"), "v");
    assert!(client.error("DLOCK.INFO k").starts_with("ERR unknown command"));
}

#[test]
fn the_digest_covers_lease_deadline_token_count_and_new_holds() {
    let (_server, mut client) = Server::start().with_client();
    let digest = |client: &mut Client| text_of(&list_of(&client.run("DEBUG DIGEST-VALUE k"))[0]);
    let end = client.now() + 600_000;
    let mut seen = Vec::new();
    let pause = |client: &mut Client| {
        client.pass_ms(2);
    };
    let token = client.int(format!("DLOCK.RACQUIRE k a PXAT {end}"));
    seen.push(digest(&mut client));
    pause(&mut client);
    // The same deadline, another lease.
    client.int(format!("DLOCK.RENEW k a PXAT {end}"));
    seen.push(digest(&mut client));
    pause(&mut client);
    // The deadline differs, the lease does not.
    client.int("DLOCK.RENEW k a");
    seen.push(digest(&mut client));
    pause(&mut client);
    client.int("DLOCK.RENEW k a");
    seen.push(digest(&mut client));
    pause(&mut client);
    // The token differs.
    client.int(format!("DLOCK.RENEW k a PXAT {end} MINTOKEN {}", token + 1));
    seen.push(digest(&mut client));
    // The count differs.
    client.int("DLOCK.RACQUIRE k a PX 1");
    seen.push(digest(&mut client));
    // A hold is new.
    client.int("DLOCK.RLOCK k a PX 600000");
    seen.push(digest(&mut client));
    let all = seen.len();
    seen.sort();
    seen.dedup();
    assert_eq!(seen.len(), all);
}

#[test]
fn the_digest_covers_owner_mode_cap_request_and_slot() {
    let (_server, mut client) = Server::conf("rdbcompression no").with_client();
    let digest =
        |client: &mut Client, key: &str| text_of(&list_of(&client.run(format!("DEBUG DIGEST-VALUE {key}")))[0]);
    client.int("DLOCK.ACQUIRE k owner-number-1 PX 600000");
    let dump = client.bytes("DUMP k");
    let mut other = body(&dump);
    let at = other.windows(14).position(|bytes| bytes == b"owner-number-1").expect("the owner is found in the dump");
    other[at + 13] = b'2';
    client.ok(req!["RESTORE", "k2", 600_000, seal(&other, &dump)]);
    assert_eq!(lock_info(&mut client, "k2 FULL").unwrap().holds()[0].owner, b"owner-number-2");
    assert_ne!(digest(&mut client, "k"), digest(&mut client, "k2"));
    // Locks that differ in one thing only, if the renewals fall into the same millisecond: most do. Two do not differ.
    let (end, token) = (client.now() + 600_000, client.now_us() + 5_000_000);
    let acquisitions = [
        "RLOCK same# a",
        "RLOCK plain# a",
        "WLOCK mode# a",
        "RLOCK cap# a MAXHOLD 900000",
        "RLOCK request# a REQUEST r",
        "SACQUIRE slot# a 3 SLOT",
    ];
    let mut equal = 0;
    for n in 0..50 {
        let acquire = acquisitions.map(|words| format!("DLOCK.{} PXAT {end}", words.replace('#', &n.to_string())));
        let keys = ["same", "plain", "mode", "cap", "request", "slot"].map(|kind| format!("{kind}{n}"));
        // The renewals come after all grants, whose tokens would otherwise be higher.
        let renew = keys.clone().map(|key| format!("DLOCK.RENEW {key} a PXAT {end} MINTOKEN {}", token + n * 1000));
        let requests: Vec<String> = acquire.into_iter().chain(renew).collect();
        let replies = client.pipeline(&requests);
        assert!(replies.iter().all(|reply| matches!(reply, Ok(value) if *value != Value::Nil)), "{replies:?}");
        let [same, rest @ ..] = keys.map(|key| digest(&mut client, &key));
        equal += usize::from(rest[0] == same);
        assert_eq!(BTreeSet::from(rest).len(), 5, "round {n}");
    }
    assert!(equal > 0, "no two renewals fell into the same millisecond");
}

#[test]
fn every_kind_of_file_equals_the_server_after_random_operations() {
    let (mut server, mut client) =
        Server::conf("appendonly yes\nappendfsync everysec\naof-use-rdb-preamble yes").with_client();
    random_operations(&mut client, 41);
    let before = state(&mut client);
    client.ok("DEBUG RELOAD");
    assert_same("RDB", &before, &state(&mut client));
    client.ok("DEBUG LOADAOF");
    assert_same("AOF", &before, &state(&mut client));
    for preamble in ["yes", "no"] {
        client.ok(format!("CONFIG SET aof-use-rdb-preamble {preamble}"));
        client.run("BGREWRITEAOF");
        server.wait_saved();
        client.ok("DEBUG LOADAOF");
        assert_same(&format!("AOF rewritten, preamble {preamble}"), &before, &state(&mut client));
    }
    server.restart();
    assert_same("restart", &before, &state(&mut server.client()));
}

const ALWAYS: &str = "appendonly yes\nappendfsync always";

/// Kills a server in the middle of writing a transaction to its AOF, and starts it again.
#[track_caller]
fn cut_a_transaction(server: &mut Server, folder: &str) {
    server.kill9();
    let half = b"*1\r\n$5\r\nMULTI\r\n*3\r\n$3\r\nSET\r\n$1\r\na\r\n$1\r\n1\r\n*3\r\n$3\r\nSET\r\n$1\r\nb";
    let files = fs::read_dir(server.path(folder)).expect("an AOF").map(|file| file.unwrap().path());
    let last = files.filter(|file| file.to_string_lossy().ends_with(".incr.aof")).max().expect("a file that grows");
    OpenOptions::new().append(true).open(last).unwrap().write_all(half).unwrap();
    server.boot();
    // The `MULTI` stays in the file: whenever the server loads it and the next one, it complains that they are nested.
    server.tolerate("CRITICAL");
}

#[track_caller]
fn survives_kill_9(server: &mut Server) {
    let tokens = |client: &mut Client| ["k", "held"].map(|lock| lock_info(client, lock).map(|info| info.token));
    let before = tokens(&mut server.client());
    server.kill9();
    server.boot();
    assert_eq!(tokens(&mut server.client()), before);
}

#[test]
fn the_first_change_after_a_cut_transaction_survives_the_next_kill() {
    // Some servers leave out the commands of a transaction in the AOF that this user may not run.
    let restricted = "user default on nopass ~* &* +@all -dlock.apply -multi";
    for (more, folder, change) in [
        ("", "appendonlydir", "ACQUIRE k a PX 600000"),
        ("", "appendonlydir", "RELEASE held a"),
        ("appenddirname files", "files", "ACQUIRE k a PX 600000"),
        (restricted, "appendonlydir", "ACQUIRE k a PX 600000"),
    ] {
        let (mut server, mut client) = Server::conf(&format!("{ALWAYS}\n{more}")).with_client();
        client.int("DLOCK.ACQUIRE held a PX 600000");
        cut_a_transaction(&mut server, folder);
        server.client().int(format!("DLOCK.{change}"));
        survives_kill_9(&mut server);
    }
}

#[test]
fn a_cut_transaction_ends_before_the_first_change() {
    let (mut server, mut client) = Server::conf(ALWAYS).with_client();
    client.int("DLOCK.ACQUIRE held a PX 600000");
    server.crash();
    let appended = server.appended(|| {
        server.client().int("DLOCK.ACQUIRE k a PX 600000");
    });
    assert_eq!(appended, ["DLOCK.APPLY"], "the file was not cut");
    cut_a_transaction(&mut server, "appendonlydir");
    server.client().int("DLOCK.ACQUIRE l a PX 600000");
    let appended: Vec<_> =
        server.aof().into_iter().map(|command| command[0].clone()).filter(|name| name != b"SELECT").collect();
    let end: [&[u8]; 5] = [b"MULTI", b"PING", b"PING", b"EXEC", b"DLOCK.APPLY"];
    assert!(appended.ends_with(&end.map(<[u8]>::to_vec)), "{}", server.log());
    server.logged("dlock: the server has cut its AOF");
    // The module ends the transaction only once.
    let more = server.appended(|| {
        server.client().int("DLOCK.ACQUIRE m a PX 600000");
    });
    assert_eq!(more, ["DLOCK.APPLY"]);
}

/// Nothing may be replicated in a pause, and a replica replicates nothing of its own.
#[test]
fn a_replica_ends_a_cut_transaction_after_its_promotion_and_a_pause() {
    for pause in ["WRITE", "ALL"] {
        let (mut server, mut client) = Server::conf(ALWAYS).with_client();
        client.int("DLOCK.ACQUIRE held a PX 600000");
        server.reconfigure(|setup| setup.conf("replicaof 127.0.0.1 1"));
        cut_a_transaction(&mut server, "appendonlydir");
        let mut client = server.client();
        client.pipeline(&["MULTI", &format!("CLIENT PAUSE 500 {pause}"), "REPLICAOF NO ONE", "EXEC"]);
        client.int("DLOCK.ACQUIRE k a PX 600000");
        survives_kill_9(&mut server);
    }
}

/// At the end of a turn, some servers call two parts of the module: one ends the transaction, one answers clients.
#[test]
fn a_client_that_waits_in_the_turn_of_a_promotion_does_not_keep_a_cut_transaction_open() {
    let (mut server, mut client) = Server::conf(ALWAYS).with_client();
    client.int("DLOCK.ACQUIRE held a PX 600000");
    server.reconfigure(|setup| setup.conf("replicaof 127.0.0.1 1"));
    cut_a_transaction(&mut server, "appendonlydir");
    let (mut waiter, mut client) = (server.client(), server.client());
    waiter.send_raw(b"REPLICAOF NO ONE\r\nDLOCK.ACQUIRE held b BLOCK 0\r\n");
    assert_eq!(waiter.read().map(|reply| text_of(&reply)), Ok("OK".to_owned()));
    soon("it waits", || server.queue("held") == ["b"]);
    client.int("DLOCK.ACQUIRE k a PX 600000");
    let appended: Vec<_> = server.aof().into_iter().map(|command| command[0].clone()).collect();
    assert!(appended.contains(&b"EXEC".to_vec()), "{}", server.log());
    // The answers go on when the transaction has ended.
    assert_eq!(client.int("DLOCK.RELEASE held a"), 1);
    waiter.granted();
}
