//! Fencing tokens: strictly increasing over all grants of a server, whatever happens to the key.

use redis::Value;

use crate::support::cluster::Cluster;
use crate::support::payload::{body, replace_number, seal};
use crate::support::replica::counter;
use crate::support::skip::skipped;
use crate::support::story::story;
use crate::support::version::Version;
use crate::support::{Client, Server, Setup, hold, int_of, lock_info, req, soon};

/// Times in µs, the unit of tokens.
const SECOND: i64 = 1_000_000;
const MINUTE: i64 = 60 * SECOND;
const HOUR: i64 = 60 * MINUTE;
const DAY: i64 = 24 * HOUR;

/// Acquires the lock `ahead`, lifts its token and so the token clock to half an hour ahead, and returns the token.
#[track_caller]
fn half_an_hour_ahead(client: &mut Client) -> i64 {
    client.ok("CONFIG SET dlock.max-token-lead 3600000");
    let granted = client.int("DLOCK.ACQUIRE ahead a PX 900000");
    let token = granted.max(client.now_us() + HOUR / 2) + 1;
    assert_eq!(client.int(format!("DLOCK.RENEW ahead a MINTOKEN {token}")), 1);
    assert_eq!(lock_info(client, "ahead").unwrap().token, token);
    token
}

/// Asserts that the next grant has a higher token.
#[track_caller]
fn grants_above(client: &mut Client, token: i64) {
    let next = client.int("DLOCK.ACQUIRE next-grant a PX 900000");
    assert!(next > token, "{next} is not above {token}");
    assert_eq!(client.int("DLOCK.RELEASE next-grant a"), 1);
}

#[test]
fn a_token_is_the_time_in_microseconds() {
    let (_server, mut client) = Server::start().with_client();
    for n in 0..100 {
        let before = client.now_us();
        let token = client.int(format!("DLOCK.ACQUIRE k{n} a"));
        let after = client.now_us();
        // The server may read the clock only once in a turn of its event loop: 20 ms of tolerance, in µs.
        assert!((before - 20_000..=after + 20_000).contains(&token), "{token} not in {before}..{after}");
    }
}

#[test]
fn tokens_increase_over_all_keys_modes_and_databases() {
    let (_server, mut client) = Server::start().with_client();
    let mut last = 0;
    for db in 0..3 {
        client.ok(format!("SELECT {db}"));
        let mut requests = Vec::new();
        for n in 0..500 {
            for command in ["ACQUIRE w", "RLOCK r", "RLOCK shared", "WLOCK r"] {
                requests.push(format!("DLOCK.{command}{n} a{n}"));
            }
            requests.push(format!("DLOCK.RLOCK r{n} a{n}"));
            requests.push(format!("DEL w{n} r{n}"));
        }
        for chunk in client.pipeline(&requests).chunks(6) {
            let tokens: Vec<_> = chunk[..4].iter().map(|reply| int_of(reply.as_ref().unwrap())).collect();
            assert!(tokens.is_sorted_by(|a, b| a < b) && tokens[0] > last, "{tokens:?} after {last}");
            assert_eq!(chunk[4], Ok(Value::Int(tokens[1])), "re-entry returns the token of the first entry");
            last = tokens[3];
        }
    }
    assert!(last < 1 << 53);
    assert_eq!(counter(&mut client, "last_token"), last);
}

#[test]
fn clearing_the_data_does_not_reset_tokens() {
    let (_server, mut client) = Server::start().with_client();
    for clear in ["FLUSHALL", "FLUSHDB", "FLUSHALL ASYNC", "DEL ahead", "DEBUG RELOAD", "RENAME ahead b"] {
        client.run("DEL ahead b");
        let token = half_an_hour_ahead(&mut client) + 1000;
        client.int(format!("DLOCK.RENEW ahead a MINTOKEN {token}"));
        client.run(clear);
        grants_above(&mut client, token);
    }
}

