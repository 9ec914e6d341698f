//! Whether what the server shows is what the model has.

use std::collections::{BTreeMap, BTreeSet};

use dlock_core::Mode;
use dlock_testkit::histories::naive::{Counts, Hold, Request};
use dlock_testkit::histories::word::{Words, name_of, words};
use dlock_testkit::histories::{KEYS, KeyNo};
use dlock_testkit::lock::{Hold as Shown, Info, Queued};
use dlock_testkit::redis::Value;
use dlock_testkit::wire::error_text;
use dlock_testkit::{Client, bytes_of, int_of, text_of};

use crate::model::SLACK_MS;
use crate::model::{Model, Reply, UNKNOWN, db_of};

/// The state before a step.
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

/// Looks at everything that can be seen, on a connection of its own. Learns the tokens that the model does not know yet,
/// which must be above all known ones. `has_settled`: the timer has had the time to do what it does.
pub fn judge(looker: &mut Client, model: &mut Model, before: Before, has_settled: bool) -> Result<(), String> {
    let mut lines: Vec<Words> = Vec::new();
    for (db, name) in KEYS {
        lines.push(words(&format!("SELECT {db}")));
        lines.push(words(&format!("DLOCK.INFO {name} FULL COUNT 0")));
        lines.push(words(&format!("TYPE {name}")));
        lines.push(words(&format!("PTTL {name}")));
    }
    lines.push(words("INFO dlock"));
    // In one go: in between nothing else happens.
    let mut answers = looker.pipeline(&lines).into_iter();
    let mut next = || answers.next().expect("a reply to each");
    for key in 0..KEYS.len() {
        next()?;
        let (info, kind, ttl) = (next(), text_of(&next()?), int_of(&next()?));
        one_key(model, key, info, &kind, ttl, before, has_settled)
            .map_err(|e| format!("key {} of database {}: {e}", name_of(key), db_of(key)))?;
    }
    totals(model, &text_of(&next()?))
}

fn totals(model: &Model, info: &str) -> Result<(), String> {
    let number = |field: &str| number(info, field);
    same("dlock_waiters", number("dlock_waiters"), Some(model.naive.waiting.len() as u64))?;
    same("dlock_queues", number("dlock_queues"), Some(model.queues() as u64))?;
    if !model.is_paused {
        let bound = model.holds().filter(|(_, hold)| hold.session.is_some()).count();
        same("dlock_sessions", number("dlock_sessions"), Some(bound as u64))?;
    }
    if let Some(base) = model.base {
        let counts = model.naive.counts;
        let expected = Counts {
            grants: base.grants + counts.grants,
            reentries: base.reentries + counts.reentries,
            refusals: base.refusals + counts.refusals,
            renewals: base.renewals + counts.renewals,
            waits: base.waits + counts.waits,
            deadlocks: base.deadlocks + counts.deadlocks,
            replays: base.replays + counts.replays,
        };
        same("what INFO counts", counts_of(info), expected)?;
    }
    let last = highest_token(model);
    if number("dlock_last_token").is_none_or(|seen| seen < last) {
        return Err(format!("dlock_last_token is below {last}:\n{info}"));
    }
    Ok(())
}

/// Returns the counters of `INFO dlock`.
pub fn counts_of(info: &str) -> Counts {
    let count = |name: &str| number(info, &format!("dlock_{name}")).unwrap_or(0);
    Counts {
        grants: count("grants"),
        reentries: count("reentries"),
        refusals: count("refusals"),
        renewals: count("renewals"),
        waits: count("waits"),
        deadlocks: count("deadlocks"),
        replays: count("replays"),
    }
}

fn one_key(
    model: &mut Model,
    key: KeyNo,
    info: Result<Value, String>,
    kind: &str,
    ttl: i64,
    before: Before,
    has_settled: bool,
) -> Result<(), String> {
    if model.is_other(key) {
        same("its type", kind, "string")?;
        return match info {
            Err(text) if text.starts_with("WRONGTYPE") => Ok(()),
            info => Err(format!("INFO of a string: {info:?}")),
        };
    }
    let is_stored = model.naive.keys.get(key).is_some_and(|key| !key.holds.is_empty());
    match kind {
        "distrlock" if is_stored => {}
        // A key that outlives its holds stays until the lock is acquired, or until the timer serves its queue.
        "distrlock" if model.late.contains(&key) && (has_settled || !model.is_due(key)) => {
            model.remains.insert(key);
        }
        "none" if !is_stored => drop(model.remains.remove(&key)),
        kind => return Err(format!("its type is {kind}, it has {:?}", model.naive.keys.get(key))),
    }
    let is_shown = model.naive.live(key).next().is_some() || !model.naive.queue(key).is_empty();
    match info? {
        Value::Nil if !is_shown => {}
        info if is_shown && info != Value::Nil => lock(model, key, &Info::of(&info), before)?,
        info => return Err(format!("INFO is {info:?}")),
    }
    if is_stored { expiry(model, key, ttl, before.now) } else { Ok(()) }
}

