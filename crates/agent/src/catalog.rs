//! The commands that the agent knows: what `COMMAND` says of them, and how many words they have.

use crate::resp::Reply;

/// A command.
pub(crate) struct Command {
    pub name: &'static str,
    /// The number of words with the name; negative: at least.
    pub arity: i64,
    /// The places of the first and of the last key; 0: no keys.
    keys: (i64, i64),
    flags: &'static [&'static str],
    summary: &'static str,
    pub syntax: &'static str,
}

const fn command(
    name: &'static str,
    arity: i64,
    keys: (i64, i64),
    flags: &'static [&'static str],
    summary: &'static str,
    syntax: &'static str,
) -> Command {
    Command { name, arity, keys, flags, summary, syntax }
}

const LOCK: &[&str] = &["write", "blocking"];
const WRITE: &[&str] = &["write", "fast"];
const READ: &[&str] = &["readonly", "fast"];
const FAST: &[&str] = &["loading", "stale", "fast"];

/// All of them, by name.
pub(crate) const COMMANDS: &[Command] = &[
    command("AUTH", -2, (0, 0), FAST, "Logs in at the agent.", "[username] password"),
    command(
        "CLIENT",
        -2,
        (0, 0),
        FAST,
        "Tells of this connection.",
        "ID | INFO | GETNAME | SETNAME name | SETINFO name value",
    ),
    command("COMMAND", -1, (0, 0), FAST, "Shows the commands.", "[COUNT | DOCS [name ...] | INFO [name ...] | LIST]"),
    command(
        "DLOCK.ACQUIRE",
        -3,
        (1, 1),
        LOCK,
        "Acquires a lock.",
        "key owner [EX s | PX ms] [BLOCK ms] [SESSION | SESSIONID id] [REQUEST id]",
    ),
    command("DLOCK.CHECK", 3, (1, 1), READ, "Returns how long a token is still valid.", "key token"),
    command("DLOCK.HELP", 1, (0, 0), FAST, "Shows the syntax of every command.", ""),
    command("DLOCK.INFO", -2, (1, 1), READ, "Shows who holds a lock.", "key [OWNER owner | FULL [COUNT n]]"),
    command(
        "DLOCK.LOG",
        -2,
        (0, 0),
        READ,
        "Shows what happened on a server; not over a quorum.",
        "GET [count] | LEN | RESET | HELP",
    ),
    command(
        "DLOCK.MACQUIRE",
        -4,
        (2, 2),
        LOCK,
        "Acquires several locks; not over a quorum.",
        "numkeys key [key ...] owner [option ...]",
    ),
    command(
        "DLOCK.RACQUIRE",
        -3,
        (1, 1),
        LOCK,
        "Acquires or enters a lock; over a quorum, only acquires.",
        "key owner [option ...]",
    ),
    command(
        "DLOCK.RELEASE",
        -3,
        (1, 1),
        WRITE,
        "Releases a lock.",
        "key owner [READ | WRITE] [ALL | PERMITS k] [TOKEN token] [BREAK] [REQUEST id]",
    ),
    command(
        "DLOCK.RENEW",
        -3,
        (1, 1),
        WRITE,
        "Renews the lease of a lock.",
        "key owner [EX s | PX ms] [READ | WRITE] [SESSION | SESSIONID id] [TOKEN token]",
    ),
    command(
        "DLOCK.RLOCK",
        -3,
        (1, 1),
        LOCK,
        "Acquires a lock for reading.",
        "key owner [EX s | PX ms] [BLOCK ms] [SESSION | SESSIONID id] [REQUEST id]",
    ),
    command(
        "DLOCK.SACQUIRE",
        -4,
        (1, 1),
        LOCK,
        "Acquires permits of a semaphore; not over a quorum.",
        "key owner limit [option ...]",
    ),
    command(
        "DLOCK.SESSION",
        -2,
        (0, 0),
        FAST,
        "Opens, keeps, lists or closes a named session.",
        "id PX ms [NX | XX] | id CLOSE [USER name] | id LIST [USER name] [COUNT n] | LIST [COUNT n]",
    ),
    command(
        "DLOCK.WLOCK",
        -3,
        (1, 1),
        LOCK,
        "Acquires a lock for writing.",
        "key owner [EX s | PX ms] [BLOCK ms] [SESSION | SESSIONID id] [REQUEST id]",
    ),
    command("ECHO", 2, (0, 0), FAST, "Returns its argument.", "message"),
    command("EXISTS", -2, (1, -1), READ, "Counts keys; over a quorum, locks that are held.", "key [key ...]"),
    command(
        "HELLO",
        -1,
        (0, 0),
        FAST,
        "Chooses the version of the protocol.",
        "[protover [AUTH username password] [SETNAME name]]",
    ),
    command("INFO", -1, (0, 0), FAST, "Shows what the agent counts.", "[section ...]"),
    command("PING", -1, (0, 0), FAST, "Returns PONG.", "[message]"),
    command("QUIT", -1, (0, 0), FAST, "Closes the connection.", ""),
    command("RESET", 1, (0, 0), FAST, "Makes the connection like a new one.", ""),
    command("SELECT", 2, (0, 0), FAST, "Selects database 0, the only one.", "0"),
    command("TIME", 1, (0, 0), FAST, "Returns the time of this machine.", ""),
];

