//! The golden files of `crates/core/testdata`.

use std::collections::BTreeMap;

use dlock_core::{Change, Command, Effect, Expiry, Extras, Hold, Mode, Owner, RequestId, UnixMs};

use crate::values::{self, UUID, hold, lock};
use crate::{effect_bytes, effect_of, lock_bytes, lock_holds};

#[test]
fn locks_of_version_1_are_read_and_written() {
    compare_locks(&parse(include_str!("../../testdata/lock-v1.hex")), locks());
}

#[test]
fn effects_of_version_1_are_read_and_written() {
    let mut golden = parse(include_str!("../../testdata/effect-v1.hex"));
    golden.retain(|name, _| !name.ends_with(WITH_WAITERS));
    compare_effects(&golden, &effects());
}

/// Effects of releases before 0.2 have a flag for waiters, which is ignored.
#[test]
fn effects_of_version_1_with_the_flag_for_waiters_are_read() {
    let golden = parse(include_str!("../../testdata/effect-v1.hex"));
    let effects = effects();
    let with_waiters = golden.iter().filter(|(name, _)| name.ends_with(WITH_WAITERS));
    let read: Vec<&str> = with_waiters
        .map(|(name, bytes)| {
            let plain = name.trim_end_matches(WITH_WAITERS);
            let plain = if plain == "remove" { "remove exclusive" } else { plain };
            assert_eq!(effect_of(bytes).as_ref(), Ok(&effects[plain]), "{name}");
            plain
        })
        .collect();
    assert_eq!(read, ["put", "remove exclusive", "sweep"]);
}

const WITH_WAITERS: &str = ", somebody waits";

#[test]
fn locks_of_version_2_are_read_and_written() {
    compare_locks(&parse(include_str!("../../testdata/lock-v2.hex")), locks_2());
}

#[test]
fn effects_of_version_2_are_read_and_written() {
    compare_effects(&parse(include_str!("../../testdata/effect-v2.hex")), &effects_2());
}

/// Version 3 differs by caps and numbers only.
#[test]
fn locks_of_version_3_are_read_and_written() {
    compare_locks(&parse(include_str!("../../testdata/lock-v3.hex")), locks_3());
}

#[test]
fn effects_of_version_3_are_read_and_written() {
    compare_effects(&parse(include_str!("../../testdata/effect-v3.hex")), &effects_3());
}

fn compare_locks(golden: &BTreeMap<&str, Vec<u8>>, locks: BTreeMap<&'static str, Vec<Hold>>) {
    assert_eq!(golden.keys().collect::<Vec<_>>(), locks.keys().collect::<Vec<_>>());
    for (name, holds) in locks {
        assert_eq!(lock_holds(&golden[name]).as_ref(), Ok(&holds), "{name}");
        assert_eq!(hex(&lock_bytes(&lock(holds))), hex(&golden[name]), "{name}");
    }
}

fn compare_effects(golden: &BTreeMap<&str, Vec<u8>>, effects: &BTreeMap<&'static str, Effect>) {
    assert_eq!(golden.keys().collect::<Vec<_>>(), effects.keys().collect::<Vec<_>>());
    for (name, effect) in effects {
        assert_eq!(effect_of(&golden[name]).as_ref(), Ok(effect), "{name}");
        assert_eq!(hex(&effect_bytes(effect)), hex(&golden[name]), "{name}");
    }
}

/// Version 2 differs by the requests of `SACQUIRE` and `MACQUIRE` only.
fn locks_2() -> BTreeMap<&'static str, Vec<Hold>> {
    use Mode::{Exclusive, Shared};
    let hold = |owner, mode, count| hold(owner, mode, count, 30_000, CLOCK + 30_000, TOKEN);
    let permits = Hold { extras: request(Command::Sacquire, b"r-1"), ..hold(b"alice", Shared, 3) };
    let several = Hold { extras: request(Command::Macquire, b"r-1"), ..hold(UUID.as_bytes(), Exclusive, 1) };
    let others = Hold { extras: request(Command::Release, b"r-2"), token: next_token(), ..hold(b"bob", Shared, 1) };
    BTreeMap::from([("permits", vec![permits.clone()]), ("several", vec![several]), ("mixed", vec![permits, others])])
}

