//! The costs that dlock promises: which measured figures are compared, and the bounds of the results.

use crate::targets::{Bound, Row, Verdict, at_most, over_server, ratio};
use crate::times::{attacks, stalls};

/// Writes rows as a table: what is promised, and its targets.
macro_rules! rows {
    ($($what:literal => $targets:expr,)+) => { [$(Row { what: $what, targets: &$targets }),+] };
}

pub static ROWS: [Row; 26] = rows! {
    "instructions / the server's part" => [
        over_server("ACQUIRE + RELEASE", "instructions/none/acquire", "own/none/acquire"),
        over_server("RACQUIRE + RELEASE", "instructions/none/racquire", "own/none/racquire"),
        over_server("RENEW", "instructions/none/renew", "own/none/renew"),
    ],
    "ACQUIRE + RELEASE / SET NX PX + script, instructions" => [
        at_most("no persistence", "instructions/none/acquire", "instructions/none/set-script", 0.55),
        at_most("AOF", "instructions/aof/acquire", "instructions/aof/set-script", 0.65),
        at_most("replica", "instructions/replica/acquire", "instructions/replica/set-script", 0.62),
    ],
    "ACQUIRE + RELEASE / SET NX PX + DEL, instructions" => [
        at_most("no persistence", "instructions/none/acquire", "instructions/none/set-del", 1.3),
        at_most("AOF", "instructions/aof/acquire", "instructions/aof/set-del", 1.12),
    ],
    "RACQUIRE + RELEASE, instructions" => [
        at_most("/ reentrant script", "instructions/none/racquire", "instructions/none/reentrant", 0.28),
        at_most("/ Redisson lock", "instructions/none/racquire", "instructions/none/redisson-lock", 0.17),
    ],
    "RLOCK, WLOCK + RELEASE, instructions" => [
        at_most("/ Redisson read lock", "instructions/none/rlock", "instructions/none/redisson-read", 0.12),
        at_most("/ Redisson write lock", "instructions/none/wlock", "instructions/none/redisson-write", 0.15),
    ],
    "RENEW / script that renews, instructions" =>
        [at_most("", "instructions/none/renew", "instructions/none/script-renew", 0.36)],
    "ACQUIRE PX + RELEASE on a busy server / SET NX PX + script, instructions" => [
        at_most("no persistence", "instructions/none/acquire-px-busy", "instructions/none/set-script", 0.55),
        at_most("AOF", "instructions/aof/acquire-px-busy", "instructions/aof/set-script", 0.64),
        at_most("replica", "instructions/replica/acquire-px-busy", "instructions/replica/set-script", 0.60),
    ],
    "ACQUIRE PX + RELEASE on a busy server / SET NX PX + DEL, instructions" => [
        at_most("no persistence", "instructions/none/acquire-px-busy", "instructions/none/set-del", 1.33),
        at_most("AOF", "instructions/aof/acquire-px-busy", "instructions/aof/set-del", 1.17),
    ],
    "ACQUIRE PX + RELEASE on a busy server / SET NX PX + DELIFEQ or DELEX, instructions" =>
        [at_most("", "instructions/none/acquire-px-busy", "instructions/none/set-cad", 1.1)],
    "ACQUIRE PX + RELEASE on a busy server / on a quiet one, instructions" =>
        [at_most("", "instructions/none/acquire-px-busy", "instructions/none/acquire-px", 1.03)],
    "ACQUIRE PX + RELEASE with the log / without, instructions" =>
        [at_most("", "instructions/none/acquire-px", "instructions/none/acquire-px-no-log", 1.01)],
    "RACQUIRE PX + RELEASE on a busy server / reentrant script, instructions" =>
        [at_most("", "instructions/none/racquire-px-busy", "instructions/none/reentrant", 0.27)],
    "RENEW PX on a busy server / script that renews, instructions" =>
        [at_most("", "instructions/none/renew-px-busy", "instructions/none/script-renew", 0.36)],
    "commands on other keys, module loaded / not loaded, instructions" => [
        at_most("SET EX", "instructions/none/set-ex-loaded", "instructions/none/set-ex", 1.015),
        at_most("SET EX + DEL", "instructions/none/set-ex-del-loaded", "instructions/none/set-ex-del", 1.015),
        at_most("HSET + EXPIRE", "instructions/none/hset-expire-loaded", "instructions/none/hset-expire", 1.015),
    ],
    "commands on other keys, module busy / not loaded, instructions" => [
        at_most("SET EX", "instructions/none/set-ex-busy", "instructions/none/set-ex", 1.015),
        at_most("SET EX + DEL", "instructions/none/set-ex-del-busy", "instructions/none/set-ex-del", 1.015),
        at_most("HSET + EXPIRE", "instructions/none/hset-expire-busy", "instructions/none/hset-expire", 1.015),
    ],
    "SACQUIRE PX + RELEASE, instructions" => [
        at_most("100 permits taken / RPermitExpirableSemaphore",
            "instructions/none/sacquire-100", "instructions/none/redisson-permits-100", 0.25),
        at_most("10,000 taken / 1", "instructions/none/sacquire-10000", "instructions/none/sacquire-1", 1.5),
    ],
    "MACQUIRE PX + RELEASE of 8 locks / script: SET NX PX of all or none, instructions" =>
        [at_most("", "instructions/none/macquire-8", "instructions/none/set-all-8", 0.6)],
    "32 clients that need 2 of 16 locks" => [
        ratio("longest wait / try and back off", "several-longest-ratio/macquire", Bound::AtMost(0.2)),
        ratio("rate / ordered locks", "several-rate-ratio/macquire", Bound::AtLeast(1.0)),
    ],
    "longest stall, ms" => stalls::TARGETS,
    "session locks held through an attack" => attacks::TARGETS,
    "pairs per second / SET NX PX + script" => [
        ratio("pipeline 16", "pairs-ratio/none/16/hot/acquire", Bound::AtLeast(1.45)),
        ratio("pipeline 1", "pairs-ratio/none/1/hot/acquire", Bound::AtLeast(1.08)),
    ],
    "hand-off, median / BLPOP" => [
        ratio("2 waiters", "hand-off-ratio/2/dlock", Bound::AtMost(1.1)),
        ratio("8 waiters", "hand-off-ratio/8/dlock", Bound::AtMost(1.1)),
        ratio("64 waiters", "hand-off-ratio/64/dlock", Bound::AtMost(1.1)),
        ratio("512 waiters", "hand-off-ratio/512/dlock", Bound::AtMost(1.1)),
    ],
    "server CPU per hand-off, 10,000 waiters / 10" => [ratio("", "hand-off-cpu-ratio/10000", Bound::AtMost(1.2))],
    "memory of a held lock / of a string key with the same owner" =>
        [at_most("", "memory/acquire", "memory/set-del", 1.2)],
    "bytes replicated per pair / SET NX PX + script" =>
        [at_most("", "replicated/acquire", "replicated/set-script", 1.45)],
    "instructions with 10,000 readers / with 1" => [
        at_most("RLOCK + RELEASE", "instructions/none/rlock-10000", "instructions/none/rlock-1", 1.5),
        at_most("RENEW", "instructions/none/renew-10000", "instructions/none/renew-1", 1.5),
    ],
};

/// Returns how many rows are met, and how many were judged.
pub fn rows_met(verdicts: &[Verdict]) -> (usize, usize) {
    let judged: Vec<&str> = ROWS
        .iter()
        .map(|row| row.what)
        .filter(|what| verdicts.iter().any(|verdict| verdict.row.what == *what))
        .collect();
    let is_met = |what: &str| verdicts.iter().filter(|verdict| verdict.row.what == what).all(Verdict::is_met);
    (judged.iter().filter(|what| is_met(what)).count(), judged.len())
}

/// Returns a line for each verdict, and one that says how many rows are met.
pub fn text(verdicts: &[Verdict]) -> String {
    let mut text = String::new();
    for verdict in verdicts {
        let outcome = if verdict.is_met() { "met" } else { "MISSED" };
        let miss = if verdict.is_met() { String::new() } else { format!(", {}", verdict.outcome()) };
        let bound = verdict.target.bound;
        text.push_str(&format!("{outcome:<7}{}: {:.3}, {bound}{miss}\n", verdict.label(), verdict.value));
    }
    let (met, judged) = rows_met(verdicts);
    text.push_str(&format!("\n{met} of {judged} rows met\n"));
    text
}
