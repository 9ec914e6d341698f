//! What the arguments of every command say, and why they say nothing. A case is a line of words; `''` is an empty one.

#![allow(clippy::unwrap_used, reason = "a test that panics has failed, which is what it is for")]

use std::num::NonZeroU32;

use dlock_core::args::{Acquire, AcquireAll, Check, Info, Limits, Malformed, Release, Renew};
use dlock_core::engine::Detail;
use dlock_core::{
    Command, Entries, Lease, LeaseChoice, Mode, Owner, RenewToken, Request, Token, TokenClock, UnixMs, Want,
};

#[test]
fn each_option_of_a_command_that_takes_a_lock() {
    let plain = plain();
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
    for (command, want) in [
        (Command::Acquire, Want::ExclusiveOnce),
        (Command::Racquire, Want::Exclusive),
        (Command::Wlock, Want::Exclusive),
        (Command::Rlock, Want::Shared),
    ] {
        let said = Acquire::parse(words("alice REQUEST r"), command, LIMITS).unwrap();
        assert_eq!((said.request, said.want), (Request::new(command, b"r"), want));
    }
    let said = semaphore("alice 2 REQUEST r").unwrap();
    assert_eq!(said.request, Request::new(Command::Sacquire, b"r"));
    let said = several("1 k alice REQUEST r").unwrap().acquire;
    assert_eq!(said.request, Request::new(Command::Macquire, b"r"));
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
    let unknown = ["''", "alice", "BLOCKS", "READ", "WRITE", "ALL", "PERMITS 1", "TOKEN 1", "MINTOKEN 1"];
    let bare = ["BLOCK", "REQUEST", "PX", "EX", "PXAT", "EXAT"];
    let twice =
        ["BLOCK 1 BLOCK 1", "SESSION SESSION", "REQUEST r REQUEST r", "PX 1 EX 1", "PXAT 6000 PX 1", "EX 1 EX 1"];
    let nearly = ["PXA 6000", "PXATT 6000", "PXIN 6000", "EXA 6", "EXATT 6", "EXTRA 6", "XPAT 6000"];
    for options in unknown.iter().chain(&bare).chain(&twice).chain(&nearly) {
        assert_eq!(acquire(&format!("alice {options}")), Err(Malformed::Syntax), "{options}");
    }
}

#[test]
fn a_semaphore_has_a_limit_and_permits_within_it() {
    let wants = |permits, limit| Want::Permits { permits: nonzero(permits), limit: nonzero(limit) };
    for (line, want) in [
        ("alice 1", wants(1, 1)),
        ("alice 4294967295", wants(1, u32::MAX)),
        ("alice 5 PERMITS 5", wants(5, 5)),
        ("alice 5 permits 1", wants(1, 5)),
        ("alice 4294967295 PERMITS 4294967295", wants(u32::MAX, u32::MAX)),
    ] {
        assert_eq!(semaphore(line), Ok(Acquire { want, ..plain() }), "{line}");
    }
    let all = semaphore("* 3 PX 7 PERMITS 2 BLOCK 9 SESSION EX 1");
    assert_eq!(all, Err(Malformed::Syntax), "a lease twice");
    let all = semaphore("* 3 PERMITS 2 BLOCK 9 SESSION EX 1").unwrap();
    let wanted =
        Acquire { owner: None, want: wants(2, 3), block: Some(9), binds: true, lease: lasting(1000), ..plain() };
    assert_eq!(all, wanted);
    for (line, why) in [
        ("", Malformed::Arity),
        ("alice", Malformed::Arity),
        ("'' 1", Malformed::Owner),
        ("alice 0", Malformed::Limit),
        ("alice -1", Malformed::Limit),
        ("alice 4294967296", Malformed::Limit),
        ("alice x", Malformed::Integer),
        ("alice PERMITS 1", Malformed::Integer),
        ("alice 2 PERMITS", Malformed::Syntax),
        ("alice 2 PERMITS 0", Malformed::Permits),
        ("alice 2 PERMITS -1", Malformed::Permits),
        ("alice 2 PERMITS 4294967296", Malformed::Permits),
        ("alice 2 PERMITS x", Malformed::Integer),
        ("alice 2 PERMITS 3", Malformed::PermitsOverLimit),
        ("alice 2 PERMITS 1 PERMITS 1", Malformed::Syntax),
        ("alice 2 PERMITS 3 NX", Malformed::Syntax),
        ("alice 2 3", Malformed::Syntax),
        ("* 2 REQUEST r", Malformed::RequestOfFreshOwner),
    ] {
        assert_eq!(semaphore(line), Err(why), "{line}");
    }
}

