//! A lock is an ordinary key.

use redis::Value;

use crate::support::skip::skipped;
use crate::support::story::story;
use crate::support::version::Version;
use crate::support::{Client, Server, int_of, list_of, lock_info, req, text_of};

#[track_caller]
fn digest(client: &mut Client, key: &str) -> String {
    text_of(&list_of(&client.run(format!("DEBUG DIGEST-VALUE {key}")))[0])
}

/// A lock `k` with a writer that also reads, and what must stay of it wherever it goes.
struct Held {
    digest: String,
    end: i64,
    token: i64,
}

impl Held {
    #[track_caller]
    fn new(client: &mut Client) -> Self {
        let token = client.int("DLOCK.WLOCK k a PX 600000");
        client.int("DLOCK.WLOCK k a");
        client.int("DLOCK.RLOCK k a PX 500000");
        Self { digest: digest(client, "k"), end: client.end_of("k"), token }
    }

    /// Checks the lock at its key. Renews the lease at the end, so `digest` and `end` do not match the lock any more.
    #[track_caller]
    fn is_at(&self, client: &mut Client, key: &str) {
        assert_eq!(client.text(format!("TYPE {key}")), "distrlock");
        assert_eq!(digest(client, key), self.digest);
        assert_eq!(client.end_of(key), self.end);
        assert!(client.int(format!("DLOCK.CHECK {key} {}", self.token)) > 0);
        story(
            client,
            &format!(
                "INFO {key}              -> mode=both holders=1 count=3
                 RLOCK {key} b           -> nil
                 RACQUIRE {key} a        -> {token}
                 RELEASE {key} a WRITE   -> 0
                 RENEW {key} a           -> 1",
                token = self.token
            ),
        );
    }
}

#[test]
fn generic_commands_know_the_type() {
    let (_server, mut client) = Server::start().with_client();
    client.ok("SET text v");
    client.run("MSET a 1 b 2 c 3");
    client.int("DLOCK.ACQUIRE k a");
    client.int("DLOCK.RLOCK k2 a");
    assert_eq!(client.text("TYPE k"), "distrlock");
    assert_eq!(client.int("EXISTS k k2 none"), 2);
    assert_eq!(client.int("TOUCH k"), 1);
    assert_eq!(client.int("DBSIZE"), 6);
    let mut found = Vec::new();
    let mut cursor = "0".to_owned();
    loop {
        let page = list_of(&client.run(format!("SCAN {cursor} TYPE distrlock COUNT 2")));
        found.extend(list_of(&page[1]).iter().map(text_of));
        cursor = text_of(&page[0]);
        if cursor == "0" {
            break;
        }
    }
    found.sort();
    assert_eq!(found, ["k", "k2"]);
    assert_eq!(client.text("OBJECT ENCODING k"), "raw");
    assert_eq!(client.int("OBJECT REFCOUNT k"), 1);
    assert!(client.int("OBJECT IDLETIME k") >= 0);
    let left = client.int("PTTL k");
    assert!((20_000..=30_000).contains(&left), "{left}");
    assert!((20..=30).contains(&client.int("TTL k")));
    for wrong in ["GET k", "INCR k", "LPUSH k v", "HGET k f", "SADD k v"] {
        assert!(client.error(wrong).starts_with("WRONGTYPE"), "{wrong}");
    }
}

#[test]
fn memory_usage_grows_with_the_holds() {
    let (_server, mut client) = Server::start().with_client();
    if !Version::measures_module_values(&mut client) {
        return skipped("MEMORY USAGE of a module's value crashes this server");
    }
    client.int("DLOCK.ACQUIRE k a");
    let one = client.int("MEMORY USAGE k");
    assert!((50..1000).contains(&one), "{one}");
    client.int(&["DLOCK.ACQUIRE".to_owned(), "k2".to_owned(), "o".repeat(1024)]);
    let long = client.int("MEMORY USAGE k2");
    assert!(long >= one + 900, "a long owner counts: {long}");
    let readers: Vec<_> = (0..1000).map(|n| format!("DLOCK.RLOCK r reader-number-{n:07}")).collect();
    client.pipeline(&readers);
    let many = client.int("MEMORY USAGE r SAMPLES 0");
    assert!((40_000..500_000).contains(&many), "{many} bytes for 1000 readers");
}

