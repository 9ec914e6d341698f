//! The kept corpora of the fuzzer, and every input that once failed, played without the fuzzer.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that panics has failed, which is what it is for")]

use std::fs;
use std::panic::catch_unwind;
use std::path::Path;
use std::process::Command;

use dlock_fuzz_checks::{args, codec, machine};

#[test]
fn the_corpus_of_the_codec_passes() {
    play("codec", codec);
}

#[test]
fn the_corpus_of_the_argument_parser_passes() {
    play("args", args);
}

#[test]
fn the_corpus_of_the_state_machine_passes() {
    play("machine", machine);
}

/// Plays the archive `lab/fuzz/corpus/TARGET.tar.gz`, and the files beside it in `lab/fuzz/corpus/TARGET/`.
fn play(target: &str, check: fn(&[u8])) {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../corpus");
    let unpacked = Path::new(env!("CARGO_TARGET_TMPDIR")).join("corpus").join(target);
    if unpacked.exists() {
        fs::remove_dir_all(&unpacked).unwrap();
    }
    fs::create_dir_all(&unpacked).unwrap();
    let archive = corpus.join(target).with_extension("tar.gz");
    let tar = Command::new("tar").arg("-xzf").arg(&archive).arg("-C").arg(&unpacked).status().unwrap();
    assert!(tar.success(), "{} cannot be unpacked", archive.display());
    let played = play_all(&unpacked, check);
    assert!(played >= 100, "the corpus of {target} has {played} inputs only");
    let once_failed = corpus.join(target);
    if once_failed.exists() {
        play_all(&once_failed, check);
    }
}

fn play_all(directory: &Path, check: fn(&[u8])) -> usize {
    let mut played = 0;
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        let bytes = fs::read(&path).unwrap();
        if catch_unwind(|| check(&bytes)).is_err() {
            panic!("{} fails", path.display());
        }
        played += 1;
    }
    played
}

/// Every command with up to three of these words, options and values for them, and the same behind an owner.
#[test]
fn short_calls_are_read_as_the_plain_parser_reads_them() {
    const WORDS: [&str; 22] = [
        "",
        "x",
        "5",
        "0",
        "-1",
        "400",
        "PX",
        "NX",
        "xx",
        "LIST",
        "COUNT",
        "USER",
        "CLOSE",
        "SESSION",
        "sessionid",
        "BREAK",
        "TOKEN",
        "ALL",
        "MINTOKEN",
        "get",
        "MAXHOLD",
        "EXAT",
    ];
    for call in 0..CALLS {
        for first in WORDS {
            args(&input(call, &[first]));
            for second in WORDS {
                args(&input(call, &[first, second]));
                for third in WORDS {
                    args(&input(call, &[first, second, third]));
                    // An owner or an id, and what may follow.
                    args(&input(call, &["alice", first, second, third]));
                    args(&input(call, &["alice", "5", first, second, third]));
                }
            }
        }
    }
}

/// How many commands the first byte of an input may pick.
const CALLS: u8 = 12;

fn input(call: u8, words: &[&str]) -> Vec<u8> {
    [&[call, 0, 0], words.join("\n").as_bytes()].concat()
}
