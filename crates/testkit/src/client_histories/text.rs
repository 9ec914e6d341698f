//! The parser and the writer of files with histories.

use std::fmt;

/// A history in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct History {
    pub name: String,
    pub lines: Vec<Line>,
}

/// An event and the expected answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// The number of the line in its file, for messages.
    pub number: usize,
    /// The time by the client's clock, in ms.
    pub at: i64,
    /// The event, split at blanks.
    pub words: Vec<String>,
    /// The expected answers. If there are none, nothing is checked.
    pub expected: Vec<String>,
}

/// Reads all histories of a file.
pub fn parse(text: &str) -> Vec<History> {
    let mut histories: Vec<History> = Vec::new();
    for (at, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        if let Some(name) = line.strip_prefix("history ") {
            histories.push(History { name: name.to_owned(), lines: Vec::new() });
            continue;
        }
        let (event, expected) = line.split_once(" : ").unwrap_or((line, ""));
        let mut words = event.split_ascii_whitespace().map(str::to_owned);
        let time = words.next().expect("a time").parse().unwrap_or_else(|_| panic!("line {}: no time: {line}", at + 1));
        let expected = expected.split(',').map(|part| part.trim().to_owned()).filter(|part| !part.is_empty());
        let line = Line { number: at + 1, at: time, words: words.collect(), expected: expected.collect() };
        histories.last_mut().expect("`history NAME` comes first").lines.push(line);
    }
    histories
}

impl Line {
    /// Returns the value of `name=value`.
    pub fn option(&self, name: &str) -> Option<&str> {
        self.words.iter().find_map(|word| word.strip_prefix(name)?.strip_prefix('='))
    }

    /// Returns the number at this place of the event.
    #[track_caller]
    pub fn number_at(&self, at: usize) -> i64 {
        let word = self.words.get(at).unwrap_or_else(|| panic!("line {}: too few words", self.number));
        word.parse().unwrap_or_else(|_| panic!("line {}: {word} is no number", self.number))
    }
}

impl fmt::Display for History {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "history {}", self.name)?;
        for line in &self.lines {
            write!(f, "{} {}", line.at, line.words.join(" "))?;
            if line.expected.is_empty() {
                writeln!(f)?;
            } else {
                writeln!(f, " : {}", line.expected.join(", "))?;
            }
        }
        Ok(())
    }
}