#[test]
fn a_restart_does_not_reset_tokens() {
    for aof in ["no", "yes"] {
        let (mut server, mut client) = Server::conf(&format!("appendonly {aof}\nappendfsync always")).with_client();
        let token = half_an_hour_ahead(&mut client);
        if aof == "no" {
            client.ok("SAVE");
        }
        server.crash();
        let mut client = server.client();
        assert_eq!(lock_info(&mut client, "ahead").unwrap().token, token);
        grants_above(&mut client, token);
    }
}

#[test]
fn a_restart_without_any_data_relies_on_the_clock() {
    let mut server = Server::start();
    let token = server.client().int("DLOCK.ACQUIRE k a");
    server.crash();
    grants_above(&mut server.client(), token);
}

#[test]
fn the_token_clock_survives_a_restart_without_any_lock() {
    for aof in ["no", "yes"] {
        let (mut server, mut client) =
            Server::conf(&format!("appendonly {aof}\nappendfsync always\naof-use-rdb-preamble yes")).with_client();
        if !Version::of(&mut client).keeps_the_token_clock() {
            return skipped("this server keeps a module's data only beside keys");
        }
        let token = half_an_hour_ahead(&mut client);
        client.ok("FLUSHALL");
        if aof == "yes" {
            client.run("BGREWRITEAOF");
            server.wait_saved();
        } else {
            client.ok("SAVE");
        }
        server.crash();
        let mut client = server.client();
        assert_eq!(client.int("DBSIZE"), 0);
        grants_above(&mut client, token);
    }
}

#[test]
fn a_grant_in_the_aof_lifts_the_token_clock_even_if_its_lock_is_gone() {
    let (mut server, mut client) = Server::conf("appendonly yes\nappendfsync always").with_client();
    let token = half_an_hour_ahead(&mut client);
    client.int("DEL ahead");
    server.crash();
    grants_above(&mut server.client(), token);
}

#[test]
fn a_failover_does_not_reset_tokens() {
    let (primary, replica) = Server::start().with_replica();
    let mut client = primary.client();
    let token = half_an_hour_ahead(&mut client);
    client.int("DEL ahead");
    replica.wait_synced(&primary);
    // A replica that comes later learns the token clock from the lock that is there.
    let high = half_an_hour_ahead(&mut client) + 5000;
    client.int(format!("DLOCK.RENEW ahead a MINTOKEN {high}"));
    let late = primary.replica();
    drop(primary);
    replica.promote();
    grants_above(&mut replica.client(), token);
    late.promote();
    grants_above(&mut late.client(), high);
}

#[test]
fn restore_lifts_the_token_clock() {
    let (here, there) = (Server::start(), Server::start());
    let mut client = here.client();
    let token = half_an_hour_ahead(&mut client);
    let dump = client.bytes("DUMP ahead");
    let mut other = there.client();
    other.ok(req!["RESTORE", "k", 0, dump]);
    other.int("DEL k");
    grants_above(&mut other, token);
}

#[test]
fn mintoken_lifts_the_token_of_the_hold_and_the_token_clock() {
    let (_server, mut client) = Server::start().with_client();
    let first = client.int("DLOCK.ACQUIRE k a");
    let lifted = first + 9 * SECOND;
    assert_eq!(client.int(format!("DLOCK.RENEW k a MINTOKEN {lifted}")), 1);
    client.nil(format!("DLOCK.CHECK k {first}"));
    assert!(client.int(format!("DLOCK.CHECK k {lifted}")) > 0);
    assert_eq!(counter(&mut client, "last_token"), lifted);
    // A lower MINTOKEN is no error, and lowers nothing.
    for lower in [1, first, lifted - 1, lifted] {
        assert_eq!(client.int(format!("DLOCK.RENEW k a MINTOKEN {lower}")), 1);
        assert_eq!(lock_info(&mut client, "k").unwrap().token, lifted);
        assert_eq!(counter(&mut client, "last_token"), lifted);
    }
    client.nil(format!("DLOCK.RELEASE k a TOKEN {first}"));
    assert_eq!(client.int("DLOCK.ACQUIRE k2 a"), lifted + 1);
    assert_eq!(client.int("DLOCK.RLOCK k a"), lifted + 2);
}

