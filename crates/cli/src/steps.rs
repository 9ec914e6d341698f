//! `dlock acquire`, `dlock renew` and `dlock release`: a lock that outlives the process that acquired it.

use std::ffi::{OsStr, OsString};
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::time::Duration;

use clap::{Args, ValueEnum};
use dlock_client::{Client, Error, Guard};
use serde_json::json;
use tokio::time::timeout;

use crate::holds::{Hold, Holds, Renewed};
use crate::output::{self, for_people, millis, print, shown, text, time};
use crate::servers::Servers;
use crate::signals::{Children, Signals};
use crate::values::{duration, lock_name, sure_lease};
use crate::waiting::{Audience, Reporter, acquired, holders, label};
use crate::{exit, fail};

/// `dlock acquire`.
#[derive(Args)]
#[command(before_help = crate::help::ACQUIRE_EXAMPLES, after_help = crate::help::ACQUIRE)]
pub struct AcquireOptions {
    /// The name of the lock
    #[arg(value_parser = lock_name())]
    name: OsString,

    /// How long the lock stays: nothing renews it, unless dlock renew does
    #[arg(short, long, value_name = "TIME", value_parser = sure_lease)]
    lease: Duration,

    /// How long to wait in the queue [default: without limit]
    #[arg(short, long, visible_alias = "timeout", value_name = "TIME", value_parser = duration)]
    #[arg(conflicts_with = "no_wait", help_heading = "Waiting")]
    wait: Option<Duration>,

    /// Do not wait in the queue
    #[arg(short, long, visible_alias = "nonblock", alias = "nb", help_heading = "Waiting")]
    no_wait: bool,

    /// The exit code if the lock was not acquired
    #[arg(short = 'E', long, value_name = "CODE", default_value_t = exit::NEGATIVE, help_heading = "Waiting")]
    conflict_exit_code: u8,

    /// Print nothing if the lock was not acquired, and nothing while it waits
    #[arg(short, long, help_heading = "Waiting")]
    quiet: bool,

    /// The holder as others see it [default: HOST:PID]
    #[arg(long, value_name = "TEXT", value_parser = owner_label)]
    label: Option<String>,

    /// Share the lock with others that use --shared
    #[arg(long, conflicts_with = "limit")]
    shared: bool,

    /// Let at most N hold this lock at a time
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    limit: Option<u32>,

    /// Print JSON on a terminal, as in a pipe or a file
    #[arg(long, conflicts_with = "env")]
    json: bool,

    /// Print DLOCK_NAME, DLOCK_OWNER and DLOCK_TOKEN for a shell; with =file for a file such as $GITHUB_ENV
    ///
    /// For a shell, the output is exported variables for eval, or for a file that other shells read by `. FILE`. With
    /// =file, it is lines NAME=VALUE without quotes. There, other characters than letters, digits and -._:/@+,=% become
    /// - in the label, and are refused in the name.
    #[arg(long, value_enum, num_args = 0..=1, require_equals = true, default_missing_value = "shell")]
    env: Option<Lines>,
}

/// The reader of the variables.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Lines {
    /// A shell that evaluates them
    Shell,
    /// A file of an environment, such as $GITHUB_ENV
    File,
}

/// `dlock renew` and `dlock release`.
#[derive(Args)]
pub struct Held {
    /// The name of the lock
    #[arg(value_parser = lock_name())]
    name: OsString,

    /// The owner, as dlock acquire and dlock info print it [default: $DLOCK_OWNER]
    owner: Option<OsString>,

    /// Only the hold with this token [default: $DLOCK_TOKEN, if no owner is given]
    #[arg(long, value_name = "TOKEN")]
    token: Option<u64>,

    /// How long to look for a server that does not answer
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = duration)]
    outage: Duration,

    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Acquires a lock and leaves it to its lease.
