//! `dlock uninstall`: shows what still needs the module on a server, and removes it.
//!
//! A server without the module does not load a file that has a lock in it, or the token clock, which an RDB file has for
//! a day after the last lock was taken. An AOF that was rewritten without an RDB preamble, when there were no locks, has
//! neither. So the command deletes all locks, and has the server write such an AOF.

use std::collections::HashMap;
use std::io::{self, BufRead, IsTerminal, Write};
use std::time::{Duration, Instant};

use clap::Args;
use dlock_client::{Error, Node};
use redis::{ConnectionAddr, FromRedisValue, IntoConnectionInfo};
use tokio::time::sleep;

use crate::failover::{Info, info};
use crate::output::{counted, print, say};
use crate::servers::Servers;
use crate::values::duration;
use crate::{exit, fail};

/// `dlock uninstall`.
#[derive(Args)]
pub struct Options {
    /// Only say what still needs the module
    #[arg(long, conflicts_with = "yes")]
    check: bool,

    /// Do not ask
    #[arg(short, long)]
    yes: bool,

    /// How long to wait for programs that still take locks
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = duration)]
    timeout: Duration,
}

pub async fn uninstall(servers: &Servers, options: &Options) -> Result<u8, Error> {
    let operator = servers.open()?.operator()?;
    let nodes = operator.nodes();
    let [node] = nodes.as_slice() else {
        let which = if operator.sentinels().is_some() { "Sentinels" } else { "several servers" };
        return Err(Error::Invalid(format!("this URL names {which}: {ONE_SERVER}")));
    };
    let server = Server { node };
    let Some(found) = server.look().await? else {
        print(&format!("{} has no dlock module", node.address()));
        return Ok(0);
    };
    found.describe(&node.address()).iter().for_each(|line| print(line));
    if options.check {
        return Ok(exit::NEGATIVE);
    }
    // Made here, because it may fail: nothing is deleted yet.
    let redis_cli = redis_cli(servers)?;
    if !options.yes {
        if !io::stdin().is_terminal() {
            return Ok(fail(exit::USAGE, "there is nobody to ask: --yes does it without asking"));
        }
        if !confirmed() {
            return Ok(exit::NEGATIVE);
        }
    }
    if found.is_replica && !server.is_cleared(options.timeout).await? {
        return Ok(fail(exit::NEGATIVE, "this is a replica with locks: begin with its primary"));
    }
    if let Err(why) = server.clear(&found, options.timeout).await? {
        return Ok(fail(exit::NEGATIVE, &why));
    }
    found.left_to_do(&redis_cli).iter().for_each(|line| print(line));
    Ok(0)
}

struct Server<'a> {
    node: &'a Node,
}

/// Everything on a server that needs the module.
struct Found {
    locks: u64,
    /// The databases that have locks.
    locked: Vec<u64>,
    waiters: u64,
    sessions: u64,
    /// Users whose rules name commands of the module.
    users: Vec<String>,
    replicas: Vec<String>,
    is_replica: bool,
    has_aof: bool,
    has_preamble: bool,
    /// The paths of the configuration file, of the ACL file and of the module.
    config: String,
    acl: String,
    module: String,
}

