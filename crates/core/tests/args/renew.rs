//! The arguments of `RENEW`.

use dlock_core::args::{Malformed, Renew};
use dlock_core::{BindTo, LeaseChoice, Mode, RenewToken, SessionId, Token};

use super::{LIMITS, lasting, owner, renew, syntax_error, token};

#[test]
fn each_option_of_renew_is_read() {
    let plain = Renew {
        owner: owner("alice"),
        lease: LeaseChoice::Own,
        mode: None,
        token: RenewToken::Any,
        session: BindTo::Nothing,
    };
    let seven = token(7).unwrap();
    let named = BindTo::Named(SessionId::new(b"s").unwrap());
    for (line, said) in [
        ("alice", plain.clone()),
        ("*", Renew { owner: owner("*"), ..plain.clone() }),
        ("alice PX 7", Renew { lease: lasting(7), ..plain.clone() }),
        ("alice READ", Renew { mode: Some(Mode::Shared), ..plain.clone() }),
        ("alice WRITE", Renew { mode: Some(Mode::Exclusive), ..plain.clone() }),
        ("alice SESSION", Renew { session: BindTo::Connection, ..plain.clone() }),
        ("alice SESSIONID s", Renew { session: named, ..plain.clone() }),
        ("alice TOKEN 7", Renew { token: RenewToken::Is(seven), ..plain.clone() }),
        ("alice MINTOKEN 7", Renew { token: RenewToken::AtLeast(seven), ..plain.clone() }),
        (
            "alice mintoken 7 session write ex 1",
            Renew {
                lease: lasting(1000),
                mode: Some(Mode::Exclusive),
                token: RenewToken::AtLeast(seven),
                session: BindTo::Connection,
                ..plain.clone()
            },
        ),
    ] {
        assert_eq!(renew(line), Ok(said), "{line}");
    }
}

#[test]
fn wrong_arguments_of_renew_are_errors() {
    for (line, why) in [
        ("", Malformed::Arity),
        ("''", Malformed::Owner),
        ("alice TOKEN 0", Malformed::Token("TOKEN")),
        ("alice MINTOKEN 0", Malformed::Token("MINTOKEN")),
        ("alice MINTOKEN x", Malformed::Integer("MINTOKEN")),
    ] {
        assert_eq!(renew(line), Err(why), "{line}");
    }
    let unknown = ["''", "alice", "SESSIONS", "ALL", "BLOCK 1", "REQUEST r"];
    let bare = ["TOKEN", "MINTOKEN", "PX", "EX", "PXAT", "EXAT"];
    let twice = ["READ WRITE", "SESSION SESSION", "TOKEN 1 TOKEN 1", "TOKEN 1 MINTOKEN 1", "PX 1 EXAT 6"];
    for options in unknown.iter().chain(&bare).chain(&twice) {
        syntax_error(renew(&format!("alice {options}")));
    }
}

#[test]
fn mintoken_has_a_limit_and_token_has_none() {
    // `LIMITS` permits a lead of 7 ms. Tokens count µs.
    let most = LIMITS.now_us + 7000;
    let raise = |to: u64| renew(&format!("alice MINTOKEN {to}")).map(|said| said.token);
    assert_eq!(raise(most), Ok(RenewToken::AtLeast(Token::new(most).unwrap())));
    assert_eq!(raise(most + 1), Err(Malformed::TokenAhead(7)));
    let is = renew(&format!("alice TOKEN {}", most + 1)).unwrap().token;
    assert_eq!(is, RenewToken::Is(Token::new(most + 1).unwrap()), "TOKEN has no such limit, as it raises no token");
}
