//! The command line.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::builder::{OsStringValueParser, TypedValueParser};
use clap::error::{ContextKind, ContextValue};
use clap::{Args, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;
use dlock_client::LogEntry;

use crate::deadline::MIN_LEASE;
use crate::once::Once;
use crate::output::for_people;
use crate::servers::Servers;

/// Run commands under a lock of Redis or Valkey, and look at locks.
///
/// The server needs the dlock module. A lock is a key of its own type. Commands that wait for it are in a queue in the
/// server.
#[derive(Parser)]
#[command(name = "dlock", version, after_help = "Exit codes and more examples: dlock run --help")]
pub struct Cli {
    #[command(flatten)]
    pub servers: Servers,

    #[command(subcommand)]
    pub command: Command,
}

#[derive(Subcommand)]
pub enum Command {
    /// Run a command under a lock
    ///
    /// The command gets DLOCK_NAME, DLOCK_OWNER and DLOCK_TOKEN (the fencing token) in its environment, and the signals
    /// that are sent to `dlock run`. The lock is kept by a lease that is renewed. When it cannot be renewed, the
    /// command gets TERM, and KILL at least 1 s before the lease ends. When `dlock run` is killed, the command is
    /// killed too.
    Run(Run),
    /// Show who holds a lock and who waits for it
    #[command(after_help = "Exit code: 0 it is held, 1 it is free.")]
    Info {
        /// The lock
        #[arg(value_parser = lock_name())]
        name: OsString,
        #[command(flatten)]
        format: Format,
    },
    /// List locks
    #[command(after_help = LS_HELP)]
    Ls {
        /// Names, with * and ? as in KEYS
        #[arg(default_value = "*")]
        pattern: OsString,
        #[command(flatten)]
        format: Format,
    },
    /// Print each change of the holders of a lock, as it happens
    ///
    /// The server reports changes, so nothing polls. Holders that change faster than they can be read may be missed.
    /// The last state never is.
    Watch {
        /// The lock
        #[arg(value_parser = lock_name())]
        name: OsString,
        #[command(flatten)]
        output: Output,
    },
    /// Show what happened: long waits, leases that ran out, deadlocks
    #[command(after_help = LOG_HELP)]
    Log(LogOptions),
    /// Show who waits for whom, and deadlocks
    #[command(after_help = GRAPH_HELP)]
    Graph {
        /// Names of locks, with * and ? as in KEYS
        #[arg(default_value = "*")]
        pattern: OsString,
        /// As what
        #[arg(short, long, value_enum, default_value_t = Drawing::Text)]
        format: Drawing,
    },
    /// Serve what servers count, and their most contended locks, to Prometheus
    #[command(after_help = METRICS_HELP)]
    Metrics(MetricsOptions),
    /// Show locks on a terminal, again and again; q ends it, h shows the keys
    #[command(after_help = "Goes through all keys of the server (SCAN) each time.")]
    Top {
        /// Names, with * and ? as in KEYS
        #[arg(default_value = "*")]
        pattern: OsString,
        /// How often to look
        #[arg(short, long, value_name = "TIME", default_value = "1s", value_parser = duration)]
        interval: Duration,
    },
    /// Release a lock in the name of its owner
    #[command(after_help = "Exit code: 0 it was released, 1 that owner did not hold it.")]
    Release {
        /// The lock
        #[arg(value_parser = lock_name())]
        name: OsString,
        /// Its owner, as `dlock info` shows it
        owner: OsString,
    },
    /// Take a lock away from whoever holds it, after asking
    ///
    /// Shows the holders first. Only they lose the lock, and the next waiter gets it. A former holder learns of it at
    /// its next renewal. Until then, both may work as if they held the lock: the fencing token tells them apart.
    #[command(after_help = "Exit code: 0 it is free, 1 it was left alone.")]
    Break {
        /// The lock
        #[arg(value_parser = lock_name())]
        name: OsString,
        /// Do not ask
        #[arg(short, long)]
        yes: bool,
    },
    /// Hand over to a replica, as planned, without granting a lock twice
    ///
    /// Of a primary that Sentinels watch, of a node of a cluster, or of a primary with replicas. Checks first that the
    /// replicas answer, have the module and do not lag. Then either the replica takes over, with every lock, or the
    /// primary stays what it is.
    #[command(after_help = FAILOVER_HELP)]
    Failover(FailoverOptions),
    /// Offer locks to every client of Redis on this machine, over a quorum, Sentinel, a cluster or one server
    ///
    /// Speaks the protocol of Redis on a Unix socket or on loopback. Several servers (-s URL -s URL -s URL) are a quorum.
    /// Otherwise, commands are passed on, and failovers are followed.
    #[command(after_help = crate::agent::HELP)]
    Agent(crate::agent::AgentOptions),
    /// Print the completions for a shell
    #[command(after_help = "Example, for bash:\n  dlock completions bash > /etc/bash_completion.d/dlock")]
    Completions {
        /// The shell
        shell: Shell,
    },
    /// Print the man page, or write all of them
    #[command(after_help = "Examples:\n  dlock man | man -l -\n  dlock man /usr/local/share/man/man1")]
    Man {
        /// Where to write dlock.1, dlock-run.1 and so on
        directory: Option<PathBuf>,
    },
}

/// `dlock run`.
#[derive(Args)]
#[command(override_usage = RUN_USAGE, after_help = RUN_HELP)]
pub struct Run {
    /// One of several locks that are acquired together, all or none
    #[arg(short = 'k', long = "lock", value_name = "NAME", conflicts_with_all = ["shared", "limit"])]
    #[arg(value_parser = lock_name())]
    pub keys: Vec<OsString>,

    /// Run at most N commands of this name at a time, in the order in which they came
    #[arg(long, value_name = "N", conflicts_with = "shared", value_parser = clap::value_parser!(u32).range(1..))]
    pub limit: Option<u32>,

    /// How many of the N this command counts as
    #[arg(long, value_name = "K", requires = "limit", default_value_t = 1)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..))]
    pub permits: u32,

    /// Give the command a number in DLOCK_SLOT, the lowest of 0 to N-1 that no other one has
    #[arg(long, requires = "limit", conflicts_with = "permits")]
    pub slot: bool,

    /// How long the lock stays if this process dies; at least 3s
    #[arg(short, long, value_name = "TIME", default_value = "30s", value_parser = lease)]
    pub lease: Duration,

    /// End the lock this long after the grant, whatever renews it; at least 3s. The command gets TERM earlier (11.7 s
    /// with the default lease, 1.9 s at least), and KILL at least 1 s earlier
    #[arg(long, value_name = "TIME", value_parser = lease)]
    pub max_time: Option<Duration>,

    /// How long to wait in the queue [default: without limit]
    #[arg(short, long, value_name = "TIME", value_parser = duration, conflicts_with = "no_wait")]
    pub wait: Option<Duration>,

    /// Do not wait in the queue
    #[arg(short, long)]
    pub no_wait: bool,

    /// How long to look for a server, from the last time that one answered [default: as long as --wait; without it 30s,
    /// with --no-wait 1s]
    #[arg(long, value_name = "TIME", value_parser = duration, conflicts_with = "wait")]
    pub outage: Option<Duration>,

    /// The lock counts only if N replicas have it, at first and with each renewal
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub replicas: u32,

    /// How long replicas may take to acknowledge it
    #[arg(long, value_name = "TIME", value_parser = duration, default_value = "1s", requires = "replicas")]
    pub replicas_timeout: Duration,

    /// Share the lock with other runs that use --shared, and exclude those that do not
    #[arg(long)]
    pub shared: bool,

    #[command(flatten)]
    pub once: Once,

    /// The exit code if the lock was not acquired [default: 1, with --once 0]
    #[arg(short = 'E', long, value_name = "CODE")]
    pub conflict_exit_code: Option<u8>,

    /// Print nothing if the lock was not acquired
    #[arg(short, long)]
    pub quiet: bool,

    /// The lock; left out with -k
    #[arg(value_parser = lock_name())]
    pub name: OsString,

    /// The program to run, with its arguments
    #[arg(required_unless_present = "keys", trailing_var_arg = true, allow_hyphen_values = true)]
    pub command: Vec<OsString>,
}

#[derive(Args)]
pub struct Output {
    /// JSON, also on a terminal (elsewhere it always is)
    #[arg(long)]
    pub json: bool,
}

/// How to print several of something.
#[derive(Args, Clone, Copy)]
pub struct Format {
    /// JSON, also on a terminal (elsewhere it always is)
    #[arg(long, conflicts_with = "table")]
    pub json: bool,
    /// A table, also in a pipe
    #[arg(long)]
    pub table: bool,
}

impl Format {
    /// Returns whether to print for people.
    pub fn table(self) -> bool {
        self.table || for_people(self.json)
    }
}

/// `dlock log`.
#[derive(Args)]
pub struct LogOptions {
    /// Wait for more; ended by Ctrl-C
    #[arg(short, long)]
    pub follow: bool,

    /// How many entries to begin with
    #[arg(short = 'n', long, value_name = "N", default_value_t = 10)]
    pub count: u64,

    /// Only these events: wait, timeout, hold, lapse, cap, session-end, delete, flush, deadlock
    #[arg(short, long = "event", value_name = "EVENT", value_delimiter = ',')]
    pub events: Vec<String>,

    #[command(flatten)]
    pub format: Format,
}

impl LogOptions {
    /// Returns whether to print this entry.
    pub fn wants(&self, entry: &LogEntry) -> bool {
        self.events.is_empty() || self.events.iter().any(|event| event == entry.event.as_str())
    }
}

/// As what to print a graph.
#[derive(Clone, Copy, ValueEnum)]
pub enum Drawing {
    /// Lines to read
    Text,
    /// For Graphviz
    Dot,
    /// For Markdown
    Mermaid,
}

/// `dlock failover`.
#[derive(Args)]
pub struct FailoverOptions {
    /// The replica to promote (not with Sentinel, which chooses) [default: in a cluster the node of the URL if it is a
    /// replica; otherwise the one that has most]
    #[arg(long, value_name = "HOST:PORT", value_parser = crate::failover::address)]
    pub to: Option<(String, u16)>,

    /// How long the replicas may take to get what they lack; writes are paused for as long at most, and with Sentinel
    /// for half of its down-after-milliseconds
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = duration)]
    pub timeout: Duration,

    /// Check, and print the commands instead of sending them
    #[arg(long)]
    pub dry_run: bool,
}

