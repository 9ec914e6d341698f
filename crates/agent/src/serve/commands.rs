//! The commands of Redis that clients of locks need. Everything else is refused with the reason.

use dlock_core::spec::{self, Spec};

use super::call::{Call, Done, Refused, Run};
use super::server::Server;
use super::{about, clients, greeting, keys, subscriptions, transactions};
use crate::catalog;
use crate::hello::shown;
use crate::resp::{Reply, Request};

/// A command of Redis.
#[derive(Debug)]
pub(super) struct Plain {
    pub name: &'static str,
    /// The number of words, including the name. A negative number means "at least".
    pub arity: i32,
    flags: &'static [&'static str],
    /// The places of the first and of the last key. 0: the command has no keys; -1: the last word.
    keys: (i64, i64),
    summary: &'static str,
    pub run: Run<Server>,
}

type Flags = &'static [&'static str];

const FAST: Flags = &["loading", "stale", "fast"];
const READ: Flags = &["readonly", "fast"];
const WRITE: Flags = &["write", "fast"];
const HEARS: Flags = &["pubsub", "noscript", "loading", "stale"];
const OPERATES: Flags = &["admin", "noscript", "loading", "stale"];

const fn plain(name: &'static str, arity: i32, flags: Flags, summary: &'static str, run: Run<Server>) -> Plain {
    Plain { name, arity, flags, keys: (0, 0), summary, run }
}

const fn on_key(name: &'static str, arity: i32, flags: Flags, summary: &'static str, run: Run<Server>) -> Plain {
    Plain { name, arity, flags, keys: (1, if arity < 0 { -1 } else { 1 }), summary, run }
}

/// All commands of Redis that are offered.
pub(super) const ALL: &[Plain] = &[
    plain("ACL", -2, FAST, "Tells who the user is.", about::acl),
    plain("AUTH", -2, FAST, "Logs in.", greeting::auth),
    plain("CLIENT", -2, OPERATES, "Shows, names, unblocks and ends connections.", clients::client),
    plain("COMMAND", -1, FAST, "Shows the commands.", command),
    plain("CONFIG", -2, OPERATES, "Shows and changes settings.", about::config),
    plain("DBSIZE", 1, READ, "Returns how many locks the database has.", keys::size),
    on_key("DEL", -2, WRITE, "Removes locks.", keys::delete),
    plain("DISCARD", 1, FAST, "Forgets a transaction.", transactions::discard),
    plain("DLOCK.CLOCK", -1, FAST, "Shows the clock, or moves it on (--test-clock).", about::clock),
    plain("ECHO", 2, FAST, "Returns its argument.", greeting::echo),
    plain("EXEC", 1, FAST, "Carries out a transaction.", transactions::execute),
    on_key("EXISTS", -2, READ, "Counts locks that are there.", keys::exists),
    on_key("EXPIRETIME", 2, READ, "Returns when a lock ends, in seconds.", keys::times),
    plain("FLUSHALL", -1, WRITE, "Removes all locks.", keys::flush),
    plain("FLUSHDB", -1, WRITE, "Removes all locks of the database.", keys::flush),
    plain("HELLO", -1, FAST, "Chooses the version of the protocol.", greeting::hello),
    plain("INFO", -1, FAST, "Shows what the server counts.", about::info),
    plain("MULTI", 1, FAST, "Begins a transaction.", transactions::begin),
    on_key("PEXPIRETIME", 2, READ, "Returns when a lock ends, in milliseconds.", keys::times),
    plain("PING", -1, FAST, "Returns PONG.", greeting::ping),
    plain("PSUBSCRIBE", -2, HEARS, "Hears events by patterns.", subscriptions::subscribe),
    on_key("PTTL", 2, READ, "Returns the time to the end of a lock, in milliseconds.", keys::times),
    plain("PUNSUBSCRIBE", -1, HEARS, "Hears events no more.", subscriptions::unsubscribe),
    plain("QUIT", -1, FAST, "Closes the connection.", greeting::quit),
    plain("RESET", 1, FAST, "Makes the connection like a new one.", greeting::reset),
    plain("ROLE", 1, FAST, "Tells that this is a primary without replicas.", about::role),
    plain("SCAN", -2, READ, "Lists locks.", keys::scan),
    plain("SELECT", 2, FAST, "Selects one of 16 databases.", greeting::select),
    plain("SUBSCRIBE", -2, HEARS, "Hears events.", subscriptions::subscribe),
    plain("TIME", 1, FAST, "Returns the time of the server.", about::time),
    on_key("TTL", 2, READ, "Returns the time to the end of a lock, in seconds.", keys::times),
    on_key("TYPE", 2, READ, "Returns the type of a key: distrlock or none.", keys::kind),
    on_key("UNLINK", -2, WRITE, "Removes locks.", keys::delete),
    plain("UNSUBSCRIBE", -1, HEARS, "Hears events no more.", subscriptions::unsubscribe),
    plain("WAIT", 3, FAST, "Returns 0: there are no replicas.", about::wait),
    plain("WAITAOF", 4, FAST, "Returns zeros: there are neither files nor replicas.", about::wait_aof),
];

