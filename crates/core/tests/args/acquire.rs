//! The arguments of the commands that acquire a lock, or several.

use dlock_core::args::{Acquire, AcquireAll, CapBy, Excerpt, Limits, Malformed, Release, Renew, Syntax};
use dlock_core::{BindTo, Command, Lease, LeaseChoice, RequestId, SessionId, Token, Want};

use super::{LIMITS, acquire, lasting, nonzero, owner, syntax_error, words};

#[test]
fn each_option_of_a_command_that_acquires_a_lock() {
    let plain = plain();
    let asked = RequestId::new(Command::Acquire, b"r");
    let named = BindTo::Named(SessionId::new(b"s").unwrap());
    for (line, said) in [
        ("alice", plain.clone()),
        ("*", Acquire { owner: None, ..plain.clone() }),
        ("**", Acquire { owner: Some(owner("**")), ..plain.clone() }),
        ("alice PX 7", Acquire { lease: lasting(7), ..plain.clone() }),
        ("alice BLOCK 0", Acquire { block: Some(0), ..plain.clone() }),
        ("alice SESSION", Acquire { session: BindTo::Connection, ..plain.clone() }),
        ("alice SESSIONID s", Acquire { session: named.clone(), ..plain.clone() }),
        ("alice sessionid s BLOCK 0", Acquire { session: named, block: Some(0), ..plain.clone() }),
        ("alice REQUEST r", Acquire { request: asked.clone(), ..plain.clone() }),
        ("alice MAXHOLD 7", Acquire { cap: Lease::new(7), ..plain.clone() }),
        ("alice PX 7 maxhold 7", Acquire { lease: lasting(7), cap: Lease::new(7), ..plain.clone() }),
        ("alice MINTOKEN 7", Acquire { min_token: Token::new(7), ..plain.clone() }),
        ("* BLOCK 9 SESSION", Acquire { owner: None, block: Some(9), session: BindTo::Connection, ..plain.clone() }),
        // Options come in any order and case. A value, and an owner, may look like an option.
        (
            "alice block 1 request r ex 1 session",
            Acquire {
                block: Some(1),
                session: BindTo::Connection,
                request: asked.clone(),
                lease: lasting(1000),
                ..plain.clone()
            },
        ),
        ("PX Px 5", Acquire { owner: Some(owner("PX")), lease: lasting(5), ..plain.clone() }),
        ("alice REQUEST SESSION", Acquire { request: RequestId::new(Command::Acquire, b"SESSION"), ..plain.clone() }),
    ] {
        assert_eq!(acquire(line), Ok(said), "{line}");
    }
}