/// `dlock metrics`.
#[derive(Args)]
pub struct MetricsOptions {
    /// Serve them at http://ADDRESS/metrics, such as 127.0.0.1:9122 [default: print them once]
    #[arg(long, value_name = "ADDRESS")]
    pub listen: Option<SocketAddr>,

    /// How many of the most contended locks to show, at most 16 (three series each)
    #[arg(long, value_name = "N", default_value_t = crate::metrics::MAX_LOCKS, value_parser = locks)]
    pub locks: usize,

    /// Names of the locks to show, with * and ? as in KEYS
    #[arg(long, value_name = "PATTERN", default_value = "*")]
    pub pattern: OsString,
}

const LS_HELP: &str = "\
Goes through all keys of the server (SCAN). If some nodes of a cluster do not answer, prints the locks of the others.

Exit code: 0; 69 if a server did not answer.

Example:
  dlock ls 'deploy:*'";

const LOG_HELP: &str = "\
Several servers (-s URL -s URL) are read one by one, also without --longest-lease.

Exit code: 0; 69 if a server did not answer.

Examples:
  dlock log --event lapse,deadlock
  dlock log --follow";

const GRAPH_HELP: &str = "\
Goes through all keys of the servers (SCAN). Several servers (-s URL -s URL) are read one by one: an owner that holds a
lock on one and waits on another may be part of a deadlock that neither of them sees.

