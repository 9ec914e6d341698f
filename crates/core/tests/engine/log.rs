//! The limits of the log, the entries that it keeps, and the times that it counts.

use dlock_core::engine::{LogEvent, LogSettings, Lost};
use dlock_core::{ClientId, Keyspace, Name, Want};

use crate::{Server, is_granted, name};

/// The log keeps 128 bytes of a name.
const CUT: usize = 128;

#[test]
fn a_shorter_log_keeps_the_newest_entries() {
    let mut server = logging(100);
    (0..5).for_each(|db| server.engine.log_flush(Some(db), server.space.now()));
    server.engine.log_flush(None, server.space.now());
    let dbs = |server: &Server| server.engine.log().entries().map(|entry| entry.db).collect::<Vec<_>>();
    assert_eq!(dbs(&server), [None, Some(4), Some(3), Some(2), Some(1), Some(0)]);
    for (max_len, left) in [(6, 6), (4, 4), (50, 4), (1, 1)] {
        server.engine.log_mut().configure(LogSettings { max_len, ..LogSettings::default() });
        assert_eq!(server.engine.log().entry_count(), left, "{max_len}");
    }
    assert_eq!(dbs(&server), [None]);
}

#[test]
fn names_are_cut_and_a_delete_of_a_key_that_may_be_cut_names_no_client() {
    let mut server = logging(100);
    let (key, longer) = ("k".repeat(CUT), "k".repeat(CUT + 1));
    assert!(is_granted(&server.acquire_bound(&key, 1, Want::Exclusive, 7)));
    assert!(is_granted(&server.acquire_bound(&longer, 1, Want::Exclusive, 7)));
    for name in [&longer, &key] {
        lose(&mut server, name);
    }
    server.disconnect(7);
    let entries: Vec<_> = server.engine.log().entries().collect();
    assert!(entries.iter().all(|entry| entry.key.as_deref() == Some(key.as_bytes()) && entry.db == Some(0)));
    // The bindings of a key are found only by its whole name, and a name of 128 bytes may have been cut.
    let clients: Vec<_> = entries.iter().map(|entry| (entry.event, entry.client.as_ref().map(|(id, _)| *id))).collect();
    let by_seven = (LogEvent::SessionEnd, Some(ClientId(7)));
    assert_eq!(clients, [by_seven, by_seven, (LogEvent::Delete, None), (LogEvent::Delete, None)]);
    let peers = entries.iter().filter_map(|entry| entry.client.as_ref());
    assert!(peers.clone().count() == 2 && peers.clone().all(|(_, peer)| peer.name.as_ref().unwrap().len() == CUT));
}

#[test]
fn the_end_of_a_session_logs_16_holds_at_most() {
    let mut server = logging(100);
    for number in 0..20 {
        assert!(is_granted(&server.acquire_bound(&format!("lock{}", number / 2), number, Want::Shared, 7)));
    }
    server.disconnect(7);
    assert_eq!(server.engine.log().entry_count(), 16);
}

/// A session may have hundreds of thousands of holds that have lapsed, which come first in the order of deadlines: the
/// look at its holds begins with the last deadline, and ends at the first hold that has lapsed.
#[test]
fn the_end_of_a_session_logs_the_live_holds_with_the_last_deadlines() {
    for (live, logged) in [(30, 14..30), (5, 25..30)] {
        let mut server = logging(100);
        for number in 0..30 {
            assert!(is_granted(&server.acquire_bound("lock", number, Want::Shared, 7)));
        }
        // Each hold lapses 1 ms after the previous one.
        server.pass_ms(60_000 - live);
        server.disconnect(7);
        let owner = |owner: &[u8]| std::str::from_utf8(owner).unwrap().parse::<usize>().unwrap();
        let mut owners: Vec<_> =
            server.engine.log().entries().filter_map(|entry| entry.owner.as_deref().map(owner)).collect();
        owners.sort_unstable();
        assert_eq!(owners, logged.collect::<Vec<_>>(), "{live} are live");
    }
}

