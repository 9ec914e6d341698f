//! Random bytes, and requests with random changes, for the parser. `DLOCK_AGENT_FUZZ_SECONDS` says for how long.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    missing_docs,
    reason = "a test that panics has failed, which is what it is for"
)]

use std::time::{Duration, Instant};

use dlock_agent::fuzz_requests;
use dlock_testkit::random::{Random, seeded};

const PIECES: [&[u8]; 24] = [
    b"*",
    b"$",
    b"\r\n",
    b"\n",
    b"\r",
    b"-",
    b"+",
    b":",
    b"0",
    b"1",
    b"2",
    b"9999999999",
    b"99999999999",
    b"32768",
    b"32769",
    b"256",
    b"257",
    b"PING",
    b"\0",
    b"\xff",
    b"\"",
    b" ",
    b"*1\r\n$4\r\nPING\r\n",
    b"POST / HTTP/1.1\r\n",
];

#[test]
fn no_bytes_crash_the_parser_and_whole_requests_are_found() {
    let seconds = std::env::var("DLOCK_AGENT_FUZZ_SECONDS").map_or(2, |text| text.parse().expect("a number"));
    let end = Instant::now() + Duration::from_secs(seconds);
    let mut random = seeded(std::env::var("DLOCK_AGENT_FUZZ_SEED").map_or(7, |text| text.parse().expect("a number")));
    let (mut runs, mut found) = (0_u64, 0_usize);
    while Instant::now() < end {
        for _ in 0..200 {
            let count = random.below(6) as usize;
            let mut bytes: Vec<u8> = (0..count).flat_map(|_| request(&mut random)).collect();
            assert_eq!(fuzz_requests(&bytes), count, "{}", bytes.escape_ascii());
            let changes = 1 + random.below(4);
            (0..changes).for_each(|_| change(&mut random, &mut bytes));
            found += fuzz_requests(&bytes);
            runs += 1;
        }
    }
    eprintln!("{runs} runs, {found} requests in what was changed");
    assert!(runs > 100 && found > 0);
}

/// A valid request.
fn request(random: &mut Random) -> Vec<u8> {
    let words = 1 + random.below(8);
    let mut bytes = format!("*{words}\r\n").into_bytes();
    for _ in 0..words {
        let length = random.below(40) as usize;
        let word: Vec<u8> = (0..length).map(|_| random.below(256) as u8).collect();
        bytes.extend(format!("${length}\r\n").into_bytes());
        bytes.extend(word);
        bytes.extend(b"\r\n");
    }
    bytes
}

fn change(random: &mut Random, bytes: &mut Vec<u8>) {
    let at = random.below(bytes.len() as u64 + 1) as usize;
    match random.below(4) {
        0 => bytes.truncate(at),
        1 if at < bytes.len() => bytes[at] = random.below(256) as u8,
        2 => {
            let end = (at + random.below(8) as usize).min(bytes.len());
            bytes.drain(at..end);
        }
        _ => {
            let piece = PIECES[random.below(PIECES.len() as u64) as usize];
            bytes.splice(at..at, piece.iter().copied());
        }
    }
}