pub async fn acquire(servers: &Servers, options: AcquireOptions) -> Result<u8, Error> {
    if servers.are_several() {
        let why = "dlock acquire needs one server: over a quorum, only a running process keeps a lock";
        return Err(Error::Invalid(why.to_owned()));
    }
    if options.env == Some(Lines::File) && options.name.as_bytes().iter().any(|byte| !is_plain(*byte)) {
        let why = "this name needs quotes in a shell or in the file, and --env=file writes none. --env writes them";
        return Err(Error::Invalid(why.to_owned()));
    }
    let client = servers.open()?;
    let taken = Children::take().and_then(|children| Ok((children, Signals::take()?)));
    let (mut children, mut signals) = match taken {
        Ok(taken) => taken,
        Err(error) => return Ok(fail(exit::UNAVAILABLE, &error.to_string())),
    };
    let label = options.owner_label();
    let reporter = options.reporter(&client, &label);
    let guard = match acquired(options.terms(&client, &label), &reporter, &mut signals, &mut children).await {
        Ok(guard) => guard,
        Err(code) => return Ok(code),
    };
    options.print_grant(&guard);
    if output::is_broken() {
        // The output failed, so nobody knows the owner.
        let _ = guard.release().await;
        return Ok(fail(exit::OUTPUT, &format!("{}: released, since nobody reads its owner", reporter.shown())));
    }
    // The guard would release the lock when dropped.
    std::mem::forget(guard);
    Ok(0)
}

impl AcquireOptions {
    /// Returns the label of the owner. With `--env=file`, a `-` replaces each character that may need quotes: a shell
    /// may read that file.
    fn owner_label(&self) -> String {
        let label = self.label.clone().unwrap_or_else(label);
        if self.env != Some(Lines::File) {
            return label;
        }
        label.chars().map(|c| if u8::try_from(c).is_ok_and(is_plain) { c } else { '-' }).collect()
    }

    fn terms(&self, client: &Client, label: &str) -> dlock_client::Acquire {
        let name = self.name.as_bytes();
        let acquire = match self.limit {
            Some(limit) => client.semaphore(name, limit).acquire_many(1),
            None if self.shared => client.read(name),
            None => client.acquire(name),
        };
        let acquire = acquire.lease(self.lease).no_renewal().owner_label(label);
        match (self.no_wait, self.wait) {
            (_, Some(wait)) => acquire.wait(wait),
            (true, None) => acquire.no_wait(),
            (false, None) => acquire,
        }
    }

    fn reporter<'a>(&'a self, client: &'a Client, label: &'a str) -> Reporter<'a> {
        Reporter {
            client,
            names: vec![self.name.as_bytes()],
            label,
            limit: self.limit,
            is_once: false,
            is_quiet: self.quiet,
            audience: Audience::Everybody,
            conflict: self.conflict_exit_code,
            replicas_take: Duration::ZERO,
        }
    }

    /// Prints the owner and the token.
    fn print_grant(&self, guard: &Guard) {
        let (name, owner, token) = (self.name.as_bytes(), guard.owner(), guard.token().to_string());
        if let Some(lines) = self.env {
            let all = [("NAME", name), ("OWNER", owner.as_bytes()), ("TOKEN", token.as_bytes())];
            let all = all.map(|(variable, value)| lines.assignment(variable, value)).concat();
            // Written as bytes: an escaped name would be another name.
            output::write(|out| out.write_all(&all));
        } else if for_people(self.json) {
            print(&format!("{} is held for {}\nowner  {owner}\ntoken  {token}", shown(name), time(self.lease)));
        } else {
            let lease = millis(self.lease);
            print(&json!({"name": text(name), "owner": owner, "token": guard.token(), "lease": lease}).to_string());
        }
    }
}

/// Renews the hold of an owner. Exit code 1: there is none.
pub async fn renew(client: &Client, held: &Held, lease: Option<Duration>) -> Result<u8, Error> {
    let (owner, token) = held.owner_and_token()?;
    let hold = Hold { name: held.name.as_bytes(), owner: owner.as_bytes(), token };
    let renewed = Holds::of(client)?.outage(held.outage).renew(hold, lease).await?;
    if renewed == Renewed::Not {
        return Ok(held.not_held(client, &owner, token).await);
    }
    let is_cut = renewed == Renewed::Cut;
    if held.json {
        let name = text(hold.name);
        print(&json!({"name": name, "owner": text(hold.owner), "renewed": true, "cut": is_cut}).to_string());
    } else if is_cut {
        output::say(&format!("dlock: {}: renewed for less: its cap ends it", shown(hold.name)));
    }
    Ok(0)
}