impl Server<'_> {
    async fn ask<T: FromRedisValue>(&self, command: &[&str]) -> Result<T, Error> {
        self.node.ask(command, REPLY).await
    }

    async fn setting(&self, name: &str) -> Result<String, Error> {
        let found: HashMap<String, String> = self.ask(&["CONFIG", "GET", name]).await?;
        Ok(found.get(name).cloned().unwrap_or_default())
    }

    /// Looks for everything that needs the module. `None`: the server does not have it.
    async fn look(&self) -> Result<Option<Found>, Error> {
        let modules: Vec<HashMap<String, redis::Value>> = self.ask(&["MODULE", "LIST"]).await?;
        let field = |module: &HashMap<String, redis::Value>, name: &str| {
            module
                .get(name)
                .cloned()
                .and_then(|value| redis::from_redis_value::<String>(value).ok())
                .unwrap_or_default()
        };
        let Some(module) = modules.iter().find(|module| field(module, "name") == "dlock") else { return Ok(None) };
        let known = info(self.node).await?;
        let (databases, numbers) = (known.databases(), self.numbers().await?);
        let locked = self.locked(&databases).await?;
        let rules: Vec<String> = self.ask(&["ACL", "LIST"]).await?;
        Ok(Some(Found {
            locks: locked.iter().map(|(_, locks)| locks).sum(),
            locked: locked.into_iter().map(|(database, _)| database).collect(),
            waiters: numbers.number("dlock_waiters"),
            sessions: numbers.number("dlock_named_sessions"),
            users: rules.iter().filter(|rule| names_the_module(rule)).filter_map(|rule| user(rule)).collect(),
            replicas: known.replicas().into_iter().map(|(host, port)| format!("{host}:{port}")).collect(),
            is_replica: known.is_replica(),
            has_aof: self.setting("appendonly").await? == "yes",
            has_preamble: self.setting("aof-use-rdb-preamble").await? == "yes",
            config: known.field("config_file").to_owned(),
            acl: self.setting("aclfile").await?,
            module: field(module, "path"),
        }))
    }

    /// Reads the counters of the module.
    async fn numbers(&self) -> Result<Info, Error> {
        Ok(Info::of(&self.ask::<String>(&["INFO", "dlock"]).await?))
    }

    /// Returns the databases that have locks, with the number of locks in each.
    async fn locked(&self, databases: &[u64]) -> Result<Vec<(u64, u64)>, Error> {
        let mut locked = Vec::new();
        for database in databases {
            locked.push((*database, self.count(*database).await?));
        }
        locked.retain(|(_, locks)| *locks > 0);
        Ok(locked)
    }

    /// Returns the number of locks in a database.
    async fn count(&self, database: u64) -> Result<u64, Error> {
        self.ask::<()>(&["SELECT", &database.to_string()]).await?;
        let (mut cursor, mut count) = ("0".to_owned(), 0);
        loop {
            let command = ["SCAN", &cursor, "COUNT", PAGE, "TYPE", TYPE];
            let (next, names): (String, Vec<Vec<u8>>) = self.ask(&command).await?;
            count += u64::try_from(names.len()).unwrap_or(0);
            if next == "0" {
                return Ok(count);
            }
            cursor = next;
        }
    }

    /// Deletes the locks of all databases. Returns how many there were.
    async fn delete(&self, databases: &[u64]) -> Result<u64, Error> {
        let mut deleted = 0;
        for database in databases {
            self.ask::<()>(&["SELECT", &database.to_string()]).await?;
            let mut cursor = "0".to_owned();
            loop {
                let (next, count): (String, u64) = self.ask(&["EVAL", DELETE, "0", &cursor]).await?;
                deleted += count;
                if next == "0" {
                    break;
                }
                cursor = next;
            }
        }
        Ok(deleted)
    }

    /// Waits until a replica has no locks, since its primary has deleted them. False: some are left after `patience`.
    async fn is_cleared(&self, patience: Duration) -> Result<bool, Error> {
        let end = Instant::now() + patience;
        loop {
            let is_clear = self.locked(&info(self.node).await?.databases()).await?.is_empty();
            if is_clear || Instant::now() >= end {
                return Ok(is_clear);
            }
            sleep(POLL).await;
        }
    }

    /// Deletes all locks and writes the AOF. Returns the reason if programs still take locks, or the AOF fails.
    async fn clear(&self, found: &Found, patience: Duration) -> Result<Result<(), String>, Error> {
        let end = Instant::now() + patience;
        let mut deleted = 0;
        loop {
            let grants = self.numbers().await?.number("dlock_grants");
            // A program may have taken a lock in another database meanwhile.
            let databases = info(self.node).await?.databases();
            let now = if found.is_replica { 0 } else { self.delete(&databases).await? };
            deleted += now;
            if now == 0 {
                if let Err(why) = self.write_aof().await? {
                    return Ok(Err(why));
                }
                // A lock that was taken and released meanwhile is in the AOF, too.
                if self.locked(&databases).await?.is_empty() && self.numbers().await?.number("dlock_grants") == grants {
                    break;
                }
            }
            if Instant::now() >= end {
                return Ok(Err("a program still takes locks: stop it first".to_owned()));
            }
            sleep(POLL).await;
        }
        let locks = counted(deleted, "lock", "locks");
        print(&format!("deleted {locks}, and wrote an AOF that has nothing of the module"));
        // The next start must load the AOF, not an older RDB file.
        if found.config.is_empty() {
            say("dlock: the server has no configuration file: start it with appendonly yes");
        } else {
            self.ask::<()>(&["CONFIG", "REWRITE"]).await?;
        }
        Ok(Ok(()))
    }

    /// Has the server write an AOF without an RDB preamble, and waits for the end. Returns the reason if that fails.
    async fn write_aof(&self) -> Result<Result<(), String>, Error> {
        self.ask::<()>(&["CONFIG", "SET", "aof-use-rdb-preamble", "no"]).await?;
        // A rewrite that is under way may have begun with a preamble.
        self.wait_for_rewrites().await?;
        if self.setting("appendonly").await? == "yes" {
            self.ask::<redis::Value>(&["BGREWRITEAOF"]).await?;
        } else {
            self.ask::<()>(&["CONFIG", "SET", "appendonly", "yes"]).await?;
        }
        let last = self.wait_for_rewrites().await?;
        let status = last.field("aof_last_bgrewrite_status");
        Ok(if status == "ok" {
            Ok(())
        } else {
            Err(format!("the AOF was not written ({status}): see the server's log"))
        })
    }

    async fn wait_for_rewrites(&self) -> Result<Info, Error> {
        loop {
            let known = info(self.node).await?;
            if known.field("aof_rewrite_in_progress") == "0" && known.field("aof_rewrite_scheduled") == "0" {
                return Ok(known);
            }
            sleep(POLL).await;
        }
    }
}

