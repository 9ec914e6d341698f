//! What is said about a command when it is registered.

use std::ffi::c_int;

/// How a command is registered and documented. Texts are ASCII.
pub struct Spec {
    /// In upper case, as in the docs.
    pub name: &'static str,
    /// The server's command flags.
    pub flags: &'static str,
    /// Its ACL categories, where the server lets modules choose them.
    pub categories: &'static str,
    /// Where its keys are, and what it does to them.
    pub keys: Keys,
    /// As in `COMMAND INFO`: negative if there may be more.
    pub arity: c_int,
    /// One line.
    pub summary: &'static str,
    /// As in `COMMAND DOCS`.
    pub complexity: &'static str,
    /// The arguments after the key.
    pub arguments: &'static [Argument],
}

/// Where the keys of a command are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keys {
    /// It has none.
    None,
    /// The key is argument 1.
    First(KeyUse),
    /// Argument 1 is the number of keys, which follow.
    Numbered(KeyUse),
}

/// What a command does to its keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyUse {
    /// It reads them.
    Read,
    /// It creates or changes them.
    Update,
    /// It changes or removes them.
    Remove,
}

/// An argument in the docs of a command.
pub enum Argument {
    /// A string, with the name of the value.
    Text(&'static str),
    /// An optional word, without a value.
    Word(&'static str),
    /// An optional word and the integer that follows it, with the name of the value.
    Number(&'static str, &'static str),
    /// An integer without a word, with its name.
    BareNumber(&'static str),
    /// An optional integer without a word, with its name.
    MayBeNumber(&'static str),
    /// An optional word and the string that follows it, with the name of the value.
    NamedText(&'static str, &'static str),
    /// At most one of these, under one name.
    OneOf(&'static str, &'static [Argument]),
    /// Exactly one of these, under one name.
    Choice(&'static str, &'static [Argument]),
    /// These together, under one name; optional.
    Group(&'static str, &'static [Argument]),
}