#[test]
fn mintoken_lifts_the_exclusive_one_of_two_holds_or_the_one_named() {
    let (_server, mut client) = Server::start().with_client();
    let tokens = story(&mut client, "RLOCK k a -> t1\nWLOCK k a -> t2");
    let token = |client: &mut Client, mode| hold(client, "k", "a", mode).unwrap().token;
    let lifted = tokens["t2"] + 9 * SECOND;
    client.int(format!("DLOCK.RENEW k a MINTOKEN {lifted}"));
    assert_eq!((token(&mut client, "exclusive"), token(&mut client, "shared")), (lifted, tokens["t1"]));
    client.int(format!("DLOCK.RENEW k a READ MINTOKEN {}", lifted - 5));
    assert_eq!((token(&mut client, "exclusive"), token(&mut client, "shared")), (lifted, lifted - 5));
    assert_eq!(lock_info(&mut client, "k").unwrap().token, lifted);
    client.int(format!("DLOCK.RENEW k a WRITE MINTOKEN {}", lifted + 5));
    assert_eq!((token(&mut client, "exclusive"), token(&mut client, "shared")), (lifted + 5, lifted - 5));
}

/// How far ahead `MINTOKEN` may be, in ms, with these values of `dlock.max-token-lead` (`None`: the default).
const LEADS: [(i64, Option<i64>); 5] =
    [(10_000, None), (60_000, Some(60_000)), (3_600_000, Some(3_600_000)), (5000, Some(5000)), (0, Some(0))];

#[test]
fn a_renewal_accepts_a_mintoken_as_far_ahead_as_the_setting_says() {
    for (lead, set) in LEADS {
        let (_server, mut client) = Server::start().with_client();
        set.into_iter().for_each(|set| client.ok(format!("CONFIG SET dlock.max-token-lead {set}")));
        let token = client.int("DLOCK.ACQUIRE k a");
        let far = client.now_us() + lead * 1000;
        for beyond in [far + SECOND, far + MINUTE, far + DAY, 1 << 53] {
            let error = client.error(format!("DLOCK.RENEW k a MINTOKEN {beyond}"));
            assert!(error.starts_with("ERR ") && error.contains("dlock.max-token-lead"), "{error}");
            // The error is the same if there is nothing to renew: ranges are checked first.
            client.error(format!("DLOCK.RENEW none a MINTOKEN {beyond}"));
        }
        assert_eq!(lock_info(&mut client, "k").unwrap().token, token);
        assert_eq!(counter(&mut client, "last_token"), token, "a refused MINTOKEN moved the token clock");
        assert_eq!(client.int(format!("DLOCK.RENEW k a MINTOKEN {far}")), 1, "{lead}");
        grants_above(&mut client, far);
    }
}

#[test]
fn mintoken_is_limited_by_the_clock_and_not_by_the_last_token() {
    let (_server, mut client) = Server::start().with_client();
    let token = half_an_hour_ahead(&mut client);
    client.error(format!("DLOCK.RENEW ahead a MINTOKEN {}", token + HOUR));
    assert_eq!(lock_info(&mut client, "ahead").unwrap().token, token);
}