#[test]
fn a_session_that_ends_at_the_deadline_of_its_hold_logs_nothing() {
    let mut server = logging(100);
    assert!(is_granted(&server.acquire_bound("lock", 1, Want::Exclusive, 7)));
    server.pass_ms(60_000);
    server.disconnect(7);
    assert_eq!(server.engine.log().entry_count(), 0);
}

/// When a key is removed, its lapsed holds are counted as lapses, and how long they were held is recorded.
#[test]
fn holds_that_lapsed_before_a_key_was_removed_are_counted() {
    let mut server = logging(100);
    for owner in 1..=3 {
        assert!(is_granted(&server.acquire("lock", owner, 20, Want::Shared)));
    }
    // The first two leases have run out.
    server.pass_ms(59_999);
    lose(&mut server, "lock");
    assert_eq!(server.engine.stats().lapses, 2);
    assert!((59_000..=61_000).contains(&(server.engine.log().holds.percentile(500) / 1000)));
    let events: Vec<LogEvent> = server.engine.log().entries().map(|entry| entry.event).collect();
    assert_eq!(events, [LogEvent::Delete, LogEvent::Lapse, LogEvent::Lapse]);
    // A key without a lapsed hold counts nothing.
    assert!(is_granted(&server.acquire("other", 1, 20, Want::Shared)));
    lose(&mut server, "other");
    assert_eq!(server.engine.stats().lapses, 2);
}

fn logging(max_len: usize) -> Server {
    let mut server = Server::new();
    server.engine.log_mut().configure(LogSettings { max_len, ..LogSettings::default() });
    server
}

/// Tells the engine that this key was removed, with the holds that the key still has.
fn lose(server: &mut Server, key: &str) {
    let name = name(key);
    let lock = server.space.lock(&(0, key.as_bytes().to_vec())).clone();
    let lost = Lost::of(name, &lock, server.space.now());
    server.engine.lose(&lost);
}

/// Returns the keys in the log, newest first.
fn logged(server: &Server) -> Vec<String> {
    let key = |key: &[u8]| String::from_utf8(key.to_vec()).unwrap();
    server.engine.log().entries().map(|entry| entry.key.as_deref().map_or_else(String::new, key)).collect()
}

/// Adds an entry about the removal of this key.
fn log(server: &mut Server, key: &str) {
    log_in(server, 0, key);
}

/// Adds an entry about the removal of this key in a database.
fn log_in(server: &mut Server, db: usize, key: &str) {
    let db = i32::try_from(db).unwrap();
    assert!(is_granted(&server.acquire(key, 1, 1, Want::Exclusive)));
    let lock = server.space.lock(&(0, key.as_bytes().to_vec())).clone();
    let lost = Lost::of(Name { db, key: key.as_bytes() }, &lock, server.space.now());
    server.engine.lose(&lost);
    server.space.delete(&(0, key.as_bytes().to_vec()));
}

#[test]
fn a_log_about_keys_with_one_prefix_keeps_the_newest_entries() {
    for max_len in [1, 2, 5, 128, 1000] {
        let mut server = logging(max_len);
        for number in 0..max_len * 2 + 3 {
            log(&mut server, &format!("job:{number:04}"));
        }
        let last: Vec<String> = (max_len + 3..max_len * 2 + 3).rev().map(|number| format!("job:{number:04}")).collect();
        assert_eq!(logged(&server), last, "{max_len}");
    }
}