#[test]
fn several_locks_have_names_that_differ() {
    let keys = |line| several(line).map(|said| said.keys.iter().map(|key| key.to_vec()).collect::<Vec<_>>());
    assert_eq!(keys("1 k alice"), Ok(vec![b"k".to_vec()]));
    assert_eq!(keys("3 c a b alice"), Ok(vec![b"c".to_vec(), b"a".to_vec(), b"b".to_vec()]), "in their order");
    assert_eq!(keys("2 '' a alice"), Ok(vec![b"".to_vec(), b"a".to_vec()]));
    let said = several("2 a b * PX 7 BLOCK 9").unwrap().acquire;
    assert_eq!(said, Acquire { owner: None, lease: lasting(7), block: Some(9), ..plain() });
    for (line, why) in [
        ("", Malformed::Arity),
        ("0 a", Malformed::NoKeys),
        ("-1 a b", Malformed::NoKeys),
        ("x a b", Malformed::Integer),
        ("+1 a b", Malformed::Integer),
        ("01 a b", Malformed::Integer),
        ("2 a", Malformed::TooManyKeys),
        ("1 a", Malformed::TooManyKeys),
        ("2 a alice", Malformed::TooManyKeys),
        ("3 a b alice", Malformed::TooManyKeys),
        ("9223372036854775807 a b", Malformed::TooManyKeys),
        ("2 a a alice", Malformed::SameKey),
        ("3 a b a alice", Malformed::SameKey),
        ("1 a ''", Malformed::Owner),
        ("1 a alice PERMITS 1", Malformed::Syntax),
        ("1 a * REQUEST r", Malformed::RequestOfFreshOwner),
    ] {
        assert_eq!(several(line).map(|_| ()), Err(why), "{line}");
    }
    let many = |number: usize| {
        let names: Vec<String> = (0..number).map(|name| format!("k{name}")).collect();
        several(&format!("{number} {} alice", names.join(" "))).map(|said| said.keys.len())
    };
    assert_eq!([many(64), many(65)], [Ok(64), Err(Malformed::KeyCount)]);
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
    let plain = Release { owner: owner("alice"), mode: None, entries: Entries::ONE, token: None, request: None };
    let asked = Request::new(Command::Release, b"r");
    for (line, said) in [
        ("alice", plain.clone()),
        // Only a command that takes a lock makes an owner up.
        ("*", Release { owner: owner("*"), ..plain.clone() }),
        ("alice READ", Release { mode: Some(Mode::Shared), ..plain.clone() }),
        ("alice WRITE", Release { mode: Some(Mode::Exclusive), ..plain.clone() }),
        ("alice ALL", Release { entries: Entries::All, ..plain.clone() }),
        ("alice PERMITS 3", Release { entries: some(3), ..plain.clone() }),
        (
            "alice permits 4294967295 READ",
            Release { entries: some(u32::MAX), mode: Some(Mode::Shared), ..plain.clone() },
        ),
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
        ("alice PERMITS 0", Malformed::Permits),
        ("alice PERMITS -1", Malformed::Permits),
        ("alice PERMITS 4294967296", Malformed::Permits),
        ("alice PERMITS x", Malformed::Integer),
        ("alice REQUEST ''", Malformed::RequestId),
    ] {
        assert_eq!(release(line), Err(why), "{line}");
    }
    let unknown = ["''", "alice", "READS", "SESSION", "BLOCK 1", "PX 1", "EX 1", "PXAT 6000", "MINTOKEN 1"];
    let bare = ["TOKEN", "REQUEST", "PERMITS"];
    let twice = [
        "READ WRITE",
        "READ READ",
        "ALL ALL",
        "ALL PERMITS 2",
        "PERMITS 2 ALL",
        "PERMITS 2 PERMITS 2",
        "TOKEN 1 TOKEN 1",
        "REQUEST r REQUEST r",
    ];
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
fn a_token_is_raised_by_an_hour_at_most() {
    let hour = LIMITS.now_us + TokenClock::MAX_AHEAD_US;
    let lift = |to: u64| renew(&format!("alice MINTOKEN {to}")).map(|said| said.token);
    assert_eq!(lift(hour), Ok(RenewToken::AtLeast(Token::new(hour).unwrap())));
    assert_eq!(lift(hour + 1), Err(Malformed::TokenAhead));
    let is = renew(&format!("alice TOKEN {}", hour + 1)).unwrap().token;
    assert_eq!(is, RenewToken::Is(Token::new(hour + 1).unwrap()), "to name a token lifts nothing");
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
        ("", Ok(Info(Detail::Summary))),
        ("OWNER alice", Ok(Info(Detail::OfOwner(owner("alice"))))),
        ("owner *", Ok(Info(Detail::OfOwner(owner("*"))))),
        ("FULL", Ok(Info(Detail::Full(10)))),
        ("full count 1", Ok(Info(Detail::Full(1)))),
        ("FULL COUNT 0", Ok(Info(Detail::Full(usize::MAX)))),
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
        assert_eq!(read(&integer.to_string()), Ok(Info(Detail::Full(usize::try_from(integer).unwrap()))));
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

fn plain() -> Acquire {
    let (owner, want) = (Some(owner("alice")), Want::ExclusiveOnce);
    Acquire { owner, want, lease: LeaseChoice::Own, block: None, binds: false, request: None }
}

fn semaphore(line: &str) -> Result<Acquire, Malformed> {
    Acquire::parse(words(line), Command::Sacquire, LIMITS)
}

#[test]
fn the_keys_of_several_are_counted_as_the_server_counts_them() {
    for (line, count) in [
        ("1 x a", Some(1)),
        ("3 x y z a PX 5", Some(3)),
        // What is given twice, or too often, is a key all the same.
        ("2 x x a", Some(2)),
        ("0 x a", Some(0)),
        ("2 x a", None),
        ("2 x y", None),
        ("-1 x a", None),
        ("+1 x a", None),
        ("01 x a", None),
        ("x y a", None),
        ("9223372036854775808 x a", None),
        ("", None),
    ] {
        assert_eq!(AcquireAll::key_count(words(line)), count, "{line}");
    }
}

fn several(line: &str) -> Result<AcquireAll<'_>, Malformed> {
    AcquireAll::parse(words(line), LIMITS)
}

fn some(entries: u32) -> Entries {
    Entries::Some(nonzero(entries))
}

fn nonzero(number: u32) -> NonZeroU32 {
    NonZeroU32::new(number).unwrap()
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