#[test]
fn a_request_gets_its_mintoken_or_more() {
    let (server, mut client) = Server::start().with_client();
    let ahead = client.now_us() + 9 * SECOND;
    let commands = ["ACQUIRE", "RACQUIRE", "WLOCK", "RLOCK"];
    for (command, token) in commands.iter().zip((ahead..).step_by(10)) {
        assert_eq!(client.int(format!("DLOCK.{command} {command} a MINTOKEN {token}")), token);
        // The server's token clock advances with the grant, and a lower MINTOKEN does not set it back.
        assert_eq!(client.int(format!("DLOCK.{command} later:{command} a MINTOKEN {ahead}")), token + 1);
    }
    assert_eq!(counter(&mut client, "last_token"), ahead + 31);
    let entered_again = client.int(format!("DLOCK.WLOCK RACQUIRE a MINTOKEN {}", ahead + 50));
    assert_eq!(entered_again, ahead + 10, "a re-entry got another token");
    let mut waiting = server.client();
    waiting.send(format!("DLOCK.ACQUIRE ACQUIRE b BLOCK 0 MINTOKEN {}", ahead + 100));
    soon("the request waits", || counter(&mut client, "waiters") == 1);
    client.int("DLOCK.RELEASE ACQUIRE a");
    assert_eq!(int_of(&waiting.read().unwrap()), ahead + 100);
}

#[test]
fn an_acquisition_accepts_a_mintoken_as_far_ahead_as_the_setting_says() {
    for (lead, set) in LEADS {
        let (_server, mut client) = Server::start().with_client();
        set.into_iter().for_each(|set| client.ok(format!("CONFIG SET dlock.max-token-lead {set}")));
        let last = client.int("DLOCK.ACQUIRE k a");
        let far = client.now_us() + lead * 1000;
        for beyond in [far + SECOND, 1 << 53] {
            for command in ["ACQUIRE free", "ACQUIRE k", "RACQUIRE k", "WLOCK free", "RLOCK free"] {
                for block in ["", "BLOCK 0"] {
                    let error = client.error(format!("DLOCK.{command} a MINTOKEN {beyond} {block}"));
                    assert!(error.starts_with("ERR token is further ahead"), "{error}");
                }
            }
        }
        assert_eq!(counter(&mut client, "last_token"), last, "a refused MINTOKEN moved the token clock");
        assert!(client.int(format!("DLOCK.ACQUIRE free a MINTOKEN {far}")) >= far);
    }
}

/// Makes a dump of the lock `k` with one number replaced, and deletes the lock.
#[track_caller]
fn dump_with(client: &mut Client, old: i64, new: i64) -> Vec<u8> {
    let dump = client.bytes("DUMP k");
    let mut value = body(&dump);
    assert_eq!(replace_number(&mut value, old as u64, new as u64), 1, "the dump does not have the number exactly once");
    client.int("DEL k");
    seal(&value, &dump)
}

/// Makes a dump of a lock whose token is this number of µs ahead of the clock. Returns the token and the dump.
#[track_caller]
fn token_ahead(client: &mut Client, ahead: i64) -> (i64, Vec<u8>) {
    let old = client.int("DLOCK.ACQUIRE k a PX 900000");
    let new = client.now_us() + ahead;
    (new, dump_with(client, old, new))
}

/// Makes a dump of a lock whose deadline is this number of ms ahead of the clock.
#[track_caller]
fn deadline_ahead(client: &mut Client, ahead: i64) -> Vec<u8> {
    let old = client.now() + 900_000;
    client.int(format!("DLOCK.ACQUIRE k a PXAT {old}"));
    let new = client.now() + ahead;
    dump_with(client, old, new)
}

