//! Damaged bytes: refused or a lock that works, never a crash.

use redis::{Cmd, Value};

use crate::support::lock::Info;
use crate::support::payload::{body, seal};
use crate::support::random::seeded;
use crate::support::{Client, Server, bytes_of, list_of, req, text_of};

/// Dumps of locks of every shape.
#[track_caller]
fn dumps(client: &mut Client) -> Vec<Vec<u8>> {
    let setups: [&[&str]; 5] = [
        &["ACQUIRE k a PX 600000"],
        &["RACQUIRE k 0f8fad5b-d9cb-469f-a165-70867728950e", "RACQUIRE k 0f8fad5b-d9cb-469f-a165-70867728950e"],
        &["WLOCK k writer-and-reader PX 500000", "RLOCK k writer-and-reader EX 500", "RLOCK k writer-and-reader"],
        &["RLOCK k a", "RLOCK k b PX 90000", "RLOCK k 0f8fad5b-d9cb-469f-a165-70867728950e", "RLOCK k a PX 1"],
        &["RLOCK k a PX 1", "RLOCK k b PX 600000"],
    ];
    setups
        .iter()
        .map(|lines| {
            client.run("DEL k");
            lines.iter().for_each(|line| drop(client.run(format!("DLOCK.{line}"))));
            client.bytes("DUMP k")
        })
        .collect()
}

/// Restores each dump, and returns how many were taken. Those must be locks like any other.
#[track_caller]
fn restore_all(client: &mut Client, damaged: &[Vec<u8>]) -> usize {
    let mut taken = 0;
    for chunk in damaged.chunks(200) {
        let requests: Vec<Cmd> = chunk
            .iter()
            .enumerate()
            .flat_map(|(n, dump)| [req!["DEL", format!("d{n}")], req!["RESTORE", format!("d{n}"), 900_000, dump]])
            .collect();
        let replies = client.pipeline(&requests);
        for (n, reply) in replies.iter().skip(1).step_by(2).enumerate() {
            if reply.is_ok() {
                taken += 1;
                works(client, &format!("d{n}"), &chunk[n]);
            }
        }
    }
    assert_eq!(client.text("PING"), "PONG");
    taken
}

/// A lock that was restored is a lock like any other.
#[track_caller]
fn works(client: &mut Client, key: &str, dump: &[u8]) {
    // No key is left of a dump whose holds have all lapsed.
    match text_of(&client.run(format!("TYPE {key}"))).as_str() {
        "none" => return,
        kind => assert_eq!(kind, "distrlock"),
    }
    let shown = dump.escape_ascii().to_string();
    keeps_the_rules(client, key, &shown);
    // A dump that was accepted can be stored and restored again, the same.
    let again = client.bytes(format!("DUMP {key}"));
    let restore = req!["RESTORE", "again", 900_000, &again, "REPLACE"];
    let replies = client.pipeline(&[req!["MULTI"], restore, req!["DUMP", "again"], req!["EXEC"]]);
    let done = list_of(replies[3].as_ref().expect("a transaction"));
    assert_eq!(bytes_of(&done[1]), again, "{shown}");
    for request in ["RLOCK", "WLOCK", "RENEW", "RELEASE", "RACQUIRE"] {
        let _ = client.attempt(format!("DLOCK.{request} {key} a"));
    }
    let _ = client.attempt(format!("DLOCK.RELEASE {key} a ALL"));
}

#[track_caller]
fn keeps_the_rules(client: &mut Client, key: &str, shown: &str) {
    if let value @ (Value::Array(_) | Value::Map(_)) = client.run(format!("DLOCK.INFO {key} FULL COUNT 0")) {
        let info = Info::of(&value);
        let holds = info.holds();
        let exclusive: Vec<_> = holds.iter().filter(|hold| hold.mode == "exclusive").collect();
        assert!(exclusive.len() <= 1, "{shown}");
        for hold in holds {
            assert!((1..=1024).contains(&hold.owner.len()), "{shown}");
            assert!(exclusive.iter().all(|writer| writer.owner == hold.owner), "exclusive excludes: {shown}");
            assert!(hold.count >= 1 && (1..=1 << 53).contains(&hold.token) && hold.ttl >= 1, "{hold:?}: {shown}");
            assert_eq!(holds.iter().filter(|o| o.owner == hold.owner && o.mode == hold.mode).count(), 1, "{shown}");
        }
        assert_eq!(info.count, holds.iter().map(|hold| hold.count).sum::<i64>(), "{shown}");
    }
}

#[test]
fn truncated_dumps_are_refused() {
    let (_server, mut client) = Server::start().with_client();
    for dump in dumps(&mut client) {
        let whole = body(&dump);
        let cut: Vec<_> = (0..whole.len()).map(|length| seal(&whole[..length], &dump)).collect();
        assert_eq!(restore_all(&mut client, &cut), 0);
        let raw: Vec<_> = (0..dump.len()).map(|length| dump[..length].to_vec()).collect();
        assert_eq!(restore_all(&mut client, &raw), 0);
        assert_eq!(restore_all(&mut client, &[seal(&whole, &dump)]), 1, "the whole one is good");
    }
}

