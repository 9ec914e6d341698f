//! Lets the kernel kill a child when this process dies: code that runs between `fork` and `exec`.

use std::io;

use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::{SigSet, Signal};
use nix::unistd::{getpid, getppid};
use tokio::process::Command;

/// Lets the kernel kill the command when this thread ends, and gives it the signal mask that we started with.
/// Spawn the command from a thread that lives as long as the process.
pub fn die_with_us(command: &mut Command, mask: SigSet) {
    let parent = getpid();
    let prepare = move || {
        set_pdeathsig(Signal::SIGKILL)?;
        // If the parent died before the call above, the kernel sends no signal.
        if getppid() != parent {
            return Err(io::ErrorKind::Interrupted.into());
        }
        mask.thread_set_mask()?;
        Ok(())
    };
    // SAFETY: `prctl`, `getppid` and `sigprocmask` are async-signal-safe, an error from them is made without
    // allocating, and nothing that the parent shares is touched.
    unsafe {
        command.pre_exec(prepare);
    }
}
