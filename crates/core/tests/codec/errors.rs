//! The errors for bytes that are no lock and no effect.

use dlock_core::DecodeError;

use crate::{effect_of, lock_holds};

/// Bytes of a hold: flags, owner "a", count 1, lease 1, deadline 8, token 1.
const HOLD: &[u8] = b"\x00\x01a\x01\x01\x10\x02";

#[test]
fn bytes_that_are_no_lock_say_why() {
    let invalid = DecodeError::Invalid;
    let cases: [(&[&[u8]], DecodeError); 42] = [
        (&[b""], DecodeError::Truncated),
        (&[b"\x01"], DecodeError::Truncated),
        (&[b"\x01\x02", HOLD], DecodeError::Truncated),
        (&[b"\x01\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", HOLD], DecodeError::Truncated),
        (&[b"\x01\x01", HOLD, b"\0"], DecodeError::TrailingBytes),
        (&[b"\x00\x01", HOLD], DecodeError::Version(0)),
        (&[b"\x04\x01", HOLD], DecodeError::Version(4)),
        (&[b"\xff"], DecodeError::Version(255)),
        (&[b"\x01\x00"], invalid("number of holds")),
        (&[b"\x01\xff\xff\xff\xff\xff\xff\xff\xff\xff\x02"], invalid("number")),
        (&[b"\x01\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x00"], invalid("number")),
        (&[b"\x01\x02", HOLD, HOLD], invalid("set of holds")),
        // Two owners, one of them exclusive.
        (&[b"\x01\x02", HOLD, b"\x01\x01b\x01\x01\x10\x02"], invalid("set of holds")),
        (&[b"\x01\x02\x01\x01b\x01\x01\x10\x02", HOLD], invalid("set of holds")),
        (&[b"\x01\x01\x10\x01a\x01\x01\x10\x02"], invalid("flags")),
        (&[b"\x02\x01\x10\x01a\x01\x01\x10\x02\x05"], invalid("flags")),
        (&[b"\x03\x01\x40\x01a\x01\x01\x10\x02\x05"], invalid("flags")),
        (&[b"\x01\x01\x21\x01a\x01\x01\x10\x02\x05"], invalid("flags")),
        (&[b"\x02\x01\x21\x01a\x01\x01\x10\x02\x05"], invalid("flags")),
        (&[b"\x03\x01\x21\x01a\x01\x01\x10\x02"], DecodeError::Truncated),
        (&[b"\x03\x01\x21\x01a\x01\x01\x10\x02", b"\x00\x00"], DecodeError::TrailingBytes),
        // An exclusive hold has no slot, and the highest slot is 2^32 - 2.
        (&[b"\x03\x01\x20\x01a\x01\x01\x10\x02\x05"], invalid("slot")),
        (&[b"\x03\x01\x21\x01a\x01\x01\x10\x02\xff\xff\xff\xff\x0f"], invalid("slot")),
        (&[b"\x03\x01\x21\x01a\x01\x01\x10\x02\x80\x80\x80\x80\x10"], invalid("slot")),
        // Two holds with the same slot.
        (&[b"\x03\x02\x21\x01a\x01\x01\x10\x02\x05", b"\x21\x01b\x01\x01\x10\x02\x05"], invalid("set of holds")),
        (&[b"\x03\x01\x10\x01a\x01\x01\x10\x02"], DecodeError::Truncated),
        // A cap above 2^53.
        (&[b"\x03\x01\x10\x01a\x01\x01\x10\x02\x80\x80\x80\x80\x80\x80\x80\x10"], invalid("cap")),
        (&[b"\x03\x01\x10\x01a\x01\x01\x10\x02\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"], invalid("cap")),
        (&[b"\x01\x01\x00\x00\x01\x01\x10\x02"], invalid("owner")),
        (&[b"\x01\x01\x00\x01a\x00\x01\x10\x02"], invalid("count")),
        (&[b"\x01\x01\x00\x01a\x80\x80\x80\x80\x10\x01\x10\x02"], invalid("count")),
        (&[b"\x01\x01\x00\x01a\x01\x00\x10\x02"], invalid("lease")),
        (&[b"\x01\x01\x00\x01a\x01\x81\xb8\xc5\xbe\x75\x10\x02"], invalid("lease")),
        (&[b"\x01\x01\x00\x01a\x01\x01\x01\x02"], invalid("time")),
        (&[b"\x01\x01\x00\x01a\x01\x01\x10\x00"], invalid("token")),
        (&[b"\x01\x01\x08\x01a\x01\x01\x10\x02"], DecodeError::Truncated),
        (&[b"\x01\x01\x08\x01a\x01\x01\x10\x02\x05\x01r"], invalid("command")),
        (&[b"\x01\x01\x08\x01a\x01\x01\x10\x02\x06\x01r"], invalid("command")),
        (&[b"\x02\x01\x08\x01a\x01\x01\x10\x02\x07\x01r"], invalid("command")),
        (&[b"\x01\x01\x08\x01a\x01\x01\x10\x02\x04\x00"], invalid("request")),
        (&[b"\x01\x01\x08\x01a\x01\x01\x10\x02\x04\x41", &[b'r'; 65]], invalid("request")),
        (&[b"\x01\x01\x08\x01a\x01\x01\x10\x02\x04\x02r"], DecodeError::Truncated),
    ];
    assert!(lock_holds(&[b"\x01\x01", HOLD].concat()).is_ok());
    assert!(lock_holds(b"\x02\x01\x08\x01a\x01\x01\x10\x02\x05\x01r").is_ok());
    assert!(lock_holds(b"\x02\x01\x08\x01a\x01\x01\x10\x02\x06\x01r").is_ok());
    assert!(lock_holds(b"\x03\x01\x10\x01a\x01\x01\x10\x02\x05").is_ok());
    assert!(lock_holds(b"\x03\x01\x21\x01a\x01\x01\x10\x02\xfe\xff\xff\xff\x0f").is_ok());
    assert!(lock_holds(b"\x03\x02\x21\x01a\x01\x01\x10\x02\x05\x21\x01b\x01\x01\x10\x02\x06").is_ok());
    for (parts, error) in cases {
        let bytes = parts.concat();
        assert_eq!(lock_holds(&bytes), Err(error), "{}", bytes.escape_ascii());
    }
}

