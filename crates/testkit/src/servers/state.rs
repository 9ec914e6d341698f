//! The keys that a server stores, to compare them with those of another server, or with its own after a restart.

use std::collections::BTreeMap;

use crate::client::Client;
use crate::cluster::in_cluster;
use crate::wire::{bytes_of, int_of, list_of, text_of};

/// Databases that the tests use.
pub const DATABASES: i64 = 4;

/// `(database, key)` to `(type, DEBUG DIGEST-VALUE, PEXPIRETIME)`.
pub type State = BTreeMap<(i64, Vec<u8>), (String, String, i64)>;

/// Returns the state of every key that has not expired.
#[track_caller]
pub fn state(client: &mut Client) -> State {
    let mut state = State::new();
    // A cluster has a single database, and its replicas redirect connections that have not sent READONLY.
    let databases = if in_cluster(client) { 1 } else { DATABASES };
    if databases == 1 {
        client.ok("READONLY");
    }
    for db in 0..databases {
        if databases > 1 {
            client.ok(format!("SELECT {db}"));
        }
        let keys: Vec<_> = list_of(&client.run("KEYS *")).iter().map(bytes_of).collect();
        let asked = |words: &str| -> Vec<redis::Cmd> {
            keys.iter()
                .map(|key| {
                    let mut cmd = redis::Cmd::new();
                    words.split(' ').for_each(|word| {
                        cmd.arg(word);
                    });
                    cmd.arg(key).to_owned()
                })
                .collect()
        };
        let kinds = client.pipeline(&asked("TYPE"));
        let digests = client.pipeline(&asked("DEBUG DIGEST-VALUE"));
        let ends = client.pipeline(&asked("PEXPIRETIME"));
        for (at, key) in keys.iter().enumerate() {
            let [kind, digest, end] = [&kinds[at], &digests[at], &ends[at]].map(|r| r.as_ref().expect("an answer"));
            let digest = text_of(&list_of(digest)[0]);
            state.insert((db, key.clone()), (text_of(kind), digest, int_of(end)));
        }
    }
    if databases > 1 {
        client.ok("SELECT 0");
    }
    state
}

/// Fails with the first differences, not with two maps of a thousand keys.
#[track_caller]
pub fn assert_same(what: &str, expected: &State, found: &State) {
    let mut differences = Vec::new();
    for key in expected.keys().chain(found.keys().filter(|key| !expected.contains_key(*key))) {
        let (old, new) = (expected.get(key), found.get(key));
        if old != new {
            differences.push(format!("{} {:?}: {old:?} / {new:?}", key.0, String::from_utf8_lossy(&key.1)));
        }
    }
    let shown = differences.iter().take(10).cloned().collect::<Vec<_>>().join("\n");
    assert!(differences.is_empty(), "{what}: {} of {} keys differ\n{shown}", differences.len(), expected.len());
}

/// Compares a primary and its replica like [`assert_same`], after locks with waiters were renamed or moved. The primary may
/// keep the key under its new name up to 50 ms longer.
#[track_caller]
pub fn assert_same_but_for_grace(what: &str, primary: &State, replica: &State) {
    const GRACE_MS: i64 = 50;
    let mut primary = primary.clone();
    for (key, (_, _, end)) in &mut primary {
        if let Some((_, _, known)) = replica.get(key)
            && (0..=GRACE_MS).contains(&(*end - *known))
        {
            *end = *known;
        }
    }
    assert_same(what, &primary, replica);
}
