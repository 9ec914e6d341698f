//! What the arguments of every command say, and why they say nothing. A case is a line of words; `''` is an empty one.

#![allow(clippy::unwrap_used, reason = "a test that panics has failed, which is what it is for")]

use dlock_core::args::{Acquire, Check, Info, Limits, Malformed, Release, Renew};
use dlock_core::{Command, Entries, Lease, LeaseChoice, Mode, Owner, RenewToken, Request, Token, TokenClock, UnixMs};

#[test]
fn each_option_of_a_command_that_takes_a_lock() {
    let plain =
        Acquire { owner: Some(owner("alice")), lease: LeaseChoice::Own, block: None, binds: false, request: None };
    let asked = Request::new(Command::Acquire, b"r");
    for (line, said) in [
        ("alice", plain.clone()),
        ("*", Acquire { owner: None, ..plain.clone() }),
        ("**", Acquire { owner: Some(owner("**")), ..plain.clone() }),
        ("alice PX 7", Acquire { lease: lasting(7), ..plain.clone() }),
        ("alice BLOCK 0", Acquire { block: Some(0), ..plain.clone() }),
        ("alice SESSION", Acquire { binds: true, ..plain.clone() }),
        ("alice REQUEST r", Acquire { request: asked.clone(), ..plain.clone() }),
        ("* BLOCK 9 SESSION", Acquire { owner: None, block: Some(9), binds: true, ..plain.clone() }),
        // In any order and case; a value may look like an option, and an owner too.
        (
            "alice block 1 request r ex 1 session",
            Acquire { block: Some(1), binds: true, request: asked.clone(), lease: lasting(1000), ..plain.clone() },
        ),
        ("PX Px 5", Acquire { owner: Some(owner("PX")), lease: lasting(5), ..plain.clone() }),
        ("alice REQUEST SESSION", Acquire { request: Request::new(Command::Acquire, b"SESSION"), ..plain.clone() }),
    ] {
        assert_eq!(acquire(line), Ok(said), "{line}");
    }
}

#[test]
fn a_request_is_of_the_command_that_names_it() {
    for command in [Command::Acquire, Command::Racquire, Command::Rlock, Command::Wlock] {
        let said = Acquire::parse(words("alice REQUEST r"), command, LIMITS).unwrap();
        assert_eq!(said.request, Request::new(command, b"r"));
    }
    assert_eq!(Release::parse(words("alice REQUEST r")).unwrap().request, Request::new(Command::Release, b"r"));
}

#[test]
fn what_a_command_that_takes_a_lock_refuses() {
    for (line, why) in [
        ("", Malformed::Arity),
        ("''", Malformed::Owner),
        ("* REQUEST r", Malformed::RequestOfFreshOwner),
        ("* REQUEST r NX", Malformed::Syntax),
        ("alice REQUEST ''", Malformed::RequestId),
        ("alice BLOCK 1.5", Malformed::Timeout),
        ("alice BLOCK ''", Malformed::Timeout),
        ("alice BLOCK -1", Malformed::NegativeTimeout),
        ("alice BLOCK -9223372036854775808", Malformed::NegativeTimeout),
        ("alice BLOCK 9223372036854775808", Malformed::Timeout),
    ] {
        assert_eq!(acquire(line), Err(why), "{line}");
    }
    let unknown = ["''", "alice", "BLOCKS", "READ", "WRITE", "ALL", "TOKEN 1", "MINTOKEN 1"];
    let bare = ["BLOCK", "REQUEST", "PX", "EX", "PXAT", "EXAT"];
    let twice =
        ["BLOCK 1 BLOCK 1", "SESSION SESSION", "REQUEST r REQUEST r", "PX 1 EX 1", "PXAT 6000 PX 1", "EX 1 EX 1"];
    let nearly = ["PXA 6000", "PXATT 6000", "PXIN 6000", "EXA 6", "EXATT 6", "EXTRA 6", "XPAT 6000"];
    for options in unknown.iter().chain(&bare).chain(&twice).chain(&nearly) {
        assert_eq!(acquire(&format!("alice {options}")), Err(Malformed::Syntax), "{options}");
    }
}

#[test]
fn a_wait_is_as_long_as_there_is_time() {
    let block = |ms: u64| acquire(&format!("alice BLOCK {ms}")).map(|said| said.block);
    for ms in [0, 1, UnixMs::MAX.get()] {
        assert_eq!(block(ms), Ok(Some(ms)));
    }
    assert_eq!(block(UnixMs::MAX.get() + 1), Err(Malformed::Timeout));
}