#[test]
fn dumps_with_flipped_bits_are_refused_or_good() {
    let (_server, mut client) = Server::conf("rdbcompression no").with_client();
    for dump in dumps(&mut client) {
        let whole = body(&dump);
        let flipped: Vec<_> = (8..whole.len() * 8)
            .map(|bit| {
                let mut bytes = whole.clone();
                bytes[bit / 8] ^= 1 << (bit % 8);
                seal(&bytes, &dump)
            })
            .collect();
        let taken = restore_all(&mut client, &flipped);
        assert!(taken < flipped.len(), "some are refused");
    }
}

#[test]
fn dumps_with_random_bytes_are_refused_or_good() {
    let (_server, mut client) = Server::conf("rdbcompression no").with_client();
    let mut random = seeded(7);
    for dump in dumps(&mut client) {
        let whole = body(&dump);
        // The damage is behind the type and the module's id, in the module's own bytes.
        let damaged: Vec<_> = (0..1500)
            .map(|_| {
                let mut bytes = whole.clone();
                for _ in 0..1 + random.below(4) {
                    let at = 10 + random.below(bytes.len() as u64 - 10) as usize;
                    match random.below(4) {
                        0 => bytes[at] = random.pick(&[0, 1, 0x7f, 0x80, 0xff]),
                        1 => bytes[at] = random.number() as u8,
                        2 => drop(bytes.remove(at)),
                        _ => bytes.insert(at, random.number() as u8),
                    }
                    if bytes.len() < 12 {
                        break;
                    }
                }
                seal(&bytes, &dump)
            })
            .collect();
        restore_all(&mut client, &damaged);
    }
}

#[test]
fn a_dump_of_a_later_version_is_refused() {
    let (_server, mut client) = Server::start().with_client();
    for dump in dumps(&mut client) {
        let mut value = body(&dump);
        // The module's id is 64 bits, the last ten of them the version of the encoding.
        assert_eq!(value[1], 0x81, "a 64 bit length");
        value[8] |= 0x03;
        value[9] = 0xff;
        client.error(req!["RESTORE", "d", 0, seal(&value, &dump)]);
    }
}

#[test]
fn a_damaged_file_stops_the_start_with_a_line_in_the_log() {
    let (mut server, mut client) = Server::conf("rdbcompression no\nrdbchecksum no").with_client();
    client.int("DLOCK.ACQUIRE k owner-of-the-lock PX 600000");
    client.ok("SAVE");
    server.kill9();
    let whole = std::fs::read(server.path("dump.rdb")).unwrap();
    let owner = whole.windows(17).position(|bytes| bytes == b"owner-of-the-lock").expect("the owner is in the file");
    let (mut refused, mut named) = (0, 0);
    for at in owner - 24..owner + 40 {
        let mut damaged = whole.clone();
        let Some(byte) = damaged.get_mut(at) else { break };
        *byte = 0xff;
        std::fs::write(server.path("dump.rdb"), &damaged).unwrap();
        let _ = std::fs::remove_file(server.path("server.log"));
        // `try_boot` fails the test if a signal ends the server.
        match server.try_boot() {
            Ok(()) => server.kill9(),
            Err(log) => {
                refused += 1;
                // The server's own line. The module adds one if it refuses the bytes.
                assert!(log.contains("Internal error in RDB reading offset"), "{log}");
                named += usize::from(log.contains("dlock: a lock could not be loaded: "));
            }
        }
    }
    assert!(named > 0, "{refused} refused");
    std::fs::write(server.path("dump.rdb"), &whole).unwrap();
    server.boot();
    assert_eq!(server.client().int("DLOCK.RELEASE k owner-of-the-lock"), 1);
}

#[test]
fn a_damaged_effect_in_the_aof_does_no_harm() {
    let (mut server, mut client) = Server::conf("appendonly yes\nappendfsync always").with_client();
    client.int("DLOCK.ACQUIRE k a PX 600000");
    let effect = server.aof().into_iter().find(|command| command[0] == b"DLOCK.APPLY").expect("an effect");
    server.kill9();
    let file = server.aof_path();
    let whole = std::fs::read(&file).unwrap();
    let mut random = seeded(8);
    let mut damaged = whole.clone();
    for _ in 0..3000 {
        let mut words = effect.clone();
        for _ in 0..1 + random.below(3) {
            let word = 2 + random.below(words.len() as u64 - 2) as usize;
            let Some(length @ 1..) = words.get(word).map(Vec::len) else { continue };
            let at = random.below(length as u64) as usize;
            match random.below(3) {
                0 => words[word][at] = random.number() as u8,
                1 => words[word].truncate(at),
                _ => words[word].insert(at, random.number() as u8),
            }
        }
        words[1] = format!("damaged{}", random.below(50)).into_bytes();
        let mut cmd = Cmd::new();
        words.iter().for_each(|word| {
            cmd.arg(word);
        });
        damaged.extend(cmd.get_packed_command());
    }
    std::fs::write(&file, &damaged).unwrap();
    // Some servers go on after an effect that was refused, some end. None may crash.
    match server.try_boot() {
        Ok(()) => {
            let mut client = server.client();
            assert_eq!(client.int("DLOCK.RELEASE k a"), 1);
            for key in (0..50).map(|n| format!("damaged{n}")) {
                if client.int(format!("EXISTS {key}")) == 1 {
                    keeps_the_rules(&mut client, &key, &key);
                    client.ok("DEBUG RELOAD");
                }
            }
            server.tolerate("CRITICAL");
        }
        Err(log) => assert!(log.contains("AOF") || log.contains("append only"), "{log}"),
    }
}
