//! Several locks at once: an owner that does not get all of them gets none.

use std::collections::{BTreeMap, BTreeSet};

use super::Record;
use crate::history::{Call, Life, Reply};
use crate::words::Words;

/// Requests for several locks that were refused, and left a hold.
pub fn partly_taken(record: &Record) -> Vec<String> {
    record.lives.iter().flat_map(of_life).collect()
}

fn of_life(life: &Life) -> BTreeSet<String> {
    // The refusal of each owner that asked once, and for nothing else.
    let mut asked: BTreeMap<&str, Option<&Call>> = BTreeMap::new();
    let mut found = BTreeSet::new();
    for call in &life.calls {
        let Some(words) = Words::of(&call.command) else { continue };
        if words.enters().is_some() {
            let is_first = !asked.contains_key(words.third);
            let refused = is_first && words.verb == "MACQUIRE" && is_refused(call);
            asked.insert(words.third, refused.then_some(call));
        }
        let has_left = words.verb == "RELEASE" && matches!(call.reply, Some((_, Reply::Int(_))));
        if has_left && let Some(Some(refused)) = asked.get(words.third) {
            found.insert(format!("`{}` was refused, and left a hold on {}", refused.command, words.key()));
        }
    }
    found
}

fn is_refused(call: &Call) -> bool {
    call.reply.as_ref().is_some_and(|(_, reply)| *reply == Reply::Nil || reply.is_error("DEADLOCK"))
}
