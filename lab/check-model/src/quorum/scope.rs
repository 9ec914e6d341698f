//! Who takes part, what may fail, and which rules are left out.

use super::{NO_OVERLAP, TOKENS};

/// The clients and servers that take part, and what may fail.
#[derive(Clone, Debug)]
pub struct Scope {
    pub name: &'static str,
    /// How often each client tries.
    pub rounds: u8,
    /// How often time passes.
    pub passes: u32,
    pub losses: u32,
    pub late_replies: u32,
    pub crashes: u32,
    /// What a server forgets when it crashes.
    pub forgets: bool,
    /// How far the clock of the first server is ahead, in ms.
    pub ahead: u64,
    pub left_out: Option<LeftOut>,
    /// How many actions there are at most, in `make check-model` and in `make test`.
    pub depth: [usize; 2],
}

/// A rule that is left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeftOut {
    Confirmation,
    RestartRule,
}

pub fn scopes() -> Vec<Scope> {
    let calm = Scope {
        name: "quorum: reordering",
        rounds: 1,
        passes: 1,
        losses: 0,
        late_replies: 0,
        crashes: 0,
        forgets: false,
        ahead: AHEAD_MS,
        left_out: None,
        depth: [10, 7],
    };
    vec![
        calm.clone(),
        Scope { name: "quorum: a loss, a late reply", losses: 1, late_replies: 1, depth: [7, 5], ..calm.clone() },
        Scope { name: "quorum: a crash with memory", crashes: 1, depth: [9, 6], ..calm.clone() },
        Scope { name: "quorum: a crash without memory", crashes: 1, forgets: true, depth: [9, 6], ..calm },
    ]
}

/// The same with a rule left out: within the same bounds a property has to break.
pub fn counter_examples() -> Vec<(Scope, &'static str)> {
    let [reordering, _, _, forgetting] = <[Scope; 4]>::try_from(scopes()).expect("four scopes");
    vec![
        (
            Scope {
                name: "quorum without the confirmation",
                left_out: Some(LeftOut::Confirmation),
                passes: 0,
                depth: [14, 9],
                ..reordering
            },
            TOKENS,
        ),
        (
            Scope {
                name: "quorum without the restart rule",
                left_out: Some(LeftOut::RestartRule),
                passes: 0,
                depth: [12, 12],
                ..forgetting
            },
            NO_OVERLAP,
        ),
    ]
}

/// Less than the longest lease.
const AHEAD_MS: u64 = 500;