fn effects_2() -> BTreeMap<&'static str, Effect> {
    let put =
        |hold: &Hold, expiry| Effect { clock: UnixMs::new(CLOCK), change: Change::Put { hold: hold.clone(), expiry } };
    let locks = locks_2();
    BTreeMap::from([
        ("put, sacquire", put(&locks["permits"][0], Expiry::Anew)),
        ("put, sacquire, kept", put(&locks["permits"][0], Expiry::Keep)),
        ("put, macquire", put(&locks["several"][0], Expiry::Anew)),
        ("put, ttl left alone", put(&locks["permits"][0], Expiry::Leave)),
    ])
}

fn locks_3() -> BTreeMap<&'static str, Vec<Hold>> {
    use Mode::{Exclusive, Shared};
    let hold = |owner, mode, cap| {
        let extras = Extras::of(None, Some(UnixMs::new(cap)), None);
        Hold { extras, ..hold(owner, mode, 1, 30_000, CLOCK + 30_000, TOKEN) }
    };
    let asked = Extras::of(RequestId::new(Command::Sacquire, b"r-1"), Some(UnixMs::new(CLOCK + 60_000)), None);
    let capped = hold(b"alice", Exclusive, CLOCK + 3_600_000);
    let reader = hold(b"alice", Shared, CLOCK + 30_000);
    let plain = Hold { extras: None, token: next_token(), ..hold(b"bob", Shared, CLOCK) };
    let limit = UnixMs::MAX.get();
    let numbered = |slot, cap| {
        let extras = Extras::of(None, cap, Some(slot));
        Hold { extras, ..values::hold(b"carol", Shared, 1, 30_000, CLOCK + 30_000, TOKEN + 2) }
    };
    let asked_for_it =
        Extras::of(RequestId::new(Command::Sacquire, b"r-1"), Some(UnixMs::new(CLOCK + 60_000)), Some(300));
    BTreeMap::from([
        ("numbered", vec![numbered(0, None)]),
        (
            "numbered, with a cap and a request",
            vec![Hold { extras: asked_for_it, ..reader.clone() }, numbered(7, Some(UnixMs::new(CLOCK + 30_000)))],
        ),
        ("the highest number", vec![numbered(u32::MAX - 1, None)]),
        ("capped", vec![capped]),
        ("at its cap, of a uuid", vec![hold(UUID.as_bytes(), Exclusive, CLOCK + 30_000)]),
        ("with a request, and one without a cap", vec![Hold { extras: asked, ..reader.clone() }, plain]),
        ("limits", vec![Hold { deadline: UnixMs::new(1), ..hold(b"a", Shared, limit) }]),
    ])
}

fn effects_3() -> BTreeMap<&'static str, Effect> {
    let put =
        |hold: &Hold, expiry| Effect { clock: UnixMs::new(CLOCK), change: Change::Put { hold: hold.clone(), expiry } };
    let locks = locks_3();
    BTreeMap::from([
        ("put, capped", put(&locks["capped"][0], Expiry::Anew)),
        ("put, at its cap", put(&locks["at its cap, of a uuid"][0], Expiry::Keep)),
        ("put, with a request", put(&locks["with a request, and one without a cap"][0], Expiry::Anew)),
        ("put, ttl left alone", put(&locks["capped"][0], Expiry::Leave)),
        ("put, numbered", put(&locks["numbered"][0], Expiry::Anew)),
        ("put, numbered, with a cap and a request", put(&locks["numbered, with a cap and a request"][0], Expiry::Keep)),
    ])
}

fn next_token() -> dlock_core::Token {
    dlock_core::Token::new(TOKEN + 1).expect("a good token")
}