#[test]
fn deleting_a_lock_frees_it() {
    let (_server, mut client) = Server::start().with_client();
    for delete in ["DEL k", "UNLINK k", "EXPIRE k 0", "RENAME k elsewhere", "FLUSHDB", "FLUSHDB ASYNC", "FLUSHALL"] {
        let readers: Vec<_> = (0..300).map(|n| format!("DLOCK.RLOCK k r{n}")).collect();
        client.pipeline(&readers);
        client.nil("DLOCK.ACQUIRE k a");
        client.run(delete);
        client.nil("DLOCK.INFO k");
        client.nil("DLOCK.RELEASE k r1");
        client.nil("DLOCK.RENEW k r1");
        client.int("DLOCK.ACQUIRE k a");
        client.run("DEL k elsewhere");
    }
}

#[test]
fn overwriting_a_lock_frees_it() {
    let (_server, mut client) = Server::start().with_client();
    client.int("DLOCK.ACQUIRE k a");
    client.ok("SET k v");
    assert_eq!(client.text("GET k"), "v");
    assert_eq!(client.int("TTL k"), -1);
    assert!(client.error("DLOCK.RELEASE k a").starts_with("WRONGTYPE"));
    client.run("DEL k");
    client.int("DLOCK.ACQUIRE k b");
}

#[test]
fn copying_is_refused() {
    let (_server, mut client) = Server::start().with_client();
    let held = Held::new(&mut client);
    for copy in ["COPY k k2", "COPY k k2 REPLACE", "COPY k k DB 1"] {
        client.error(copy);
    }
    assert_eq!(client.int("DBSIZE"), 1);
    assert_eq!(client.int("EXISTS k2"), 0);
    held.is_at(&mut client, "k");
}

#[test]
fn dump_and_restore() {
    let (_server, mut client) = Server::start().with_client();
    let held = Held::new(&mut client);
    let dump = client.bytes("DUMP k");
    let end = held.end;
    client.run("DEL k");
    client.ok(req!["RESTORE", "k", end, &dump, "ABSTTL"]);
    held.is_at(&mut client, "k");
    let held = Held { digest: digest(&mut client, "k"), end: client.end_of("k"), ..held };
    let dump = client.bytes("DUMP k");
    // RESTORE overwrites a key only with REPLACE.
    client.int("DLOCK.ACQUIRE k2 x");
    assert!(client.error(req!["RESTORE", "k2", held.end, &dump, "ABSTTL"]).starts_with("BUSYKEY"));
    assert_eq!(lock_info(&mut client, "k2 FULL").unwrap().holds()[0].owner, b"x");
    client.ok(req!["RESTORE", "k2", held.end, &dump, "ABSTTL", "REPLACE", "IDLETIME", 5]);
    held.is_at(&mut client, "k2");
    client.ok("SET text v");
    client.ok(req!["RESTORE", "text", held.end, &dump, "ABSTTL", "REPLACE"]);
    held.is_at(&mut client, "text");
}

#[test]
fn a_restored_lock_may_end_earlier() {
    let (_server, mut client) = Server::start().with_client();
    Held::new(&mut client);
    let dump = client.bytes("DUMP k");
    client.ok(req!["RESTORE", "k2", 9000, &dump]);
    assert!(lock_info(&mut client, "k2").unwrap().ttl <= 9000);
    client.ok(req!["RESTORE", "k3", 50, &dump]);
    client.outlive("k3");
    client.nil("DLOCK.INFO k3");
    client.int("DLOCK.ACQUIRE k3 z");
}