#[test]
fn restoring_a_token_more_than_an_hour_ahead_is_refused() {
    for ahead in [HOUR + MINUTE, 2 * HOUR, 2 * DAY] {
        let (_server, mut client) = Server::conf("rdbcompression no").with_client();
        let (token, dump) = token_ahead(&mut client, ahead);
        client.error(req!["RESTORE", "k", 0, &dump]);
        assert_eq!(client.int("EXISTS k"), 0);
        assert!(client.int("DLOCK.ACQUIRE k2 a") < token - ahead + MINUTE, "a refused RESTORE moved the token clock");
        // A client, a script or a transaction replaces no lock that is there.
        let held = client.run("DUMP k2");
        client.error(req!["RESTORE", "k2", 0, &dump, "REPLACE"]);
        client.error(req!["EVAL", "return redis.call('RESTORE', KEYS[1], 0, ARGV[1], 'REPLACE')", 1, "k2", &dump]);
        client.ok("MULTI");
        client.text(req!["RESTORE", "k2", 0, &dump, "REPLACE"]);
        client.run("EXEC");
        assert_eq!(client.run("DUMP k2"), held);
    }
    let (_server, mut client) = Server::conf("rdbcompression no").with_client();
    let (token, dump) = token_ahead(&mut client, HOUR - MINUTE);
    client.ok(req!["RESTORE", "k", 0, &dump]);
    assert_eq!(lock_info(&mut client, "k").unwrap().token, token);
    grants_above(&mut client, token);
}

/// In a cluster, only a slot that moves brings locks of another node, with tokens of that node's clock.
#[test]
fn a_user_restores_no_token_far_ahead_into_a_slot_that_stays() {
    let (cluster, from, to) = Cluster::of_two("k");
    let (mut here, mut there) = (cluster.client(from), cluster.client(to));
    for client in [&mut here, &mut there] {
        client.ok("CONFIG SET rdbcompression no");
    }
    let (_, dump) = token_ahead(&mut here, HOUR / 2);
    for (request, exists) in
        [(req!["RESTORE", "k", 0, &dump], false), (req!["RESTORE", "k", 0, &dump, "REPLACE"], true)]
    {
        if exists {
            here.int("DLOCK.ACQUIRE k b PX 900000");
        }
        let before = counter(&mut here, "last_token");
        here.error(request);
        assert_eq!(counter(&mut here, "last_token"), before);
        assert_eq!(here.int("EXISTS k"), i64::from(exists));
    }
    here.int("DEL k");
    let (near, dump) = token_ahead(&mut here, 5 * SECOND);
    here.ok(req!["RESTORE", "k", 0, &dump]);
    grants_above_in(&mut here, "k", near);
    // The node that a slot moves to accepts the tokens in the slot, even if they are far ahead of its clock.
    here.ok("CONFIG SET dlock.max-token-lead 3600000");
    let far = here.now_us() + HOUR / 2;
    assert_eq!(here.int(format!("DLOCK.ACQUIRE k a PX 900000 MINTOKEN {far}")), far);
    cluster.begin_move("k", from, to);
    cluster.migrate("k", from, to);
    cluster.end_move("k", to);
    assert_eq!(lock_info(&mut there, "k").unwrap().token, far);
    grants_above_in(&mut there, "k", far);
}

/// Does the same as [`grants_above`], with this lock, which is deleted first.
#[track_caller]
fn grants_above_in(client: &mut Client, key: &str, token: i64) {
    client.int(format!("DEL {key}"));
    let next = client.int(format!("DLOCK.ACQUIRE {key} a PX 900000"));
    assert!(next > token, "{next} is not above {token}");
    client.int(format!("DLOCK.RELEASE {key} a"));
}

/// How far ahead a restored deadline may be: 365 days and an hour, in ms.
const LONGEST: i64 = (365 * DAY + HOUR) / 1000;

#[test]
fn restoring_a_deadline_beyond_the_longest_lease_is_refused() {
    let (_server, mut client) = Server::conf("rdbcompression no").with_client();
    for beyond in [60_000, 366 * DAY / 1000, 10 * 366 * DAY / 1000] {
        let dump = deadline_ahead(&mut client, LONGEST + beyond);
        client.error(req!["RESTORE", "k", 0, &dump]);
        client.error(req!["RESTORE", "k", 5000, &dump]);
        assert_eq!(client.int("EXISTS k"), 0, "{beyond}");
        client.int("DLOCK.RACQUIRE k2 a");
        let held = client.run("DUMP k2");
        client.error(req!["RESTORE", "k2", 0, &dump, "REPLACE"]);
        assert_eq!(client.run("DUMP k2"), held);
    }
    let dump = deadline_ahead(&mut client, LONGEST - 60_000);
    client.ok(req!["RESTORE", "k", 0, &dump]);
    assert!(lock_info(&mut client, "k").is_some());
}

