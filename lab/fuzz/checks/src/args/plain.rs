//! The second parser of arguments: a table of words and one loop over it.

use std::collections::{BTreeMap, BTreeSet};

use dlock_core::args::{BadLease, CapBy, Excerpt, Limits, Malformed, Syntax};
use dlock_core::spec::{self, Spec};
use dlock_core::{Command, Lease, Mode, UnixMs};

use super::{Call, Fence, PlainLease, PlainSession, Said};

/// Returns what these words say to a command that has a key.
pub fn plain(call: Call, words: &[Vec<u8>], limits: Limits) -> Result<Said, Malformed> {
    match call {
        Call::Enter(Command::Macquire) => {
            let count = plain_key_count(words)?;
            let (keys, rest) = words[1..].split_at(count);
            let said = plain_enter(Command::Macquire, rest, limits)?;
            Ok(Said { keys: keys.to_vec(), ..said })
        }
        Call::Enter(command) => plain_enter(command, words, limits),
        Call::Release => {
            let owner = Some(plain_owner(words.first().ok_or(Malformed::Arity)?)?);
            let mut said = options_of(&words[1..], &spec::RELEASE, limits)?;
            said.request = said.request.map(|(_, id)| (Some(Command::Release), id));
            let permits = if said.all { None } else { Some(said.permits.unwrap_or(1)) };
            Ok(Said { owner, permits, ..said })
        }
        Call::Renew => {
            let owner = Some(plain_owner(words.first().ok_or(Malformed::Arity)?)?);
            let said = options_of(&words[1..], &spec::RENEW, limits)?;
            plain_min_token(&said, limits)?;
            plain_session(&said)?;
            Ok(Said { owner, ..said })
        }
        Call::Check => match words {
            [] => Err(Malformed::Arity),
            [token] => Ok(Said { token: Some((Fence::Is, plain_token("token", token)?)), ..Said::default() }),
            [token, ..] => Err(plain_token("token", token).err().unwrap_or(Malformed::Arity)),
        },
        Call::Info => plain_info(words),
        Call::Session | Call::Log => unreachable!("commands without a key have checks of their own"),
    }
}

/// Returns how many keys `MACQUIRE` has. There is an owner behind them.
fn plain_key_count(words: &[Vec<u8>]) -> Result<usize, Malformed> {
    let (number, words) = words.split_first().ok_or(Malformed::Arity)?;
    let number = match plain_integer("numkeys", number)? {
        ..=0 => return Err(Malformed::NoKeys),
        number => usize::try_from(number).unwrap(),
    };
    // Too few keys are reported before too many.
    if number > words.len() && words.len() <= 64 {
        return Err(Malformed::TooManyKeys);
    }
    if number > 64 {
        return Err(Malformed::KeyCount);
    }
    let (keys, rest) = words.split_at(number);
    if keys.iter().any(Vec::is_empty) {
        return Err(Malformed::EmptyKey);
    }
    let (mut seen, mut twice) = (BTreeSet::new(), BTreeSet::new());
    twice.extend(keys.iter().filter(|key| !seen.insert(*key)));
    if let Some(key) = twice.first() {
        return Err(Malformed::SameKey(Excerpt::of(key)));
    }
    if rest.is_empty() { Err(Malformed::TooManyKeys) } else { Ok(number) }
}

fn plain_enter(command: Command, words: &[Vec<u8>], limits: Limits) -> Result<Said, Malformed> {
    let owner = words.first().ok_or(Malformed::Arity)?;
    let owner = if owner == b"*" { None } else { Some(plain_owner(owner)?) };
    let (mut limit, mut from) = (None, 1);
    if command == Command::Sacquire {
        (limit, from) = (Some(plain_entries("limit", words.get(1).ok_or(Malformed::Arity)?, Malformed::Limit)?), 2);
    }
    let spec = spec::find(&format!("DLOCK.{}", command.name())).unwrap();
    let mut said = options_of(&words[from..], spec, limits)?;
    plain_min_token(&said, limits)?;
    if owner.is_none() && said.request.is_some() {
        return Err(Malformed::RequestOfFreshOwner);
    }
    let permits = limit.map(|_| said.permits.unwrap_or(1));
    if permits > limit {
        return Err(Malformed::PermitsOverLimit);
    }
    plain_session(&said)?;
    plain_cap(&mut said, limits)?;
    said.request = said.request.map(|(_, id)| (Some(command), id));
    Ok(Said { owner, limit, permits, ..said })
}

fn plain_entries(name: &'static str, value: &[u8], why: Malformed) -> Result<u64, Malformed> {
    match plain_integer(name, value)? {
        number @ 1..=0xffff_ffff => Ok(number.unsigned_abs()),
        _ => Err(why),
    }
}

