//! The options of `dlock run`.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::time::Duration;

use clap::Args;
use dlock_client::{Acquire, Client};

use crate::once::Once;
use crate::output::shown;
use crate::values::{duration, lease, lock_name};

/// `dlock run`.
#[derive(Args)]
#[command(override_usage = USAGE, before_help = crate::help::RUN_EXAMPLES, after_help = crate::help::RUN)]
pub struct Run {
    /// A lock of several that are acquired together, all or none
    #[arg(short = 'k', long = "lock", value_name = "NAME", conflicts_with_all = ["shared", "limit"])]
    #[arg(value_parser = lock_name(), help_heading = "Locking")]
    pub keys: Vec<OsString>,

    /// Exclude all other runs of this name: the default
    #[arg(short = 'x', short_alias = 'e', long, conflicts_with_all = ["shared", "limit"], help_heading = "Locking")]
    pub exclusive: bool,

    /// Share the lock with other runs that use --shared, and exclude those that do not
    #[arg(long, help_heading = "Locking")]
    pub shared: bool,

    /// Run at most N commands of this name at a time, in the order in which they came
    #[arg(long, value_name = "N", conflicts_with = "shared", value_parser = clap::value_parser!(u32).range(1..))]
    #[arg(help_heading = "Locking")]
    pub limit: Option<u32>,

    /// How many of the N this command counts as
    #[arg(long, value_name = "K", requires = "limit", default_value_t = 1, help_heading = "Locking")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..))]
    pub permits: u32,

    /// Give the command a number in DLOCK_SLOT, the lowest of 0 to N-1 that no other one has
    ///
    /// A run without --slot removes DLOCK_SLOT from the environment of its command: inside a run with --slot, save it in
    /// another variable first.
    #[arg(long, requires = "limit", conflicts_with = "permits", help_heading = "Locking")]
    pub slot: bool,

    /// The holder as others see it [default: HOST:PID]
    #[arg(long, value_name = "TEXT", value_parser = crate::steps::owner_label, help_heading = "Locking")]
    pub label: Option<String>,

    /// How long the lock stays if this process dies; at least 3s
    #[arg(short, long, value_name = "TIME", default_value = "30s", value_parser = lease, help_heading = "Locking")]
    pub lease: Duration,

    /// End the lock this long after the grant, even if the command still runs; at least 3s
    ///
    /// The command gets TERM earlier (11.7 s with the default lease, 1.9 s at least), and KILL at least 1 s earlier.
    #[arg(long, value_name = "TIME", value_parser = lease, help_heading = "Locking")]
    pub max_time: Option<Duration>,

    /// The lock counts only if N replicas have it, at first and with each renewal
    #[arg(long, value_name = "N", default_value_t = 0, help_heading = "Locking")]
    pub replicas: u32,

    /// How long replicas may take to acknowledge it
    #[arg(long, value_name = "TIME", value_parser = duration, default_value = "1s", requires = "replicas")]
    #[arg(help_heading = "Locking")]
    pub replicas_timeout: Duration,

    /// How long to wait in the queue [default: without limit]
    #[arg(short, long, visible_alias = "timeout", value_name = "TIME", value_parser = duration)]
    #[arg(conflicts_with = "no_wait", help_heading = "Waiting")]
    pub wait: Option<Duration>,

    /// Do not wait in the queue
    #[arg(short, long, visible_alias = "nonblock", alias = "nb", help_heading = "Waiting")]
    pub no_wait: bool,

    /// How long to look for a server that does not answer [default: 30s; with --no-wait or --once 1s]
    ///
    /// Counted from the last time that a server answered. With --wait, the whole wait has that limit, so the two exclude
    /// each other.
    #[arg(long, value_name = "TIME", value_parser = duration, conflicts_with = "wait", help_heading = "Waiting")]
    pub outage: Option<Duration>,

    /// The exit code if the lock was not acquired [default: 1, or 0 with --once]
    #[arg(short = 'E', long, value_name = "CODE", help_heading = "Waiting")]
    pub conflict_exit_code: Option<u8>,

    /// Print nothing if the lock was not acquired, and nothing while it waits
    #[arg(short, long, help_heading = "Waiting")]
    pub quiet: bool,

    #[command(flatten)]
    pub once: Once,

    /// Give this line to a shell ($SHELL, or /bin/sh) instead of running a program
    #[arg(short = 'c', long = "command", value_name = "LINE", conflicts_with = "command")]
    pub line: Option<OsString>,