/// Returns whether a command of this arity takes this number of words, with its name.
pub(super) fn takes(arity: i32, words: usize) -> bool {
    let words = i32::try_from(words).unwrap_or(i32::MAX);
    if arity < 0 { words >= -arity } else { words == arity }
}

/// Returns the error for a command that is not offered, with the reason.
pub(super) fn unknown(name: &str, request: &Request) -> String {
    let why = match name {
        "EVAL" | "EVALSHA" | "EVAL_RO" | "EVALSHA_RO" | "FCALL" | "FCALL_RO" | "FUNCTION" | "SCRIPT" => {
            "dlock serve runs no scripts"
        }
        "WATCH" | "UNWATCH" => "dlock serve watches no keys: a transaction runs as a whole anyway",
        "REPLICAOF" | "SLAVEOF" | "PSYNC" | "SYNC" | "FAILOVER" => "dlock serve has no replication: it is memory only",
        "SAVE" | "BGSAVE" | "BGREWRITEAOF" | "LASTSAVE" | "DUMP" | "RESTORE" | "MIGRATE" => {
            "dlock serve has no persistence: it is memory only"
        }
        "CLUSTER" | "ASKING" | "READONLY" | "READWRITE" => "dlock serve is no cluster",
        "MODULE" => "dlock serve loads no modules: it has the commands of dlock by itself",
        "EXPIRE" | "PEXPIRE" | "EXPIREAT" | "PEXPIREAT" | "PERSIST" | "RENAME" | "RENAMENX" | "MOVE" | "COPY"
        | "SWAPDB" => "dlock serve changes locks by the commands of dlock only",
        "PUBLISH" | "SPUBLISH" | "SSUBSCRIBE" => "dlock serve sends its own events only",
        _ => "dlock serve has locks only, no other data",
    };
    let first = request.word(1).map(|word| shown(&String::from_utf8_lossy(word))).unwrap_or_default();
    let first = if first.is_empty() { first } else { format!(", with args beginning with: '{first}'") };
    format!("ERR unknown command '{}'{first}: {why}", shown(name))
}

/// `COMMAND [COUNT | DOCS [name …] | GETKEYS name [word …] | INFO [name …] | LIST]`.
fn command(_: &mut Server, call: &Call<'_>) -> Done {
    let named: Vec<String> = (2..call.len()).map(|at| call.upper(at)).collect();
    let all = described();
    let reply = match call.upper(1).as_str() {
        "COUNT" => Reply::number(all.len()),
        "GETKEYS" => keys_of(call, &all)?,
        "LIST" => Reply::Array(all.iter().map(|one| Reply::bulk(one.name.to_ascii_lowercase())).collect()),
        "" | "INFO" if named.is_empty() => Reply::Array(all.iter().map(Described::info).collect()),
        "INFO" => {
            let found = |name: &String| all.iter().find(|one| one.name == name).map(Described::info);
            Reply::Array(named.iter().map(|name| found(name).unwrap_or(Reply::Nil)).collect())
        }
        "DOCS" => {
            let is_named = |one: &&Described| named.is_empty() || named.iter().any(|name| name == one.name);
            Reply::Map(all.iter().filter(is_named).map(Described::docs).collect())
        }
        other => return Err(format!("ERR unknown subcommand '{}'", shown(other))),
    };
    call.out().reply(&reply);
    Ok(())
}