#[test]
fn bytes_that_are_no_effect_say_why() {
    let invalid = DecodeError::Invalid;
    let cases: [(&[u8], DecodeError); 15] = [
        (b"", DecodeError::Truncated),
        (b"\x15", DecodeError::Truncated),
        (b"\x15\x05\x00", DecodeError::TrailingBytes),
        (b"\x05\x05", DecodeError::Version(0)),
        (b"\x45\x05", DecodeError::Version(4)),
        (b"\xf5\x05", DecodeError::Version(15)),
        (b"\x16\x05", invalid("kind")),
        (b"\x1f\x05", invalid("kind")),
        // Version 2 has no flag for waiters.
        (b"\x2d\x05", invalid("kind")),
        // A clock of 2^53 + 1.
        (b"\x15\x81\x80\x80\x80\x80\x80\x80\x10", invalid("time")),
        (b"\x12\x05\x01\x01a", invalid("flags")),
        (b"\x12\x05\x04\x01a", invalid("flags")),
        (b"\x12\x05\x00\x00", invalid("owner")),
        (b"\x12\x05\x02abcdefghijklmno", DecodeError::Truncated),
        (b"\x12\x05\x00\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01a", DecodeError::Truncated),
    ];
    assert!(effect_of(b"\x15\x05").is_ok());
    assert!(effect_of(b"\x15\x80\x80\x80\x80\x80\x80\x80\x10").is_ok(), "a clock of 2^53");
    for (bytes, error) in cases {
        assert_eq!(effect_of(bytes), Err(error), "{}", bytes.escape_ascii());
    }
}

#[test]
fn an_owner_has_at_most_1024_bytes() {
    let effect = |len: usize| [b"\x12\x05\x00".as_slice(), length(len), &vec![b'a'; len]].concat();
    assert!(effect_of(&effect(1024)).is_ok());
    assert_eq!(effect_of(&effect(1025)), Err(DecodeError::Invalid("owner")));
}

/// The text is part of a line in the server's log.
#[test]
fn an_error_says_what_is_wrong() {
    let says = [
        (DecodeError::Truncated, "the data end too early"),
        (DecodeError::TrailingBytes, "the data continue after their end"),
        (DecodeError::Version(7), "format version 7 is unknown: is this module too old?"),
        (DecodeError::Invalid("lease"), "invalid lease"),
    ];
    for (error, text) in says {
        assert_eq!(error.to_string(), text);
    }
}

fn length(len: usize) -> &'static [u8] {
    match len {
        1024 => b"\x80\x08",
        1025 => b"\x81\x08",
        _ => panic!("no other length is written here"),
    }
}
