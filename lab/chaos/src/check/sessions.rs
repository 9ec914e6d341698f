//! Named sessions: one that is alive loses no hold, and one whose heartbeats have stopped keeps none.

use std::collections::{BTreeMap, BTreeSet};

use super::grants::Grant;
use super::{Fault, Record};
use crate::history::{Call, Life, Reply};
use crate::observer::{BETWEEN_MS, Sighting};
use crate::plan::Kind;
use crate::time::Micros;
use crate::words::Words;

/// A `DLOCK.SESSION`: a heartbeat, or the end of a session.
#[derive(Clone, Copy)]
struct Beat<'a> {
    id: &'a str,
    /// `None`: `CLOSE`.
    timeout_us: Option<u64>,
    opens: bool,
}

impl Beat<'_> {
    fn of(command: &str) -> Option<Beat<'_>> {
        let words = Words::of(command).filter(|words| words.verb == "SESSION")?;
        let timeout_us = (words.third == "PX").then(|| words.first_number().map(|ms| ms * 1000)).flatten();
        Some(Beat { id: words.key(), timeout_us, opens: words.has("NX") })
    }
}

/// The commands that bind an owner's hold of a key to named sessions: where they are, and the session.
fn bindings<'a>(life: &'a Life, key: &str, owner: &str) -> impl Iterator<Item = (usize, &'a str)> {
    life.calls.iter().enumerate().filter_map(move |(at, call)| {
        let words = Words::of(&call.command)?;
        words.names(key, owner).then(|| Some((at, words.value("SESSIONID")?))).flatten()
    })
}

fn is_bound(call: &Call) -> bool {
    matches!(call.reply, Some((_, Reply::Int(_))))
}

/// The last binding before a call, or by it, of which the client knows.
fn known_binding<'a>(life: &'a Life, at: usize, key: &str, owner: &str) -> Option<(usize, &'a str)> {
    let known = |(number, _): &(usize, &str)| *number <= at && life.calls.get(*number).is_some_and(is_bound);
    bindings(life, key, owner).filter(known).last()
}

/// Returns when a hold may have ended with its session, after a call that tells of it. Where it is bound to another one
/// later, or may be, the session that ends first decides.
pub fn end_with_session(life: &Life, at: usize, key: &str, owner: &str) -> Micros {
    let first = known_binding(life, at, key, owner).map_or(0, |(number, _)| number);
    let later = bindings(life, key, owner).filter(|(number, _)| *number >= first);
    later.map(|(number, id)| certain_end(life, number.max(at), id)).min().unwrap_or(Micros::MAX)
}

/// Returns until when a session was certainly open, after a call that says that it was. A session is open for its
/// timeout from the sending of each heartbeat that is answered. A session that is opened again had ended before.
fn certain_end(life: &Life, at: usize, id: &str) -> Micros {
    let beats = || life.calls.iter().enumerate().filter_map(|(at, call)| Some((at, call, Beat::of(&call.command)?)));
    let mut until = 0;
    for (number, call, beat) in beats().filter(|(_, _, beat)| beat.id == id) {
        let is_answered = matches!(call.reply, Some((_, Reply::Int(_))));
        match beat.timeout_us {
            None if number > at => return until.min(call.sent),
            Some(_) if number > at && beat.opens && is_answered => return until,
            // A margin of 1 %: the server's clock and that of the record may run apart.
            Some(timeout_us) if is_answered => until = call.sent + timeout_us - timeout_us / 100,
            _ => {}
        }
    }
    until
}

/// Commands that were told that a hold is gone though its session was alive all the time, and nothing was done to the
/// server.
pub fn lost_alive(record: &Record, grants: &[Grant]) -> Vec<String> {
    let mut found = BTreeMap::new();
    for grant in grants.iter().filter(|grant| grant.lease_ms >= LONG_LEASE_MS) {
        let Some(life) = record.lives.get(grant.life) else { continue };
        let Some((at, call, replied)) = denial(life, grant) else { continue };
        let Some((bound, id)) = known_binding(life, at, &grant.hold.key, &grant.hold.owner) else { continue };
        let (since, until) = (grant.sent, certain_end(life, bound, id));
        if replied < until
            && !is_disturbed(&record.faults, since, replied)
            && stalled(record, since, replied) < MOST_STALLED_US
        {
            found.entry(grant.hold.token).or_insert_with(|| {
                format!(
                    "a live session lost a hold: `{}` got nil at {replied}, its session lives until {until}",
                    call.command
                )
            });
        }
    }
    found.into_values().collect()
}

/// Returns the first command about the hold of a grant that got nil, unless the owner began to release the hold before.
fn denial<'a>(life: &'a Life, grant: &Grant) -> Option<(usize, &'a Call, Micros)> {
    let token = Some(grant.hold.token);
    for (at, call) in life.calls.iter().enumerate().skip(grant.call + 1) {
        let Some(words) = Words::of(&call.command) else { continue };
        let is_it = match words.verb {
            "CHECK" => words.third.parse().ok() == token && words.key() == grant.hold.key,
            "RENEW" | "RELEASE" => words.number("TOKEN") == token && words.key() == grant.hold.key,
            _ => false,
        };
        match &call.reply {
            Some((replied, Reply::Nil)) if is_it => return Some((at, call, *replied)),
            _ if is_it && words.verb == "RELEASE" => return None,
            _ => {}
        }
    }
    None
}

