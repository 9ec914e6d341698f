//! `dlock run`: a command under a lock.

mod descendants;
pub mod options;
mod supervisor;

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::time::{Duration, Instant};

use dlock_client::{Acquire, Client, Error, Guard};
use tokio::process::{Child, Command};
use tokio::time::timeout;

use crate::os::parent_death::die_with_us;
use crate::signals::{Children, Signals};
use crate::waiting::{Audience, Reporter, acquired, label};
use crate::{exit, fail};
use options::Run;
use supervisor::Supervisor;

pub async fn run(client: &Client, run: Run) -> u8 {
    let taken = Children::take().and_then(|children| Ok((children, Signals::take()?)));
    let (mut children, mut signals) = match taken {
        Ok(taken) => taken,
        Err(error) => return fail(exit::UNAVAILABLE, &error.to_string()),
    };
    let label = run.owner_label();
    let reporter = run.reporter(client, &label);
    let guard = match acquired(run.terms(client, &label), &reporter, &mut signals, &mut children).await {
        Ok(guard) => guard,
        Err(code) => return code,
    };
    let began = Instant::now();
    let begun = match run.once.begin(&guard, run.lease).await {
        // The first lease over a quorum is short: the command begins when the lock has its whole lease.
        Ok(()) if guard.remaining() < run.lease / 3 * 2 && run.max_time.is_none() => guard.renew().await,
        begun => begun,
    };
    if let Err(error) = begun {
        let _ = for_good(client, guard.release()).await;
        return fail(exit::of(&error), &error.to_string());
    }
    let child = match start(&run, &guard, &signals) {
        Ok(child) => child,
        Err(error) => {
            let code = if error.kind() == io::ErrorKind::NotFound { exit::NOT_FOUND } else { exit::CANNOT_RUN };
            // The command did not run, so --once does not count it.
            let _ = if run.once.stays().is_some() {
                for_good(client, guard.release_after(Duration::ZERO)).await
            } else {
                for_good(client, guard.release()).await
            };
            return fail(code, &format!("{}: {error}", run.program_and_arguments().0.display()));
        }
    };
    let mut supervisor = Supervisor::new(child, guard, began, &run);
    match supervisor.watch(&mut signals, &mut children).await {
        Ok(status) => {
            supervisor.end_the_rest().await;
            supervisor.finish(status, &run, client).await
        }
        Err(error) => supervisor.lost_sight(&error, &run, client).await,
    }
}

/// Awaits a release, and then the releases in the background: a copy of the request that got no answer may take the
/// lock again. Over a quorum, the second wait would be for a server that hangs.
async fn for_good(client: &Client, releasing: impl Future<Output = Result<(), Error>>) -> Result<(), Error> {
    let released = releasing.await;
    if !matches!(released, Err(Error::Unreachable(_))) && client.relay(None).is_ok() {
        let _ = timeout(COPIES, client.settled()).await;
    }
    released
}

impl Run {
    /// Returns the acquisition, with all its options.
    fn terms(&self, client: &Client, label: &str) -> Acquire {
        let acquire = self.acquire(client).lease(self.lease).replicas(self.replicas, self.replicas_timeout);
        let acquire = match self.outage {
            Some(limit) => acquire.outage(limit),
            None => acquire,
        };
        let acquire = self.once.apply(acquire.owner_label(label), self.lease);
        let acquire = match self.max_time {
            Some(most) => acquire.max_hold(self.once.stays().map_or(most, |time| time.max(most))),
            None => acquire,
        };
        match (self.no_wait || self.once.once.is_some(), self.wait) {
            (_, Some(wait)) => acquire.wait(wait),
            (true, None) => acquire.no_wait(),
            (false, None) => acquire,
        }
    }

    /// Returns the label of the owner.
    fn owner_label(&self) -> String {
        let label = self.label.clone().unwrap_or_else(label);
        if self.once.once.is_some() { format!("{label}{}", crate::period::MARK) } else { label }
    }

    fn reporter<'a>(&'a self, client: &'a Client, label: &'a str) -> Reporter<'a> {
        Reporter {
            client,
            names: self.names().map(OsStrExt::as_bytes).collect(),
            label,
            limit: self.limit,
            is_once: self.once.once.is_some(),
            is_quiet: self.quiet,
            audience: Audience::Terminal,
            conflict: self.conflict(),
            replicas_take: if self.replicas > 0 { self.replicas_timeout } else { Duration::ZERO },
        }
    }

    /// Returns the program to start, and its arguments.
    fn program_and_arguments(&self) -> (OsString, Vec<OsString>) {
        if let Some(line) = &self.line {
            let shell = std::env::var_os("SHELL").filter(|shell| !shell.is_empty());
            return (shell.unwrap_or_else(|| "/bin/sh".into()), vec!["-c".into(), line.clone()]);
        }
        self.program().map(|(program, arguments)| (program.clone(), arguments.to_vec())).unwrap_or_default()
    }
}

fn start(run: &Run, guard: &Guard, signals: &Signals) -> io::Result<Child> {
    let (program, arguments) = run.program_and_arguments();
    let mut command = Command::new(program);
    command.args(arguments);
    let names: Vec<_> = guard.names().collect();
    command.env("DLOCK_NAME", OsStr::from_bytes(&names.join(&b' ')));
    command.env("DLOCK_OWNER", guard.owner()).env("DLOCK_TOKEN", guard.token().to_string());
    match guard.slot() {
        Some(slot) => command.env("DLOCK_SLOT", slot.to_string()),
        // A `dlock run` around this one may have set the variable.
        None => command.env_remove("DLOCK_SLOT"),
    };
    die_with_us(&mut command, signals.mask_before());
    command.spawn()
}

/// How long the client may release what late copies of a request have taken: it does so for a second and two round
/// trips.
const COPIES: Duration = Duration::from_secs(2);
