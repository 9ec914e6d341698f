//! The arguments of every command, read by the core and by a second parser: a table of words and one loop over it.
//!
//! The first byte picks the command, the second the clock, the third the other limits. Then come the
//! words, each on a line.

mod keyless;

use std::collections::{BTreeMap, BTreeSet};

use dlock_core::args::{
    Acquire, AcquireAll, BadLease, CapBy, Check, Excerpt, Info, Limits, Malformed, Release, Renew, Syntax,
};
use dlock_core::engine::Detail;
use dlock_core::{
    BindTo, Command, Entries, Lease, LeaseChoice, Mode, Owner, RenewToken, RequestId, SessionId, UnixMs, Want,
};

use dlock_testkit::bytes::Bytes;

/// Reads the bytes as the arguments of a command.
pub fn args(bytes: &[u8]) {
    let mut bytes = Bytes::new(bytes);
    let call = bytes.pick(&CALLS);
    let (now_us, (max_lease, max_hold, max_token_lead)) = (bytes.pick(&CLOCKS), bytes.pick(&LIMITS));
    let max_lease = Lease::new(max_lease).unwrap();
    let limits = Limits { now_us, max_lease, max_hold: Lease::new(max_hold), max_token_lead };
    let lines = bytes.rest();
    let words: Vec<Vec<u8>> =
        if lines.is_empty() { Vec::new() } else { lines.split(|byte| *byte == b'\n').map(long).collect() };
    match call {
        Call::Session => return keyless::session(&words),
        Call::Log => return keyless::log(&words),
        _ => {}
    }
    let parsed = parse(call, &words, limits);
    // The core keeps the lease only.
    let expected = plain(call, &words, limits).map(|said| Said { lease_option: None, ..said });
    assert_eq!(parsed, expected, "{call:?} {limits:?}: {}", shown(&words));
}

