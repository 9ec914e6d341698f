//! Fenced counters lose nothing: each write that was taken is in the value, and each acknowledged one was taken. They
//! take no write with a lower token than that of the write before.

use std::collections::BTreeSet;

use super::Record;

pub fn check(record: &Record) -> Vec<String> {
    let mut found = Vec::new();
    for (key, counter) in &record.counters {
        let taken = counter.writes.len() as u64;
        if counter.value != taken {
            found.push(format!("counter {key} lost writes: it took {taken}, and its value is {}", counter.value));
        }
        for pair in counter.writes.windows(2) {
            if let [(before, _), (token, value)] = pair
                && before > token
            {
                found.push(format!("counter {key} took {value} under token {token} after one under {before}"));
            }
        }
    }
    for life in &record.lives {
        for write in &life.writes {
            let taken = record.counters.get(&write.key).map(|counter| counter.writes.as_slice()).unwrap_or_default();
            if !taken.contains(&(write.token, write.value)) {
                found.push(format!("{}: the write of {} to {} is lost", life.worker, write.value, write.key));
            }
        }
    }
    found.into_iter().collect::<BTreeSet<_>>().into_iter().collect()
}
