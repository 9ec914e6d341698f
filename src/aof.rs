//! Ends a transaction that a crash has left open in the append-only file (AOF).
//!
//! A server that is killed while it appends a transaction leaves half of it. The next start cuts the file behind the last
//! whole command. All servers except Valkey 9.1 leave the `MULTI` in the file, so what is appended from then on lies in
//! that transaction. Unless an `EXEC` follows, the start after that drops it, although clients had their replies.
//!
//! After such a cut, and before anything else is appended, the module therefore replicates two commands that do
//! nothing. The server makes a transaction of them, and its `EXEC` ends the open one. They are not sent together with
//! the first change, because Redis up to 8.2 and Valkey up to 8.1 leave out what the user `default` may not run in a
//! transaction. If the file was not cut inside a transaction, they change nothing.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs::{metadata, read_dir};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use crate::ffi::UnderLock;
use crate::ffi::context::{Context, is_held_still, log_warning};
use crate::ffi::hooks::{ignore_turns_for_aof, watch_turns_for_aof};
use crate::state::wake_now;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// The file is as it was written.
    Whole,
    /// The server has cut the file: the end of a turn has to end the transaction.
    Cut,
    /// The transaction has ended: the timer has to stop the calls of [`turn_ends`].
    Ended,
}

static PHASE: UnderLock<Cell<Phase>> = UnderLock::new(Cell::new(Phase::Whole));

/// The files and their sizes, while they are loaded. The folder is relative to the server's working directory, which is
/// that of its data.
static FILES: UnderLock<RefCell<(PathBuf, Sizes)>> = UnderLock::new(RefCell::new((PathBuf::new(), Sizes::new())));

type Sizes = BTreeMap<OsString, u64>;

/// Remembers how large the files are.
pub fn load_begins(context: &mut Context<'_>) {
    let name = context.setting(c"appenddirname").unwrap_or_else(|| b"appendonlydir".to_vec());
    let folder = PathBuf::from(OsStr::from_bytes(&name));
    let sizes = sizes_in(&folder);
    FILES.replace((folder, sizes));
}

/// Finds out whether the server has cut a file: then it is smaller than before.
pub fn load_ends() {
    let (folder, before) = FILES.take();
    if before.is_empty() {
        return;
    }
    let now = sizes_in(&folder);
    if before.iter().any(|(name, size)| now.get(name).is_some_and(|now| now < size)) {
        log_warning(
            "dlock: the server has cut its AOF, perhaps inside a transaction. The module ends that transaction; the next \
             start applies the half of it that is left. To drop that half, send BGREWRITEAOF",
        );
        PHASE.set(Phase::Cut);
        watch_turns_for_aof();
    }
}

fn sizes_in(folder: &PathBuf) -> Sizes {
    let entries = read_dir(folder).into_iter().flatten().flatten();
    entries.filter_map(|entry| Some((entry.file_name(), metadata(entry.path()).ok()?.len()))).collect()
}

/// Ends the transaction as soon as this server is a primary that is not held still: after a start, in the first turn
/// and before a client is served.
///
/// With I/O threads, a request that came during the load may be served first, and so may requests in the turn of a
/// promotion or of the end of a pause. Their changes lie in the open transaction, and count unless the user `default`
/// may not run them.
pub fn turn_ends(context: &mut Context<'_>) {
    let flags = context.flags();
    if PHASE.get() != Phase::Cut || !flags.is_primary() || flags.is_loading() || is_held_still() {
        return;
    }
    if flags.has_aof() {
        context.replicate_nothing();
        context.replicate_nothing();
    }
    PHASE.set(Phase::Ended);
    wake_now();
}

/// Stops the calls of [`turn_ends`] once the transaction has ended.
pub fn timer() {
    if PHASE.get() == Phase::Ended {
        PHASE.set(Phase::Whole);
        ignore_turns_for_aof();
    }
}