Exit code: 0; 69 if a server did not answer.

Examples:
  dlock graph
  dlock graph --format dot | dot -Tsvg > waits.svg
  dlock graph -s redis://a -s redis://b 'order:*'";

const METRICS_HELP: &str = "\
Reads INFO dlock each time it is asked. If anybody waits, it also goes through all keys of the server (SCAN) for the most
contended locks; --locks 0 leaves that out. Several servers (-s URL -s URL) are read one by one.

Example:
  dlock metrics --listen 127.0.0.1:9122";

const FAILOVER_HELP: &str = "\
Ctrl-C undoes what was done, until a replica is being promoted. Then it is too late.

Exit code: 0 the replica is the primary, 1 the old primary stays it (128 and the number of the signal if one ended it),
64 the command line is invalid, 69 a server did not answer; if it is not certain which server is the primary, the
message says so.

Examples:
  dlock failover -s redis-sentinel://a,b,c/main --dry-run
  dlock failover -s redis-sentinel://a,b,c/main
  dlock failover -s redis://a --to b:6379
  dlock failover -s redis://node-4:7000      # a replica of a cluster takes over";

const RUN_USAGE: &str = "\
dlock run [OPTIONS] NAME -- COMMAND…
       dlock run [OPTIONS] -k NAME -k NAME… -- COMMAND…";

const RUN_HELP: &str = "\
Times: 500ms, 30s, 5m, 2h, 1d; without a unit seconds.

Exit code: that of the command (128 and the number of the signal that killed it), or
    1  the lock was not acquired (with --once 0; another code with -E)
   64  the command line is invalid
   69  no server answers (quorum: no majority), it returns an error, or too few replicas have the lock
   75  the lock was lost while the command ran, which was ended; or --max-time has ended both
  126  the command cannot be started
  127  the command does not exist

