//! From when to when a hold was certainly in force.
//!
//! A reply says that at some time between sending and reply the hold had that much of its lease left. So it is in force
//! from the reply until the time of sending plus that much, unless something may have ended it before: its owner
//! released it, the connection or the named session that it was bound to ended, the primary was lost before the replica
//! had it, its key was deleted, or the server's clock jumped forward.

use std::collections::BTreeMap;

use dlock_core::Mode;
use dlock_testkit::exclusion::{Hold, Span};

use super::grants::Grant;
use super::{Fault, Record, sessions};
use crate::history::Reply;
use crate::history::{Call, Life};
use crate::plan::Kind;
use crate::time::Micros;
use crate::words::Words;

/// A hold that was seen in force.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    pub span: Span,
    /// Until when the hold would have been in force, had no primary been lost.
    pub until_if_kept: Micros,
}

/// Returns the spans that are not empty, or would not be, had no primary been lost.
pub fn of(record: &Record, grants: &[Grant]) -> Vec<Seen> {
    let by_token: ByToken = grants.iter().map(|grant| ((grant.hold.token, &*grant.hold.key), &grant.hold)).collect();
    let mut spans = Vec::new();
    for (number, life) in record.lives.iter().enumerate() {
        for (at, call) in life.calls.iter().enumerate() {
            let Some((replied, _)) = call.reply else { continue };
            let place = |grant: &Grant| (grant.life, grant.call);
            let first = grants.partition_point(|grant| place(grant) < (number, at));
            let granted = grants.iter().skip(first).take_while(|grant| place(grant) == (number, at));
            let told = granted.map(|grant| (&grant.hold, grant.sent, grant.lease_ms));
            let told = told.chain(left(call, &by_token).map(|(hold, ms)| (hold, call.sent, ms)));
            for (hold, sent, left_ms) in told {
                let certain = Certainty { hold, sent, left_ms, life, at };
                let until_if_kept = certain.until(&record.faults, Loss::Ignored);
                let until = certain.until(&record.faults, Loss::Counted);
                if replied < until_if_kept {
                    let span = Span { hold: hold.clone(), from: replied, until };
                    spans.push(Seen { span, until_if_kept });
                }
            }
        }
    }
    spans
}

/// A token stands for one hold on each of the keys that were taken together.
type ByToken<'a> = BTreeMap<(u64, &'a str), &'a Hold>;

/// Returns how much of its lease a hold had left, in ms, by the reply to a `CHECK` or a `RENEW`.
fn left<'a>(call: &Call, by_token: &ByToken<'a>) -> Option<(&'a Hold, u64)> {
    let words = Words::of(&call.command)?;
    let Some((_, Reply::Int(answer))) = &call.reply else { return None };
    let (token, ms) = match words.verb {
        "CHECK" => (words.third.parse().ok()?, answer.unsigned_abs()),
        "RENEW" => (words.number("TOKEN")?, words.number("PX")?),
        _ => return None,
    };
    Some((by_token.get(&(token, words.key())).copied()?, ms))
}

/// The certainty that one reply gives about a hold.
struct Certainty<'a> {
    hold: &'a Hold,
    sent: Micros,
    left_ms: u64,
    life: &'a Life,
    /// The call that was replied to.
    at: usize,
}

/// Whether the loss of a primary counts.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Loss {
    Counted,
    Ignored,
}