    /// The name of the lock; left out with -k
    #[arg(value_parser = lock_name(), required_unless_present = "keys")]
    pub name: Option<OsString>,

    /// The program to run, with its arguments
    #[arg(required_unless_present_any = ["keys", "line"], trailing_var_arg = true, allow_hyphen_values = true)]
    pub command: Vec<OsString>,
}

impl Run {
    /// Checks what the definition of the options cannot express, and returns the options with the lease to renew.
    pub fn checked(mut self) -> Result<Self, dlock_client::Error> {
        // `dlock run -- -name -- program`: the name ends with the second pair of dashes.
        if self.command.first().is_some_and(|word| word == "--") {
            self.command.remove(0);
        }
        let wrong = |why: &str| Err(dlock_client::Error::Invalid(why.to_owned()));
        let mut names: Vec<_> = self.keys.iter().collect();
        names.sort();
        if let Some((twice, _)) = names.iter().zip(names.iter().skip(1)).find(|(one, next)| one == next) {
            return wrong(&format!("-k {} is given twice", shown(twice.as_bytes())));
        }
        if self.line.is_some() && !self.keys.is_empty() && self.name.is_some() {
            return wrong("-k names the locks, and -c the command: there is one word too many");
        }
        if self.line.is_none() && self.program().is_none() {
            return wrong("there is no command to run");
        }
        self.lease = self.once.lease(self.lease);
        Ok(self)
    }

    /// Returns the acquisition of the lock in its mode, without further options.
    pub fn acquire(&self, client: &Client) -> Acquire {
        let name = self.name.as_deref().unwrap_or_default().as_bytes();
        match self.limit {
            _ if !self.keys.is_empty() => client.acquire_all(self.keys.iter().map(|key| key.as_bytes())),
            Some(limit) if self.slot => client.semaphore(name, limit).acquire_slot(),
            Some(limit) => client.semaphore(name, limit).acquire_many(self.permits),
            None if self.shared => client.read(name),
            None => client.acquire(name),
        }
    }

    /// Returns the program and its arguments, unless a line for the shell takes their place.
    pub fn program(&self) -> Option<(&OsString, &[OsString])> {
        match self.keys.as_slice() {
            [] => self.command.split_first(),
            // `-k` names the locks, so the first word is the program.
            _ => self.name.as_ref().map(|program| (program, self.command.as_slice())),
        }
    }

    /// Returns the names of the locks.
    pub fn names(&self) -> impl Iterator<Item = &OsStr> {
        let name = if self.keys.is_empty() { self.name.as_deref() } else { None };
        self.keys.iter().map(OsString::as_os_str).chain(name)
    }

    /// Returns the names of the locks, for messages.
    pub fn shown(&self) -> String {
        self.names().map(|name| shown(name.as_bytes())).collect::<Vec<_>>().join(" ")
    }
}

/// Returns a hint if an invalid command line has an option of `flock` that is missing or means something else here.
pub fn flock_hint(words: impl Iterator<Item = OsString>) -> Option<&'static str> {
    let words: Vec<_> = words.skip_while(|word| word != "run").skip(1).take_while(|word| word != "--").collect();
    let is_server = |word: Option<&OsString>| word.is_some_and(|word| word.to_string_lossy().contains("://"));
    words.iter().enumerate().find_map(|(at, word)| {
        Some(match word.to_str()? {
            "-s" if !is_server(words.get(at + 1)) => "-s names the server; a shared lock, flock's -s, is --shared",
            "-u" | "--unlock" => "flock's -u: a lock ends with its command; dlock release ends one of dlock acquire",
            "-F" | "--no-fork" => "flock's -F: dlock run stays beside the command, to renew and to release the lock",
            "-o" | "--close" => "flock's -o: there is no file descriptor that the command could keep",
            "--fcntl" => "flock's --fcntl: the lock is one of the server, not of a file",
            _ => return None,
        })
    })
}

const USAGE: &str = "\
dlock run [OPTIONS] NAME -- COMMAND…
       dlock run [OPTIONS] NAME -c LINE
       dlock run [OPTIONS] -k NAME -k NAME… -- COMMAND…";

impl Run {
    /// Returns the exit code if the lock was not acquired.
    pub fn conflict(&self) -> u8 {
        let usual = if self.once.once.is_some() { 0 } else { crate::exit::NEGATIVE };
        self.conflict_exit_code.unwrap_or(usual)
    }
}