impl Found {
    fn describe(&self, address: &str) -> Vec<String> {
        let mut lines = vec![format!("{address} has the dlock module:")];
        let databases = if self.locked.len() == 1 { "database" } else { "databases" };
        lines.push(match self.locks {
            0 => "  no locks".to_owned(),
            count => format!("  {} in {databases} {}", counted(count, "lock", "locks"), joined(&self.locked)),
        });
        if self.waiters > 0 {
            lines.push(format!("  {}", counted(self.waiters, "request waits", "requests wait")));
        }
        if self.sessions > 0 {
            let sessions =
                counted(self.sessions, "named session: its program runs", "named sessions: their programs run");
            lines.push(format!("  {sessions}"));
        }
        if !self.users.is_empty() {
            lines.push(format!("  rules of users: {}", self.users.join(" ")));
        }
        lines.push(match (self.has_aof, self.has_preamble) {
            // The server does not tell when it last rewrote the AOF.
            (true, false) => {
                "  the AOF has what happened to locks since it was last rewritten, if anything did".to_owned()
            }
            (true, true) => "  the RDB preamble of the AOF has the token clock".to_owned(),
            (false, _) => "  the RDB file has the token clock, until a day after the last lock was taken".to_owned(),
        });
        let config = if self.config.is_empty() { "the options of the server" } else { &self.config };
        lines.push(format!("  {config} loads it: {}", self.module));
        if !self.replicas.is_empty() {
            lines.push(format!("  replicas: {}", self.replicas.join(" ")));
        }
        lines
    }

    /// Returns the steps that are left for a person on the server's machine, which the command `redis_cli` reaches.
    fn left_to_do(&self, redis_cli: &str) -> Vec<String> {
        let mut lines = vec!["left to do on its machine:".to_owned()];
        match (self.is_replica, self.replicas.is_empty()) {
            (true, _) => lines.push("  stop the server together with its primary".to_owned()),
            (false, true) => lines.push("  stop the server".to_owned()),
            (false, false) => {
                let replicas = self.replicas.join(" ");
                lines.push(format!("  dlock uninstall on each replica, before any server stops: {replicas}"));
                lines.push("  stop the Sentinels, if there are any; then the server and its replicas".to_owned());
            }
        }
        let library = self.module.rsplit('/').next().filter(|name| !name.is_empty()).unwrap_or("libdlock.so");
        if !self.config.is_empty() {
            let config = quoted(&self.config);
            let preamble = if self.has_preamble { " -e '/^aof-use-rdb-preamble no/d'" } else { "" };
            lines.push(format!(r"  sed -i -e '/^loadmodule .*\/{library}/d' -e '/^dlock\./d'{preamble} {config}"));
        }
        let users = if self.acl.is_empty() { &self.config } else { &self.acl };
        if !self.users.is_empty() && !users.is_empty() {
            lines.push(format!(r"  sed -i -E '/^user /s/([ (])[-+]@?dlock[^ )]*/\1/Ig' {}", quoted(users)));
        }
        // A replica without the module cannot load what a primary with it sends.
        let order = match (self.is_replica, self.replicas.is_empty()) {
            (true, _) => " after its primary",
            (false, true) => "",
            (false, false) => " before its replicas",
        };
        lines.push(format!("  start the server{order}, and remove the package"));
        if !self.has_preamble {
            lines.push(
                "  aof-use-rdb-preamble is no: if dlock uninstall has set it, set it to yes afterwards".to_owned(),
            );
        }
        if !self.has_aof {
            lines.push("the AOF is on now, and the server starts from it. To go back afterwards:".to_owned());
            let steps = ["SAVE", "CONFIG SET appendonly no", "CONFIG REWRITE"];
            lines.push(format!("  {}", steps.map(|step| format!("{redis_cli} {step}")).join("; ")));
        }
        lines
    }
}

