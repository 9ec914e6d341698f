//! The arguments of the commands without a key, `SESSION` and `LOG`.

use dlock_core::args::{Excerpt, Log, Malformed, Session, Subcommand, Syntax};
use dlock_core::engine::OpenIf;

use super::plain::{plain_integer, plain_session_id};
use super::shown;

/// A `SESSION`, in plain values.
#[derive(Debug, PartialEq)]
enum Said {
    Keep(Vec<u8>, u64, OpenIf),
    Close(Vec<u8>, Option<Vec<u8>>),
    List(Vec<u8>, Option<Vec<u8>>, usize),
    ListAll(usize),
}

/// Reads these words as the arguments of `SESSION`.
pub fn session(words: &[Vec<u8>]) {
    let plain = |user: Option<&[u8]>| user.map(<[u8]>::to_vec);
    let parsed = Session::parse(words.iter().map(Vec::as_slice)).map(|said| match said {
        Session::Keep(id, timeout, only) => Said::Keep(id.as_bytes().to_vec(), timeout.get(), only),
        Session::Close(id, user) => Said::Close(id.as_bytes().to_vec(), plain(user)),
        Session::List(id, user, most) => Said::List(id.as_bytes().to_vec(), plain(user), most),
        Session::ListAll(most) => Said::ListAll(most),
    });
    assert_eq!(parsed, plain_session(words), "SESSION {}", shown(words));
}

fn plain_session(words: &[Vec<u8>]) -> Result<Said, Malformed> {
    let upper: Vec<Vec<u8>> = words.iter().map(|word| word.to_ascii_uppercase()).collect();
    let upper: Vec<&[u8]> = upper.iter().map(Vec::as_slice).collect();
    match upper.as_slice() {
        [] => Err(Malformed::Arity),
        [b"LIST"] => Ok(Said::ListAll(100)),
        [b"LIST", b"COUNT", ..] => {
            let options = options(&words[1..], &["COUNT"])?;
            Ok(Said::ListAll(options.most.unwrap_or(100)))
        }
        [_] => Err(plain_session_id(&words[0]).err().unwrap_or(Malformed::Arity)),
        [_, action, ..] => {
            let id = plain_session_id(&words[0])?;
            match *action {
                b"CLOSE" => Ok(Said::Close(id, options(&words[2..], &["USER"])?.user)),
                b"LIST" => {
                    let Options { user, most, .. } = options(&words[2..], &["USER", "COUNT"])?;
                    Ok(Said::List(id, user, most.unwrap_or(100)))
                }
                b"PX" => {
                    let Options { only, ms, .. } = options(&words[1..], &["PX", "NX", "XX"])?;
                    Ok(Said::Keep(id, ms.unwrap(), only.map_or(OpenIf::Any, |(only, _)| only)))
                }
                _ => Err(Malformed::Syntax(Syntax::Unknown(Excerpt::of(&words[1])))),
            }
        }
    }
}

#[derive(Default)]
struct Options {
    user: Option<Vec<u8>>,
    most: Option<usize>,
    ms: Option<u64>,
    only: Option<(OpenIf, &'static str)>,
}

/// Reads options from left to right, each at most once.
fn options(words: &[Vec<u8>], options: &[&'static str]) -> Result<Options, Malformed> {
    let mut said = Options::default();
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let known = options.iter().find(|option| option.as_bytes() == word.to_ascii_uppercase());
        let option = *known.ok_or_else(|| Malformed::Syntax(Syntax::Unknown(Excerpt::of(word))))?;
        let mut value = || words.next().ok_or(Malformed::Syntax(Syntax::NoValue(option)));
        let is_twice = match option {
            "PX" if said.ms.is_some() => true,
            "PX" => match plain_integer("PX", value()?)? {
                ms @ 300..=3_600_000 => said.ms.replace(ms.unsigned_abs()).is_some(),
                _ => return Err(Malformed::SessionTimeout),
            },
            "USER" => said.user.replace(value()?.clone()).is_some(),
            // After `LIST COUNT n` nothing may follow: a second `COUNT` is an error even without a value.
            "COUNT" if options.len() == 1 && said.most.is_some() => true,
            "COUNT" => {
                let count = usize::try_from(plain_integer("COUNT", value()?)?).map_err(|_| Malformed::Count)?;
                said.most.replace(if count == 0 { 10_000 } else { count.min(10_000) }).is_some()
            }
            _ => {
                let only = if option == "NX" { OpenIf::New } else { OpenIf::Open };
                match said.only.replace((only, option)) {
                    Some((_, before)) if before != option => {
                        return Err(Malformed::Syntax(Syntax::Together(option, before)));
                    }
                    before => before.is_some(),
                }
            }
        };
        if is_twice {
            return Err(Malformed::Syntax(Syntax::Twice(option)));
        }
    }
    Ok(said)
}

/// Reads these words as the arguments of `LOG`.
pub fn log(words: &[Vec<u8>]) {
    let Some((first, rest)) = words.split_first() else { return };
    let name = String::from_utf8_lossy(first).to_ascii_uppercase();
    let known = ["GET", "LEN", "RESET", "HELP"].contains(&name.as_str());
    let Some(subcommand) = Subcommand::of(first) else {
        return assert!(!known, "LOG {}", shown(words));
    };
    assert_eq!(subcommand.name(), name);
    let expected = match (name.as_str(), rest) {
        ("GET", []) => Ok(Log::Get(10)),
        ("GET", [count]) => match plain_integer("count", count) {
            Ok(-1) => Ok(Log::Get(usize::MAX)),
            Ok(count) => usize::try_from(count).map(Log::Get).map_err(|_| Malformed::LogCount),
            Err(error) => Err(error),
        },
        ("LEN", []) => Ok(Log::Len),
        ("RESET", []) => Ok(Log::Reset),
        ("HELP", []) => Ok(Log::Help),
        _ => Err(Malformed::Arity),
    };
    assert_eq!(Log::parse(subcommand, rest.iter().map(Vec::as_slice)), expected, "LOG {}", shown(words));
}