#[test]
fn a_deadline_far_ahead_is_accepted_from_a_file_and_from_the_link() {
    let (mut server, mut client) = Setup::new().conf("rdbcompression no\nrdbchecksum no").start().with_client();
    let old = client.now() + 900_000;
    client.int(format!("DLOCK.ACQUIRE k a PXAT {old}"));
    client.int("PERSIST k");
    let new = client.now() + 2 * LONGEST;
    client.ok("SAVE");
    server.kill9();
    let mut rdb = std::fs::read(server.path("dump.rdb")).unwrap();
    assert!(replace_number(&mut rdb, old as u64, new as u64) >= 1, "the deadline is not in the file");
    std::fs::write(server.path("dump.rdb"), rdb).unwrap();
    server.boot();
    let mut client = server.client();
    assert!(lock_info(&mut client, "k").unwrap().ttl > LONGEST);
    let replica = server.replica();
    assert!(lock_info(&mut replica.client(), "k").unwrap().ttl > LONGEST);
    // A client may not restore the deadline, though the server has read it from its file.
    let dump = client.bytes("DUMP k");
    client.error(req!["RESTORE", "k2", 0, &dump]);
    assert_eq!(client.int("EXISTS k2"), 0);
}

#[test]
fn a_replica_accepts_a_restored_token_far_ahead() {
    let primary = Server::conf("rdbcompression no");
    let replica = Setup::new().conf("replica-read-only no").replica_of(&primary);
    let (token, dump) = token_ahead(&mut primary.client(), 2 * DAY);
    let mut copy = replica.client();
    copy.ok(req!["RESTORE", "k", 0, &dump]);
    assert_eq!(lock_info(&mut copy, "k").unwrap().token, token);
}

#[test]
fn a_token_far_ahead_is_accepted_from_a_file_and_from_the_link() {
    let (mut server, mut client) = Setup::new().conf("rdbcompression no\nrdbchecksum no").start().with_client();
    let old = client.int("DLOCK.ACQUIRE k a PX 900000");
    let new = client.now_us() + 2 * DAY;
    client.ok("SAVE");
    server.kill9();
    let mut rdb = std::fs::read(server.path("dump.rdb")).unwrap();
    assert!(replace_number(&mut rdb, old as u64, new as u64) >= 1, "the token is not in the file");
    std::fs::write(server.path("dump.rdb"), rdb).unwrap();
    server.boot();
    let mut client = server.client();
    assert_eq!(lock_info(&mut client, "k").unwrap().token, new);
    let replica = server.replica();
    assert!(client.int("DLOCK.ACQUIRE k2 a") > new);
    replica.wait_synced(&server);
    assert_eq!(lock_info(&mut replica.client(), "k").unwrap().token, new);
    replica.promote();
    grants_above(&mut replica.client(), new + 1);
}

#[test]
fn an_expired_lock_in_the_file_lifts_the_token_clock() {
    let (mut server, mut client) = Server::start().with_client();
    let token = half_an_hour_ahead(&mut client);
    client.int("DLOCK.RENEW ahead a PX 1000");
    let end = client.end_of("ahead");
    client.ok("SAVE");
    server.kill9();
    let left = end - i64::try_from(std::time::UNIX_EPOCH.elapsed().unwrap().as_millis()).unwrap();
    std::thread::sleep(std::time::Duration::from_millis(left.max(0).unsigned_abs() + 2));
    server.boot();
    let mut client = server.client();
    assert_eq!(client.int("EXISTS ahead"), 0);
    grants_above(&mut client, token);
}