#[test]
fn no_tenant_pushes_the_entries_of_others_out() {
    let floods: [fn(usize) -> String; 4] = [
        |_| "tenant7:k".to_owned(),
        |number| format!("tenant7:{number}"),
        |number| format!("tenant7:{}:{number}", number * 7919 % 1000),
        |number| format!("tenant7:{}", ["a", "b", "x", "yy"][number % 4]),
    ];
    for flood in floods {
        for max_len in [16, 128, 2000] {
            let mut server = logging(max_len);
            let others: Vec<String> = (0..max_len / 3).map(|number| format!("tenant{}:{number}", number % 6)).collect();
            others.iter().for_each(|key| log(&mut server, key));
            (0..max_len * 3).for_each(|number| log(&mut server, &flood(number)));
            let left = logged(&server);
            assert_eq!(left.len(), max_len);
            assert!(others.iter().all(|key| left.contains(key)), "of {max_len}, an entry of others is missing");
            // The flood keeps its newest entries, and all entries stay in order.
            let ids: Vec<u64> = server.engine.log().entries().map(|entry| entry.id).collect();
            assert!(ids.is_sorted_by(|one, other| one > other));
            assert_eq!(left[0], flood(max_len * 3 - 1));
            // The entry of another tenant is logged, and stays, too.
            log(&mut server, "tenant8:new");
            (0..max_len).for_each(|number| log(&mut server, &flood(number)));
            assert!(logged(&server).contains(&"tenant8:new".to_owned()));
        }
    }
}

/// Rights on keys are the same in all databases, and a user may have several patterns.
#[test]
fn no_tenant_with_databases_and_patterns_pushes_the_entries_of_others_out() {
    let floods: [fn(usize) -> (usize, String); 6] = [
        |number| (number % 2, format!("tenant7:{number}")),
        |number| (number % 16, format!("tenant7:{}", number * 7919 % 1000)),
        |number| (0, format!("{}:{number}", ["a", "b"][number % 2])),
        |number| (0, format!("{}:{number}", ["a", "b", "b", "b"][number % 4])),
        |number| (number % 3, format!("{}:{number}", ["a", "b", "x:y"][number / 3 % 3])),
        |number| (0, format!("{}:{number}", ["a", "b"][number / 500 % 2])),
    ];
    for (which, flood) in floods.into_iter().enumerate() {
        for max_len in [64, 128, 2000] {
            let mut server = logging(max_len);
            let others: Vec<String> = (0..max_len / 8).map(|number| format!("app{}:{number}", number % 6)).collect();
            others.iter().for_each(|key| log(&mut server, key));
            for number in 0..max_len * 5 {
                let (db, key) = flood(number);
                log_in(&mut server, db, &key);
            }
            let left = logged(&server);
            assert_eq!(left.len(), max_len);
            let kept = others.iter().filter(|key| left.contains(key)).count();
            assert_eq!(kept, others.len(), "flood {which}, {max_len}");
            let ids: Vec<u64> = server.engine.log().entries().map(|entry| entry.id).collect();
            assert!(ids.is_sorted_by(|one, other| one > other));
        }
    }
}

#[test]
fn entries_of_others_stay_for_an_hour() {
    let mut server = logging(16);
    log(&mut server, "other");
    let flood = |server: &mut Server| (0..100).for_each(|number| log(server, &format!("tenant7:{number}")));
    flood(&mut server);
    server.pass_ms(3_590_000);
    flood(&mut server);
    assert!(logged(&server).contains(&"other".to_owned()));
    server.pass_ms(20_000);
    flood(&mut server);
    let last: Vec<String> = (84..100).rev().map(|number| format!("tenant7:{number}")).collect();
    assert_eq!(logged(&server), last);
}

#[test]
fn a_shorter_log_drops_the_oldest_of_all() {
    let mut server = logging(8);
    ["a", "b", "c"].iter().for_each(|key| log(&mut server, key));
    (0..30).for_each(|number| log(&mut server, &format!("tenant7:{number}")));
    // Behind the five newest entries of the flood come those of others.
    assert_eq!(logged(&server)[5..], ["c", "b", "a"].map(str::to_owned));
    server.engine.log_mut().configure(LogSettings { max_len: 6, ..LogSettings::default() });
    assert_eq!(logged(&server)[5..], ["c".to_owned()]);
    server.engine.log_mut().configure(LogSettings { max_len: 2, ..LogSettings::default() });
    assert_eq!(logged(&server), ["tenant7:29", "tenant7:28"].map(str::to_owned));
}