impl Certainty<'_> {
    fn until(&self, faults: &[Fault], loss: Loss) -> Micros {
        // The server counts whole ms, and its clock may be corrected a little: by 3 ms, and 0.2 % of the lease.
        let end = |sent: Micros, left_ms: u64| sent + (left_ms * 1000).saturating_sub(3_000 + left_ms * 2);
        let mut until = end(self.sent, self.left_ms);
        // A renewal says how long the lease is from now on: that is shorter if the clock has jumped back.
        for (sent, lease_ms) in self.renewals() {
            until = until.min(end(sent, lease_ms));
        }
        // Jumps of the clock, in order: each shortens what is left of the lease, whatever else ends the hold.
        for fault in faults.iter().filter(|fault| fault.end >= self.sent && fault.jump_us > 0) {
            if fault.begin < until {
                until = until.saturating_sub(fault.jump_us.unsigned_abs()).max(fault.begin);
            }
        }
        let is_deleted = |fault: &&Fault| fault.key.is_some_and(|key| key == self.hold.key) && fault.end >= self.sent;
        until = faults.iter().filter(is_deleted).map(|fault| fault.begin).fold(until, Micros::min);
        // The replica may have been cut off since the fault began, while the primary went on until the fault ended.
        let is_lost = |fault: &&Fault| fault.kind == Kind::Promotion && fault.end >= self.sent;
        if loss == Loss::Counted && !self.is_acknowledged() {
            until = faults.iter().filter(is_lost).map(|fault| fault.begin).fold(until, Micros::min);
        }
        until.min(self.given_up()).min(self.unbound()).min(self.session_end())
    }

    fn later(&self) -> impl Iterator<Item = &Call> {
        self.life.calls.iter().skip(self.at + 1)
    }

    /// Returns the renewals that its owner sent later: when, and the lease.
    fn renewals(&self) -> impl Iterator<Item = (Micros, u64)> {
        self.later().filter_map(|call| {
            let words = Words::of(&call.command)?;
            let is_it = words.verb == "RENEW"
                && words.names(&self.hold.key, &self.hold.owner)
                && words.number("TOKEN") == Some(self.hold.token);
            is_it.then_some((call.sent, words.number("PX")?))
        })
    }

    /// Returns whether the replica had it: `WAIT` on the same connection afterwards said so.
    fn is_acknowledged(&self) -> bool {
        let connection = self.life.calls.get(self.at).map(|call| call.connection);
        self.later().take_while(|call| Some(call.connection) == connection).any(|call| {
            call.command.starts_with("WAIT") && matches!(call.reply, Some((_, Reply::Int(replicas))) if replicas >= 1)
        })
    }

    /// Returns when its owner first sent a release that may have ended it.
    fn given_up(&self) -> Micros {
        let ends = |call: &&Call| {
            Words::of(&call.command).is_some_and(|words| {
                words.verb == "RELEASE"
                    && words.names(&self.hold.key, &self.hold.owner)
                    && words.number("TOKEN").is_none_or(|token| token == self.hold.token)
                    && !(words.has("READ") && self.hold.mode == Mode::Exclusive)
                    && !(words.has("WRITE") && self.hold.mode == Mode::Shared)
                    && !matches!(call.reply, Some((_, Reply::Int(0))))
            })
        };
        self.later().find(ends).map_or(Micros::MAX, |call| call.sent)
    }

    /// Returns when the connection that the hold was bound to may have ended. If the network was cut, the server may
    /// hear of the end only after a reply on the next connection, so an end before the call counts, too.
    fn unbound(&self) -> Micros {
        let binds = |call: &&Call| {
            let words = Words::of(&call.command);
            words.is_some_and(|words| words.has("SESSION") && words.names(&self.hold.key, &self.hold.owner))
        };
        let Some(bound) = self.life.calls.iter().find(binds) else { return Micros::MAX };
        let ends = self.life.drops.iter().copied().chain(self.life.killed);
        ends.filter(|end| *end >= bound.sent).min().unwrap_or_else(|| self.finished())
    }

    /// Returns when the named session that the hold was bound to may have ended.
    fn session_end(&self) -> Micros {
        sessions::end_with_session(self.life, self.at, &self.hold.key, &self.hold.owner)
    }

    /// A worker that ends by itself closes its connection after its last command.
    fn finished(&self) -> Micros {
        self.life.calls.last().and_then(|call| call.reply.as_ref()).map_or(Micros::MAX, |(replied, _)| *replied)
    }
}
