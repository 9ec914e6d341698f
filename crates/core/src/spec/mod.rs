//! The descriptions of the commands: what the module registers, and what `COMMAND` and `DLOCK.HELP` show.

mod list;

pub use list::*;

/// The registration and the documentation of a command. All texts are ASCII.
#[derive(Debug)]
pub struct Spec {
    /// The name in upper case, as in the docs.
    pub name: &'static str,
    /// The server's command flags.
    pub flags: &'static str,
    /// The ACL categories, where the server lets modules choose them.
    pub categories: &'static str,
    /// The position and the use of the keys.
    pub keys: Keys,
    /// The number of arguments as in `COMMAND INFO`: negative if there may be more.
    pub arity: i32,
    /// The summary of the command, in one line.
    pub summary: &'static str,
    /// The time complexity, as in `COMMAND DOCS`.
    pub complexity: &'static str,
    /// The arguments after the keys.
    pub arguments: &'static [Argument],
}

/// Where the keys of a command are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keys {
    /// The command has no key.
    None,
    /// The key is argument 1.
    First(KeyUse),
    /// Argument 1 is the number of keys, which follow.
    Numbered(KeyUse),
}

/// The use that a command makes of its keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyUse {
    /// The command reads its keys.
    Read,
    /// The command creates or changes its keys.
    Update,
    /// The command changes or removes its keys.
    Remove,
}

/// An argument in the docs of a command.
#[derive(Debug)]
pub enum Argument {
    /// The name of a string without a word.
    Text(&'static str),
    /// An optional word, without a value.
    Word(&'static str),
    /// An optional word and the name of the integer that follows the word.
    Number(&'static str, &'static str),
    /// The name of an integer without a word.
    BareNumber(&'static str),
    /// The name of an optional integer without a word.
    MayBeNumber(&'static str),
    /// An optional word and the name of the string that follows the word.
    NamedText(&'static str, &'static str),
    /// A name, and arguments of which at most one is given.
    OneOf(&'static str, &'static [Argument]),
    /// A name, and arguments of which exactly one is given.
    Choice(&'static str, &'static [Argument]),
    /// A name, and arguments that are left out together. If they are given, the first is required.
    Group(&'static str, &'static [Argument]),
    /// A required part of a group, other than the first.
    Required(&'static Argument),
}

impl Spec {
    /// Returns the command with its arguments, as the documentation shows it.
    pub fn syntax(&self) -> String {
        let keys: &[&str] = match self.keys {
            Keys::None => &[],
            Keys::First(_) => &["key"],
            Keys::Numbered(_) => &["numkeys", "key [key ...]"],
        };
        let words = [self.name].into_iter().chain(keys.iter().copied()).map(str::to_owned);
        words.chain(self.arguments.iter().map(Argument::syntax)).collect::<Vec<_>>().join(" ")
    }
}

impl Spec {
    /// Returns the words that the parser of the command knows, in the order of the syntax.
    pub fn words(&self) -> Vec<&'static str> {
        let mut words = Vec::new();
        self.arguments.iter().for_each(|argument| argument.add_words(&mut words));
        words
    }

    /// Returns the option that a word names, whatever its case, and whether a value follows the word.
    pub fn option(&self, word: &[u8]) -> Option<(&'static str, bool)> {
        self.arguments.iter().find_map(|argument| argument.option(word))
    }
}

impl Argument {
    /// Returns whether the argument is a required value without a word.
    pub fn is_bare(&self) -> bool {
        matches!(self, Argument::Text(_) | Argument::BareNumber(_))
    }

    fn option(&self, word: &[u8]) -> Option<(&'static str, bool)> {
        let named = |name: &'static str| word.eq_ignore_ascii_case(name.as_bytes()).then_some(name);
        match self {
            Argument::Word(name) => named(name).map(|name| (name, false)),
            Argument::Number(name, _) | Argument::NamedText(name, _) => named(name).map(|name| (name, true)),
            Argument::Required(part) => part.option(word),
            Argument::OneOf(_, parts) | Argument::Choice(_, parts) | Argument::Group(_, parts) => {
                parts.iter().find_map(|part| part.option(word))
            }
            Argument::Text(_) | Argument::BareNumber(_) | Argument::MayBeNumber(_) => None,
        }
    }

    fn add_words(&self, words: &mut Vec<&'static str>) {
        match self {
            Argument::Word(word) | Argument::Number(word, _) | Argument::NamedText(word, _) => words.push(word),
            Argument::Required(part) => part.add_words(words),
            Argument::OneOf(_, parts) | Argument::Choice(_, parts) | Argument::Group(_, parts) => {
                parts.iter().for_each(|part| part.add_words(words));
            }
            Argument::Text(_) | Argument::BareNumber(_) | Argument::MayBeNumber(_) => {}
        }
    }

    fn syntax(&self) -> String {
        match self {
            Argument::Text(_) | Argument::BareNumber(_) | Argument::Choice(..) | Argument::Required(_) => self.bare(),
            Argument::Word(_)
            | Argument::Number(..)
            | Argument::MayBeNumber(_)
            | Argument::NamedText(..)
            | Argument::OneOf(..)
            | Argument::Group(..) => format!("[{}]", self.bare()),
        }
    }

    /// Returns the syntax without the outer brackets of an optional argument.
    fn bare(&self) -> String {
        match self {
            Argument::Text(name) | Argument::Word(name) | Argument::BareNumber(name) | Argument::MayBeNumber(name) => {
                (*name).to_owned()
            }
            Argument::Number(word, name) | Argument::NamedText(word, name) => format!("{word} {name}"),
            Argument::Required(part) => part.bare(),
            Argument::OneOf(_, parts) | Argument::Choice(_, parts) => {
                parts.iter().map(Argument::bare).collect::<Vec<_>>().join(" | ")
            }
            Argument::Group(_, parts) => {
                let (first, rest) = (parts.first(), parts.get(1..).unwrap_or_default());
                let words = first.map(Argument::bare).into_iter().chain(rest.iter().map(Argument::syntax));
                words.collect::<Vec<_>>().join(" ")
            }
        }
    }
}

/// Returns the command of this name, which is in upper case. The internal command `DLOCK.APPLY` is not found.
pub fn find(name: &str) -> Option<&'static Spec> {
    COMMANDS.iter().find(|spec| spec.name == name).copied()
}

/// Returns the lines of `DLOCK.HELP`.
pub fn help() -> impl ExactSizeIterator<Item = String> {
    let first = "DLOCK.<command> <arg> ... Commands are:".to_owned();
    let of = |spec: &&Spec| [spec.syntax(), format!("    {}", spec.summary)];
    let lines: Vec<String> = std::iter::once(first).chain(COMMANDS.iter().flat_map(of)).collect();
    lines.into_iter()
}