/// A command's arguments, in plain values.
#[derive(Debug, Default, PartialEq)]
struct Said {
    /// The keys, if the command has several.
    keys: Vec<Vec<u8>>,
    owner: Option<Vec<u8>>,
    /// The limit of a semaphore.
    limit: Option<u64>,
    permits: Option<u64>,
    slot: bool,
    lease: PlainLease,
    cap: Option<u64>,
    block: Option<u64>,
    request: Option<(Option<Command>, Vec<u8>)>,
    mode: Option<Mode>,
    all: bool,
    session: PlainSession,
    /// `BREAK`.
    is_break: bool,
    /// The option that has given the lease.
    lease_option: Option<&'static str>,
    token: Option<(Fence, u64)>,
    /// The number of entries that `INFO` shows of each list.
    count: Option<u64>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
enum PlainLease {
    #[default]
    Own,
    For(u64),
    Until(u64),
}

#[derive(Clone, Debug, Default, PartialEq)]
enum PlainSession {
    #[default]
    None,
    Connection,
    Named(Vec<u8>),
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Fence {
    Is,
    AtLeast,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Call {
    Enter(Command),
    Release,
    Renew,
    Check,
    Info,
    Session,
    Log,
}

fn parse(call: Call, words: &[Vec<u8>], limits: Limits) -> Result<Said, Malformed> {
    let words = words.iter().map(Vec::as_slice);
    let bytes = |owner: Owner| owner.text().to_vec();
    let asked = |request: RequestId| (Some(request.command()), request.id().to_vec());
    Ok(match call {
        Call::Enter(command) => {
            let (keys, acquire) = if command == Command::Macquire {
                let AcquireAll { keys, acquire } = AcquireAll::parse(words, limits)?;
                (keys.iter().map(|key| key.to_vec()).collect(), acquire)
            } else {
                (Vec::new(), Acquire::parse(words, command, limits)?)
            };
            let Acquire { owner, want, lease, cap, block, session, min_token, request } = acquire;
            let session = plain_binding(session);
            let expected = match command {
                Command::Racquire | Command::Wlock => Want::Exclusive,
                Command::Rlock => Want::Shared,
                Command::Acquire | Command::Macquire | Command::Release | Command::Sacquire => Want::ExclusiveOnce,
            };
            let limit = want.limit().map(u64::from);
            let (permits, slot) = match want {
                Want::Permits { permits, .. } => (Some(u64::from(permits.get())), false),
                Want::Slot { .. } => (Some(1), true),
                want => {
                    assert_eq!(want, expected, "{command:?}");
                    (None, false)
                }
            };
            let (owner, request, lease) = (owner.map(bytes), request.map(asked), plain_lease(lease));
            let token = min_token.map(|token| (Fence::AtLeast, token.get()));
            let cap = cap.map(Lease::get);
            Said { keys, owner, limit, permits, slot, lease, cap, block, session, token, request, ..Said::default() }
        }
        Call::Release => {
            let Release { owner, mode, entries, token, is_break, request } = Release::parse(words)?;
            let (owner, request) = (Some(bytes(owner)), request.map(asked));
            let (all, permits) = match entries {
                Entries::All => (true, None),
                Entries::Some(entries) => (false, Some(u64::from(entries.get()))),
            };
            let token = token.map(|token| (Fence::Is, token.get()));
            Said { owner, permits, mode, all, token, is_break, request, ..Said::default() }
        }
        Call::Renew => {
            let Renew { owner, lease, mode, token, session } = Renew::parse(words, limits)?;
            let session = plain_binding(session);
            let token = match token {
                RenewToken::Any => None,
                RenewToken::Is(token) => Some((Fence::Is, token.get())),
                RenewToken::AtLeast(token) => Some((Fence::AtLeast, token.get())),
            };
            let lease = plain_lease(lease);
            Said { owner: Some(bytes(owner)), lease, mode, token, session, ..Said::default() }
        }
        Call::Check => Said { token: Some((Fence::Is, Check::parse(words)?.token.get())), ..Said::default() },
        Call::Info => match Info::parse(words)?.0 {
            Detail::Summary => Said::default(),
            Detail::OfOwner(owner) => Said { owner: Some(bytes(owner)), ..Said::default() },
            Detail::Full(count) => Said { count: Some(count as u64), ..Said::default() },
        },
        Call::Session | Call::Log => unreachable!("commands without a key have checks of their own"),
    })
}

fn plain_binding(session: BindTo<SessionId>) -> PlainSession {
    match session {
        BindTo::Nothing => PlainSession::None,
        BindTo::Connection => PlainSession::Connection,
        BindTo::Named(id) => PlainSession::Named(id.as_bytes().to_vec()),
    }
}

fn plain_lease(lease: LeaseChoice) -> PlainLease {
    match lease {
        LeaseChoice::Own => PlainLease::Own,
        LeaseChoice::For(lease) => PlainLease::For(lease.get()),
        LeaseChoice::Until(deadline) => PlainLease::Until(deadline.get()),
    }
}

fn plain(call: Call, words: &[Vec<u8>], limits: Limits) -> Result<Said, Malformed> {
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
            let options = ["READ", "WRITE", "ALL", "PERMITS", "TOKEN", "BREAK", "REQUEST"];
            let mut said = options_of(&words[1..], &options, limits)?;
            said.request = said.request.map(|(_, id)| (Some(Command::Release), id));
            let permits = if said.all { None } else { Some(said.permits.unwrap_or(1)) };
            Ok(Said { owner, permits, ..said })
        }
        Call::Renew => {
            let options = ["PX", "EX", "PXAT", "EXAT", "READ", "WRITE", "SESSION", "SESSIONID", "TOKEN", "MINTOKEN"];
            let owner = Some(plain_owner(words.first().ok_or(Malformed::Arity)?)?);
            let said = options_of(&words[1..], &options, limits)?;
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
    let mut options = vec!["PX", "EX", "PXAT", "EXAT", "BLOCK", "SESSION", "SESSIONID", "REQUEST", "MAXHOLD"];
    let (mut limit, mut from) = (None, 1);
    if command == Command::Sacquire {
        options.extend(["PERMITS", "SLOT"]);
        (limit, from) = (Some(plain_entries("limit", words.get(1).ok_or(Malformed::Arity)?, Malformed::Limit)?), 2);
    }
    if !matches!(command, Command::Sacquire | Command::Macquire) {
        options.push("MINTOKEN");
    }
    let mut said = options_of(&words[from..], &options, limits)?;
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
fn options_of(words: &[Vec<u8>], options: &[&'static str], limits: Limits) -> Result<Said, Malformed> {
    let (mut said, mut seen) = (Said::default(), BTreeMap::new());
    let mut at = 0;
    while at < words.len() {
        let word = words[at].to_ascii_uppercase();
        let known = options.iter().find(|option| option.as_bytes() == word);
        let option = known.ok_or_else(|| Malformed::Syntax(Syntax::Unknown(Excerpt::of(&words[at]))))?;
        let has_value = !["READ", "WRITE", "ALL", "SESSION", "SLOT", "BREAK"].contains(option);
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
    // A time beyond the integers of a server is no time at all.
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

fn plain_session_id(value: &[u8]) -> Result<Vec<u8>, Malformed> {
    if (1..=128).contains(&value.len()) { Ok(value.to_vec()) } else { Err(Malformed::SessionId) }
}

/// An integer is what its number is written as.
fn plain_integer(name: &'static str, value: &[u8]) -> Result<i64, Malformed> {
    let number = String::from_utf8_lossy(value).parse::<i64>().map_err(|_| Malformed::Integer(name))?;
    if number.to_string().as_bytes() == value { Ok(number) } else { Err(Malformed::Integer(name)) }
}

/// A line is a word. One that begins with a byte 1 stands for a long one.
fn long(line: &[u8]) -> Vec<u8> {
    match line {
        [1, len, rest @ ..] => [vec![b'x'; usize::from(*len) * 5], rest.to_vec()].concat(),
        _ => line.to_vec(),
    }
}

fn shown(words: &[Vec<u8>]) -> String {
    words.iter().map(|word| word.escape_ascii().to_string()).collect::<Vec<_>>().join(" ")
}

const CALLS: [Call; 12] = [
    Call::Enter(Command::Acquire),
    Call::Enter(Command::Racquire),
    Call::Enter(Command::Rlock),
    Call::Enter(Command::Wlock),
    Call::Release,
    Call::Renew,
    Call::Check,
    Call::Info,
    Call::Enter(Command::Sacquire),
    Call::Enter(Command::Macquire),
    Call::Session,
    Call::Log,
];

/// Unix µs: a usual time, the epoch, and one that no sum may overflow.
const CLOCKS: [u64; 3] = [1_795_214_026_913_141, 0, 1 << 62];
/// The longest lease, the longest hold (0 is no limit), and how far `MINTOKEN` may be ahead of the clock.
const LIMITS: [(u64, u64, u64); 6] = [
    (31_536_000_000, 0, 10_000),
    (60_000, 0, 3_600_000),
    (1, 0, 0),
    (31_536_000_000, 30_000, 10_000),
    (60_000, 299, 1),
    (1, 90_000, 10_000),
];
