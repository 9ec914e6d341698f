//! Renews and releases holds of other processes, by their owner and token.

use std::time::{Duration, Instant};

use dlock_client::{Client, Error, Relay, Unanswered};
use redis::{Cmd, Value, cmd};
use tokio::time::{sleep, timeout};

/// The holds of other processes, over a connection to the server of each lock.
pub struct Holds {
    relay: Relay,
    /// How long to look for a server while none answers. Zero: one try.
    outage: Duration,
}

/// The answer of a server.
struct Answer {
    reply: Value,
    /// An earlier try of the command got no answer. The server may have executed it.
    is_repeat: bool,
}

/// The outcome of a renewal.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Renewed {
    /// The holds end no earlier than was asked for.
    Whole,
    /// The cap of a hold is earlier than the deadline that was asked for.
    Cut,
    /// No such hold exists.
    Not,
}

impl Holds {
    pub fn of(client: &Client) -> Result<Self, Error> {
        Ok(Self { relay: client.relay(None)?, outage: Duration::ZERO })
    }

    /// Sets how long to look for a server while none answers.
    pub fn outage(self, limit: Duration) -> Self {
        Self { outage: limit, ..self }
    }

    /// Renews an owner's holds, or the one with the token of `hold`. Without `lease`, each hold keeps its own lease.
    pub async fn renew(&self, hold: Hold<'_>, lease: Option<Duration>) -> Result<Renewed, Error> {
        let mut renew = hold.command("DLOCK.RENEW");
        if let Some(lease) = lease {
            renew.arg("PX").arg(crate::output::millis(lease));
        }
        Ok(match self.ask(hold, &hold.with_token(renew), true).await?.reply {
            Value::Nil => Renewed::Not,
            Value::Int(0) => Renewed::Cut,
            _ => Renewed::Whole,
        })
    }

    /// Releases an owner's holds, or the one with the token of `hold`. False: there was none.
    pub async fn release(&self, hold: Hold<'_>) -> Result<bool, Error> {
        let mut release = hold.command("DLOCK.RELEASE");
        release.arg("ALL");
        // Without the token, a repeat could release a hold that the same owner has acquired since.
        let answer = self.ask(hold, &hold.with_token(release), hold.token.is_some()).await?;
        // If a repeat finds no hold, the earlier try may have released it.
        Ok(answer.reply != Value::Nil || answer.is_repeat)
    }

    /// Releases a hold with `BREAK`, which leaves a trace in the server's log. False: there was none.
    pub async fn take_away(&self, hold: Hold<'_>) -> Result<bool, Error> {
        let mut release = hold.command("DLOCK.RELEASE");
        release.arg("ALL").arg("BREAK");
        match self.ask(hold, &hold.with_token(release), false).await {
            // An older module does not know the word BREAK, and has changed nothing.
            Err(Error::Refused(cause)) if cause.code() == Some("ERR") && !cause.is_module_missing() => {
                self.release(hold).await
            }
            outcome => Ok(outcome?.reply != Value::Nil),
        }
    }

    /// Asks until a server answers or the outage has lasted too long. A command that may have been executed is sent
    /// again only if it is repeatable.
    async fn ask(&self, hold: Hold<'_>, command: &Cmd, is_repeatable: bool) -> Result<Answer, Error> {
        let began = Instant::now();
        let (mut is_repeat, mut is_told) = (false, false);
        loop {
            let failed = match self.ask_once(hold, command, self.outage.saturating_sub(began.elapsed())).await {
                Ok(reply) => return Ok(Answer { reply, is_repeat }),
                // The key has another type: a program has overwritten the lock.
                Err(Unanswered::Refused(cause)) if cause.code() == Some("WRONGTYPE") => {
                    return Ok(Answer { reply: Value::Nil, is_repeat });
                }
                Err(Unanswered::Refused(cause)) => return Err(Error::Refused(cause)),
                Err(failed) => failed,
            };
            let is_over = began.elapsed() + PAUSE >= self.outage;
            is_repeat |= matches!(failed, Unanswered::Unknown(_));
            if is_over || (is_repeat && !is_repeatable) {
                return Err(Error::Unreachable(failed.cause().clone()));
            }
            if !is_told && began.elapsed() >= NOTICE {
                let (limit, why) = (crate::output::time(self.outage), failed.cause().message());
                crate::output::say(&format!("dlock: looking for a server for up to {limit}: {why}"));
                is_told = true;
            }
            sleep(PAUSE).await;
        }
    }

    async fn ask_once(&self, hold: Hold<'_>, command: &Cmd, left: Duration) -> Result<Value, Unanswered> {
        if self.outage.is_zero() {
            return self.relay.ask(hold.name, command, Some(PATIENCE)).await.map(|(reply, _)| reply);
        }
        let asked = self.relay.ask(hold.name, command, Some(PATIENCE.min(left)));
        // The limit includes the time that it takes to find the server.
        match timeout(left + ANSWER, asked).await {
            Ok(answer) => answer.map(|(reply, _)| reply),
            Err(_) => Err(Unanswered::Unknown(format!("no reply within {:?}", self.outage).into())),
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

/// The pause between two tries.
const PAUSE: Duration = Duration::from_millis(100);

/// How late the answer to the last try may come.
const ANSWER: Duration = Duration::from_millis(100);

/// How long to look for a server before a message says so.
const NOTICE: Duration = Duration::from_secs(1);