#[test]
fn migrate_moves_a_lock_to_another_server() {
    let (here, there) = (Server::start(), Server::start());
    let (mut source, mut target) = (here.client(), there.client());
    let held = Held::new(&mut source);
    source.ok(format!("MIGRATE 127.0.0.1 {} k 0 5000", there.port()));
    assert_eq!(source.int("EXISTS k"), 0);
    source.nil("DLOCK.INFO k");
    // MIGRATE sends the time to live, not the time of the end.
    let end = target.end_of("k");
    assert!((end - held.end).abs() < 2000);
    let moved = Held { end, ..held };
    moved.is_at(&mut target, "k");
    // The other way round, several at once, over an old one, and with COPY as the docs say.
    target.int("DLOCK.ACQUIRE k2 a PX 600000");
    source.int("DLOCK.ACQUIRE k old");
    let both = format!("MIGRATE 127.0.0.1 {} # 0 5000 REPLACE KEYS k k2", here.port());
    target.ok(both.split(' ').map(|word| if word == "#" { "" } else { word }).collect::<Vec<_>>());
    assert_eq!(source.int("EXISTS k k2"), 2);
    let back = lock_info(&mut source, "k FULL").unwrap();
    assert!(back.holds().iter().all(|hold| hold.owner == b"a"), "{back:?}");
    assert!(back.holds().iter().any(|hold| hold.token == moved.token), "{back:?}");
    source.ok(format!("MIGRATE 127.0.0.1 {} k2 0 5000 COPY", there.port()));
    assert_eq!((source.int("EXISTS k2"), target.int("EXISTS k2")), (1, 1));
}

#[test]
fn rename_move_and_swapdb_carry_the_lock() {
    let (_server, mut client) = Server::start().with_client();
    let held = Held::new(&mut client);
    let again = |client: &mut Client, key: &str, held: Held| {
        held.is_at(client, key);
        Held { digest: digest(client, key), end: client.end_of(key), ..held }
    };
    client.ok("RENAME k n");
    client.nil("DLOCK.INFO k");
    let held = again(&mut client, "n", held);
    // The lock that RENAME overwrites is free.
    client.int("DLOCK.ACQUIRE other x");
    client.ok("RENAME n other");
    let held = again(&mut client, "other", held);
    client.nil("DLOCK.RELEASE other x");
    assert_eq!(client.int("RENAMENX other k"), 1);
    assert_eq!(client.int("MOVE k 1"), 1);
    client.nil("DLOCK.INFO k");
    client.int("DLOCK.ACQUIRE k y");
    client.ok("SELECT 1");
    let held = again(&mut client, "k", held);
    client.ok("SWAPDB 0 1");
    assert_eq!(lock_info(&mut client, "k FULL").unwrap().holds()[0].owner, b"y");
    client.ok("SELECT 0");
    held.is_at(&mut client, "k");
    client.ok("FLUSHDB");
    client.nil("DLOCK.INFO k");
    client.ok("SELECT 1");
    assert_eq!(lock_info(&mut client, "k FULL").unwrap().holds()[0].owner, b"y");
}

#[test]
fn a_lock_that_moved_still_ends_on_time() {
    let (_server, mut client) = Server::start().with_client();
    client.int("DLOCK.ACQUIRE k a PX 1000");
    let end = client.end_of("k");
    client.ok("RENAME k n");
    assert_eq!(client.end_of("n"), end);
    client.outlive("n");
    client.int("DLOCK.ACQUIRE n b");
}

#[test]
fn randomkey_keys_sort_mget_and_debug_treat_a_lock_as_a_key_of_its_own_type() {
    let (_server, mut client) = Server::start().with_client();
    client.int("DLOCK.ACQUIRE k a");
    assert_eq!(client.text("RANDOMKEY"), "k");
    assert_eq!(list_of(&client.run("KEYS *")).len(), 1);
    assert!(client.error("SORT k").starts_with("WRONGTYPE"));
    assert_eq!(client.run("MGET k none"), Value::Array(vec![Value::Nil, Value::Nil]));
    assert!(int_of(&client.run("OBJECT IDLETIME k")) >= 0);
    client.run("DEBUG OBJECT k");
    client.run("DEBUG DIGEST");
}

#[test]
fn keys_of_other_types_move_as_without_the_module() {
    let (_server, mut client) = Server::start().with_client();
    client.ok("SET text v");
    assert_eq!(client.int("MOVE text 1"), 1);
    assert!(client.text("CLIENT INFO").contains(" db=0 "), "the client stays in its database");
    client.nil("GET text");
    client.ok("SELECT 1");
    assert_eq!(client.text("GET text"), "v");
    assert_eq!(client.int("MOVE text 0"), 1);
    assert!(client.text("CLIENT INFO").contains(" db=1 "));
}