fn plain_info(words: &[Vec<u8>]) -> Result<Said, Malformed> {
    let upper: Vec<Vec<u8>> = words.iter().map(|word| word.to_ascii_uppercase()).collect();
    let upper: Vec<&[u8]> = upper.iter().map(Vec::as_slice).collect();
    let said = match upper.as_slice() {
        [] => Said::default(),
        [b"OWNER", _, ..] => Said { owner: Some(plain_owner(&words[1])?), ..Said::default() },
        [b"FULL"] => Said { count: Some(10), ..Said::default() },
        [b"FULL", b"COUNT", _, ..] => {
            let count = u64::try_from(plain_integer("COUNT", &words[2])?).map_err(|_| Malformed::Count)?;
            Said { count: Some(if count == 0 { 1000 } else { count.min(1000) }), ..Said::default() }
        }
        [b"OWNER"] => return Err(Malformed::Syntax(Syntax::NoValue("OWNER"))),
        [b"FULL", b"COUNT"] => return Err(Malformed::Syntax(Syntax::NoValue("COUNT"))),
        [b"FULL", ..] => return Err(plain_misplaced(&words[1], &["FULL"])),
        _ => return Err(plain_misplaced(&words[0], &[])),
    };
    let given: &[&str] = if said.count.is_some() { &["FULL", "COUNT", "5"] } else { &["OWNER", "alice"] };
    words.get(given.len()).map_or(Ok(said), |word| Err(plain_misplaced(word, given)))
}

