//! Whether what the server shows is what the model has.

use std::collections::{BTreeMap, BTreeSet};

use dlock_core::Mode;
use dlock_testkit::lock::{Hold as Shown, Info};
use dlock_testkit::redis::Value;
use dlock_testkit::wire::error_text;
use dlock_testkit::{Client, bytes_of, text_of};

use crate::encode::{Words, words};
use crate::model::{self, Key, Model, Reply, UNKNOWN};
use crate::step::NAMES;

/// What was before a step.
#[derive(Clone, Copy, Debug)]
pub struct Before {
    /// Unix ms, by our clock.
    pub now: u64,
    /// The highest token.
    pub token: u64,
}

/// The highest token of all that were seen.
pub fn highest_token(model: &Model) -> u64 {
    model.seen.last().copied().unwrap_or(0)
}

/// Looks at everything that can be seen, on a connection of its own. Tokens that were not known are taken note of:
/// they must be above all that were.
pub fn judge(looker: &mut Client, model: &mut Model, before: Before) -> Result<(), String> {
    let mut lines: Vec<Words> = Vec::new();
    for db in [0, 1] {
        lines.push(words(&format!("SELECT {db}")));
        for name in NAMES {
            lines.push(words(&format!("DLOCK.INFO {name} FULL COUNT 0")));
            lines.push(words(&format!("TYPE {name}")));
        }
    }
    lines.push(words("INFO dlock"));
    // In one go: in between nothing else happens.
    let mut answers = looker.pipeline(&lines).into_iter();
    let mut next = || answers.next().expect("a reply to each");
    for db in [0, 1] {
        next()?;
        for name in NAMES {
            let (info, kind) = (next(), next()?);
            key(model, (db, name), info, &text_of(&kind), before)
                .map_err(|e| format!("key {name} of database {db}: {e}"))?;
        }
    }
    let info = text_of(&next()?);
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

fn key(model: &mut Model, key: Key, info: Result<Value, String>, kind: &str, before: Before) -> Result<(), String> {
    let expected = match model.keys.get(&key) {
        None => "none",
        Some(model::Value::Text) => "string",
        Some(model::Value::Lock(_)) => "distrlock",
    };
    // A lock whose last hold has lapsed is there until the server looks.
    same("its type", kind, expected)?;
    match (expected, info) {
        ("none", info) => same("INFO", info, Ok(Value::Nil)),
        ("string", Err(text)) if text.starts_with("WRONGTYPE") => Ok(()),
        ("distrlock", Ok(info)) if info != Value::Nil => lock(model, key, &Info::of(&info), before),
        (_, info) => Err(format!("INFO of a {expected}: {info:?}")),
    }
}

fn lock(model: &mut Model, key: Key, info: &Info, before: Before) -> Result<(), String> {
    learn_tokens(model, key, info.holds(), before)?;
    let holds = model.holds(key);
    let has = |mode| holds.iter().any(|hold| hold.mode == mode);
    let mode = match (has(Mode::Exclusive), has(Mode::Shared)) {
        (true, true) => "both",
        (true, false) => "exclusive",
        (false, _) => "shared",
    };
    same("mode", info.mode.as_str(), mode)?;
    let owners: BTreeSet<&[u8]> = holds.iter().map(|hold| hold.owner.as_slice()).collect();
    same("holders", info.holders.unsigned_abs(), owners.len() as u64)?;
    same("count", info.count.unsigned_abs(), holds.iter().map(|hold| hold.count).sum())?;
    same("token", Some(info.token.unsigned_abs()), holds.iter().map(|hold| hold.token).max())?;
    let line = model.lines.get(&key).map_or(&[][..], |line| &line.0);
    same("waiters", info.waiters.unsigned_abs(), line.len() as u64)?;
    same("number of holds", info.holds().len(), holds.len())?;
    if !info.holds().is_sorted_by_key(|hold| hold.token) {
        return Err(format!("holds are not by token: {info:?}"));
    }
    holds.iter().try_for_each(|hold| same_hold(hold, info.holds(), before.now))?;
    let waiting = info.queue.iter().flatten().map(|w| (w.owner.as_slice(), w.mode.as_str(), w.client.unsigned_abs()));
    let expected = line.iter().map(|w| (w.enter.owner.as_slice(), name(w.enter.mode), w.ticket));
    same("queue", waiting.collect::<Vec<_>>(), expected.collect())
}

/// New holds of a key have new tokens, in the order they were granted.
fn learn_tokens(model: &mut Model, key: Key, shown: &[Shown], before: Before) -> Result<(), String> {
    let mut new: BTreeMap<u64, u64> = BTreeMap::new();
    for shown in shown {
        let hold = model.holds(key).iter().find(|hold| is_it(hold, shown));
        let hold = hold.ok_or_else(|| format!("there should be no such hold: {shown:?}"))?;
        if hold.token > UNKNOWN {
            new.insert(hold.token, shown.token.unsigned_abs());
        }
    }
    if !new.values().is_sorted_by(|a, b| a < b) {
        return Err(format!("tokens {new:?} of new holds are not in the order of their grants"));
    }
    for (made_up, token) in new {
        model.learn(made_up, token, before.token)?;
        model.all_holds_mut().filter(|hold| hold.token == made_up).for_each(|hold| hold.token = token);
    }
    Ok(())
}

/// Two holds of one owner may have one token (MINTOKEN), and are in no order then.
fn is_it(hold: &model::Hold, shown: &Shown) -> bool {
    hold.owner == shown.owner && name(hold.mode) == shown.mode
}

fn same_hold(hold: &model::Hold, shown: &[Shown], now: u64) -> Result<(), String> {
    let shown = shown.iter().find(|shown| is_it(hold, shown)).ok_or_else(|| format!("no hold of {hold:?}"))?;
    let session = hold.session.map_or(Value::Nil, |client| Value::Int(client.cast_signed()));
    let (seen, expected) = ((shown.count, shown.token, &shown.session), (hold.count, hold.token, &session));
    same(
        &format!("count, token and session of {hold:?}"),
        seen,
        (expected.0.cast_signed(), expected.1.cast_signed(), expected.2),
    )?;
    let left = hold.deadline.saturating_sub(now);
    if shown.ttl.unsigned_abs().abs_diff(left) > SLACK_MS {
        return Err(format!("the ttl of {hold:?} is {}, {left} ms are left", shown.ttl));
    }
    Ok(())
}

/// Whether an answer is the one that the model gives; a token it did not know is taken note of.
pub fn accept(model: &mut Model, expected: &Reply, answer: &Value, floor: u64) -> Result<(), String> {
    let is_right = match (expected, answer) {
        (Reply::Token(expected), Value::Int(token)) => return accept_token(model, *expected, *token, floor),
        (Reply::FreshOwner(expected), Value::Array(pair)) => {
            let [owner, Value::Int(token)] = pair.as_slice() else { return Err(format!("{pair:?}")) };
            let owner = bytes_of(owner);
            same("the length of an owner that was made up", owner.len(), 36)?;
            model.all_holds_mut().filter(|hold| hold.token == *expected).for_each(|hold| hold.owner.clone_from(&owner));
            return accept_token(model, *expected, *token, floor);
        }
        (Reply::Integer(expected), Value::Int(number)) => number == expected,
        (Reply::Positive, Value::Int(number)) => *number > 0,
        (Reply::Nil, Value::Nil) | (Reply::Ok, Value::Okay) => true,
        (Reply::Error(begin), Value::ServerError(error)) => error_text(error).contains(begin),
        (Reply::All(expected), Value::Array(answers)) if expected.len() == answers.len() => {
            return expected.iter().zip(answers).try_for_each(|(e, answer)| accept(model, e, answer, floor));
        }
        _ => false,
    };
    if is_right { Ok(()) } else { Err(format!("the reply is {answer:?}, the model says {expected:?}")) }
}

fn accept_token(model: &mut Model, expected: u64, token: i64, floor: u64) -> Result<(), String> {
    let token = token.unsigned_abs();
    if expected > UNKNOWN { model.learn(expected, token, floor) } else { same("the token", token, expected) }
}

fn name(mode: Mode) -> &'static str {
    match mode {
        Mode::Exclusive => "exclusive",
        Mode::Shared => "shared",
    }
}

fn number(info: &str, field: &str) -> Option<u64> {
    info.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':')?.trim().parse().ok())
}

pub fn same<T: PartialEq + std::fmt::Debug>(what: &str, seen: T, expected: T) -> Result<(), String> {
    if seen == expected { Ok(()) } else { Err(format!("{what} is {seen:?}, not {expected:?}")) }
}

/// How far the server's reading of the clock may be from ours, on a busy machine.
const SLACK_MS: u64 = 20_000;