Examples:
  dlock run backup -- /usr/local/bin/backup --full
  dlock run --no-wait -E 0 report -- make report      # cron: skip it if the last one is still running
  dlock run --wait 10m --lease 1m deploy:web -- ./deploy.sh
  dlock run --once 1d --quiet report -- make report   # cron on several machines: one of them runs it
  dlock run --max-time 1h import -- ./import          # one that hangs does not keep its lock
  dlock run --limit 4 render -- ./render page.svg     # at most four at a time
  dlock run --limit 4 --slot gpu -- sh -c 'CUDA_VISIBLE_DEVICES=$DLOCK_SLOT exec ./train'
  dlock run -k account:1 -k account:2 -- ./transfer   # both locks or none
  dlock run -s redis://a -s redis://b -s redis://c --longest-lease 1m report -- make report
  dlock run db:migrate -- sh -c 'migrate --fence \"$DLOCK_TOKEN\"'";

/// Removes the tip `dlock run -- -x`, which `clap` gives for an option that does not exist: it would run a command
/// under a lock of this name.
pub fn without_wrong_tip(mut error: clap::Error) -> clap::Error {
    let usage = error.get(ContextKind::Usage).map(ToString::to_string).unwrap_or_default();
    if usage.contains("dlock run")
        && let Some(ContextValue::StyledStrs(mut tips)) = error.remove(ContextKind::Suggested)
    {
        tips.retain(|tip| !tip.to_string().contains("as a value"));
        if !tips.is_empty() {
            error.insert(ContextKind::Suggested, ContextValue::StyledStrs(tips));
        }
    }
    error
}

fn locks(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(count @ 0..=crate::metrics::MAX_LOCKS) => Ok(count),
        _ => Err(format!("from 0 to {}", crate::metrics::MAX_LOCKS)),
    }
}

/// Returns the name of a lock: a variable of the shell that is not set must not become one.
fn lock_name() -> impl TypedValueParser<Value = OsString> {
    OsStringValueParser::new()
        .try_map(|name| if name.is_empty() { Err("the name of a lock is empty") } else { Ok(name) })
}

fn lease(text: &str) -> Result<Duration, String> {
    match duration(text)? {
        lease if lease < MIN_LEASE => Err(format!("at least {MIN_LEASE:?}: the command is ended 1 s before")),
        lease => Ok(lease),
    }
}

/// Reads `1.5`, `500ms`, `30s`, `5m`, `2h`, `1d`.
pub fn duration(text: &str) -> Result<Duration, String> {
    let (number, unit) = text.split_at(text.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(text.len()));
    let unit = match unit {
        "ms" => 0.001,
        "" | "s" => 1.0,
        "m" => 60.0,
        "h" => 3600.0,
        "d" => 86400.0,
        _ => return Err(format!("no unit of time: {unit} (ms, s, m, h or d)")),
    };
    let seconds = number.parse::<f64>().map_err(|_| "not a number".to_owned())? * unit;
    match Duration::try_from_secs_f64(seconds) {
        Ok(time) if seconds <= A_YEAR => Ok(time),
        _ => Err("from 0 to 365 days".to_owned()),
    }
}

const A_YEAR: f64 = 365.0 * 86400.0;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_units_and_are_seconds_without() {
        for (text, ms) in [("0", 0), ("2", 2000), ("1.5s", 1500), ("250ms", 250), ("2m", 120_000), ("1h", 3_600_000)] {
            assert_eq!(duration(text), Ok(Duration::from_millis(ms)), "{text}");
        }
        for text in ["", "s", "-1", "1w", "1 s", "inf", "NaN", "1e300", "366d"] {
            assert!(duration(text).is_err(), "{text}");
        }
    }

    #[test]
    fn the_command_line_is_sound() {
        use clap::CommandFactory;
        Cli::command().debug_assert();
        let parsed = Cli::parse_from(["dlock", "run", "-s", "redis://x", "job", "--", "ls", "-l", "--help"]);
        let Command::Run(run) = parsed.command else { panic!("run") };
        assert_eq!(run.command, ["ls", "-l", "--help"]);
        assert_eq!(parsed.servers.server, ["redis://x"]);
        let parsed = Cli::parse_from(["dlock", "run", "-k", "a", "--lock", "b", "--", "ls", "-l"]);
        let Command::Run(run) = parsed.command else { panic!("run") };
        assert_eq!(run.keys, ["a", "b"]);
        assert_eq!(run.program(), Some((&"ls".into(), &["-l".into()][..])));
        let parsed = Cli::parse_from(["dlock", "run", "-k", "a", "true"]);
        let Command::Run(run) = parsed.command else { panic!("run") };
        assert_eq!(run.program(), Some((&"true".into(), &[][..])));
    }
}
