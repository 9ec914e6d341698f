//! The commands of Redis on keys, each of which holds a lock.

use dlock_core::engine::Input;
use dlock_core::reply::Writer;
use dlock_core::{Name, UnixMs};

use super::call::{Call, Done};
use super::glob;
use super::server::Server;

fn names<'a>(call: &Call<'a>) -> impl Iterator<Item = Name<'a>> + use<'a> {
    let db = call.client.db.get();
    call.after(1).map(move |key| Name { db, key })
}

/// `DEL`, `UNLINK`.
pub(super) fn delete(server: &mut Server, call: &Call<'_>) -> Done {
    let deleted = names(call).filter(|name| server.keys.delete(*name)).count();
    call.out().integer(deleted as u64);
    Ok(())
}

/// `EXISTS`.
pub(super) fn exists(server: &mut Server, call: &Call<'_>) -> Done {
    let found = names(call).filter(|name| server.is_there(*name)).count();
    call.out().integer(found as u64);
    Ok(())
}

/// `TYPE`.
pub(super) fn kind(server: &mut Server, call: &Call<'_>) -> Done {
    let is_there = names(call).next().is_some_and(|name| server.is_there(name));
    call.out().status(if is_there { LOCK } else { "none" });
    Ok(())
}

/// The type of a key with a lock.
const LOCK: &str = "distrlock";

/// `PTTL`, `TTL`, `PEXPIRETIME`, `EXPIRETIME`.
pub(super) fn times(server: &mut Server, call: &Call<'_>) -> Done {
    let name = names(call).next().filter(|name| server.is_there(*name));
    let end = match name.and_then(|name| server.keys.expiry(name)) {
        None => return negative(call, 2),
        Some(None) => return negative(call, 1),
        Some(Some(end)) => end,
    };
    let left = UnixMs::new(end).since(call.now.ms());
    call.out().integer(match call.shown_name() {
        "PTTL" => left,
        "TTL" => (left + 500) / 1000,
        "PEXPIRETIME" => end,
        _ => (end + 500) / 1000,
    });
    Ok(())
}

fn negative(call: &Call<'_>, number: u64) -> Done {
    call.out().reply(&crate::resp::Reply::Integer(-i64::try_from(number).unwrap_or_default()));
    Ok(())
}

/// `DBSIZE`.
pub(super) fn size(server: &mut Server, call: &Call<'_>) -> Done {
    call.out().integer(server.keys.len_of(call.client.db.get()) as u64);
    Ok(())
}

/// `SCAN cursor [MATCH pattern] [COUNT count] [TYPE type]`.
pub(super) fn scan(server: &mut Server, call: &Call<'_>) -> Done {
    let number = |at| std::str::from_utf8(call.word(at)).ok().and_then(|text| text.parse::<usize>().ok());
    let Some(mut cursor) = number(1) else { return Err("ERR invalid cursor".to_owned()) };
    let (mut pattern, mut count, mut are_locks) = (None, 10, true);
    for at in (2..call.len()).step_by(2) {
        if at + 1 >= call.len() {
            return Err("ERR syntax error".to_owned());
        }
        match call.upper(at).as_str() {
            "MATCH" => pattern = Some(call.word(at + 1)),
            "COUNT" => {
                let given = number(at + 1).ok_or("ERR value is not an integer or out of range")?;
                count = Some(given).filter(|given| *given > 0).ok_or("ERR syntax error")?;
            }
            "TYPE" => are_locks = call.word(at + 1).eq_ignore_ascii_case(LOCK.as_bytes()),
            _ => return Err("ERR syntax error".to_owned()),
        }
    }
    let db = call.client.db.get();
    let (mut found, mut left) = (Vec::new(), count.clamp(1, MOST_SCANNED));
    // Places of other databases are skipped, up to the number that one call may look at.
    let mut looks = count.saturating_mul(10).clamp(1, MOST_SCANNED);
    let mut bytes = 0;
    loop {
        let most = left.min(looks).min(STEP);
        let (some, next) = server.keys.scan(cursor, most);
        looks -= most;
        for name in some.into_iter().filter(|name| name.db == db) {
            left -= 1;
            bytes += name.key.len();
            found.push(name.key);
        }
        cursor = next;
        if cursor == 0 || left == 0 || looks == 0 || bytes > MOST_BYTES {
            break;
        }
    }
    found.retain(|key| are_locks && pattern.is_none_or(|pattern| glob::matches(pattern, key)));
    let mut out = call.out();
    out.array(2);
    out.bytes(cursor.to_string().as_bytes());
    out.array(found.len());
    found.iter().for_each(|key| out.bytes(key));
    Ok(())
}

/// How many places one `SCAN` looks at.
const MOST_SCANNED: usize = 10_000;
/// After how many bytes of names one `SCAN` ends.
const MOST_BYTES: usize = 256 << 10;
/// How many places are looked at before the bytes are counted.
const STEP: usize = 16;

/// `FLUSHDB`, `FLUSHALL`.
pub(super) fn flush(server: &mut Server, call: &Call<'_>) -> Done {
    if call.len() > 2 || !matches!(call.upper(1).as_str(), "" | "ASYNC" | "SYNC") {
        return Err("ERR syntax error".to_owned());
    }
    let db = (call.shown_name() == "FLUSHDB").then(|| call.client.db.get());
    let has_lock = db.map_or(!server.keys.is_empty(), |db| server.keys.len_of(db) > 0);
    if has_lock {
        server.engine.log_flush(db, call.now);
    }
    server.keys.flush(db);
    server.engine.input(Input::Flushed(db), call.now);
    call.ok()
}

impl Server {
    /// Returns whether the key exists. Removes it if it has expired.
    fn is_there(&mut self, name: Name<'_>) -> bool {
        self.keys.expire(name);
        self.keys.exists(name)
    }
}
