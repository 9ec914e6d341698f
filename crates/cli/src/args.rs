//! The command line.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::error::{ContextKind, ContextValue};
use clap::{Args, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;
use dlock_client::LogEntry;

use crate::output::for_people;
use crate::run::options::Run;
use crate::servers::Servers;
use crate::steps::{AcquireOptions, Held};
use crate::values::{duration, lock_name};

/// Run commands under a lock of Redis or Valkey, and look at locks.
#[derive(Parser)]
#[command(name = "dlock", version, before_help = EXAMPLES, after_help = MORE, help_template = EXAMPLES_FIRST)]
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
    Run(Box<Run>),
    /// Acquire a lock and keep it after this command has ended
    ///
    /// For steps of a pipeline, maintenance, and agents. Prints the owner and the token, which dlock renew and dlock
    /// release need.
    Acquire(AcquireOptions),
    /// Renew a lock of dlock acquire
    #[command(after_help = crate::steps::RENEW_HELP)]
    Renew {
        #[command(flatten)]
        held: Held,
        /// How long it stays from now on [default: its lease]
        #[arg(short, long, value_name = "TIME", value_parser = duration)]
        lease: Option<Duration>,
    },
    /// Release a lock of dlock acquire, or another one in the name of its owner
    #[command(after_help = crate::steps::RELEASE_HELP)]
    Release(Held),
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
    /// Show locks live on a terminal; q quits, ? helps
    #[command(after_help = "Goes through all keys of the server (SCAN) each time.")]
    Top {
        /// Names, with * and ? as in KEYS
        #[arg(default_value = "*")]
        pattern: OsString,
        /// How often to look
        #[arg(short, long, value_name = "TIME", default_value = "1s", value_parser = duration)]
        interval: Duration,
    },
    /// Take a lock away from whoever holds it, after asking
    ///
    /// Shows the holders first. Only they lose the lock, and the next waiter gets it. A former holder learns of it at
    /// its next renewal. Until then, both may work as if they held the lock: the fencing token tells them apart.
    #[command(
        after_help = "The server logs who broke it (dlock log).\n\nExit code: 0 it was taken or was free, 1 it was left alone."
    )]
    Break {
        /// The lock
        #[arg(value_parser = lock_name())]
        name: OsString,
        /// Do not ask
        #[arg(short, long)]
        yes: bool,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Hand over to a replica, as planned, without granting a lock twice
    ///
    /// Of a primary that Sentinels watch, of a node of a cluster, or of a primary with replicas. Checks first that the
    /// replicas answer, have the module and do not lag. Then either the replica takes over, with every lock, or the
    /// primary stays what it is.
    #[command(after_help = FAILOVER_HELP)]
    Failover(FailoverOptions),
    /// Take the module out of a server, or say what still needs it
    #[command(after_help = crate::uninstall::HELP)]
    Uninstall(crate::uninstall::Options),
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

    /// Only these events: wait, timeout, hold, lapse, cap, session-end, break, delete, flush, deadlock
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

const EXAMPLES: &str = "\
Examples:
  dlock run backup -- /usr/local/bin/backup --full    # one at a time, on all machines together
  dlock run --once 1d report -- make report           # in the crontab of each machine: one of them runs it
  dlock acquire deploy:web --lease 1h                 # across the steps of a pipeline
  dlock info backup                                   # who holds it, and who waits
  dlock top";

const MORE: &str = "\
The server (-s URL, or DLOCK_URL) needs the dlock module. dlock COMMAND --help has more examples, and the exit codes.";

/// The template of a help page that begins with examples.
pub const EXAMPLES_FIRST: &str = "\
{about-with-newline}
{before-help}{usage-heading} {usage}

{all-args}{after-help}";

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

#[cfg(test)]
mod tests {
    use super::*;

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