#[test]
fn a_lease_is_a_length_or_an_end() {
    let until = |ms| LeaseChoice::Until(UnixMs::new(ms));
    for (lease, said) in [
        ("PX 1", lasting(1)),
        ("PX 100000", lasting(100_000)),
        ("EX 1", lasting(1000)),
        ("EX 100", lasting(100_000)),
        ("PXAT 5001", until(5001)),
        ("PXAT 105000", until(105_000)),
        ("EXAT 6", until(6000)),
        ("EXAT 105", until(105_000)),
        ("pXaT 5001", until(5001)),
    ] {
        assert_eq!(leases(lease), [Ok(said); 2], "{lease}");
    }
}

#[test]
fn a_lease_that_cannot_be_is_refused() {
    for (lease, why) in [
        ("PX x", Malformed::Integer),
        ("PX ''", Malformed::Integer),
        ("EX 1.5", Malformed::Integer),
        ("PX 9223372036854775808", Malformed::Integer),
        ("PX 0", Malformed::ExpireTime),
        ("PX -1", Malformed::ExpireTime),
        ("EX 0", Malformed::ExpireTime),
        ("EX -1", Malformed::ExpireTime),
        // It has passed.
        ("PXAT 0", Malformed::ExpireTime),
        ("PXAT 4999", Malformed::ExpireTime),
        ("PXAT 5000", Malformed::ExpireTime),
        ("EXAT 5", Malformed::ExpireTime),
        ("EXAT -6", Malformed::ExpireTime),
        ("PX 100001", TOO_LONG),
        ("EX 101", TOO_LONG),
        ("PXAT 105001", TOO_LONG),
        ("EXAT 106", TOO_LONG),
        // At the edge of 64 bits, which the end or the lease itself passes.
        ("PX 9223372036854770807", TOO_LONG),
        ("PX 9223372036854770808", Malformed::ExpireTime),
        ("PX 9223372036854775807", Malformed::ExpireTime),
        ("PXAT 9223372036854775807", TOO_LONG),
        ("EX 9223372036854775", Malformed::ExpireTime),
        ("EX 9223372036854776", Malformed::ExpireTime),
        ("EXAT 9223372036854775", TOO_LONG),
        ("EXAT 9223372036854776", Malformed::ExpireTime),
    ] {
        assert_eq!(leases(lease), [Err(why); 2], "{lease}");
    }
}

#[test]
fn no_lease_is_over_a_year() {
    let limits = Limits { max_lease: Lease::MAX, ..LIMITS };
    let lease = |ms: u64| Acquire::parse(words(&format!("alice PX {ms}")), Command::Wlock, limits);
    assert_eq!(lease(Lease::MAX.get()).unwrap().lease, LeaseChoice::For(Lease::MAX));
    assert_eq!(lease(Lease::MAX.get() + 1), Err(Malformed::LeaseTooLong(Lease::MAX)));
}

#[test]
fn each_option_of_release() {
    let plain = Release { owner: owner("alice"), mode: None, entries: Entries::One, token: None, request: None };
    let asked = Request::new(Command::Release, b"r");
    for (line, said) in [
        ("alice", plain.clone()),
        // Only a command that takes a lock makes an owner up.
        ("*", Release { owner: owner("*"), ..plain.clone() }),
        ("alice READ", Release { mode: Some(Mode::Shared), ..plain.clone() }),
        ("alice WRITE", Release { mode: Some(Mode::Exclusive), ..plain.clone() }),
        ("alice ALL", Release { entries: Entries::All, ..plain.clone() }),
        ("alice TOKEN 7", Release { token: token(7), ..plain.clone() }),
        ("alice REQUEST r", Release { request: asked.clone(), ..plain.clone() }),
        (
            "alice request r token 7 all read",
            Release {
                mode: Some(Mode::Shared),
                entries: Entries::All,
                token: token(7),
                request: asked.clone(),
                ..plain.clone()
            },
        ),
    ] {
        assert_eq!(release(line), Ok(said), "{line}");
    }
}