/// The watchdog extends the lease of a bound hold when a third of it has passed, or a little earlier. A re-entry with a
/// short lease makes that third pass at once. While the key has an earlier expiry, the extension cannot be seen.
fn follow_watchdog(model: &mut Model, key: KeyNo, shown: &[Shown], now: u64) {
    let Some(found) = model.naive.keys.get_mut(key) else { return };
    let is_extended = |hold: &&mut Hold| hold.session.is_some() && hold.cap != Some(hold.deadline);
    for hold in found.holds.iter_mut().filter(is_extended) {
        let (third, which) = (hold.lease / 3, (key, hold.owner, hold.mode));
        let is_due = now + SLACK_MS >= hold.deadline - hold.lease + third - third / 12;
        if found.early.is_some() {
            is_due.then(|| model.hidden.insert(which));
            continue;
        }
        let may_be_extended = model.hidden.remove(&which) || is_due;
        let mut shown = shown.iter().filter(|shown| shown.token.unsigned_abs() == hold.token);
        let full = hold.up_to_cap(now + hold.lease);
        let is_whole = |ttl: i64| (now + ttl.unsigned_abs()).abs_diff(full) <= SLACK_MS;
        if may_be_extended && shown.any(|shown| name(hold.mode) == shown.mode && is_whole(shown.ttl)) {
            hold.deadline = full;
        }
    }
}

/// Checks that the key expires at the last deadline, or when a client has set it to expire earlier.
fn expiry(model: &Model, key: KeyNo, ttl: i64, now: u64) -> Result<(), String> {
    let Some(found) = model.naive.keys.get(key).filter(|_| !model.late.contains(&key)) else { return Ok(()) };
    let last = found.holds.iter().map(|hold| hold.deadline).max();
    let Some(expected) = found.early.or(last) else { return Ok(()) };
    close("the key's TTL", ttl, expected, now)
}

fn lock(model: &mut Model, key: KeyNo, info: &Info, before: Before) -> Result<(), String> {
    learn_tokens(model, key, info.holds(), before)?;
    follow_watchdog(model, key, info.holds(), before.now);
    let holds: Vec<Hold> = model.naive.live(key).cloned().collect();
    let has = |mode| holds.iter().any(|hold| hold.mode == mode);
    let mode = match (has(Mode::Exclusive), has(Mode::Shared)) {
        (true, true) => "both",
        (true, false) => "exclusive",
        (false, true) => "shared",
        (false, false) => "free",
    };
    same("mode", info.mode.as_str(), mode)?;
    let owners: BTreeSet<usize> = holds.iter().map(|hold| hold.owner).collect();
    same("holders", info.holders.unsigned_abs(), owners.len() as u64)?;
    same("count", info.count.unsigned_abs(), holds.iter().map(|hold| hold.count).sum())?;
    same("token", info.token.unsigned_abs(), holds.iter().map(|hold| hold.token).max().unwrap_or(0))?;
    same("number of holds", info.holds().len(), holds.len())?;
    if !info.holds().is_sorted_by_key(|hold| hold.token) {
        return Err(format!("holds are not by token: {info:?}"));
    }
    let early = model.naive.keys.get(key).and_then(|key| key.early).unwrap_or(u64::MAX);
    if let Some(last) = holds.iter().map(|hold| hold.end().min(early)).max() {
        close("ttl", info.ttl, last, before.now)?;
    }
    for hold in &holds {
        same_hold(model, hold, info.holds(), early, before.now)?;
    }
    let queue: Vec<Request> = model.naive.queue(key).into_iter().cloned().collect();
    same("waiters", info.waiters.unsigned_abs(), queue.len() as u64)?;
    let shown = info.queue.as_deref().unwrap_or_default();
    same("the length of the queue", shown.len(), queue.len())?;
    queue.iter().zip(shown).try_for_each(|(waiter, shown)| same_waiter(model, waiter, shown))
}

