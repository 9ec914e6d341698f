//! The texts of errors that a client reads: the server's own text first, then the word at fault.

use dlock_core::args::{Acquire, AcquireAll, Check, Info, Limits, Malformed, Release};
use dlock_core::{Command, Lease};

use super::{LIMITS, acquire, renew, syntax_error, words};

#[test]
fn a_syntax_error_names_the_word_at_fault() {
    for (options, text) in [
        ("NX", "unknown option 'NX'"),
        ("30000", "unknown option '30000'"),
        ("''", "unknown option ''"),
        ("EX 5 PX 5", "PX and EX cannot be used together"),
        ("px 5 ex 5", "EX and PX cannot be used together"),
        ("EX 5 ex 5", "EX is given twice"),
        ("EX", "EX needs a value"),
        ("session session", "SESSION is given twice"),
        ("SESSION PXAT 6000", "SESSION and PXAT cannot be used together"),
    ] {
        assert_eq!(syntax_error(acquire(&format!("alice {options}"))), text);
        assert_eq!(syntax_error(renew(&format!("alice {options}"))), text);
    }
    for (options, text) in [
        ("READ WRITE", "WRITE and READ cannot be used together"),
        ("READ READ", "READ is given twice"),
        ("ALL PERMITS 2", "PERMITS and ALL cannot be used together"),
        ("TOKEN", "TOKEN needs a value"),
    ] {
        assert_eq!(syntax_error(Release::parse(words(&format!("alice {options}")))), text);
    }
    assert_eq!(syntax_error(renew("alice TOKEN 1 MINTOKEN 1")), "MINTOKEN and TOKEN cannot be used together");
    for (options, text) in [
        ("ALL", "unknown option 'ALL'"),
        ("COUNT 5", "COUNT is valid only directly after FULL"),
        ("OWNER a COUNT 5", "COUNT is valid only directly after FULL"),
        ("OWNER a FULL", "FULL and OWNER cannot be used together"),
        ("FULL OWNER a", "OWNER and FULL cannot be used together"),
        ("FULL COUNT 5 OWNER a", "OWNER and FULL cannot be used together"),
        ("FULL COUNT 5 COUNT 5", "COUNT is given twice"),
        ("FULL COUNT 5 7", "unknown option '7'"),
        ("FULL COUNT", "COUNT needs a value"),
    ] {
        assert_eq!(syntax_error(Info::parse(words(options))), text);
    }
}

#[test]
fn a_word_of_the_client_is_cut_and_printable() {
    let unknown =
        |word: &[u8]| syntax_error(Acquire::parse([b"alice".as_slice(), word].into_iter(), Command::Acquire, LIMITS));
    assert_eq!(unknown(&[b'x'; 33]), format!("unknown option '{}'", "x".repeat(32)));
    assert_eq!(unknown(b"\r\n\0\xff'"), r"unknown option '\r\n\x00\xff\''");
}

#[test]
fn a_range_error_names_the_argument() {
    let limits = Limits { now_us: 5_000_999, ..LIMITS };
    let text = |error: Malformed| error.text("DLOCK.ACQUIRE").into_owned();
    let of = |line: &str| text(Acquire::parse(words(line), Command::Acquire, limits).unwrap_err());
    let (integer, expire) =
        ("ERR value is not an integer or out of range", "ERR invalid expire time in 'dlock.acquire' command");
    assert_eq!(of("alice EX ten"), format!("{integer}: EX"));
    assert_eq!(of("alice EX 0"), format!("{expire}: EX must be 1 or more"));
    assert_eq!(of("alice PX -1"), format!("{expire}: PX must be 1 or more"));
    assert_eq!(of("alice PXAT 5000"), format!("{expire}: PXAT is in the past"));
    assert_eq!(of("alice EX 9223372036854776"), format!("{expire}: EX is too large"));
    assert_eq!(of("alice EX 101"), "ERR lease is longer than dlock.max-lease, which is 100000 ms: EX");
    assert_eq!(of("alice MAXHOLD 0"), "ERR MAXHOLD must be between 1 and 31536000000");
    assert_eq!(of("alice MAXHOLD 7 PX 8"), "ERR lease is longer than MAXHOLD, which is 7 ms: PX");
    assert_eq!(of("alice MAXHOLD 7 SESSION"), "ERR SESSION needs at least 300 ms: MAXHOLD");
    let capped = Limits { max_hold: Lease::new(7), ..limits };
    let of_capped = |line: &str| text(Acquire::parse(words(line), Command::Acquire, capped).unwrap_err());
    assert_eq!(of_capped("alice PX 8"), "ERR lease is longer than dlock.max-hold, which is 7 ms: PX");
    assert_eq!(of_capped("alice SESSION"), "ERR SESSION needs at least 300 ms: dlock.max-hold");
    assert_eq!(of("alice BLOCK x"), "ERR timeout is not an integer or out of range: BLOCK");
    assert_eq!(of("alice BLOCK -1"), "ERR timeout is negative: BLOCK");
    assert_eq!(of("* REQUEST r"), "ERR REQUEST cannot be combined with owner '*': choose the owner name yourself");
    let renewal = |line: &str| text(renew(line).unwrap_err());
    assert_eq!(renewal("alice MINTOKEN 0"), "ERR token must be between 1 and 9007199254740992: MINTOKEN");
    assert_eq!(text(Check::parse(words("x")).unwrap_err()), format!("{integer}: token"));
    let several = |line: &'static str| text(AcquireAll::parse(words(line), limits).unwrap_err());
    assert_eq!(several("x a alice"), format!("{integer}: numkeys"));
    assert_eq!(several("2 a a alice"), "ERR a key is given twice: 'a'");
    assert_eq!(several("1 '' alice"), "ERR the key name is empty");
}
