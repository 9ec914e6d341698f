//! Whether what the server shows is what the model has.

use std::collections::BTreeMap;

use crate::encode::{Words, words};
use crate::model::{Hold, Key, Mode, Model, Reply, Value};
use crate::step::NAMES;
use crate::wire::{Answer, Connection, write_request};

/// What was before a step.
#[derive(Clone, Copy, Debug)]
pub struct Before {
    /// Unix ms, by our clock.
    pub now: u64,
    /// The highest token.
    pub token: u64,
    /// How many holds there had been.
    pub serials: u64,
}

/// The highest token of all that were seen.
pub fn highest_token(model: &Model) -> u64 {
    model.tokens.values().copied().max().unwrap_or(0)
}

/// Looks at everything that can be seen, on a connection of its own. Tokens that were not known are taken note of:
/// they must be above all that were.
pub fn judge(looker: &mut Connection, model: &mut Model, before: Before) -> Result<(), String> {
    let answers = look(looker)?;
    let mut answers = answers.iter();
    let mut next = || answers.next().ok_or_else(|| "too few replies".to_owned());
    for db in [0, 1] {
        next()?;
        for name in NAMES {
            let (info, kind) = (next()?, next()?);
            key(model, (db, name), info, kind, before).map_err(|e| format!("key {name} of database {db}: {e}"))?;
        }
    }
    let info = String::from_utf8_lossy(next()?.text()?).into_owned();
    for (field, expected) in
        [("dlock_waiters", model.waiters()), ("dlock_queues", model.queues()), ("dlock_sessions", model.sessions())]
    {
        same(field, number(&info, field), Some(expected as u64))?;
    }
    let last = highest_token(model);
    if number(&info, "dlock_last_token").is_none_or(|seen| seen < last) {
        return Err(format!("dlock_last_token is below {last}:\n{info}"));
    }
    Ok(())
}

/// Sends everything in one go: in between nothing else happens.
fn look(looker: &mut Connection) -> Result<Vec<Answer>, String> {
    let mut lines: Vec<Words> = Vec::new();
    for db in [0, 1] {
        lines.push(words(&format!("SELECT {db}")));
        for name in NAMES {
            lines.push(words(&format!("DLOCK.INFO {name} FULL COUNT 0")));
            lines.push(words(&format!("TYPE {name}")));
        }
    }
    lines.push(words("INFO dlock"));
    let mut bytes = Vec::new();
    for line in &lines {
        let line: Vec<&[u8]> = line.iter().map(Vec::as_slice).collect();
        write_request(&mut bytes, &line);
    }
    looker.send_bytes(&bytes)?;
    lines.iter().map(|_| looker.read()).collect()
}

fn key(model: &mut Model, key: Key, info: &Answer, kind: &Answer, before: Before) -> Result<(), String> {
    let expected = match model.keys.get(&key) {
        None => "none",
        Some(Value::Text) => "string",
        Some(Value::Lock(_)) => "distrlock",
    };
    // A lock whose last hold has lapsed is there until the server looks.
    let kind = String::from_utf8_lossy(kind.text()?).into_owned();
    if kind != expected {
        return Err(format!("its type is {kind}, not {expected}"));
    }
    match expected {
        "none" => return same("INFO", info, &Answer::Nil),
        "string" if matches!(info, Answer::Error(text) if text.starts_with("WRONGTYPE")) => return Ok(()),
        "string" => return Err(format!("INFO of a string: {info:?}")),
        _ => {}
    }
    bind_tokens(model, key, info.field("holds")?, before)?;
    summary(model, key, info)?;
    holds(model, key, info.field("holds")?, before.now)?;
    queue(model, key, info.field("queue")?)
}

/// New holds of a key have new tokens, in the order they were granted.
fn bind_tokens(model: &mut Model, key: Key, shown: &Answer, before: Before) -> Result<(), String> {
    let mut new: BTreeMap<u64, u64> = BTreeMap::new();
    for shown in shown.list()? {
        let (owner, mode) = (shown.field("owner")?.text()?, mode_of(shown.field("mode")?)?);
        let hold = model.holds(key).iter().find(|hold| hold.owner == owner && hold.mode == mode);
        let hold = hold.ok_or_else(|| format!("there should be no such hold: {shown:?}"))?;
        if hold.serial > before.serials {
            new.insert(hold.serial, shown.field("token")?.integer()?);
        }
    }
    let tokens: Vec<u64> = new.values().copied().collect();
    if !tokens.is_sorted_by(|a, b| a < b) || tokens.first().is_some_and(|first| *first <= before.token) {
        return Err(format!("tokens {tokens:?} of new holds, in the order of their grants, after {}", before.token));
    }
    for (serial, token) in new {
        model.tokens.entry(serial).or_insert(token);
    }
    Ok(())
}

fn summary(model: &Model, key: Key, info: &Answer) -> Result<(), String> {
    let holds = model.holds(key);
    let has = |mode| holds.iter().any(|hold| hold.mode == mode);
    let mode = match (has(Mode::Exclusive), has(Mode::Shared)) {
        (true, true) => "both",
        (true, false) => "exclusive",
        (false, _) => "shared",
    };
    same("mode", info.field("mode")?.text()?, mode.as_bytes())?;
    let owners: std::collections::BTreeSet<&[u8]> = holds.iter().map(|hold| hold.owner.as_slice()).collect();
    same("holders", info.field("holders")?.integer()?, owners.len() as u64)?;
    same("count", info.field("count")?.integer()?, holds.iter().map(|hold| hold.count).sum())?;
    let token = holds.iter().filter_map(|hold| model.tokens.get(&hold.serial)).max();
    same("token", info.field("token")?.integer()?, token.copied().unwrap_or(0))?;
    same("waiters", info.field("waiters")?.integer()?, model.line(key).len() as u64)
}

