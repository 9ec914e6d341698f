//! The steps of a failover: printed, executed unless it is a dry run, and interrupted by a signal.

use std::io;
use std::time::{Duration, Instant};

use dlock_client::{Error, Node};
use nix::sys::signal::Signal;
use tokio::time::{sleep, sleep_until, timeout};

use super::server::{REPLY, Server, has_module, info};
use super::stop::Stop;
use crate::output::{print, say};
use crate::signals::Signals;

/// The pause between two checks of a condition.
const POLL: Duration = Duration::from_millis(20);

const ALL_THERE: &str = "the replicas have everything";

pub struct Steps {
    dry_run: bool,
    begin: Instant,
    signals: Signals,
    /// The address of the old primary, if it has no module: it cannot follow a server that has locks.
    bare: Option<String>,
}

/// Whether the failover still checks, or has begun to change something.
pub enum Phase {
    Checks,
    Steps,
}

/// How a wait ended.
pub enum Waited {
    Done,
    /// The time is over.
    Late,
    Signal(Signal),
}

impl Steps {
    pub fn begin(dry_run: bool) -> io::Result<Self> {
        Ok(Self { dry_run, begin: Instant::now(), signals: Signals::take()?, bare: None })
    }

    pub fn is_dry(&self) -> bool {
        self.dry_run
    }

    /// Looks whether the primary has the module. Without it, a primary has no locks, and hands over like any other.
    pub async fn notes_module(&mut self, primary: &Node) -> Result<(), Error> {
        if !has_module(primary).await? {
            self.bare = Some(primary.address());
        }
        Ok(())
    }

    /// Returns the work that is left after the handover, if there is any.
    pub fn left_to_do(&self) -> Option<String> {
        let address = self.bare.as_ref()?;
        let why = "a server without it does not understand the locks of its primary";
        Some(format!("{address} has no dlock module: restart it with the module before the first lock is taken, {why}"))
    }

    /// Prints a step with the time since the beginning.
    pub fn say(&self, what: &str) {
        if !self.dry_run {
            say(&format!("{:7.3} s  {what}", self.begin.elapsed().as_secs_f64()));
        }
    }

    /// Sends a command that changes something. In a dry run it is only printed.
    pub async fn send(&self, node: &Node, command: &[&str]) -> Result<(), Error> {
        let shown = format!("{}> {}", node.address(), command.join(" "));
        if self.dry_run {
            print(&shown);
            return Ok(());
        }
        self.say(&shown);
        node.ask::<()>(command, REPLY).await
    }

    /// Checks a condition again and again until it holds. A dry run only prints it.
    pub async fn until(&mut self, what: &str, limit: Duration, holds: impl AsyncFnMut() -> bool) -> Waited {
        if self.dry_run {
            print(&format!("# wait until {what}"));
            return Waited::Done;
        }
        self.wait(what, limit, holds).await
    }

    async fn wait(&mut self, what: &str, limit: Duration, mut holds: impl AsyncFnMut() -> bool) -> Waited {
        let end = Instant::now() + limit;
        loop {
            tokio::select! {
                holds = holds() => if holds {
                    self.say(what);
                    return Waited::Done;
                },
                () = sleep_until(end.into()) => return Waited::Late,
                signal = ending(&mut self.signals) => return Waited::Signal(signal),
            }
            sleep(POLL).await;
        }
    }

    /// Waits until the replicas have everything that the server has written so far. A dry run waits in the phase of
    /// checks only. Fails with the reason if a replica does not catch up.
    pub async fn caught_up(
        &mut self,
        phase: Phase,
        server: &Node,
        replicas: &[Server],
        limit: Duration,
    ) -> Result<(), Stop> {
        let goal = info(server).await?.offset();
        let mut behind = String::new();
        let mut all_there = async || {
            for replica in replicas {
                behind = match timeout(limit, info(&replica.node)).await {
                    Ok(Ok(info)) if info.follows() && info.offset() >= goal => continue,
                    Ok(Ok(info)) if info.follows() => {
                        format!("the replica {} is {} bytes behind", replica.address(), goal - info.offset())
                    }
                    Ok(Ok(_)) => format!("the replica {} has no connection to its primary", replica.address()),
                    Ok(Err(error)) => format!("the replica {} does not answer: {error}", replica.address()),
                    Err(_) => format!("the replica {} does not answer", replica.address()),
                };
                return false;
            }
            true
        };
        let waited = match phase {
            Phase::Checks => self.wait(ALL_THERE, limit, &mut all_there).await,
            Phase::Steps => self.until(ALL_THERE, limit, &mut all_there).await,
        };
        match waited {
            Waited::Done => Ok(()),
            Waited::Late if behind.is_empty() => Err(Stop::Kept("a replica does not answer".to_owned())),
            Waited::Late => Err(Stop::Kept(behind)),
            Waited::Signal(signal) => Err(Stop::Ended(signal)),
        }
    }
}

/// Returns the next signal that asks this process to end.
async fn ending(signals: &mut Signals) -> Signal {
    loop {
        let (signal, _) = signals.next().await;
        if matches!(signal, Signal::SIGHUP | Signal::SIGINT | Signal::SIGQUIT | Signal::SIGTERM) {
            return signal;
        }
    }
}