#[test]
fn what_release_refuses() {
    for (line, why) in [
        ("", Malformed::Arity),
        ("''", Malformed::Owner),
        ("alice TOKEN 0", Malformed::Token),
        ("alice TOKEN x", Malformed::Integer),
        ("alice REQUEST ''", Malformed::RequestId),
    ] {
        assert_eq!(release(line), Err(why), "{line}");
    }
    let unknown = ["''", "alice", "READS", "SESSION", "BLOCK 1", "PX 1", "EX 1", "PXAT 6000", "MINTOKEN 1"];
    let bare = ["TOKEN", "REQUEST"];
    let twice = ["READ WRITE", "READ READ", "ALL ALL", "TOKEN 1 TOKEN 1", "REQUEST r REQUEST r"];
    for options in unknown.iter().chain(&bare).chain(&twice) {
        assert_eq!(release(&format!("alice {options}")), Err(Malformed::Syntax), "{options}");
    }
}

#[test]
fn each_option_of_renew() {
    let plain =
        Renew { owner: owner("alice"), lease: LeaseChoice::Own, mode: None, token: RenewToken::Any, binds: false };
    let seven = token(7).unwrap();
    for (line, said) in [
        ("alice", plain.clone()),
        ("*", Renew { owner: owner("*"), ..plain.clone() }),
        ("alice PX 7", Renew { lease: lasting(7), ..plain.clone() }),
        ("alice READ", Renew { mode: Some(Mode::Shared), ..plain.clone() }),
        ("alice WRITE", Renew { mode: Some(Mode::Exclusive), ..plain.clone() }),
        ("alice SESSION", Renew { binds: true, ..plain.clone() }),
        ("alice TOKEN 7", Renew { token: RenewToken::Is(seven), ..plain.clone() }),
        ("alice MINTOKEN 7", Renew { token: RenewToken::AtLeast(seven), ..plain.clone() }),
        (
            "alice mintoken 7 session write ex 1",
            Renew {
                lease: lasting(1000),
                mode: Some(Mode::Exclusive),
                token: RenewToken::AtLeast(seven),
                binds: true,
                ..plain.clone()
            },
        ),
    ] {
        assert_eq!(renew(line), Ok(said), "{line}");
    }
}

#[test]
fn what_renew_refuses() {
    for (line, why) in [
        ("", Malformed::Arity),
        ("''", Malformed::Owner),
        ("alice TOKEN 0", Malformed::Token),
        ("alice MINTOKEN 0", Malformed::Token),
        ("alice MINTOKEN x", Malformed::Integer),
        ("alice MINTOKEN 9007199254740992 NX", Malformed::Syntax),
    ] {
        assert_eq!(renew(line), Err(why), "{line}");
    }
    let unknown = ["''", "alice", "SESSIONS", "ALL", "BLOCK 1", "REQUEST r"];
    let bare = ["TOKEN", "MINTOKEN", "PX", "EX", "PXAT", "EXAT"];
    let twice = ["READ WRITE", "SESSION SESSION", "TOKEN 1 TOKEN 1", "TOKEN 1 MINTOKEN 1", "PX 1 EXAT 6"];
    for options in unknown.iter().chain(&bare).chain(&twice) {
        assert_eq!(renew(&format!("alice {options}")), Err(Malformed::Syntax), "{options}");
    }
}

#[test]
fn a_token_is_lifted_by_a_day_at_most() {
    let day = LIMITS.now_us + TokenClock::MAX_AHEAD_US;
    let lift = |to: u64| renew(&format!("alice MINTOKEN {to}")).map(|said| said.token);
    assert_eq!(lift(day), Ok(RenewToken::AtLeast(Token::new(day).unwrap())));
    assert_eq!(lift(day + 1), Err(Malformed::TokenAhead));
    let is = renew(&format!("alice TOKEN {}", day + 1)).unwrap().token;
    assert_eq!(is, RenewToken::Is(Token::new(day + 1).unwrap()), "to name a token lifts nothing");
}

#[test]
fn a_session_has_a_lease_that_can_be_moved_on_in_time() {
    for (lease, said) in [
        ("SESSION", Ok(true)),
        ("SESSION PX 300", Ok(true)),
        ("EX 1 SESSION", Ok(true)),
        ("SESSION PX 299", Err(Malformed::SessionLease)),
        ("PXAT 6000 SESSION", Err(Malformed::Syntax)),
        ("SESSION EXAT 6", Err(Malformed::Syntax)),
    ] {
        assert_eq!(acquire(&format!("alice {lease}")).map(|args| args.binds), said, "{lease}");
        assert_eq!(renew(&format!("alice {lease}")).map(|args| args.binds), said, "{lease}");
    }
    // What else is wrong is said first.
    assert_eq!(acquire("* PX 1 SESSION REQUEST r"), Err(Malformed::RequestOfFreshOwner));
    assert_eq!(renew("alice PX 1 SESSION MINTOKEN 9007199254740992"), Err(Malformed::TokenAhead));
    assert_eq!([299, 300].map(|ms| Lease::new(ms).unwrap().can_be_bound()), [false, true]);
}