/// Returns the keys among the words of a command.
fn keys_of(call: &Call<'_>, all: &[Described]) -> Result<Reply, Refused> {
    let words: Vec<_> = call.after(2).collect();
    if words.len() < 2 {
        return Err("ERR wrong number of arguments for 'command|getkeys' command".to_owned());
    }
    let name = call.upper(2);
    let one = all.iter().find(|one| one.name == name).ok_or("ERR Invalid command specified")?;
    let (first, last) = match one.spec.map(|spec| spec.keys) {
        Some(spec::Keys::Numbered(_)) => (2, numbered(&words)),
        _ if one.keys.0 == 0 => return Err("ERR The command has no key arguments".to_owned()),
        _ if one.keys.1 < 0 => (1, words.len().checked_sub(1)),
        _ => (1, Some(1)),
    };
    if !takes(one.arity, words.len()) {
        return Err("ERR Invalid number of arguments specified for command".to_owned());
    }
    let keys = last.and_then(|last| words.get(first..=last));
    let keys = keys.ok_or("ERR Invalid arguments specified for command")?;
    Ok(Reply::Array(keys.iter().map(|key| Reply::bulk(*key)).collect()))
}

/// Returns the place of the last key of a command with `numkeys`, read as by Redis: no sign, no leading zero.
fn numbered(words: &[&[u8]]) -> Option<usize> {
    let text = std::str::from_utf8(words.get(1)?).ok()?;
    let is_plain = text.bytes().all(|byte| byte.is_ascii_digit()) && !text.starts_with('0');
    text.parse::<usize>().ok().filter(|_| is_plain)?.checked_add(1)
}

/// A command of dlock or of Redis, as `COMMAND` describes it.
struct Described {
    name: &'static str,
    arity: i32,
    flags: Vec<&'static str>,
    keys: (i64, i64),
    summary: &'static str,
    spec: Option<&'static Spec>,
}

fn described() -> Vec<Described> {
    let locks = spec::COMMANDS.iter().map(|spec| Described {
        name: spec.name,
        arity: spec.arity,
        // A module declares `deny-oom`, which Redis shows as `denyoom`.
        flags: spec.flags.split(' ').map(|flag| if flag == "deny-oom" { "denyoom" } else { flag }).collect(),
        keys: if matches!(spec.keys, spec::Keys::First(_)) { (1, 1) } else { (0, 0) },
        summary: spec.summary,
        spec: Some(spec),
    });
    let others = ALL.iter().map(|plain| Described {
        name: plain.name,
        arity: plain.arity,
        flags: plain.flags.to_vec(),
        keys: plain.keys,
        summary: plain.summary,
        spec: None,
    });
    locks.chain(others).collect()
}

impl Described {
    fn info(&self) -> Reply {
        catalog::info(self.name, self.arity.into(), &self.flags, self.keys)
    }

    fn docs(&self) -> (Reply, Reply) {
        let mut docs = vec![("summary", Reply::bulk(self.summary))];
        if let Some(spec) = self.spec {
            docs.push(("since", Reply::bulk(env!("CARGO_PKG_VERSION"))));
            docs.push(("group", Reply::bulk("module")));
            docs.push(("complexity", Reply::bulk(spec.complexity)));
            docs.push(("module", Reply::bulk("dlock")));
            docs.push(("syntax", Reply::bulk(spec.syntax())));
        } else {
            docs.push(("group", Reply::bulk("server")));
        }
        (Reply::bulk(self.name.to_ascii_lowercase()), Reply::fields(docs))
    }
}
