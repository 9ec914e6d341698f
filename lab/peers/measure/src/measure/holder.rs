//! The holder is a process of its own. It is killed, stopped, or cut off: when does the next one get in?

use std::env;
use std::process::{self, Stdio};
use std::time::{Duration, Instant};

use dlock_comparison::systems::Made;
use nix::sys::signal::{Signal, kill};
use nix::sys::socket::{setsockopt, sockopt};
use nix::unistd::Pid;
use rustix::process::{PidfdFlags, PidfdGetfdFlags, getpid, pidfd_getfd, pidfd_open};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::{sleep, timeout};

use super::Round;
use crate::clients::Client;
use crate::result::{Result, failed};
use crate::systems::System;

/// How a holder goes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    Killed,
    Stopped,
    /// Nothing leaves it any more, not even the end of its connections.
    Cut,
}

impl End {
    const ALL: [End; 3] = [End::Killed, End::Stopped, End::Cut];

    fn name(self) -> &'static str {
        match self {
            End::Killed => "killed",
            End::Stopped => "stopped",
            End::Cut => "cut",
        }
    }

    fn signal(self) -> Signal {
        match self {
            End::Killed => Signal::SIGKILL,
            End::Stopped => Signal::SIGSTOP,
            // The holder cuts itself off when it gets this signal: see `vanish`.
            End::Cut => Signal::SIGUSR1,
        }
    }
}

/// The bond between the lock and its holder.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Tie {
    /// The bond that all other parts measure.
    Usual,
    /// A named session of dlock.
    Named,
}

impl Tie {
    pub fn named(name: &str) -> Result<Tie> {
        match name {
            "usual" => Ok(Tie::Usual),
            "named" => Ok(Tie::Named),
            _ => failed(format!("no tie `{name}`")),
        }
    }

    fn name(self) -> &'static str {
        match self {
            Tie::Usual => "usual",
            Tie::Named => "named",
        }
    }
}

pub async fn run(round: &mut Round, is_first: bool) -> Result<()> {
    let has_named = matches!(round.system.0.made, Made::Dlock | Made::DlockReplica);
    for tie in [Tie::Usual, Tie::Named].into_iter().filter(|tie| *tie == Tie::Usual || has_named) {
        let prefix = if tie == Tie::Named { "holder/named-" } else { "holder/" };
        for end in End::ALL.into_iter().filter(|end| *end == End::Killed || is_first || tie == Tie::Named) {
            // An event that has not happened in 8 s, twice the lease, counts as never.
            let patience = if end == End::Killed { PATIENCE } else { Duration::from_secs(8) };
            match after(round, end, tie, patience).await? {
                None if end == End::Killed => {
                    let seconds = PATIENCE.as_secs();
                    return failed(format!("nobody got the lock within {seconds} s of the end of its holder"));
                }
                seconds => round.note_if(format!("{prefix}{}", end.name()), seconds),
            }
        }
    }
    Ok(())
}

/// Seconds from the end of the holder to the next grant; None if it does not come while it is waited for.
async fn after(round: &Round, end: End, tie: Tie, patience: Duration) -> Result<Option<f64>> {
    let lock = format!("holder-{}-{}", tie.name(), end.name());
    let mut holder = start(round.system, &round.servers.addresses, &lock, tie).await?;
    let Some(pid) = holder.id() else { return failed("the holder has ended") };
    let mut waiter = round.client().await?;
    let waited = {
        let acquire = waiter.acquire(&lock);
        tokio::pin!(acquire);
        // The holder ends at another time of its renewals in each round.
        tokio::select! {
            granted = &mut acquire => return granted.and_then(|_| failed("granted a lock that is held")),
            () = sleep(Duration::from_millis(rand::random_range(1000..2000))) => {}
        }
        let began = Instant::now();
        kill(Pid::from_raw(pid.cast_signed()), end.signal())?;
        match timeout(patience, acquire).await {
            Ok(granted) => Some((began.elapsed(), granted?)),
            Err(_) => None,
        }
    };
    if end == End::Cut && holder.try_wait()?.is_none_or(|status| !status.success()) {
        return failed("the holder could not be cut off: that takes CAP_NET_ADMIN");
    }
    // A holder that was only stopped still has its connections.
    holder.kill().await?;
    let mut seconds = None;
    if let Some((time, held)) = waited {
        seconds = Some(time.as_secs_f64());
        waiter.release(&lock, held).await?;
    }
    waiter.close().await;
    Ok(seconds)
}

async fn start(system: System, addresses: &[String], lock: &str, tie: Tie) -> Result<Child> {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL"]).arg(env::current_exe()?);
    command.args(["hold", system.0.name, &addresses.join(","), lock, tie.name()]);
    let mut holder = command.stdin(Stdio::null()).stdout(Stdio::piped()).kill_on_drop(true).spawn()?;
    let Some(output) = holder.stdout.take() else { return failed("the holder has no output") };
    let mut line = String::new();
    timeout(Duration::from_secs(20), BufReader::new(output).read_line(&mut line)).await??;
    if line == HELD { Ok(holder) } else { failed("the holder did not get the lock") }
}

/// Runs the process of the holder.
pub async fn hold(system: System, addresses: &[String], lock: &str, tie: Tie) -> Result<()> {
    let mut cut = signal(SignalKind::user_defined1())?;
    let mut client = system.connect(addresses, 1).await?;
    if let (Tie::Named, Client::Dlock(client)) = (tie, &mut client) {
        client.open_session().await?;
    }
    let held = client.acquire(lock).await?;
    print!("{HELD}");
    tokio::select! {
        kept = client.keep(lock, &held) => kept,
        _ = cut.recv() => vanish(),
    }
}

/// Ends this process without a word to any server: a socket in repair mode closes in silence.
fn vanish() -> Result<()> {
    let own = pidfd_open(getpid(), PidfdFlags::empty())?;
    let mut cut = 0;
    for entry in std::fs::read_dir("/proc/self/fd")? {
        let Some(number) = entry?.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        let fd = pidfd_getfd(&own, number, PidfdGetfdFlags::empty());
        cut += usize::from(fd.is_ok_and(|fd| setsockopt(&fd, sockopt::TcpRepair, &1).is_ok()));
    }
    process::exit(i32::from(cut == 0))
}

/// Every lease and session has ended by then, several times over.
const PATIENCE: Duration = Duration::from_secs(15);

const HELD: &str = "held\n";