fn holds(model: &Model, key: Key, shown: &Answer, now: u64) -> Result<(), String> {
    let shown = shown.list()?;
    let token_of = |hold: &Hold| model.tokens.get(&hold.serial).copied().unwrap_or(0);
    let mut expected: Vec<&Hold> = model.holds(key).iter().collect();
    expected.sort_by_key(|hold| token_of(hold));
    same("number of holds", shown.len(), expected.len())?;
    if !shown.iter().map(|hold| hold.field("token").and_then(Answer::integer)).is_sorted_by(|a, b| a <= b) {
        return Err(format!("holds are not by token: {shown:?}"));
    }
    for hold in expected {
        // Two holds of one owner may have one token (MINTOKEN), and are in no order then.
        let is_it = |shown: &&Answer| {
            let of = |name| shown.field(name);
            of("owner").and_then(|owner| owner.text().map(<[u8]>::to_vec)).as_deref() == Ok(hold.owner.as_slice())
                && of("mode").and_then(mode_of) == Ok(hold.mode)
        };
        let shown = shown.iter().find(is_it).ok_or_else(|| format!("no hold of {hold:?}"))?;
        let of_hold = |what: &str| format!("{what} of {hold:?}");
        same(&of_hold("count"), shown.field("count")?.integer()?, hold.count)?;
        same(&of_hold("token"), shown.field("token")?.integer()?, token_of(hold))?;
        let session = hold.session.map_or(Answer::Nil, |client| Answer::Integer(client.cast_signed()));
        same(&of_hold("session"), shown.field("session")?, &session)?;
        let (ttl, left) = (shown.field("ttl")?.integer()?, hold.deadline.saturating_sub(now));
        if ttl.abs_diff(left) > SLACK_MS {
            return Err(format!("{} is {ttl}, {left} ms are left", of_hold("ttl")));
        }
    }
    Ok(())
}

fn queue(model: &Model, key: Key, shown: &Answer) -> Result<(), String> {
    let (line, shown) = (model.line(key), shown.list()?);
    let mut waiting = Vec::new();
    for waiter in shown {
        waiting.push((
            waiter.field("owner")?.text()?.to_vec(),
            mode_of(waiter.field("mode")?)?,
            waiter.field("client")?.integer()?,
        ));
    }
    let expected: Vec<_> = line.iter().map(|w| (w.ask.owner.clone(), w.ask.mode, w.client)).collect();
    same("queue", waiting, expected)
}

/// Whether an answer is the one that the model gives; a token it did not know is taken note of.
pub fn accept(model: &mut Model, expected: &Reply, answer: &Answer, floor: u64) -> Result<(), String> {
    let is_right = match (expected, answer) {
        (Reply::Token(serial), Answer::Integer(token)) => return bind(model, *serial, *token, floor),
        (Reply::FreshOwner(serial), Answer::List(pair)) => {
            let [owner, Answer::Integer(token)] = pair.as_slice() else { return Err(format!("{pair:?}")) };
            let owner = owner.text()?.to_vec();
            for hold in model.keys.values_mut().flat_map(|value| match value {
                Value::Lock(holds) => holds.as_mut_slice(),
                Value::Text => &mut [],
            }) {
                if hold.serial == *serial {
                    hold.owner.clone_from(&owner);
                }
            }
            if owner.len() != 36 {
                return Err(format!("an owner was made up, but {owner:?}"));
            }
            return bind(model, *serial, *token, floor);
        }
        (Reply::Integer(expected), Answer::Integer(number)) => number == expected,
        (Reply::Positive, Answer::Integer(number)) => *number > 0,
        (Reply::Nil, Answer::Nil) => true,
        (Reply::Ok, Answer::Status(text)) => text == "OK",
        (Reply::Error(begin), Answer::Error(text)) => text.contains(begin),
        (Reply::All(expected), Answer::List(answers)) if expected.len() == answers.len() => {
            return expected.iter().zip(answers).try_for_each(|(e, answer)| accept(model, e, answer, floor));
        }
        _ => false,
    };
    if is_right { Ok(()) } else { Err(format!("the reply is {answer:?}, the model says {expected:?}")) }
}

fn bind(model: &mut Model, serial: u64, token: i64, floor: u64) -> Result<(), String> {
    let token = token.unsigned_abs();
    match model.tokens.insert(serial, token) {
        None if token > floor => Ok(()),
        None => Err(format!("a new token, {token}, is not above {floor}")),
        Some(old) if old == token => Ok(()),
        Some(old) => Err(format!("the token is {token}, and was {old}")),
    }
}

fn mode_of(answer: &Answer) -> Result<Mode, String> {
    match answer.text()? {
        b"exclusive" => Ok(Mode::Exclusive),
        b"shared" => Ok(Mode::Shared),
        other => Err(format!("{other:?} is no mode")),
    }
}

fn number(info: &str, field: &str) -> Option<u64> {
    info.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':')?.trim().parse().ok())
}

fn same<T: PartialEq + std::fmt::Debug>(what: &str, seen: T, expected: T) -> Result<(), String> {
    if seen == expected { Ok(()) } else { Err(format!("{what} is {seen:?}, not {expected:?}")) }
}

/// How far the server's reading of the clock may be from ours, on a busy machine.
const SLACK_MS: u64 = 20_000;