#[test]
fn check_names_a_token() {
    for (line, said) in [
        ("1", Ok(1)),
        ("9007199254740992", Ok(Token::MAX.get())),
        ("9007199254740993", Err(Malformed::Token)),
        ("0", Err(Malformed::Token)),
        ("-1", Err(Malformed::Token)),
        ("x", Err(Malformed::Integer)),
        ("", Err(Malformed::Arity)),
        ("1 1", Err(Malformed::Arity)),
        ("x 1", Err(Malformed::Integer)),
    ] {
        assert_eq!(Check::parse(words(line)).map(|check| check.token.get()), said, "{line}");
    }
}

#[test]
fn how_much_info_shows() {
    for (line, said) in [
        ("", Ok(Info::Summary)),
        ("OWNER alice", Ok(Info::OfOwner(owner("alice")))),
        ("owner *", Ok(Info::OfOwner(owner("*")))),
        ("FULL", Ok(Info::Full(10))),
        ("full count 1", Ok(Info::Full(1))),
        ("FULL COUNT 0", Ok(Info::Full(usize::MAX))),
        ("FULL COUNT -1", Err(Malformed::Count)),
        ("FULL COUNT x", Err(Malformed::Integer)),
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
        assert_eq!(Info::parse(words(line)), Err(Malformed::Syntax), "{line}");
    }
}

/// As the server reads them: decimal, 64 bits, no plus sign, no leading zeros, nothing around.
#[test]
fn which_words_are_integers() {
    let read = |word: &str| Info::parse([&b"FULL"[..], b"COUNT", word.as_bytes()].into_iter());
    for integer in [1, 9, 10, 19, 90, 1_234_567_890, i64::MAX] {
        assert_eq!(read(&integer.to_string()), Ok(Info::Full(usize::try_from(integer).unwrap())));
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
        assert_eq!(read(word), Err(Malformed::Integer), "{word:?}");
    }
}

#[test]
fn how_long_an_owner_and_a_request_may_be() {
    let said = |owner: usize, request: usize| {
        let (owner, request) = ("o".repeat(owner), "r".repeat(request));
        acquire(&format!("{owner} REQUEST {request}")).map(|said| said.owner.unwrap().text().len())
    };
    assert_eq!(said(1024, 64), Ok(1024));
    assert_eq!(said(1025, 64), Err(Malformed::Owner));
    assert_eq!(said(1024, 65), Err(Malformed::RequestId));
    let bytes = [&b"\0\xff\r\n"[..], b"REQUEST", b"\0"];
    let said = Release::parse(bytes.into_iter()).unwrap();
    assert_eq!((&*said.owner.text(), said.request.unwrap().id()), (bytes[0], bytes[2]), "any bytes will do");
}

fn acquire(line: &str) -> Result<Acquire, Malformed> {
    Acquire::parse(words(line), Command::Acquire, LIMITS)
}

fn release(line: &str) -> Result<Release, Malformed> {
    Release::parse(words(line))
}

fn renew(line: &str) -> Result<Renew, Malformed> {
    Renew::parse(words(line), LIMITS)
}

/// What the commands that have a lease make of it.
fn leases(lease: &str) -> [Result<LeaseChoice, Malformed>; 2] {
    let line = format!("alice {lease}");
    [acquire(&line).map(|said| said.lease), renew(&line).map(|said| said.lease)]
}

fn words(line: &str) -> impl Iterator<Item = &[u8]> {
    line.split_terminator(' ').map(|word| if word == "''" { b"" } else { word.as_bytes() })
}

fn lasting(ms: u64) -> LeaseChoice {
    LeaseChoice::For(Lease::new(ms).unwrap())
}

fn token(number: u64) -> Option<Token> {
    Token::new(number)
}

fn owner(name: &str) -> Owner {
    Owner::new(name.as_bytes()).unwrap()
}

/// The clock is 5000 ms and a bit, the longest lease 100 s.
const LIMITS: Limits = Limits { now_us: 5_000_999, max_lease: Lease::new(100_000).unwrap() };
const TOO_LONG: Malformed = Malformed::LeaseTooLong(LIMITS.max_lease);
