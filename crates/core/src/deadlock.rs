//! Whether a request that begins to wait would wait for ever: for itself, through others.
//!
//! Owner a waits for the owners in its way; if one of them waits too, for those in its way, and so on. The search
//! follows owners that wait once. One that waits on several connections has several threads of control, so it is left
//! out; and so is everything beyond a bound: beyond it the request waits.

use std::collections::BTreeSet;

use crate::Owner;

/// How many owners one search looks at.
pub const MAX_OWNERS_SEARCHED: usize = 1000;

/// One step of a cycle: this owner waits for that lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step<L> {
    /// Who waits.
    pub owner: Owner,
    /// For which lock.
    pub lock: L,
}

/// Looks for a cycle that `origin` would close by waiting at `wait`.
///
/// `in_the_way` names the owners a wait waits for, at most the number it is given; `next_wait` the one wait of an
/// owner that waits once. The answer is the cycle from `origin` on; `None` if there is none within
/// [`MAX_OWNERS_SEARCHED`].
pub fn find_cycle<L: Clone>(
    origin: &Owner,
    wait: L,
    mut in_the_way: impl FnMut(&L, usize) -> Vec<Owner>,
    mut next_wait: impl FnMut(&Owner) -> Option<L>,
) -> Option<Vec<Step<L>>> {
    let mut steps = vec![(Step { owner: origin.clone(), lock: wait }, None)];
    let mut seen = BTreeSet::new();
    let mut at = 0;
    while let Some((step, _)) = steps.get(at) {
        let lock = step.lock.clone();
        for owner in in_the_way(&lock, MAX_OWNERS_SEARCHED - seen.len()) {
            if owner == *origin && at > 0 {
                return Some(path_to(&steps, at));
            }
            if owner == *origin || seen.len() == MAX_OWNERS_SEARCHED || !seen.insert(owner.clone()) {
                continue;
            }
            if let Some(lock) = next_wait(&owner) {
                steps.push((Step { owner, lock }, Some(at)));
            }
        }
        at += 1;
    }
    None
}

fn path_to<L: Clone>(steps: &[(Step<L>, Option<usize>)], last: usize) -> Vec<Step<L>> {
    let mut path = Vec::new();
    let mut at = Some(last);
    while let Some((step, before)) = at.and_then(|at| steps.get(at)) {
        path.push(step.clone());
        at = *before;
    }
    path.reverse();
    path
}