/// New holds of a key have new tokens, in the order in which they were granted.
fn learn_tokens(model: &mut Model, key: KeyNo, shown: &[Shown], before: Before) -> Result<(), String> {
    let mut new: BTreeMap<u64, u64> = BTreeMap::new();
    for shown in shown {
        let holds: Vec<Hold> = model.naive.live(key).cloned().collect();
        let hold = holds.iter().find(|hold| is_it(model, hold, shown));
        let hold = hold.ok_or_else(|| format!("there should be no such hold: {shown:?}"))?;
        if hold.token > UNKNOWN {
            new.insert(hold.token, shown.token.unsigned_abs());
        }
    }
    if !new.values().is_sorted_by(|a, b| a < b) {
        return Err(format!("tokens {new:?} of new holds are not in the order of their grants"));
    }
    new.into_iter().try_for_each(|(made_up, token)| model.learn(made_up, token, before.token))
}

/// Returns whether a hold is shown by its mode and owner. Its token does not tell: an owner may have it twice (MINTOKEN).
fn is_it(model: &mut Model, hold: &Hold, shown: &Shown) -> bool {
    name(hold.mode) == shown.mode && model.is_owner(hold.owner, &shown.owner)
}

fn same_hold(model: &mut Model, hold: &Hold, shown: &[Shown], early: u64, now: u64) -> Result<(), String> {
    let shown = shown.iter().find(|shown| is_it(model, hold, shown)).ok_or_else(|| format!("no hold of {hold:?}"))?;
    let named = model.naive.sessions.iter().find(|session| Some(session.number) == hold.session);
    let session = match (named, hold.session) {
        (Some(session), _) => Value::BulkString(format!("session-{}", session.id).into_bytes()),
        (None, Some(client)) => Value::Int(client.cast_signed()),
        (None, None) => Value::Nil,
    };
    let (seen, expected) = ((shown.count, shown.token, &shown.session), (hold.count, hold.token, &session));
    same(
        &format!("count, token and session of {hold:?}"),
        seen,
        (expected.0.cast_signed(), expected.1.cast_signed(), expected.2),
    )?;
    same(&format!("whether there is a cap of {hold:?}"), shown.cap.is_some(), hold.cap.is_some())?;
    if let (Some(seen), Some(cap)) = (shown.cap, hold.cap) {
        close(&format!("the cap of {hold:?}"), seen, cap, now)?;
    }
    same(&format!("the number of {hold:?}"), shown.slot, hold.slot.map(i64::from))?;
    close(&format!("the ttl of {hold:?}"), shown.ttl, hold.end().min(early), now)
}

fn same_waiter(model: &mut Model, waiter: &Request, shown: &Queued) -> Result<(), String> {
    let seen = (shown.mode.as_str(), shown.client, shown.permits, shown.limit, shown.keys);
    let want = waiter.how.want;
    let keys = i64::try_from(waiter.keys.len()).unwrap_or(0);
    let expected =
        (name(want.mode()), waiter.client.cast_signed(), i64::from(want.entries()), want.limit().map(i64::from), keys);
    same(&format!("mode, client, permits, limit and keys of {waiter:?}"), seen, expected)?;
    if model.is_owner(waiter.owner, &shown.owner) {
        Ok(())
    } else {
        Err(format!("the owner of {waiter:?} is shown as {}", shown.owner.escape_ascii()))
    }
}

/// Whether an answer is the one that the model gives; a token it did not know is learned.
pub fn accept(model: &mut Model, expected: &Reply, answer: &Value, floor: u64) -> Result<(), String> {
    let is_right = match (expected, answer) {
        (Reply::Token(expected), Value::Int(token)) => return accept_token(model, *expected, *token, floor),
        (Reply::FreshOwner(who, expected), Value::Array(pair)) => {
            let [owner, Value::Int(token)] = pair.as_slice() else { return Err(format!("{pair:?}")) };
            same("whether the owner is the one that was generated", model.is_owner(*who, &bytes_of(owner)), true)?;
            return accept_token(model, *expected, *token, floor);
        }
        (Reply::Numbered(expected, slot), Value::Array(parts)) => {
            let (last, rest) = parts.split_last().ok_or("an empty reply")?;
            same("the number", last, &slot.map_or(Value::Nil, |slot| Value::Int(slot.into())))?;
            let rest = if let [token] = rest { token.clone() } else { Value::Array(rest.to_vec()) };
            return accept(model, expected, &rest, floor);
        }
        (Reply::Integer(expected), Value::Int(number)) => number == expected,
        (Reply::Positive, Value::Int(number)) => *number > 0,
        (Reply::AtLeast(least), Value::Int(number)) => number >= least,
        (Reply::Either, Value::Int(number)) => matches!(number, 0 | 1),
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

fn close(what: &str, ms: i64, end: u64, now: u64) -> Result<(), String> {
    let left = end.saturating_sub(now);
    if ms < 0 || ms.unsigned_abs().abs_diff(left) > SLACK_MS {
        return Err(format!("{what} is {ms} ms, {left} ms are left"));
    }
    Ok(())
}