/// The cap of a hold is its `MAXHOLD` or the operator's setting, the smaller of both. A longer lease is an error.
#[test]
fn a_cap_is_not_shorter_than_the_lease() {
    let with = |max: Option<u64>, line: &'static str| {
        let limits = Limits { max_hold: max.and_then(Lease::new), ..LIMITS };
        Acquire::parse(words(line), Command::Acquire, limits)
    };
    let cap = |max, line| with(max, line).map(|said| said.cap.map(Lease::get));
    for (max, line, said) in [
        (None, "alice PX 5000", Ok(None)),
        (Some(5000), "alice PX 5000", Ok(Some(5000))),
        (Some(5000), "alice", Ok(Some(5000))),
        (Some(5000), "alice MAXHOLD 400", Ok(Some(400))),
        (Some(5000), "alice MAXHOLD 5001", Ok(Some(5000))),
        (Some(400), "alice MAXHOLD 31536000000", Ok(Some(400))),
        (None, "alice PXAT 5400 MAXHOLD 400", Ok(Some(400))),
        (None, "alice MAXHOLD 300 SESSION", Ok(Some(300))),
        (Some(5000), "alice MAXHOLD 5 PX 6", Err(over("PX", CapBy::Option, 5))),
        (None, "alice PXAT 5401 MAXHOLD 400", Err(over("PXAT", CapBy::Option, 400))),
        (Some(5000), "alice EX 6", Err(over("EX", CapBy::Setting, 5000))),
        (Some(5000), "alice EX 6 MAXHOLD 7000", Err(over("EX", CapBy::Setting, 5000))),
        (None, "alice MAXHOLD 299 SESSION", Err(Malformed::SessionCap(CapBy::Option))),
        (Some(299), "alice SESSIONID s", Err(Malformed::SessionCap(CapBy::Setting))),
        (None, "alice MAXHOLD 0", Err(Malformed::Cap)),
        (None, "alice MAXHOLD -1", Err(Malformed::Cap)),
        (None, "alice MAXHOLD 31536000001", Err(Malformed::Cap)),
        (None, "alice MAXHOLD x", Err(Malformed::Integer("MAXHOLD"))),
    ] {
        assert_eq!(cap(max, line), said, "{line} with {max:?}");
    }
    let limits = Limits { max_hold: Lease::new(5), ..LIMITS };
    assert_eq!(
        Renew::parse(words("alice PX 6"), limits).unwrap().lease,
        lasting(6),
        "a renewal is cut later, not refused"
    );
    assert_eq!(semaphore("alice 2 MAXHOLD 7").unwrap().cap, Lease::new(7));
    assert_eq!(several("1 k alice MAXHOLD 7").unwrap().acquire.cap, Lease::new(7));
}

#[test]
fn slot_takes_one_permit() {
    let limit = nonzero(2);
    for line in ["alice 2 SLOT", "alice 2 slot REQUEST r", "* 2 BLOCK 0 Slot", "alice 2 SESSION SLOT MAXHOLD 300"] {
        assert_eq!(semaphore(line).map(|said| said.want), Ok(Want::Slot { limit }), "{line}");
    }
    for (line, why) in [
        ("alice 2 PERMITS 1 SLOT", Syntax::Together("SLOT", "PERMITS")),
        ("alice 2 SLOT PERMITS 1", Syntax::Together("PERMITS", "SLOT")),
        ("alice 2 PERMITS 3 SLOT", Syntax::Together("SLOT", "PERMITS")),
        ("alice 2 SLOT PX 500 SLOT", Syntax::Twice("SLOT")),
        ("alice 2 SLOT 1", Syntax::Unknown(Excerpt::of(b"1"))),
    ] {
        assert_eq!(semaphore(line).map(|said| said.want), Err(Malformed::Syntax(why)), "{line}");
    }
    assert_eq!(semaphore("alice 0 SLOT"), Err(Malformed::Limit));
    syntax_error(several("1 k alice SLOT"));
    for command in [Command::Acquire, Command::Racquire, Command::Wlock, Command::Rlock] {
        syntax_error(Acquire::parse(words("alice SLOT"), command, LIMITS));
    }
}

fn over(option: &'static str, by: CapBy, ms: u64) -> Malformed {
    Malformed::LeaseOverCap(option, by, Lease::new(ms).unwrap())
}

#[test]
fn a_request_id_belongs_to_the_command_that_names_it() {
    for (command, want) in [
        (Command::Acquire, Want::ExclusiveOnce),
        (Command::Racquire, Want::Exclusive),
        (Command::Wlock, Want::Exclusive),
        (Command::Rlock, Want::Shared),
    ] {
        let said = Acquire::parse(words("alice REQUEST r"), command, LIMITS).unwrap();
        assert_eq!((said.request, said.want), (RequestId::new(command, b"r"), want));
    }
    let said = semaphore("alice 2 REQUEST r").unwrap();
    assert_eq!(said.request, RequestId::new(Command::Sacquire, b"r"));
    let said = several("1 k alice REQUEST r").unwrap().acquire;
    assert_eq!(said.request, RequestId::new(Command::Macquire, b"r"));
    assert_eq!(Release::parse(words("alice REQUEST r")).unwrap().request, RequestId::new(Command::Release, b"r"));
}