/// Returns whether something was done that may cost a session its holds: the server forgot it, stood still or jumped.
fn is_disturbed(faults: &[Fault], from: Micros, until: Micros) -> bool {
    let counts = |kind| !matches!(kind, Kind::ClientKilled | Kind::ClientStopped | Kind::NetworkCut | Kind::MemoryFull);
    faults.iter().any(|fault| counts(fault.kind) && fault.begin <= until && from <= fault.end + AFTERMATH_US)
}

/// Holds that were seen bound to a session after it had to be over: no heartbeat had come for its timeout, the 200 ms in
/// which the server notices, and as long as the machine was busy meanwhile.
pub fn outlived(record: &Record) -> Vec<String> {
    let beats = beats_by_session(record);
    let mut found = BTreeMap::new();
    for sighting in &record.seen.sightings {
        let Some(beats) = beats.get(sighting.session.as_str()) else { continue };
        let before = beats.iter().take_while(|(sent, ..)| *sent <= sighting.at + LOOK_US).last();
        let Some((_, arrived, timeout_us)) = before else { continue };
        let until = arrived + timeout_us + NOTICED_US + SLACK_US + stalled(record, *arrived, sighting.at);
        let has_jumped = record.faults.iter().any(|fault| {
            fault.kind == Kind::ClockJump && fault.begin <= sighting.at && fault.end + AFTERMATH_US >= *arrived
        });
        if sighting.at > until && !has_jumped {
            found.entry(sighting.session.as_str()).or_insert_with(|| {
                let Sighting { at, key, owner, session } = sighting;
                format!("a session outlived its time: {owner} has {key} in {session} at {at}, it had to end by {until}")
            });
        }
    }
    found.into_values().collect()
}

/// Returns the heartbeats of each session: when each was sent, when it had arrived, and the timeout.
fn beats_by_session(record: &Record) -> BTreeMap<&str, Vec<(Micros, Micros, u64)>> {
    let mut beats: BTreeMap<&str, Vec<(Micros, Micros, u64)>> = BTreeMap::new();
    for call in record.lives.iter().flat_map(|life| &life.calls) {
        if let Some(Beat { id, timeout_us: Some(timeout_us), .. }) = Beat::of(&call.command) {
            let arrived = call.reply.as_ref().map_or_else(|| on_its_way(record, call.sent), |(replied, _)| *replied);
            beats.entry(id).or_default().push((call.sent, arrived, timeout_us));
        }
    }
    beats
}

/// Returns the latest time at which a heartbeat that was not answered has arrived. The kernel sends again what was
/// dropped, each time after twice as long, even for a client that is dead.
fn on_its_way(record: &Record, sent: Micros) -> Micros {
    let arrives = sent + UNDERWAY_US;
    let cuts = record.faults.iter().filter(|fault| fault.kind == Kind::NetworkCut);
    let held_back = cuts.filter(|cut| cut.begin <= arrives && sent <= cut.end);
    held_back.map(|cut| cut.end + (cut.end - cut.begin) + 2 * UNDERWAY_US).fold(arrives, Micros::max)
}

/// For how long the server may have stood still: gaps between looks, and what was done to it.
fn stalled(record: &Record, from: Micros, until: Micros) -> u64 {
    let gaps = record.seen.looks.windows(2).filter_map(|pair| {
        let [begin, end] = *pair else { return None };
        (begin < until && from < end).then(|| (end - begin).saturating_sub(2 * BETWEEN_MS * 1000))
    });
    let faults = record.faults.iter().filter(|fault| fault.begin < until && from < fault.end);
    let faults =
        faults.filter(|fault| !matches!(fault.kind, Kind::ClientKilled | Kind::ClientStopped | Kind::NetworkCut));
    gaps.sum::<u64>() + faults.map(|fault| fault.end - fault.begin).sum::<u64>()
}

/// Returns how many sessions were opened.
pub fn count(lives: &[Life]) -> usize {
    let calls = lives.iter().flat_map(|life| &life.calls);
    let opened = calls.filter(|call| matches!(call.reply, Some((_, Reply::Int(_)))));
    let ids = opened.filter_map(|call| Beat::of(&call.command).filter(|beat| beat.opens).map(|beat| beat.id));
    ids.collect::<BTreeSet<_>>().len()
}

/// A shorter lease may lapse on a busy machine.
const LONG_LEASE_MS: u64 = 1000;
/// If the server stood still for longer, a lease may have lapsed.
const MOST_STALLED_US: u64 = 300_000;
/// How long a fault may still be felt.
const AFTERMATH_US: u64 = 1_000_000;
/// The time in which the server notices the end of a session (`docs/sessions.md`).
const NOTICED_US: u64 = 200_000;
/// How late a busy machine may be beside the gaps that were seen.
const SLACK_US: u64 = 500_000;
/// How long a look at all locks may take to be answered.
const LOOK_US: u64 = 5_000_000;
/// How long a heartbeat that is not answered may take to arrive, unless the server stands still.
const UNDERWAY_US: u64 = 100_000;
