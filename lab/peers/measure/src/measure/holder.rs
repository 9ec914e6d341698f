//! The holder is a process of its own. It is killed, or stopped: when does the next one get in?

use std::env;
use std::process::Stdio;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};
use tokio::time::{sleep, timeout};

use super::Round;
use crate::result::{Result, failed};
use crate::systems::System;

pub async fn run(round: &mut Round, is_first: bool) -> Result<()> {
    let Some(killed) = after(round, Signal::SIGKILL, PATIENCE).await? else {
        return failed(format!("nobody got the lock within {} s of the end of its holder", PATIENCE.as_secs()));
    };
    if is_first {
        // What does not happen in twice the lease, does not happen.
        let stopped = after(round, Signal::SIGSTOP, Duration::from_secs(8)).await?;
        round.note_if("holder/stopped", stopped);
    }
    round.note("holder/killed", killed);
    Ok(())
}

/// Seconds from the signal to the next grant; None if it does not come while it is waited for.
async fn after(round: &Round, signal: Signal, patience: Duration) -> Result<Option<f64>> {
    let lock = format!("holder-{}", signal.as_str());
    let mut holder = start(round.system, &round.servers.addresses, &lock).await?;
    let Some(pid) = holder.id() else { return failed("the holder has ended") };
    let mut waiter = round.client().await?;
    let waited = {
        let acquire = waiter.acquire(&lock);
        tokio::pin!(acquire);
        // At another time of the holder's renewals in each round.
        tokio::select! {
            granted = &mut acquire => return granted.and_then(|_| failed("granted a lock that is held")),
            () = sleep(Duration::from_millis(rand::random_range(1000..2000))) => {}
        }
        let began = Instant::now();
        kill(Pid::from_raw(pid.cast_signed()), signal)?;
        match timeout(patience, acquire).await {
            Ok(granted) => Some((began.elapsed(), granted?)),
            Err(_) => None,
        }
    };
    // With what it has open, if it was only stopped.
    holder.kill().await?;
    let mut seconds = None;
    if let Some((time, held)) = waited {
        seconds = Some(time.as_secs_f64());
        waiter.release(&lock, held).await?;
    }
    waiter.close().await;
    Ok(seconds)
}

async fn start(system: System, addresses: &[String], lock: &str) -> Result<Child> {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL"]).arg(env::current_exe()?);
    command.args(["hold", system.0.name, &addresses.join(","), lock]);
    let mut holder = command.stdin(Stdio::null()).stdout(Stdio::piped()).kill_on_drop(true).spawn()?;
    let Some(output) = holder.stdout.take() else { return failed("the holder has no output") };
    let mut line = String::new();
    timeout(Duration::from_secs(20), BufReader::new(output).read_line(&mut line)).await??;
    if line == HELD { Ok(holder) } else { failed("the holder did not get the lock") }
}

/// What the process of the holder does.
pub async fn hold(system: System, addresses: &[String], lock: &str) -> Result<()> {
    let mut client = system.connect(addresses, 1).await?;
    let held = client.acquire(lock).await?;
    print!("{HELD}");
    client.keep(lock, &held).await
}

/// Every lease and session has ended by then, several times over.
const PATIENCE: Duration = Duration::from_secs(15);

const HELD: &str = "held\n";