#[test]
fn wrong_arguments_of_a_command_that_acquires_a_lock_are_errors() {
    for (line, why) in [
        ("", Malformed::Arity),
        ("''", Malformed::Owner),
        ("* REQUEST r", Malformed::RequestOfFreshOwner),
        ("alice REQUEST ''", Malformed::RequestId),
        ("alice MINTOKEN 0", Malformed::Token("MINTOKEN")),
        ("alice MINTOKEN x", Malformed::Integer("MINTOKEN")),
        ("alice BLOCK 1.5", Malformed::Timeout),
        ("alice BLOCK ''", Malformed::Timeout),
        ("alice BLOCK -1", Malformed::NegativeTimeout),
        ("alice BLOCK -9223372036854775808", Malformed::NegativeTimeout),
        ("alice BLOCK 9223372036854775808", Malformed::Timeout),
    ] {
        assert_eq!(acquire(line), Err(why), "{line}");
    }
    let unknown = ["''", "alice", "BLOCKS", "READ", "WRITE", "ALL", "PERMITS 1", "TOKEN 1"];
    let bare = ["BLOCK", "REQUEST", "MINTOKEN", "PX", "EX", "PXAT", "EXAT"];
    let twice = [
        "BLOCK 1 BLOCK 1",
        "SESSION SESSION",
        "REQUEST r REQUEST r",
        "MINTOKEN 1 MINTOKEN 1",
        "PX 1 EX 1",
        "PXAT 6000 PX 1",
        "EX 1 EX 1",
    ];
    let nearly = ["PXA 6000", "PXATT 6000", "PXIN 6000", "EXA 6", "EXATT 6", "EXTRA 6", "XPAT 6000"];
    for options in unknown.iter().chain(&bare).chain(&twice).chain(&nearly) {
        syntax_error(acquire(&format!("alice {options}")));
    }
}

