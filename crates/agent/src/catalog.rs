//! The commands that the agent knows: what `COMMAND` says of them, and how many words they have. The descriptions of
//! the commands for locks come from the core.

use dlock_core::spec::{self, Keys, Spec};

use crate::resp::Reply;

/// A command.
#[derive(Clone, Copy)]
pub(crate) struct Command {
    pub name: &'static str,
    /// The number of words, which includes the name. If negative, the least number.
    arity: i64,
    /// The places of the first and of the last key among the words. 0: no keys; -1: the last word.
    keys: (i64, i64),
    flags: &'static str,
    summary: &'static str,
    /// The core's description of a command for locks; `None` for the others.
    spec: Option<&'static Spec>,
}

const fn command(name: &'static str, arity: i64, flags: &'static str, summary: &'static str) -> Command {
    Command { name, arity, keys: (0, 0), flags, summary, spec: None }
}

/// The flags of a command that the agent can answer without its servers.
const FAST: &str = "loading stale fast";

/// The commands that are not for locks.
const OTHERS: &[Command] = &[
    command("AUTH", -2, FAST, "Logs in at the agent."),
    command("CLIENT", -2, FAST, "Tells of this connection."),
    command("COMMAND", -1, FAST, "Shows the commands."),
    command("ECHO", 2, FAST, "Returns its argument."),
    Command {
        keys: (1, -1),
        ..command("EXISTS", -2, "readonly fast", "Counts keys; over a quorum, locks that are held.")
    },
    command("HELLO", -1, FAST, "Chooses the version of the protocol."),
    command("INFO", -1, FAST, "Shows what the agent counts."),
    command("PING", -1, FAST, "Returns PONG."),
    command("QUIT", -1, FAST, "Closes the connection."),
    command("RESET", 1, FAST, "Makes the connection like a new one."),
    command("SELECT", 2, FAST, "Selects database 0, the only one."),
    command("TIME", 1, FAST, "Returns the time of this machine."),
];

/// The commands that an agent without a quorum passes on, besides those for locks, `EXISTS`, `INFO` and `PING`.
pub(crate) const PASSED: &[&str] =
    &["DEL", "PEXPIRETIME", "PTTL", "ROLE", "TIME", "TTL", "TYPE", "UNLINK", "WAIT", "WAITAOF"];

/// Finds a command by its name in upper case.
pub(crate) fn find(name: &str) -> Option<Command> {
    spec::find(name).map(Command::of).or_else(|| OTHERS.iter().find(|command| command.name == name).copied())
}

fn all() -> impl Iterator<Item = Command> {
    OTHERS.iter().copied().chain(spec::COMMANDS.iter().map(|spec| Command::of(spec)))
}

impl Command {
    fn of(spec: &'static Spec) -> Self {
        let keys = match spec.keys {
            Keys::None => (0, 0),
            Keys::First(_) => (1, 1),
            Keys::Numbered(_) => (2, 2),
        };
        let (arity, flags) = (i64::from(spec.arity), spec.flags);
        Self { name: spec.name, arity, keys, flags, summary: spec.summary, spec: Some(spec) }
    }

    /// Returns whether the command can have this number of words, which includes the name.
    pub fn takes(&self, words: usize) -> bool {
        let words = i64::try_from(words).unwrap_or(i64::MAX);
        if self.arity < 0 { words >= -self.arity } else { words == self.arity }
    }

    fn info(&self) -> Reply {
        let flags: Vec<_> = self.flags.split(' ').filter_map(flag).collect();
        info(self.name, self.arity, &flags, self.keys)
    }

    fn docs(&self) -> (Reply, Reply) {
        let docs = vec![("summary", Reply::bulk(self.description())), ("group", Reply::bulk("module"))];
        (Reply::bulk(self.name.to_ascii_lowercase()), Reply::fields(docs))
    }

    /// Returns the summary, and how the command is limited over a quorum.
    fn description(&self) -> String {
        let limit = match self.name {
            "DLOCK.LOG" | "DLOCK.MACQUIRE" | "DLOCK.SACQUIRE" => " Not over a quorum.",
            "DLOCK.RACQUIRE" => " Over a quorum, only acquires.",
            _ => "",
        };
        format!("{}{limit}", self.summary)
    }
}

/// Returns the name that `COMMAND INFO` has for a flag of a module's command; `None` if no client needs the flag.
fn flag(of_module: &'static str) -> Option<&'static str> {
    match of_module {
        "allow-loading" => Some("loading"),
        "allow-stale" => Some("stale"),
        "deny-oom" | "getkeys-api" | "admin" => None,
        other => Some(other),
    }
}

/// Returns the entry of a command in `COMMAND INFO`, without ACL categories, tips, key specifications and subcommands.
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

/// Answers `COMMAND` with these arguments.
pub(crate) fn answer(words: &[Vec<u8>]) -> Reply {
    let upper = |word: &[u8]| String::from_utf8_lossy(word).to_ascii_uppercase();
    let names = |words: &[Vec<u8>]| words.iter().map(|word| find(&upper(word))).collect::<Vec<_>>();
    let infos = || Reply::Array(all().map(|command| command.info()).collect());
    let Some((subcommand, rest)) = words.split_first() else { return infos() };
    match upper(subcommand).as_str() {
        "COUNT" => Reply::number(all().count()),
        "LIST" => Reply::Array(all().map(|command| Reply::bulk(command.name.to_ascii_lowercase())).collect()),
        "INFO" if rest.is_empty() => infos(),
        "INFO" => {
            Reply::Array(names(rest).iter().map(|found| found.as_ref().map_or(Reply::Nil, Command::info)).collect())
        }
        "DOCS" if rest.is_empty() => Reply::Map(all().map(|command| command.docs()).collect()),
        "DOCS" => Reply::Map(names(rest).iter().flatten().map(Command::docs).collect()),
        other => Reply::error(format!("ERR unknown subcommand '{}'", other.escape_default())),
    }
}

/// Answers `DLOCK.HELP`.
pub(crate) fn help() -> Reply {
    let mut lines = vec![Reply::Status("DLOCK.<command> <arg> ... Commands are:".into())];
    for command in all() {
        if let Some(spec) = command.spec {
            lines.push(Reply::Status(spec.syntax().into()));
            lines.push(Reply::Status(format!("    {}", command.description()).into()));
        }
    }
    Reply::Array(lines)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_command_is_found_by_its_name() {
        for command in all() {
            assert!(find(command.name).is_some_and(|found| found.name == command.name), "{}", command.name);
        }
        assert!(find("GET").is_none());
    }

    #[test]
    fn macquire_takes_at_least_four_words_and_its_first_key_is_word_2() {
        let found = find("DLOCK.MACQUIRE").unwrap();
        assert!(found.takes(4) && !found.takes(3));
        assert_eq!(found.keys, (2, 2));
    }
}
