//! The log's limits, and what it counts.

use dlock_core::engine::{LogEvent, LogSettings, Lost};
use dlock_core::{ClientId, Keyspace, Want};

use crate::{Server, is_granted, name};

/// Of a name, the log keeps 128 bytes.
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
        assert_eq!(server.engine.log().entries().len(), left, "{max_len}");
    }
    assert_eq!(dbs(&server), [None]);
}

#[test]
fn names_are_cut_and_nobody_is_named_for_a_cut_one() {
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
    // Only a key whose whole name the log knows has a client for certain.
    let clients: Vec<_> = entries.iter().map(|entry| (entry.event, entry.client.as_ref().map(|(id, _)| *id))).collect();
    let by_seven = (LogEvent::SessionEnd, Some(ClientId(7)));
    assert_eq!(clients, [by_seven, by_seven, (LogEvent::Delete, None), (LogEvent::Delete, None)]);
    let peers = entries.iter().filter_map(|entry| entry.client.as_ref());
    assert!(peers.clone().count() == 2 && peers.clone().all(|(_, peer)| peer.name.as_ref().unwrap().len() == CUT));
}

#[test]
fn of_a_session_that_ends_16_holds_are_logged() {
    let mut server = logging(100);
    for number in 0..20 {
        assert!(is_granted(&server.acquire_bound(&format!("lock{}", number / 2), number, Want::Shared, 7)));
    }
    server.disconnect(7);
    assert_eq!(server.engine.log().entries().len(), 16);
}

#[test]
fn a_session_that_ends_with_the_lease_has_lost_the_hold_before() {
    let mut server = logging(100);
    assert!(is_granted(&server.acquire_bound("lock", 1, Want::Exclusive, 7)));
    server.pass_ms(60_000);
    server.disconnect(7);
    assert_eq!(server.engine.log().entries().len(), 0);
}

/// A removed key: leases that had run out are counted, with how long they were held.
#[test]
fn what_lapsed_before_a_key_went_is_counted() {
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
    // Without one, nothing is counted.
    assert!(is_granted(&server.acquire("other", 1, 20, Want::Shared)));
    lose(&mut server, "other");
    assert_eq!(server.engine.stats().lapses, 2);
}

fn logging(max_len: usize) -> Server {
    let mut server = Server::new();
    server.engine.log_mut().configure(LogSettings { max_len, ..LogSettings::default() });
    server
}

fn lose(server: &mut Server, key: &str) {
    let name = name(key);
    let lock = server.space.lock(&(0, key.as_bytes().to_vec())).clone();
    let lost = Lost::of(name, &lock, server.space.now());
    server.engine.lose(&lost);
}
