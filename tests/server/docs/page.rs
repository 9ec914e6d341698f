//! A page of the docs: its fenced blocks, its tables, its links.
//!
//! A block fenced as `console` is a session of one `redis-cli`. The blocks of a page share a server. The lines after a
//! prompt, up to the next prompt, are the reply. A block may begin with `$ redis-cli` and options. If the last command
//! of a block has no reply, the command waits. Its reply begins the next block that does not begin with a prompt, and
//! that block goes on in the same terminal. A block fenced as `lua` is a library of functions that the server has from
//! the start.

use std::path::{Path, PathBuf};

/// A page that was read.
pub struct Page {
    pub path: PathBuf,
    text: String,
}

/// A session in one terminal.
#[derive(Debug, Default)]
pub struct Block {
    /// Options of `redis-cli`.
    pub options: Vec<String>,
    /// The reply to the last command of an earlier block, which waited.
    pub late: String,
    pub steps: Vec<Step>,
}

/// A command and what `redis-cli` answers.
#[derive(Debug)]
pub struct Step {
    pub command: String,
    pub reply: String,
}

/// The checkout.
pub fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

impl Page {
    /// A page by its path from the root of the checkout.
    #[track_caller]
    pub fn read(path: impl AsRef<Path>) -> Self {
        let path = root().join(path);
        let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        Self { path, text }
    }

    /// All pages in a directory, not those below it.
    pub fn all_in(directory: &str) -> Vec<Self> {
        let entries = std::fs::read_dir(root().join(directory)).expect("a directory");
        let mut paths: Vec<_> = entries.map(|entry| entry.expect("an entry").path()).collect();
        paths.retain(|path| path.extension().is_some_and(|extension| extension == "md"));
        paths.sort();
        paths.iter().map(Self::read).collect()
    }

    /// The file's name without its ending.
    pub fn name(&self) -> String {
        self.path.file_stem().expect("a file").to_string_lossy().into_owned()
    }

    pub fn sessions(&self) -> Vec<Block> {
        self.fenced("console").iter().map(|lines| Block::parse(lines)).collect()
    }

    /// The lines of the blocks of a language, without their indent.
    pub fn trimmed(&self, language: &str) -> Vec<Vec<String>> {
        let trim = |lines: &Vec<&str>| lines.iter().map(|line| line.trim().to_owned()).collect();
        self.fenced(language).iter().map(trim).collect()
    }

    /// The libraries of functions that the page's sessions call: the blocks fenced as `lua`.
    pub fn libraries(&self) -> Vec<String> {
        self.fenced("lua").iter().map(|lines| lines.join("\n")).collect()
    }

    /// The lines of the block that `scripts/dist-check` plays under this name.
    pub fn commands(&self, name: &str) -> Vec<&str> {
        let (_, rest) = self.text.split_once(&format!("<!-- dist-check: {name} -->")).expect("a block of this name");
        let block = rest.split("```").nth(1).expect("a block");
        block.lines().skip(1).collect()
    }

    /// The first block fenced as `text`: the syntax of a command.
    #[track_caller]
    pub fn syntax(&self) -> String {
        let block = self.fenced("text").into_iter().next();
        block.unwrap_or_else(|| panic!("no syntax in {}", self.path.display())).join(" ")
    }

    /// The cells, without backticks, of every table row whose first cell begins with `prefix`.
    pub fn rows(&self, prefix: &str) -> Vec<Vec<String>> {
        // A bar within a cell is written with a backslash. This character stands for it while the row is split.
        const BAR: &str = "\u{1}";
        let rows = self.text.lines().filter_map(|line| line.strip_prefix("| "));
        let cell = |cell: &str| cell.trim().replace('`', "").replace(BAR, "|");
        rows.map(|row| row.trim_end_matches('|').replace("\\|", BAR).split('|').map(cell).collect())
            .filter(|cells: &Vec<String>| cells[0].starts_with(prefix))
            .collect()
    }

    /// The files to which the page's links lead.
    pub fn linked(&self) -> Vec<PathBuf> {
        let here = self.path.parent().expect("a directory");
        let targets = self.text.split("](").skip(1).filter_map(|rest| rest.split(')').next());
        let files = targets.filter_map(|target| target.split('#').next()).filter(|file| !file.is_empty());
        files.filter(|file| !file.contains("://")).map(|file| here.join(file)).collect()
    }

    fn fenced(&self, language: &str) -> Vec<Vec<&str>> {
        let mut blocks = Vec::new();
        let mut lines = self.text.lines();
        while let Some(line) = lines.next() {
            if let Some(found) = line.strip_prefix("```") {
                let block: Vec<_> = lines.by_ref().take_while(|line| !line.starts_with("```")).collect();
                if found == language {
                    blocks.push(block);
                }
            }
        }
        blocks
    }
}

impl Block {
    fn parse(lines: &[&str]) -> Self {
        let mut block = Self::default();
        for line in lines {
            if let Some(options) = line.strip_prefix("$ redis-cli") {
                block.options = options.split_whitespace().map(str::to_owned).collect();
            } else if let Some(command) = after_prompt(line) {
                block.steps.push(Step { command: command.to_owned(), reply: String::new() });
            } else {
                let reply = block.steps.last_mut().map_or(&mut block.late, |step| &mut step.reply);
                reply.push_str(line);
                reply.push('\n');
            }
        }
        block
    }
}

/// Returns the command after a prompt: `127.0.0.1:6379> PING`, or in a transaction `127.0.0.1:6379(TX)> EXEC`.
fn after_prompt(line: &str) -> Option<&str> {
    let rest = line.strip_prefix("127.0.0.1:6379")?;
    rest.strip_prefix("(TX)").unwrap_or(rest).strip_prefix("> ")
}