/// Releases the hold of an owner. Exit code 1: there is none.
pub async fn release(client: &Client, held: &Held) -> Result<u8, Error> {
    let (owner, token) = held.owner_and_token()?;
    let hold = Hold { name: held.name.as_bytes(), owner: owner.as_bytes(), token };
    if !Holds::of(client)?.outage(held.outage).release(hold).await? {
        return Ok(held.not_held(client, &owner, token).await);
    }
    if held.json {
        print(&json!({"name": text(hold.name), "owner": text(hold.owner), "released": true}).to_string());
    } else if for_people(false) {
        print(&format!("{} is released by {}", shown(hold.name), shown(hold.owner)));
    }
    Ok(0)
}

impl Held {
    /// Returns the owner and the token. The token in the environment belongs to the owner in the environment only.
    fn owner_and_token(&self) -> Result<(OsString, Option<u64>), Error> {
        if let Some(owner) = &self.owner {
            return Ok((owner.clone(), self.token));
        }
        let variable = |name| std::env::var_os(name).filter(|value| !value.is_empty());
        let owner = variable("DLOCK_OWNER")
            .ok_or_else(|| Error::Invalid("name the owner, or set DLOCK_OWNER (dlock acquire --env)".to_owned()))?;
        let token = match (self.token, variable("DLOCK_TOKEN")) {
            (Some(token), _) => Some(token),
            (None, None) => None,
            (None, Some(text)) => match text.to_str().and_then(|text| text.parse().ok()) {
                Some(token) => Some(token),
                None => return Err(Error::Invalid("DLOCK_TOKEN is not a number".to_owned())),
            },
        };
        Ok((owner, token))
    }

    /// Prints that the owner does not hold the lock, and who does, if this user may see it. Returns the exit code.
    async fn not_held(&self, client: &Client, owner: &OsStr, token: Option<u64>) -> u8 {
        let token = token.map_or(String::new(), |token| format!(" with token {token}"));
        let now = match timeout(LOOK, client.info(self.name.as_bytes())).await {
            Ok(Ok(Some(lock))) if lock.holders > 0 => format!(", but by {}", holders(&lock)),
            Ok(Ok(_)) => ": it is free".to_owned(),
            Ok(Err(_)) | Err(_) => String::new(),
        };
        let (name, owner) = (shown(self.name.as_bytes()), shown(owner.as_bytes()));
        fail(exit::NEGATIVE, &format!("{name} is not held by {owner}{token}{now}"))
    }
}

/// Returns whether this byte needs no quotes, neither in a shell nor in an environment file.
fn is_plain(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-._:/@+,=%".contains(&byte)
}

impl Lines {
    /// Returns the line that gives a variable its value.
    fn assignment(self, variable: &str, value: &[u8]) -> Vec<u8> {
        let (begin, end): (_, &[u8]) = match self {
            Self::Shell => (format!("export DLOCK_{variable}='"), b"'\n"),
            Self::File => (format!("DLOCK_{variable}="), b"\n"),
        };
        // A single quote ends the quotes of a shell. The value of a file has none.
        let value = value.split(|byte| *byte == b'\'').collect::<Vec<_>>().join(&br"'\''"[..]);
        [begin.as_bytes(), &value, end].concat()
    }
}

/// Reads the label of an owner.
pub fn owner_label(text: &str) -> Result<String, String> {
    match text {
        "" => Err("it is empty".to_owned()),
        text if text.chars().any(char::is_control) => Err("no control characters".to_owned()),
        text if text.len() > MAX_LABEL => Err(format!("at most {MAX_LABEL} bytes")),
        text => Ok(text.to_owned()),
    }
}

/// The longest label of an owner.
const MAX_LABEL: usize = 256;

/// How long to ask who holds a lock.
const LOOK: Duration = Duration::from_secs(1);
