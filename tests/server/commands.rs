//! The commands as these tests know them. With its entry here, a new command is part of the tests of docs, flags, keys,
//! permissions, malformed arguments, and of the errors that the pages list.

/// A command.
#[derive(Clone, Copy, Debug)]
pub struct Command {
    /// In lower case, without `dlock.`.
    pub name: &'static str,
    pub kind: Kind,
    /// The words after the name in a call without options; `{key}` stands for its key.
    shortest: &'static str,
    /// Options that may follow these words: each text has those of one call.
    options: &'static [&'static str],
    /// Calls that are errors, one a line, without the name. Those of locks and sessions refer to what `docs/errors.rs`
    /// sets up.
    mistakes: &'static str,
}

/// The use that a command makes of keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The command may create its key, and may wait.
    Acquires,
    /// The command changes or removes its key.
    Changes,
    /// The command reads its key.
    Reads,
    /// The command has no key.
    Keyless,
    /// The command is not for clients.
    Internal,
}

impl Command {
    /// Returns the shortest call for this key.
    pub fn call(&self, key: &str) -> String {
        format!("DLOCK.{} {}", self.name.to_uppercase(), self.shortest.replace("{key}", key))
    }

    /// Returns the shortest call and those with options.
    pub fn calls(&self, key: &str) -> Vec<String> {
        let shortest = self.call(key);
        let others: Vec<_> = self.options.iter().map(|options| format!("{shortest} {options}")).collect();
        [vec![shortest], others].concat()
    }

    /// Returns the calls that are errors.
    pub fn mistakes(&self) -> Vec<String> {
        let lines = self.mistakes.lines().map(str::trim);
        lines.map(|line| format!("DLOCK.{} {line}", self.name.to_uppercase()).trim_end().to_owned()).collect()
    }

    /// Returns how many words follow the name in the shortest call.
    pub fn required(&self) -> usize {
        self.shortest.split_whitespace().count()
    }

    /// Returns the arity as in `COMMAND INFO`, of a command that has a key.
    pub fn arity(&self) -> i64 {
        let words = 1 + self.required() as i64;
        if self.options.is_empty() { words } else { -words }
    }

    pub fn has_options(&self) -> bool {
        !self.options.is_empty()
    }
}

/// Returns the commands for clients that have a key.
pub fn with_key() -> impl Iterator<Item = &'static Command> {
    COMMANDS.iter().filter(|command| matches!(command.kind, Kind::Acquires | Kind::Changes | Kind::Reads))
}

/// Returns the commands of a kind.
pub fn of_kind(kind: Kind) -> impl Iterator<Item = &'static Command> {
    COMMANDS.iter().filter(move |command| command.kind == kind)
}

pub const COMMANDS: &[Command] = &[
    Command {
        name: "acquire",
        kind: Kind::Acquires,
        shortest: "{key} a",
        options: &["PX 60000"],
        mistakes: "k a MINTOKEN 0
                   k a MINTOKEN 9007199254740992
                   both a BLOCK 0
                   left b BLOCK 0
                   text a
                   k a MAXHOLD 0
                   k a MAXHOLD 400 PX 500
                   k a MAXHOLD 299 SESSION
                   k a SESSIONID unknown",
    },
    Command {
        name: "racquire",
        kind: Kind::Acquires,
        shortest: "{key} a",
        options: &["SESSION"],
        mistakes: "full a
                   read d BLOCK 0",
    },
    Command { name: "rlock", kind: Kind::Acquires, shortest: "{key} a", options: &["REQUEST id"], mistakes: "full a" },
    Command {
        name: "wlock",
        kind: Kind::Acquires,
        shortest: "{key} a",
        options: &["BLOCK 1"],
        mistakes: "read d BLOCK 0",
    },
    Command {
        name: "sacquire",
        kind: Kind::Acquires,
        shortest: "{key} a 5",
        options: &["PERMITS 2", "SLOT"],
        mistakes: "k a x
                   k a 0
                   k a 5 PERMITS 0
                   k a 5 PERMITS 6
                   full a 4294967295
                   sem a 3 PERMITS 3 BLOCK 0
                   sem a 3 BLOCK 0
                   k a 2 PERMITS 1 SLOT
                   sem a 3 SLOT BLOCK 0",
    },
    Command {
        name: "macquire",
        kind: Kind::Acquires,
        shortest: "1 {key} a",
        options: &["EX 60"],
        mistakes: "0 k a
                   x k a
                   3 k l a
                   2 k k a
                   2 k text a",
    },
    Command {
        name: "release",
        kind: Kind::Changes,
        shortest: "{key} a",
        options: &["ALL", "BREAK"],
        mistakes: "k
                   k a BREAK BREAK
                   k a NX
                   k a TOKEN
                   k a READ READ
                   k a READ WRITE
                   k a TOKEN x
                   k a TOKEN 0
                   k a PERMITS 0
                   text a
                   both a",
    },
    Command {
        name: "renew",
        kind: Kind::Changes,
        shortest: "{key} a",
        options: &["PX 60000"],
        mistakes: "k
                   k a TOKEN
                   k a TOKEN x
                   k a TOKEN 0
                   k a MINTOKEN 9007199254740992
                   text a
                   k a SESSIONID unknown",
    },
    Command {
        name: "check",
        kind: Kind::Reads,
        shortest: "{key} 5",
        options: &[],
        mistakes: "k
                   k x
                   k 0
                   text 1",
    },
    Command {
        name: "info",
        kind: Kind::Reads,
        shortest: "{key}",
        options: &["OWNER a", "FULL", "FULL COUNT 5"],
        mistakes: "
                   k NX
                   k OWNER
                   k FULL COUNT 1 COUNT 1
                   k OWNER a FULL
                   k COUNT 1
                   k FULL COUNT x
                   k FULL COUNT -1
                   text",
    },
    Command {
        name: "log",
        kind: Kind::Keyless,
        shortest: "LEN",
        options: &[],
        mistakes: "
                   GET 1 2
                   NO
                   GET x
                   GET -2",
    },
    Command { name: "help", kind: Kind::Keyless, shortest: "", options: &[], mistakes: "me" },
    Command {
        name: "session",
        kind: Kind::Keyless,
        shortest: "s CLOSE",
        options: &[],
        mistakes: "s
                   s NX
                   s PX
                   s PX x
                   s PX 299
                   s PX 300 PX 300
                   s PX 300 NX XX
                   s PX 300 EX
                   s CLOSE x
                   s LIST COUNT
                   s LIST COUNT -1
                   s LIST COUNT x
                   s LIST COUNT 1 COUNT 1
                   s LIST USER
                   s CLOSE USER
                   LIST COUNT
                   LIST COUNT -1
                   LIST COUNT 1 COUNT 1
                   LIST COUNT 1 x
                   s PX 300 XX",
    },
    Command { name: "apply", kind: Kind::Internal, shortest: "{key} x", options: &[], mistakes: "k x" },
];
