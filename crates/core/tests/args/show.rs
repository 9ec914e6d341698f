//! The arguments of `CHECK` and `INFO`, and the words that are integers.

use dlock_core::Token;
use dlock_core::args::{Check, Info, Malformed};
use dlock_core::engine::Detail;

use super::{owner, syntax_error, words};

#[test]
fn check_names_a_token() {
    for (line, said) in [
        ("1", Ok(1)),
        ("9007199254740992", Ok(Token::MAX.get())),
        ("9007199254740993", Err(Malformed::Token("token"))),
        ("0", Err(Malformed::Token("token"))),
        ("-1", Err(Malformed::Token("token"))),
        ("x", Err(Malformed::Integer("token"))),
        ("", Err(Malformed::Arity)),
        ("1 1", Err(Malformed::Arity)),
        ("x 1", Err(Malformed::Integer("token"))),
    ] {
        assert_eq!(Check::parse(words(line)).map(|check| check.token.get()), said, "{line}");
    }
}

#[test]
fn how_much_info_shows() {
    for (line, said) in [
        ("", Ok(Info(Detail::Summary))),
        ("OWNER alice", Ok(Info(Detail::OfOwner(owner("alice"))))),
        ("owner *", Ok(Info(Detail::OfOwner(owner("*"))))),
        ("FULL", Ok(Info(Detail::Full(10)))),
        ("full count 1", Ok(Info(Detail::Full(1)))),
        ("FULL COUNT 0", Ok(Info(Detail::Full(1000)))),
        ("FULL COUNT 1000", Ok(Info(Detail::Full(1000)))),
        ("FULL COUNT 1001", Ok(Info(Detail::Full(1000)))),
        ("FULL COUNT -1", Err(Malformed::Count)),
        ("FULL COUNT x", Err(Malformed::Integer("COUNT"))),
        ("OWNER ''", Err(Malformed::Owner)),
    ] {
        assert_eq!(Info::parse(words(line)), said, "{line}");
    }
    for line in [
        "''",
        "alice",
        "OWNER",
        "OWNER alice FULL",
        "COUNT 1",
        "COUNT 1 FULL",
        "FULL FULL",
        "FULL COUNT",
        "FULL OWNER alice",
        "FULL COUNT 1 COUNT 1",
    ] {
        syntax_error(Info::parse(words(line)));
    }
}

/// Integers are read as the server reads them: decimal, 64 bits, no plus sign, no leading zeros, no spaces.
#[test]
fn integers_are_read_as_the_server_reads_them() {
    let read = |word: &str| Info::parse([&b"FULL"[..], b"COUNT", word.as_bytes()].into_iter());
    for integer in [1, 9, 10, 19, 90, 1_234_567_890, i64::MAX] {
        assert_eq!(read(&integer.to_string()), Ok(Info(Detail::Full(usize::try_from(integer).unwrap().min(1000)))));
    }
    for negative in [-1, -10, i64::MIN] {
        assert_eq!(read(&negative.to_string()), Err(Malformed::Count), "{negative}");
    }
    for word in [
        "",
        "-",
        "--1",
        "+1",
        "00",
        "-0",
        "01",
        "-01",
        " 1",
        "1 ",
        "1\n",
        "1a",
        "a1",
        "1/",
        "1:",
        "/",
        ":",
        "-:",
        "1-",
        "1_0",
        "0x1",
        "1.0",
        "1e1",
        "٣",
        "9223372036854775808",
        "-9223372036854775809",
        "92233720368547758070",
    ] {
        assert_eq!(read(word), Err(Malformed::Integer("COUNT")), "{word:?}");
    }
}
