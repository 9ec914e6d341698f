//! The `dlock` command.
#![deny(unsafe_code)]

mod agent;
mod args;
mod break_lock;
mod deadline;
mod exit;
mod exposition;
mod failover;
mod graph;
mod help;
mod holds;
mod list;
mod log;
mod manual;
mod metrics;
mod once;
#[allow(unsafe_code, reason = "code that runs before main, and between fork and exec")]
mod os;
mod output;
mod parse;
mod period;
mod run;
mod serve;
mod servers;
mod signals;
mod steps;
mod top;
mod uninstall;
mod values;
mod waiting;
mod watch;

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::process::ExitCode;

use dlock_client::{Client, Error};

use args::{Cli, Command};

fn main() -> ExitCode {
    let cli = match parse::parse() {
        Ok(cli) => cli,
        Err(code) => return ExitCode::from(code),
    };
    // All code runs on one thread: the command of `dlock run` gets a signal when the thread that started it ends.
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return ExitCode::from(fail(exit::UNAVAILABLE, &error.to_string())),
    };
    let code = runtime.block_on(dispatch(cli));
    // Nobody waits for tasks that still run in the background.
    runtime.shutdown_background();
    ExitCode::from(output::finish(code))
}

/// Does the duties of a container's first process, unless the subcommand does: reaps orphans, and ends by signals.
fn act_as_first_process(command: &Command) -> std::io::Result<()> {
    match command {
        Command::Run(_) | Command::Acquire(_) => Ok(()),
        // Each of these three has its own way to end by a signal.
        Command::Agent(_) | Command::Failover(_) | Command::Serve(_) => signals::reap_in_background(),
        _ => signals::reap_in_background().and_then(|()| signals::end_as_first_process()),
    }
}

async fn dispatch(cli: Cli) -> u8 {
    if let Err(error) = act_as_first_process(&cli.command) {
        return fail(exit::UNAVAILABLE, &error.to_string());
    }
    let outcome = match cli.command {
        Command::Completions { shell } => Ok(manual::completions(shell)),
        Command::Man { directory } => Ok(manual::pages(directory.as_deref())),
        Command::Log(options) => match cli.servers.each() {
            Ok(clients) => log::log(&clients, &options).await,
            Err(error) => Err(error),
        },
        Command::Graph { pattern, format } => match cli.servers.each() {
            Ok(clients) => graph::graph(&clients, bytes(&pattern), format).await,
            Err(error) => Err(error),
        },
        Command::Metrics(options) => match cli.servers.each() {
            Ok(clients) => metrics::metrics(clients, options).await,
            Err(error) => Err(error),
        },
        Command::Run(run) => match run.checked().and_then(|run| Ok((run.once.check(&cli.servers)?, run))) {
            Ok(((), run)) => match cli.servers.open() {
                Ok(client) => Ok(run::run(&client, run).await),
                Err(error) => Err(error),
            },
            Err(error) => Err(error),
        },
        Command::Agent(options) => agent::agent(&cli.servers, options).await,
        Command::Serve(options) => serve::serve(options).await,
        Command::Acquire(options) => steps::acquire(&cli.servers, options).await,
        Command::Uninstall(options) => uninstall::uninstall(&cli.servers, &options).await,
        command => match cli.servers.open() {
            Ok(client) => ask_server(&client, command).await,
            Err(error) => Err(error),
        },
    };
    outcome.unwrap_or_else(|error| fail(exit::of(&error), &error.to_string()))
}

async fn ask_server(client: &Client, command: Command) -> Result<u8, Error> {
    match command {
        Command::Info { name, format } => list::info(client, bytes(&name), format).await,
        Command::Ls { pattern, format } => list::ls(client, bytes(&pattern), format).await,
        Command::Watch { name, output } => watch::watch(client, bytes(&name), output.json).await,
        Command::Top { pattern, interval } => top::top(client, bytes(&pattern), interval).await,
        Command::Renew { held, lease } => steps::renew(client, &held, lease).await,
        Command::Release(held) => steps::release(client, &held).await,
        Command::Break { name, yes, json } => break_lock::break_lock(client, bytes(&name), yes, json).await,
        Command::Failover(options) => failover::failover(client, &options).await,
        // `dispatch` handles these itself.
        Command::Run(_)
        | Command::Acquire(_)
        | Command::Log(_)
        | Command::Graph { .. }
        | Command::Metrics(_)
        | Command::Agent(_)
        | Command::Serve(_)
        | Command::Uninstall(_)
        | Command::Completions { .. }
        | Command::Man { .. } => Ok(0),
    }
}

/// Prints an error, and returns the exit code.
fn fail(code: u8, what: &str) -> u8 {
    output::say(&format!("dlock: {what}"));
    code
}

fn bytes(text: &OsStr) -> &[u8] {
    text.as_bytes()
}