fn locks() -> BTreeMap<&'static str, Vec<Hold>> {
    use Mode::{Exclusive, Shared};
    let uuid = UUID.as_bytes();
    BTreeMap::from([
        ("exclusive", vec![hold(b"alice", Exclusive, 1, 30_000, CLOCK + 30_000, TOKEN)]),
        (
            "both modes of a uuid",
            vec![
                hold(uuid, Exclusive, 2, 1000, CLOCK + 500, TOKEN + 1),
                hold(uuid, Shared, 1, 60_000, CLOCK + 60_000, TOKEN + 2),
            ],
        ),
        (
            "readers",
            vec![
                hold(b"\x00\xff\n", Shared, 1, 1000, CLOCK + 1000, TOKEN + 1),
                hold(b"bob", Shared, 300, 5000, CLOCK + 4000, TOKEN + 1),
                hold(b"carol", Shared, 1, 5000, CLOCK + 5000, TOKEN + 7),
            ],
        ),
        (
            "requests",
            vec![
                Hold {
                    extras: request(Command::Release, b"r-1"),
                    ..hold(b"alice", Exclusive, 2, 30_000, CLOCK + 30_000, TOKEN)
                },
                Hold {
                    extras: request(Command::Rlock, &[0xff; RequestId::MAX_LEN]),
                    ..hold(b"alice", Shared, 1, 30_000, CLOCK + 30_000, TOKEN + 1)
                },
            ],
        ),
        (
            "limits",
            vec![hold(b"a", Exclusive, 1, 1, 1, 1), hold(b"a", Shared, u32::MAX, 31_536_000_000, 1 << 53, 1 << 53)],
        ),
    ])
}

fn effects() -> BTreeMap<&'static str, Effect> {
    use Mode::{Exclusive, Shared};
    let put = |clock, hold, expiry| Effect { clock: UnixMs::new(clock), change: Change::Put { hold, expiry } };
    let remove = |clock, owner, mode| {
        let owner = Owner::new(owner).expect("a good owner");
        Effect { clock: UnixMs::new(clock), change: Change::Remove { owner, mode } }
    };
    let uuid = UUID.as_bytes();
    let alice = hold(b"alice", Exclusive, 1, 30_000, CLOCK + 30_000, TOKEN + 5);
    let with_request = |mode, command| {
        let hold = Hold { extras: request(command, b"r-1"), ..hold(b"alice", mode, 1, 30_000, CLOCK + 30_000, TOKEN) };
        put(CLOCK, hold, Expiry::Anew)
    };
    let sweep = Effect { clock: UnixMs::new(CLOCK), change: Change::Sweep };
    BTreeMap::from([
        ("put", put(CLOCK, alice.clone(), Expiry::Anew)),
        ("put, kept", put(CLOCK, hold(uuid, Shared, 3, 30_000, CLOCK + 400, TOKEN - 70_000), Expiry::Keep)),
        ("put, lapsed", put(CLOCK, hold(b"bob", Shared, 1, 1000, CLOCK - 1, TOKEN), Expiry::Anew)),
        ("put, limits", put(0, hold(b"a", Shared, u32::MAX, 1, 1 << 53, 1 << 53), Expiry::Anew)),
        ("put, acquire", with_request(Exclusive, Command::Acquire)),
        ("put, racquire", with_request(Exclusive, Command::Racquire)),
        ("put, rlock", with_request(Shared, Command::Rlock)),
        ("put, wlock", with_request(Exclusive, Command::Wlock)),
        ("put, release", with_request(Exclusive, Command::Release)),
        ("remove exclusive", remove(CLOCK, b"alice", Some(Exclusive))),
        ("remove shared", remove(CLOCK, uuid, Some(Shared))),
        ("remove both", remove(1 << 53, b"\0", None)),
        ("sweep", sweep),
    ])
}

fn request(command: Command, id: &[u8]) -> Option<Box<Extras>> {
    Extras::of(RequestId::new(command, id), None, None)
}

/// Returns the values of a golden file by name.
fn parse(text: &str) -> BTreeMap<&str, Vec<u8>> {
    let mut values = BTreeMap::new();
    let mut name = "";
    for line in text.lines() {
        if let Some(named) = line.strip_prefix('[').and_then(|line| line.strip_suffix(']')) {
            assert!(values.insert(named, Vec::new()).is_none(), "{named} is in the file twice");
            name = named;
            continue;
        }
        let digits = line.split('#').next().unwrap_or_default().trim();
        let pairs = digits.as_bytes().chunks(2).map(|pair| str::from_utf8(pair).expect("digits"));
        let bytes = pairs.map(|pair| u8::from_str_radix(pair, 16).expect("two digits a byte"));
        values.entry(name).or_insert_with(Vec::new).extend(bytes);
    }
    values.retain(|name, _| !name.is_empty());
    values
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

const CLOCK: u64 = 1_784_160_000_000;
const TOKEN: u64 = CLOCK * 1000;
