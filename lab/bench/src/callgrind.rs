//! Instructions of a server process, counted by callgrind.
//!
//! A server cannot be counted from its first to its last request only, so each contender runs twice, with two numbers
//! of operations, on two fresh servers; the difference is the cost of the operations in between. Start, warm-up,
//! preparation and end cancel out. Idle time costs nothing: a thread in `epoll_wait` executes no instruction. The rest
//! is under one per cent: every server draws new hash seeds. Where one per cent matters, a contender is counted several
//! times, and no table of the server grows or shrinks ([`crate::contenders::Background::gather`]).

use std::ffi::OsString;
use std::fs;
use std::path::Path;

use crate::error::Error;
use tempfile::TempDir;

/// The command that runs a server under callgrind, with its output in the folder of the run.
///
/// Children are followed because a server may be a script that starts the real one.
pub fn wrapper(dir: &TempDir) -> Vec<OsString> {
    let mut out_file = OsString::from("--callgrind-out-file=");
    out_file.push(dir.path().join(OUT_PREFIX));
    out_file.push("%p");
    let mut line: Vec<OsString> =
        ["valgrind", "-q", "--tool=callgrind", "--trace-children=yes"].map(OsString::from).into();
    line.push(out_file);
    line
}

/// Instructions that were executed.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Count {
    /// By the process.
    pub all: u64,
    /// The instructions in the code of the module itself: not in what it calls of the server or of a library.
    pub own: u64,
}

impl Count {
    fn plus(self, other: Self) -> Self {
        Self { all: self.all + other.all, own: self.own + other.own }
    }

    /// Returns the difference to the count of `fewer` operations, per operation; nothing if there is none.
    pub fn beyond(self, fewer: Self, operations: usize) -> Option<[f64; 2]> {
        let each = |many: u64, few: u64| many.checked_sub(few).map(|more| more as f64 / operations as f64);
        Some([each(self.all, fewer.all).filter(|all| *all > 0.0)?, each(self.own, fewer.own)?])
    }
}

/// Instructions of all processes that were counted in this folder. `module` is the file of the module.
pub fn instructions(dir: &TempDir, module: Option<&Path>) -> Result<Count, Error> {
    let module = module.and_then(Path::file_name).map(|name| name.to_string_lossy().into_owned());
    let entries = fs::read_dir(dir.path()).map_err(Error::io("looking for callgrind's output"))?;
    let mut sum = None;
    for entry in entries {
        let path = entry.map_err(Error::io("looking for callgrind's output"))?.path();
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        if name.starts_with(OUT_PREFIX) {
            let text = fs::read_to_string(&path).map_err(Error::io("reading callgrind's output"))?;
            let count = parse(&text, module.as_deref())
                .ok_or_else(|| Error::Callgrind("callgrind's output has no total of instructions".into()))?;
            sum = Some(count.plus(sum.unwrap_or_default()));
        }
    }
    sum.ok_or_else(|| Error::Callgrind("callgrind wrote no output".into()))
}

/// The `totals:` of an output that counted `Ir` and nothing else, and what of that is in the object of that name.
fn parse(text: &str, module: Option<&str>) -> Option<Count> {
    text.lines().find(|line| *line == "events: Ir")?;
    let all = text.lines().find_map(|line| line.strip_prefix("totals: "))?.trim().parse().ok()?;
    // An object is named once, `(1) /path`, and is `(1)` from then on, whether it calls (`ob`) or is called (`cob`).
    let mut of_module = None;
    let (mut is_own, mut is_call, mut own) = (false, false, 0);
    for line in text.lines() {
        if let Some(object) = line.strip_prefix("ob=").or_else(|| line.strip_prefix("cob=")) {
            let (id, path) = object.split_once(' ').unwrap_or((object, ""));
            if module.is_some() && path.rsplit('/').next() == module {
                of_module = Some(id);
            }
            if line.starts_with('o') {
                is_own = of_module == Some(id);
            }
        } else if line.starts_with("calls=") {
            // The next line is what the called function cost.
            is_call = true;
        } else if line.starts_with(|first: char| first.is_ascii_digit() || "+-*".contains(first)) {
            if is_own && !is_call {
                own += line.split_whitespace().nth(1)?.parse::<u64>().ok()?;
            }
            is_call = false;
        }
    }
    Some(Count { all, own })
}

const OUT_PREFIX: &str = "callgrind.";

#[cfg(test)]
mod tests {
    use super::*;

    const OUTPUT: &str = "\
# callgrind format
events: Ir
summary: 27

ob=(1) /usr/bin/server
fn=(1) main
10 7
cob=(2) /somewhere/libdlock.so
cfn=(2) entry
calls=1 5
+3 20

ob=(2)
fn=(2)
5 4
cob=(1)
cfn=(3) RM_OpenKey
calls=2 1
* 10
-1 6

totals: 27
";

    #[test]
    fn the_total_is_read_from_the_output_and_what_of_it_is_the_modules_own() {
        assert_eq!(parse(OUTPUT, Some("libdlock.so")), Some(Count { all: 27, own: 10 }));
        assert_eq!(parse(OUTPUT, Some("lock.so")), Some(Count { all: 27, own: 0 }));
        assert_eq!(parse(OUTPUT, None), Some(Count { all: 27, own: 0 }));
    }

    #[test]
    fn an_output_that_is_cut_or_counts_something_else_has_no_total() {
        assert_eq!(parse("events: Ir\nsummary: 7\n", None), None);
        assert_eq!(parse("events: Ir Dr\ntotals: 7 9\n", None), None);
    }

    #[test]
    fn an_operation_costs_its_share_of_the_difference() {
        let count = |all, own| Count { all, own };
        assert_eq!(count(300, 50).beyond(count(100, 10), 4), Some([50.0, 10.0]));
        assert_eq!(count(100, 10).beyond(count(100, 10), 4), None);
    }
}
