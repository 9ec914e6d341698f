//! The descendants of a `dlock run`, as `/proc` shows them: its command, and the processes that the command started.

use std::collections::HashMap;
use std::fs;

use nix::unistd::{Pid, getpid};

/// Returns the running descendants of this process. A daemon whose parent ended before this process became a subreaper
/// is not among them.
pub fn of_this_process() -> Vec<Pid> {
    let mut children: HashMap<i32, Vec<i32>> = HashMap::new();
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    for entry in entries.flatten() {
        let Some(id) = entry.file_name().to_str().and_then(|name| name.parse::<i32>().ok()) else { continue };
        if let Some(parent) = fs::read_to_string(entry.path().join("stat")).ok().and_then(|stat| parent(&stat)) {
            children.entry(parent).or_default().push(id);
        }
    }
    let mut found = Vec::new();
    let mut parents = vec![getpid().as_raw()];
    while let Some(parent) = parents.pop() {
        for child in children.remove(&parent).unwrap_or_default() {
            found.push(Pid::from_raw(child));
            parents.push(child);
        }
    }
    found
}

/// Returns the parent of a process from its `/proc/PID/stat`; `None` if the process has ended. The name of the program
/// is the second field, and may contain brackets and blanks.
fn parent(stat: &str) -> Option<i32> {
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
    let state = fields.next()?;
    let parent = fields.next()?.parse().ok()?;
    (!matches!(state, "Z" | "X")).then_some(parent)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parent_is_found_behind_a_name_with_brackets_unless_the_process_has_ended() {
        assert_eq!(parent("17 (a) b) S 4 17 17 0"), Some(4));
        assert_eq!(parent("17 (sleep) Z 4 17 17 0"), None);
        assert_eq!(parent("17"), None);
    }
}
