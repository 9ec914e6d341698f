//! Plays histories on a state machine: the reference, or the pure code of a package.

use super::text::{History, Line};

/// A state machine that handles events.
pub trait Machine {
    /// Handles the event of a line at the time of the line. Returns all answers that a line may expect, for example
    /// `until 2998`, `renew 1000` and `lost`.
    fn handle(&mut self, line: &Line) -> Vec<String>;
}

/// Plays a history on a machine that `new` makes. The error describes the first expected answer that is missing.
pub fn play(history: &History, new: impl FnOnce() -> Box<dyn Machine>) -> Result<(), String> {
    let mut machine = new();
    for line in &history.lines {
        let answers = machine.handle(line);
        if let Some(missing) = line.expected.iter().find(|expected| !answers.contains(expected)) {
            let Line { number, at, words, .. } = line;
            let event = words.join(" ");
            return Err(format!("{}, line {number}: {at} {event}: {missing} expected, not {answers:?}", history.name));
        }
    }
    Ok(())
}

/// Plays all histories of a kind. The kind of a history is the first word of its first event. Returns how many there
/// are. If some fail, panics and describes them.
#[track_caller]
pub fn play_all(histories: &[History], kind: &str, new: impl Fn() -> Box<dyn Machine>) -> usize {
    let is_of_kind = |history: &&History| history.lines.first().is_some_and(|line| line.words[0] == kind);
    let all: Vec<_> = histories.iter().filter(is_of_kind).collect();
    let wrong: Vec<_> = all.iter().filter_map(|history| play(history, &new).err()).collect();
    assert!(wrong.is_empty(), "{} of {} histories:\n{}", wrong.len(), all.len(), wrong.join("\n"));
    all.len()
}

/// Returns the histories in `tests/clients/histories`.
pub fn all_of_repository() -> Vec<History> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/clients/histories");
    let mut files: Vec<_> = std::fs::read_dir(folder).expect("the folder").map(|entry| entry.unwrap().path()).collect();
    files.sort();
    let files = files.iter().filter(|path| path.extension().is_some_and(|extension| extension == "txt"));
    files.flat_map(|path| super::text::parse(&std::fs::read_to_string(path).expect("a file"))).collect()
}
