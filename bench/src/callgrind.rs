//! Instructions of a server process, counted by callgrind.
//!
//! A server cannot be counted from its first to its last request only, so each contender runs twice, with two numbers of
//! operations, on two fresh servers; the difference is what the operations in between cost. Start, warm-up, preparation
//! and end cancel out. Idle time costs nothing: what waits in `epoll_wait` executes no instruction.
//! What is left is under one per cent: every server draws its hash seeds anew.

use std::ffi::OsString;
use std::fs;
use std::path::Path;

use crate::error::Error;
use crate::run_dir::RunDir;

/// The command that runs a server under callgrind, with its output in the folder of the run.
///
/// Children are followed because a server may be a script that starts the real one.
pub fn wrapper(dir: &RunDir) -> Vec<OsString> {
    let mut out_file = OsString::from("--callgrind-out-file=");
    out_file.push(dir.path().join(OUT_PREFIX));
    out_file.push("%p");
    let mut line: Vec<OsString> =
        ["valgrind", "-q", "--tool=callgrind", "--trace-children=yes"].map(OsString::from).into();
    line.push(out_file);
    line
}

/// Instructions of all processes that were counted in this folder.
pub fn instructions(dir: &RunDir) -> Result<u64, Error> {
    let entries = fs::read_dir(dir.path()).map_err(Error::io("looking for callgrind's output"))?;
    let mut sum = None;
    for entry in entries {
        let path = entry.map_err(Error::io("looking for callgrind's output"))?.path();
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        if name.starts_with(OUT_PREFIX) {
            sum = Some(sum.unwrap_or(0) + total(&path)?);
        }
    }
    sum.ok_or_else(|| Error::Callgrind("callgrind wrote no output".into()))
}

fn total(path: &Path) -> Result<u64, Error> {
    let text = fs::read_to_string(path).map_err(Error::io("reading callgrind's output"))?;
    parse_total(&text).ok_or_else(|| Error::Callgrind("callgrind's output has no total of instructions".into()))
}

/// The `totals:` of an output that counted `Ir` and nothing else.
fn parse_total(text: &str) -> Option<u64> {
    text.lines().find(|line| *line == "events: Ir")?;
    text.lines().find_map(|line| line.strip_prefix("totals: "))?.trim().parse().ok()
}

const OUT_PREFIX: &str = "callgrind.";

#[cfg(test)]
mod tests {
    use super::parse_total;

    #[test]
    fn the_total_is_read_from_the_output() {
        let text = "# callgrind format\nevents: Ir\nsummary: 7\n\nfn=(1) main\n1 7\n\ntotals: 7\n";
        assert_eq!(parse_total(text), Some(7));
    }

    #[test]
    fn an_output_that_is_cut_or_counts_something_else_has_no_total() {
        assert_eq!(parse_total("events: Ir\nsummary: 7\n"), None);
        assert_eq!(parse_total("events: Ir Dr\ntotals: 7 9\n"), None);
    }
}
