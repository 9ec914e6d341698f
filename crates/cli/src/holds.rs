//! Holds of other processes, by their owner and token: what `dlock` does to a lock that it does not keep itself.

use std::time::Duration;

use dlock_client::{Client, Error, Relay, Unanswered};
use redis::{Cmd, Value, cmd};

/// A way to the server of each lock.
pub struct Holds(Relay);

/// The outcome of a renewal.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Renewed {
    Whole,
    /// The cap of the hold is earlier than what was asked for.
    Cut,
    /// There is no such hold.
    Not,
}

impl Holds {
    pub fn of(client: &Client) -> Result<Self, Error> {
        client.relay(None).map(Self)
    }

    /// Renews an owner's holds, or the one with that token, for this time; without it for the lease of the hold.
    pub async fn renew(&self, hold: Hold<'_>, lease: Option<Duration>) -> Result<Renewed, Error> {
        let mut renew = hold.command("DLOCK.RENEW");
        if let Some(lease) = lease {
            renew.arg("PX").arg(crate::output::millis(lease));
        }
        Ok(match self.ask(hold, &hold.with_token(renew)).await? {
            Value::Nil => Renewed::Not,
            Value::Int(0) => Renewed::Cut,
            _ => Renewed::Whole,
        })
    }

    /// Releases all of an owner's holds, or the one with that token. False: there was none.
    pub async fn release(&self, hold: Hold<'_>) -> Result<bool, Error> {
        let mut release = hold.command("DLOCK.RELEASE");
        release.arg("ALL");
        Ok(self.ask(hold, &hold.with_token(release)).await? != Value::Nil)
    }

    /// Takes a hold away, and leaves a trace in the server's log. False: there was none.
    pub async fn take_away(&self, hold: Hold<'_>) -> Result<bool, Error> {
        let mut release = hold.command("DLOCK.RELEASE");
        release.arg("ALL").arg("BREAK");
        match self.ask(hold, &hold.with_token(release)).await {
            // A server that does not know the word BREAK has changed nothing.
            Err(Error::Refused(cause)) if cause.code() == Some("ERR") && !cause.is_module_missing() => {
                self.release(hold).await
            }
            outcome => Ok(outcome? != Value::Nil),
        }
    }

    async fn ask(&self, hold: Hold<'_>, command: &Cmd) -> Result<Value, Error> {
        match self.0.ask(hold.name, command, Some(PATIENCE)).await {
            Ok((reply, _)) => Ok(reply),
            Err(Unanswered::Refused(cause)) => Err(Error::Refused(cause)),
            Err(unanswered) => Err(Error::Unreachable(unanswered.cause().clone())),
        }
    }
}

/// The hold of an owner, or all of an owner's holds.
#[derive(Clone, Copy)]
pub struct Hold<'a> {
    pub name: &'a [u8],
    pub owner: &'a [u8],
    pub token: Option<u64>,
}

impl Hold<'_> {
    fn command(&self, name: &str) -> Cmd {
        let mut command = cmd(name);
        command.arg(self.name).arg(self.owner);
        command
    }

    fn with_token(&self, mut command: Cmd) -> Cmd {
        if let Some(token) = self.token {
            command.arg("TOKEN").arg(token);
        }
        command
    }
}

/// How long a server may take to answer.
const PATIENCE: Duration = Duration::from_secs(5);