#[test]
fn mintoken_has_a_limit() {
    let most = LIMITS.now_us + 7000;
    for command in [Command::Acquire, Command::Racquire, Command::Wlock, Command::Rlock] {
        let least = |to: u64| {
            let line = format!("alice MINTOKEN {to}");
            Acquire::parse(words(&line), command, LIMITS).map(|said| said.min_token)
        };
        assert_eq!(least(most), Ok(Token::new(most)));
        assert_eq!(least(most + 1), Err(Malformed::TokenAhead(7)));
        assert_eq!(least(Token::MAX.get()), Err(Malformed::TokenAhead(7)));
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
    let two_leases = semaphore("* 3 PX 7 PERMITS 2 BLOCK 9 SESSION EX 1");
    assert_eq!(syntax_error(two_leases), "EX and PX cannot be used together");
    let all = semaphore("* 3 PERMITS 2 BLOCK 9 SESSION EX 1").unwrap();
    let wanted = Acquire {
        owner: None,
        want: wants(2, 3),
        block: Some(9),
        session: BindTo::Connection,
        lease: lasting(1000),
        ..plain()
    };
    assert_eq!(all, wanted);
    for (line, why) in [
        ("", Malformed::Arity),
        ("alice", Malformed::Arity),
        ("'' 1", Malformed::Owner),
        ("alice 0", Malformed::Limit),
        ("alice -1", Malformed::Limit),
        ("alice 4294967296", Malformed::Limit),
        ("alice x", Malformed::Integer("limit")),
        ("alice PERMITS 1", Malformed::Integer("limit")),
        ("alice 2 PERMITS 0", Malformed::Permits),
        ("alice 2 PERMITS -1", Malformed::Permits),
        ("alice 2 PERMITS 4294967296", Malformed::Permits),
        ("alice 2 PERMITS x", Malformed::Integer("PERMITS")),
        ("alice 2 PERMITS 3", Malformed::PermitsOverLimit),
        ("* 2 REQUEST r", Malformed::RequestOfFreshOwner),
    ] {
        assert_eq!(semaphore(line), Err(why), "{line}");
    }
    for (options, why) in [
        ("PERMITS", "PERMITS needs a value"),
        ("PERMITS 1 PERMITS 1", "PERMITS is given twice"),
        ("PERMITS 3 NX", "unknown option 'NX'"),
        ("3", "unknown option '3'"),
        ("MINTOKEN 1", "unknown option 'MINTOKEN'"),
    ] {
        assert_eq!(syntax_error(semaphore(&format!("alice 2 {options}"))), why);
    }
}

#[test]
fn several_locks_have_different_names() {
    let keys = |line| several(line).map(|said| said.keys.iter().map(|key| key.to_vec()).collect::<Vec<_>>());
    assert_eq!(keys("1 k alice"), Ok(vec![b"k".to_vec()]));
    assert_eq!(keys("3 c a b alice"), Ok(vec![b"c".to_vec(), b"a".to_vec(), b"b".to_vec()]), "in their order");
    let said = several("2 a b * PX 7 BLOCK 9").unwrap().acquire;
    assert_eq!(said, Acquire { owner: None, lease: lasting(7), block: Some(9), ..plain() });
    for (line, why) in [
        ("", Malformed::Arity),
        ("0 a", Malformed::NoKeys),
        ("-1 a b", Malformed::NoKeys),
        ("x a b", Malformed::Integer("numkeys")),
        ("+1 a b", Malformed::Integer("numkeys")),
        ("01 a b", Malformed::Integer("numkeys")),
        ("2 a", Malformed::TooManyKeys),
        ("1 a", Malformed::TooManyKeys),
        ("2 a alice", Malformed::TooManyKeys),
        ("3 a b alice", Malformed::TooManyKeys),
        ("9223372036854775807 a b", Malformed::TooManyKeys),
        ("1 '' alice", Malformed::EmptyKey),
        ("3 a '' a alice", Malformed::EmptyKey),
        ("2 a a alice", same("a")),
        ("3 a b a alice", same("a")),
        ("1 a ''", Malformed::Owner),
        ("1 a * REQUEST r", Malformed::RequestOfFreshOwner),
    ] {
        assert_eq!(several(line).map(|_| ()), Err(why), "{line}");
    }
    assert_eq!(syntax_error(several("1 a alice PERMITS 1")), "unknown option 'PERMITS'");
    let many = |number: usize| {
        let names: Vec<String> = (0..number).map(|name| format!("k{name}")).collect();
        several(&format!("{number} {} alice", names.join(" "))).map(|said| said.keys.len())
    };
    assert_eq!([many(64), many(65)], [Ok(64), Err(Malformed::KeyCount)]);
}

#[test]
fn the_keys_of_several_are_counted_as_the_server_counts_them() {
    for (line, count) in [
        ("1 x a", Some(1)),
        ("3 x y z a PX 5", Some(3)),
        // A key that is given twice is counted twice, though it is an error.
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

#[test]
fn owners_and_request_ids_have_a_longest_length() {
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

fn same(key: &str) -> Malformed {
    Malformed::SameKey(Excerpt::of(key.as_bytes()))
}

fn plain() -> Acquire {
    let (owner, want) = (Some(owner("alice")), Want::ExclusiveOnce);
    Acquire {
        owner,
        want,
        lease: LeaseChoice::Own,
        cap: None,
        block: None,
        session: BindTo::Nothing,
        min_token: None,
        request: None,
    }
}

fn semaphore(line: &str) -> Result<Acquire, Malformed> {
    Acquire::parse(words(line), Command::Sacquire, LIMITS)
}

fn several(line: &str) -> Result<AcquireAll<'_>, Malformed> {
    AcquireAll::parse(words(line), LIMITS)
}