/// A word of `INFO` that has no place behind those given.
fn plain_misplaced(word: &[u8], given: &[&'static str]) -> Malformed {
    let known = given.iter().find(|given| given.as_bytes() == word.to_ascii_uppercase());
    Malformed::Syntax(match (word.to_ascii_uppercase().as_slice(), known) {
        (b"FULL" | b"OWNER" | b"COUNT", Some(known)) => Syntax::Twice(known),
        (b"COUNT", _) => Syntax::OnlyAfter("COUNT", "FULL"),
        (b"FULL", _) => Syntax::Together("FULL", given[0]),
        (b"OWNER", _) => Syntax::Together("OWNER", given[0]),
        _ => Syntax::Unknown(Excerpt::of(word)),
    })
}

/// Reads options, each group at most once.
fn options_of(words: &[Vec<u8>], spec: &Spec, limits: Limits) -> Result<Said, Malformed> {
    let (mut said, mut seen) = (Said::default(), BTreeMap::new());
    let mut at = 0;
    while at < words.len() {
        let known = spec.option(&words[at]);
        let (option, has_value) = known.ok_or_else(|| Malformed::Syntax(Syntax::Unknown(Excerpt::of(&words[at]))))?;
        let value: &[u8] = match words.get(at + 1) {
            Some(value) if has_value => value,
            None if has_value => return Err(Malformed::Syntax(Syntax::NoValue(option))),
            _ => b"",
        };
        let group = take_note(&mut said, option, value, limits)?;
        if let Some(before) = seen.insert(group, option) {
            let is_same = before == option;
            return Err(Malformed::Syntax(if is_same {
                Syntax::Twice(option)
            } else {
                Syntax::Together(option, before)
            }));
        }
        at += if has_value { 2 } else { 1 };
    }
    Ok(said)
}

fn plain_min_token(said: &Said, limits: Limits) -> Result<(), Malformed> {
    match said.token {
        Some((Fence::AtLeast, token)) if token > limits.now_us + limits.max_token_lead * 1000 => {
            Err(Malformed::TokenAhead(limits.max_token_lead))
        }
        _ => Ok(()),
    }
}

fn plain_session(said: &Said) -> Result<(), Malformed> {
    let word = match said.session {
        PlainSession::None => return Ok(()),
        PlainSession::Connection => "SESSION",
        PlainSession::Named(_) => "SESSIONID",
    };
    match said.lease {
        PlainLease::Until(_) => Err(Malformed::Syntax(Syntax::Together(word, said.lease_option.unwrap()))),
        PlainLease::For(..300) => Err(Malformed::SessionLease),
        PlainLease::For(_) | PlainLease::Own => Ok(()),
    }
}

/// The cap is the smaller of `MAXHOLD` and `dlock.max-hold`, and not shorter than the lease.
fn plain_cap(said: &mut Said, limits: Limits) -> Result<(), Malformed> {
    let setting = limits.max_hold.map(Lease::get);
    let Some(cap) = said.cap.into_iter().chain(setting).min() else { return Ok(()) };
    let by = if said.cap == Some(cap) { CapBy::Option } else { CapBy::Setting };
    said.cap = Some(cap);
    if said.session != PlainSession::None && cap < 300 {
        return Err(Malformed::SessionCap(by));
    }
    let now = (limits.now_us / 1000).min(UnixMs::MAX.get());
    let lease = match said.lease {
        PlainLease::Own => 0,
        PlainLease::For(ms) => ms,
        PlainLease::Until(at) => at - now,
    };
    if lease <= cap {
        return Ok(());
    }
    Err(Malformed::LeaseOverCap(said.lease_option.unwrap(), by, Lease::new(cap).unwrap()))
}

fn take_note(said: &mut Said, option: &'static str, value: &[u8], limits: Limits) -> Result<&'static str, Malformed> {
    match option {
        "READ" => said.mode = Some(Mode::Shared),
        "WRITE" => said.mode = Some(Mode::Exclusive),
        "ALL" => said.all = true,
        "PERMITS" => said.permits = Some(plain_entries(option, value, Malformed::Permits)?),
        "BREAK" => said.is_break = true,
        "SESSION" => said.session = PlainSession::Connection,
        "SESSIONID" => said.session = PlainSession::Named(plain_session_id(value)?),
        "SLOT" => said.slot = true,
        "BLOCK" => said.block = Some(plain_timeout(value)?),
        "MAXHOLD" => said.cap = Some(plain_max_hold(value)?),
        "REQUEST" if value.is_empty() || value.len() > 64 => return Err(Malformed::RequestId),
        "REQUEST" => said.request = Some((None, value.to_vec())),
        "TOKEN" => said.token = Some((Fence::Is, plain_token(option, value)?)),
        "MINTOKEN" => said.token = Some((Fence::AtLeast, plain_token(option, value)?)),
        _ => (said.lease, said.lease_option) = (lease_of(option, value, limits)?, Some(option)),
    }
    Ok(match option {
        "READ" | "WRITE" => "mode",
        "TOKEN" | "MINTOKEN" => "token",
        "ALL" | "PERMITS" | "SLOT" => "entries",
        "BREAK" => "break",
        "SESSION" | "SESSIONID" => "session",
        "BLOCK" => "block",
        "MAXHOLD" => "cap",
        "REQUEST" => "request",
        _ => "lease",
    })
}

fn lease_of(option: &'static str, value: &[u8], limits: Limits) -> Result<PlainLease, Malformed> {
    let unit = if option.starts_with("EX") { 1000 } else { 1 };
    let given = i128::from(plain_integer(option, value)?) * unit;
    let now = i128::from(limits.now_us / 1000).min(i128::from(UnixMs::MAX.get()));
    let is_absolute = option.ends_with("AT");
    let lease = if is_absolute { given - now } else { given };
    if lease <= 0 {
        let why = if is_absolute { BadLease::Past } else { BadLease::NotPositive };
        return Err(Malformed::ExpireTime(option, why));
    }
    // A server's times are signed integers of 64 bits.
    if given > i128::from(i64::MAX) || lease + now > i128::from(i64::MAX) {
        return Err(Malformed::ExpireTime(option, BadLease::TooLarge));
    }
    if lease > i128::from(limits.max_lease.get()) {
        return Err(Malformed::LeaseTooLong(option, limits.max_lease));
    }
    let given = u64::try_from(given).unwrap();
    Ok(if is_absolute { PlainLease::Until(given.min(UnixMs::MAX.get())) } else { PlainLease::For(given) })
}

fn plain_timeout(value: &[u8]) -> Result<u64, Malformed> {
    match plain_integer("BLOCK", value) {
        Ok(ms @ 0..=0x20_0000_0000_0000) => Ok(ms.unsigned_abs()),
        Ok(..0) => Err(Malformed::NegativeTimeout),
        Ok(_) | Err(_) => Err(Malformed::Timeout),
    }
}

fn plain_max_hold(value: &[u8]) -> Result<u64, Malformed> {
    match plain_integer("MAXHOLD", value)? {
        ms @ 1..=31_536_000_000 => Ok(ms.unsigned_abs()),
        _ => Err(Malformed::Cap),
    }
}

fn plain_token(name: &'static str, value: &[u8]) -> Result<u64, Malformed> {
    match plain_integer(name, value)? {
        token @ 1..=0x20_0000_0000_0000 => Ok(token.unsigned_abs()),
        _ => Err(Malformed::Token(name)),
    }
}

fn plain_owner(value: &[u8]) -> Result<Vec<u8>, Malformed> {
    if (1..=1024).contains(&value.len()) { Ok(value.to_vec()) } else { Err(Malformed::Owner) }
}

pub fn plain_session_id(value: &[u8]) -> Result<Vec<u8>, Malformed> {
    if (1..=128).contains(&value.len()) { Ok(value.to_vec()) } else { Err(Malformed::SessionId) }
}

/// Accepts an integer only as its number is written: no sign, no zero in front.
pub fn plain_integer(name: &'static str, value: &[u8]) -> Result<i64, Malformed> {
    let number = String::from_utf8_lossy(value).parse::<i64>().map_err(|_| Malformed::Integer(name))?;
    if number.to_string().as_bytes() == value { Ok(number) } else { Err(Malformed::Integer(name)) }
}