/// Returns the `redis-cli` command that reaches the same server as the same user. The caller
/// appends a command for the server. `redis-cli` asks for the password, if there is one.
fn redis_cli(servers: &Servers) -> Result<String, Error> {
    let url = servers.urls()?.into_iter().next().unwrap_or_default();
    let info = url.into_connection_info().map_err(|_| Error::Invalid("the URL of the server".to_owned()))?;
    let at = |host: &str, port: u16| vec!["redis-cli".to_owned(), "-h".to_owned(), quoted(host), format!("-p {port}")];
    let mut words = match info.addr() {
        ConnectionAddr::Tcp(host, port) => at(host, *port),
        ConnectionAddr::TcpTls { host, port, .. } => {
            let mut words = at(host, *port);
            words.push("--tls".to_owned());
            let files = [("--cacert", &servers.cacert), ("--cert", &servers.cert), ("--key", &servers.key)];
            let named = files.into_iter().filter_map(|(option, file)| Some((option, file.as_ref()?)));
            words.extend(named.map(|(option, file)| format!("{option} {}", quoted(&file.to_string_lossy()))));
            words
        }
        ConnectionAddr::Unix(path) => vec!["redis-cli".to_owned(), "-s".to_owned(), quoted(&path.to_string_lossy())],
        _ => return Err(Error::Invalid("the URL of the server".to_owned())),
    };
    let login = info.redis_settings();
    words.extend(login.username().map(|user| format!("--user {}", quoted(user))));
    words.extend(login.password().map(|_| "--askpass".to_owned()));
    Ok(words.join(" "))
}

fn joined(numbers: &[u64]) -> String {
    numbers.iter().map(u64::to_string).collect::<Vec<_>>().join(" ")
}

/// Returns whether the rule of a user names a command of the module, or its category.
fn names_the_module(rule: &str) -> bool {
    rule.split([' ', '(', ')']).any(|word| {
        let word = word.trim_start_matches(['+', '-']).trim_start_matches('@');
        word.get(.."dlock".len()).is_some_and(|begin| begin.eq_ignore_ascii_case("dlock"))
    })
}

/// Returns the name of the user in a rule.
fn user(rule: &str) -> Option<String> {
    rule.split(' ').nth(1).map(str::to_owned)
}

/// Returns a word for a shell.
fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/._-".contains(c);
    if word.chars().all(is_plain) { word.to_owned() } else { format!("'{}'", word.replace('\'', r"'\''")) }
}

fn confirmed() -> bool {
    let question = "Delete all locks, and write an AOF without them? Stop the programs that take locks first. [y/N] ";
    let _ = write!(io::stderr(), "\n{question}").and_then(|()| io::stderr().flush());
    let mut answer = String::new();
    io::stdin().lock().read_line(&mut answer).is_ok() && matches!(answer.trim(), "y" | "Y" | "yes")
}

const ONE_SERVER: &str =
    "dlock uninstall works on one server after the other, redis://HOST:PORT, the primary first and then each replica";

/// The type of the keys that are locks.
const TYPE: &str = "distrlock";

/// How many keys a step of a scan looks at.
const PAGE: &str = "1000";

/// Deletes the locks of a step of a scan. A script does it, because names are any bytes, and words here are text.
const DELETE: &str = "\
local page = redis.call('SCAN', ARGV[1], 'COUNT', 1000, 'TYPE', 'distrlock')
for _, key in ipairs(page[2]) do redis.call('DEL', key) end
return {page[1], #page[2]}";

/// How long the server may take to answer.
const REPLY: Duration = Duration::from_secs(10);

/// The pause between two questions to the server, while something is waited for.
const POLL: Duration = Duration::from_millis(50);