/// The commands of a server that are passed on to it, besides those above.
pub(crate) const PASSED: &[&str] =
    &["DEL", "PEXPIRETIME", "PTTL", "ROLE", "TIME", "TTL", "TYPE", "UNLINK", "WAIT", "WAITAOF"];

/// Finds a command by its name in upper case.
pub(crate) fn find(name: &str) -> Option<&'static Command> {
    COMMANDS.binary_search_by(|command| command.name.cmp(name)).ok().and_then(|at| COMMANDS.get(at))
}

impl Command {
    /// Returns whether that many words, with the name, are a call of it.
    pub fn takes(&self, words: usize) -> bool {
        let words = i64::try_from(words).unwrap_or(i64::MAX);
        if self.arity < 0 { words >= -self.arity } else { words == self.arity }
    }

    fn info(&self) -> Reply {
        info(self.name, self.arity, self.flags, self.keys)
    }

    fn docs(&self) -> (Reply, Reply) {
        let docs = vec![("summary", Reply::bulk(self.summary)), ("group", Reply::bulk("module"))];
        (Reply::bulk(self.name.to_ascii_lowercase()), Reply::fields(docs))
    }
}

/// Returns what `COMMAND INFO` says of a command.
pub(crate) fn info(name: &str, arity: i64, flags: &[&'static str], (first, last): (i64, i64)) -> Reply {
    let nothing = || Reply::Array(Vec::new());
    Reply::Array(vec![
        Reply::bulk(name.to_ascii_lowercase()),
        Reply::Integer(arity),
        Reply::Set(flags.iter().map(|flag| Reply::Status((*flag).into())).collect()),
        Reply::Integer(first),
        Reply::Integer(last),
        Reply::Integer(i64::from(first > 0)),
        Reply::Set(Vec::new()),
        nothing(),
        nothing(),
        nothing(),
    ])
}

/// Answers `COMMAND` with these words behind it.
pub(crate) fn answer(words: &[Vec<u8>]) -> Reply {
    let upper = |word: &[u8]| String::from_utf8_lossy(word).to_ascii_uppercase();
    let names = |words: &[Vec<u8>]| words.iter().map(|word| find(&upper(word))).collect::<Vec<_>>();
    let Some((subcommand, rest)) = words.split_first() else {
        return Reply::Array(COMMANDS.iter().map(Command::info).collect());
    };
    match upper(subcommand).as_str() {
        "COUNT" => Reply::number(COMMANDS.len()),
        "LIST" => Reply::Array(COMMANDS.iter().map(|command| Reply::bulk(command.name.to_ascii_lowercase())).collect()),
        "INFO" if rest.is_empty() => Reply::Array(COMMANDS.iter().map(Command::info).collect()),
        "INFO" => Reply::Array(names(rest).into_iter().map(|found| found.map_or(Reply::Nil, Command::info)).collect()),
        "DOCS" if rest.is_empty() => Reply::Map(COMMANDS.iter().map(Command::docs).collect()),
        "DOCS" => Reply::Map(names(rest).into_iter().flatten().map(Command::docs).collect()),
        other => Reply::error(format!("ERR unknown subcommand '{}'", other.escape_default())),
    }
}

/// Answers `DLOCK.HELP`.
pub(crate) fn help() -> Reply {
    let mut lines = vec![Reply::Status("DLOCK.<command> <arg> ... Commands are:".into())];
    for command in COMMANDS.iter().filter(|command| command.name.starts_with("DLOCK.")) {
        lines.push(Reply::Status(format!("{} {}", command.name, command.syntax).trim_end().to_owned().into()));
        lines.push(Reply::Status(format!("    {}", command.summary).into()));
    }
    Reply::Array(lines)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use dlock_core::spec::{self, Keys};

    use super::*;

    /// The commands of the agent are those of a server, with the same numbers of words and keys. Some options are not
    /// offered, but none has another name.
    #[test]
    fn the_commands_for_locks_are_those_of_a_server() {
        let ours = COMMANDS.iter().filter(|command| command.name.starts_with("DLOCK."));
        let names: BTreeSet<_> = ours.clone().map(|command| command.name).collect();
        assert_eq!(names, spec::COMMANDS.iter().map(|spec| spec.name).collect());
        for command in ours {
            let spec = spec::COMMANDS.iter().find(|spec| spec.name == command.name).unwrap();
            assert_eq!(command.arity, i64::from(spec.arity), "{}", command.name);
            let first = match spec.keys {
                Keys::None => 0,
                Keys::First(_) => 1,
                Keys::Numbered(_) => 2,
            };
            assert_eq!(command.keys.0, first, "{}", command.name);
            let is_word = |word: &&str| !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_uppercase());
            for word in command.syntax.split(|c: char| !c.is_ascii_alphanumeric()).filter(is_word) {
                assert!(spec.words().contains(&word), "{} {word}", command.name);
            }
        }
    }

    #[test]
    fn each_command_is_found_by_its_name() {
        for command in COMMANDS {
            assert!(find(command.name).is_some_and(|found| found.name == command.name), "{}", command.name);
        }
        assert!(find("GET").is_none());
    }
}
