//! The command line.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Parser, Subcommand};
use clap_complete::Shell;

use crate::failover::options::FailoverOptions;
use crate::graph::Drawing;
use crate::help;
use crate::log::LogOptions;
use crate::metrics::MetricsOptions;
use crate::output::{Format, Output};
use crate::run::options::Run;
use crate::servers::Servers;
use crate::steps::{AcquireOptions, Held};
use crate::values::{duration, lock_name, some_time};

/// Run commands under a lock of Redis or Valkey, and look at locks.
#[derive(Parser)]
#[command(name = "dlock", version, before_help = help::DLOCK_EXAMPLES, after_help = help::DLOCK)]
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
    /// that are sent to `dlock run`, which renews the lease of the lock. When it cannot, the command gets TERM, and
    /// KILL at least 1 s before the lease ends. When `dlock run` is killed, the command is killed too.
    Run(Box<Run>),
    /// Acquire a lock and keep it after this command has ended
    ///
    /// For steps of a pipeline, maintenance, and agents. Prints the owner and the token, which dlock renew and dlock
    /// release need.
    Acquire(AcquireOptions),
    /// Renew a lock of dlock acquire
    #[command(before_help = help::RENEW_EXAMPLES, after_help = help::RENEW)]
    Renew {
        #[command(flatten)]
        held: Held,
        /// How long the lock stays from now on [default: its lease]
        #[arg(short, long, value_name = "TIME", value_parser = some_time)]
        lease: Option<Duration>,
    },
    /// Release a lock of dlock acquire, or another one in the name of its owner
    #[command(before_help = help::RELEASE_EXAMPLES, after_help = help::RELEASE)]
    Release(Held),
    /// Show who holds a lock and who waits for it
    #[command(before_help = help::INFO_EXAMPLES, after_help = help::INFO)]
    Info {
        /// The name of the lock
        #[arg(value_parser = lock_name())]
        name: OsString,
        #[command(flatten)]
        format: Format,
    },
    /// List locks
    #[command(before_help = help::LS_EXAMPLES, after_help = help::LS)]
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
    #[command(before_help = help::WATCH_EXAMPLES, after_help = help::WATCH)]
    Watch {
        /// The name of the lock
        #[arg(value_parser = lock_name())]
        name: OsString,
        #[command(flatten)]
        output: Output,
    },
    /// Show what happened: long waits, leases that ran out, deadlocks
    #[command(before_help = help::LOG_EXAMPLES, after_help = help::LOG)]
    Log(LogOptions),
    /// Show who waits for whom, and deadlocks
    #[command(before_help = help::GRAPH_EXAMPLES, after_help = help::GRAPH)]
    Graph {
        /// Names of locks, with * and ? as in KEYS
        #[arg(default_value = "*")]
        pattern: OsString,
        /// The format of the output
        #[arg(short, long, value_enum, default_value_t = Drawing::Text)]
        format: Drawing,
    },
    /// Serve what servers count, and their most contended locks, to Prometheus
    #[command(before_help = help::METRICS_EXAMPLES, after_help = help::METRICS)]
    Metrics(MetricsOptions),
    /// Show locks live on a terminal; q quits, ? helps
    #[command(before_help = help::TOP_EXAMPLES, after_help = help::TOP)]
    Top {
        /// Names, with * and ? as in KEYS
        #[arg(default_value = "*")]
        pattern: OsString,
        /// How often to look
        #[arg(short, long, value_name = "TIME", default_value = "1s", value_parser = duration)]
        interval: Duration,
    },
    /// Take a lock away from its holders, after asking
    ///
    /// Shows the holders first. Only they lose the lock, and the next waiter gets it. A former holder learns of it at
    /// its next renewal. Until then, it and the new holder may both work under the lock: the fencing token tells them
    /// apart.
    #[command(before_help = help::BREAK_EXAMPLES, after_help = help::BREAK)]
    Break {
        /// The name of the lock
        #[arg(value_parser = lock_name())]
        name: OsString,
        /// Do not ask
        #[arg(short, long)]
        yes: bool,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Hand over to a replica in a planned failover, without granting a lock twice
    ///
    /// For a primary that Sentinels watch, a node of a cluster, or a primary with replicas. Checks first that the
    /// replicas answer, have the module and do not lag. Then either the replica takes over, with every lock, or the
    /// primary stays the primary.
    #[command(before_help = help::FAILOVER_EXAMPLES, after_help = help::FAILOVER)]
    Failover(FailoverOptions),
    /// Take the module out of a server, or say what still needs it
    #[command(before_help = help::UNINSTALL_EXAMPLES, after_help = help::UNINSTALL)]
    Uninstall(crate::uninstall::Options),
    /// Offer locks to every client of Redis on this machine, over a quorum, Sentinel, a cluster or one server
    ///
    /// Speaks the protocol of Redis on a Unix socket or on loopback. Several servers (-s URL -s URL -s URL) are a quorum.
    /// Otherwise, commands are passed on, and failovers are followed.
    #[command(before_help = help::AGENT_EXAMPLES, after_help = help::AGENT)]
    Agent(crate::agent::AgentOptions),
    /// Serve locks from memory: a lock server that needs no Redis, for tests and for a quorum
    ///
    /// Speaks the protocol of Redis, and has all commands of dlock. It is no store: it loses its locks when it ends.
    #[command(before_help = help::SERVE_EXAMPLES, after_help = help::SERVE)]
    Serve(crate::serve::Options),
    /// Print the completions for a shell
    #[command(before_help = help::COMPLETIONS_EXAMPLES, after_help = help::PRINTED)]
    Completions {
        /// The shell
        shell: Shell,
    },
    /// Print the man page of dlock, or write the man pages of all subcommands
    #[command(before_help = help::MAN_EXAMPLES, after_help = help::PRINTED)]
    Man {
        /// Where to write dlock.1, dlock-run.1 and so on
        directory: Option<PathBuf>,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_definition_of_the_options_is_valid() {
        crate::parse::command().debug_assert();
    }

    #[test]
    fn words_after_the_lock_are_the_command_with_its_own_options() {
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
