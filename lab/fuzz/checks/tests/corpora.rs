//! The kept corpora of the fuzzer, and every input that once failed, played without the fuzzer.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that panics has failed, which is what it is for")]

use std::fs;
use std::panic::catch_unwind;
use std::path::Path;

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

fn play(target: &str, check: fn(&[u8])) {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../corpus").join(target);
    let mut played = 0;
    for entry in fs::read_dir(&corpus).unwrap() {
        let path = entry.unwrap().path();
        let bytes = fs::read(&path).unwrap();
        if catch_unwind(|| check(&bytes)).is_err() {
            panic!("{} fails", path.display());
        }
        played += 1;
    }
    assert!(played >= 100, "the corpus of {target} has {played} inputs only");
}
