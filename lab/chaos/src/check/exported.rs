//! The history as others can check it: a line of JSON for the first grant of each hold, and for both ends of each time
//! in which a hold was certainly in force. `docs/chaos.md` says what the fields mean.

use std::collections::BTreeSet;
use std::fmt::Write;

use dlock_core::Mode;
use dlock_testkit::exclusion::Hold;

use super::{Record, grants, in_force};

/// Returns the lines of a scenario.
pub fn lines(record: &Record) -> String {
    let grants = grants::of(&record.lives);
    let scenario = record.scenario.name();
    let all = in_force::of(record, &grants);
    let mut known = BTreeSet::new();
    let mut text = String::new();
    for grant in &grants {
        let Hold { token, key, owner, mode } = &grant.hold;
        let mode = named(*mode, grant.limit);
        // An owner that enters again keeps its token. Re-entries are left out: some of them may have been released.
        if !known.insert((*token, key, mode)) {
            continue;
        }
        let worker = record.lives.get(grant.life).map_or("", |life| &life.worker);
        let (sent, replied) = (grant.sent, grant.replied);
        let limit = grant.limit.map_or_else(|| "null".to_owned(), |limit| limit.to_string());
        // Writing to a string does not fail.
        let _ = writeln!(
            text,
            r#"{{"process": "{worker}", "op": "acquire", "lock": "{scenario}/{key}", "mode": "{mode}", "owner": "{owner}", "call": {sent}, "return": {replied}, "result": "granted", "token": {token}, "lease": 0, "limit": {limit}}}"#,
        );
        let same = |seen: &&in_force::Seen| seen.span.hold == grant.hold;
        for seen in all.iter().filter(same).filter(|seen| seen.span.from < seen.span.until) {
            for at in [seen.span.from, seen.span.until - 1] {
                let until = seen.span.until;
                let _ = writeln!(
                    text,
                    r#"{{"process": "{worker}", "op": "held", "lock": "{scenario}/{key}", "mode": "{mode}", "owner": "{owner}", "call": {at}, "return": {at}, "result": "held", "token": {token}, "until": {until}}}"#,
                );
            }
        }
    }
    text
}

fn named(mode: Mode, limit: Option<u64>) -> &'static str {
    match (limit, mode) {
        (Some(_), _) => "permit",
        (None, Mode::Shared) => "read",
        (None, Mode::Exclusive) => "exclusive",
    }
}
