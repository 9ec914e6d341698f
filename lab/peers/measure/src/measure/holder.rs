//! The time from the end of a holder to the next grant. The holder is a process of its own, which is killed, stopped,
//! or cut off from the network.

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

/// How a holder ends.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    Killed,
    Stopped,
    /// No packet of the holder reaches a server any more, not even the ends of its connections.
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

/// The kind of lease that ties a lock to the process of its holder.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Tie {
    /// The kind that the client of the system has in all other measurements.
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

/// Measures each end of a holder. Only the first round measures stopped and cut holders, except with a named session.
pub async fn run(round: &mut Round, is_first: bool) -> Result<()> {
    let has_named = matches!(round.system.0.made, Made::Dlock | Made::DlockReplica);
    for tie in [Tie::Usual, Tie::Named].into_iter().filter(|tie| *tie == Tie::Usual || has_named) {
        let prefix = if tie == Tie::Named { "holder/named-" } else { "holder/" };
        for end in End::ALL.into_iter().filter(|end| *end == End::Killed || is_first || tie == Tie::Named) {
            // After a kill, a grant must come. After the other ends, a grant that has not come within 8 s, twice the
            // lease, counts as never.
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

/// Returns the seconds from the end of the holder to the next grant; `None` if no grant comes within `patience`.
async fn after(round: &Round, end: End, tie: Tie, patience: Duration) -> Result<Option<f64>> {
    let lock = format!("holder-{}-{}", tie.name(), end.name());
    let mut holder = start(round.system, &round.servers.addresses, &lock, tie).await?;
    let Some(pid) = holder.id() else { return failed("the holder has ended") };
    let mut waiter = round.client().await?;
    let waited = {
        let acquire = waiter.acquire(&lock);
        tokio::pin!(acquire);
        // The pause is random, so that the holder ends at a different time after a renewal in each round.
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
    // A stopped holder still has its connections, and must not run on.
    holder.kill().await?;
    let mut seconds = None;
    if let Some((time, held)) = waited {
        seconds = Some(time.as_secs_f64());
        waiter.release(&lock, held).await?;
    }
    waiter.close().await;
    Ok(seconds)
}

/// Starts the process of a holder. Returns when the holder has the lock.
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

/// Acquires the lock in the process of the holder, says so on the standard output, and keeps the lock.
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

/// Ends this process without a packet to any server: the kernel closes a TCP socket in repair mode silently. Repair
/// mode needs `CAP_NET_ADMIN`. The exit code is 1 if no socket could be cut.
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

/// How long a grant may take after a kill: several times as long as any lease or session.
const PATIENCE: Duration = Duration::from_secs(15);

/// The line that the process of the holder prints when it has the lock.
const HELD: &str = "held\n";
