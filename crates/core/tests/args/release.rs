//! `RELEASE`.

use dlock_core::args::{Malformed, Release};
use dlock_core::{Command, Entries, Mode, RequestId};

use super::{nonzero, owner, syntax_error, token, words};

#[test]
fn each_option_of_release() {
    let plain = Release {
        owner: owner("alice"),
        mode: None,
        entries: Entries::ONE,
        token: None,
        is_break: false,
        request: None,
    };
    let asked = RequestId::new(Command::Release, b"r");
    for (line, said) in [
        ("alice", plain.clone()),
        // The server generates an owner only for a command that acquires.
        ("*", Release { owner: owner("*"), ..plain.clone() }),
        ("alice READ", Release { mode: Some(Mode::Shared), ..plain.clone() }),
        ("alice WRITE", Release { mode: Some(Mode::Exclusive), ..plain.clone() }),
        ("alice ALL", Release { entries: Entries::All, ..plain.clone() }),
        ("alice PERMITS 3", Release { entries: some(3), ..plain.clone() }),
        (
            "alice permits 4294967295 READ",
            Release { entries: some(u32::MAX), mode: Some(Mode::Shared), ..plain.clone() },
        ),
        ("alice break", Release { is_break: true, ..plain.clone() }),
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
fn wrong_arguments_of_release_are_errors() {
    for (line, why) in [
        ("", Malformed::Arity),
        ("''", Malformed::Owner),
        ("alice TOKEN 0", Malformed::Token("TOKEN")),
        ("alice TOKEN x", Malformed::Integer("TOKEN")),
        ("alice PERMITS 0", Malformed::Permits),
        ("alice PERMITS -1", Malformed::Permits),
        ("alice PERMITS 4294967296", Malformed::Permits),
        ("alice PERMITS x", Malformed::Integer("PERMITS")),
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
        syntax_error(release(&format!("alice {options}")));
    }
}

fn release(line: &str) -> Result<Release, Malformed> {
    Release::parse(words(line))
}

fn some(entries: u32) -> Entries {
    Entries::Some(nonzero(entries))
}
