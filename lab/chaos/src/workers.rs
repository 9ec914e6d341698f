//! The worker processes of a scenario: started, killed, stopped, and waited for.

use std::env;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::failure::{Doing, Failure, Result};
use crate::history::Life;
use crate::time::{Micros, now, wait_until};
use crate::worker::{Acknowledgement, Job};

pub struct Workers {
    dir: TempDir,
    seed: u64,
    counters: u16,
    acknowledgement: Acknowledgement,
    at_work: Vec<Member>,
    dead: Vec<(Job, Micros)>,
    started: u64,
}

struct Member {
    job: Job,
    process: Child,
}

/// How many workers there are at a time.
pub const SIZE: usize = 8;

impl Workers {
    /// Makes an empty directory. No worker is started yet.
    pub fn new(seed: u64, counters: u16, acknowledgement: Acknowledgement) -> Result<Workers> {
        let dir = tempfile::Builder::new().prefix("dlock-chaos-").tempdir()?;
        Ok(Workers { dir, seed, counters, acknowledgement, at_work: Vec::new(), dead: Vec::new(), started: 0 })
    }

    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// Starts all of them. The control file with their orders (`control.rs`) must exist.
    pub fn start(&mut self) -> Result<()> {
        (0..SIZE).try_for_each(|_| self.hire())
    }

    /// Kills one and starts another in its place. Returns when it was killed.
    pub fn kill(&mut self, choice: u64) -> Result<Micros> {
        let mut member = self.at_work.remove(self.index(choice));
        let at = now();
        member.process.kill()?;
        member.process.wait()?;
        self.dead.push((member.job, at));
        self.hire()?;
        Ok(at)
    }

    /// Returns the address of one.
    pub fn address(&self, choice: u64) -> Result<Ipv4Addr> {
        let member = self.at_work.get(self.index(choice)).ok_or_else(|| Failure("no worker is left".into()))?;
        Ok(member.job.address)
    }

    /// Stops the worker with this address, until [`Workers::wake`] or [`Workers::wake_all`].
    pub fn stop(&self, address: Ipv4Addr) -> Result<()> {
        self.signal(address, Signal::STOP, "stopping a client")
    }

    /// Lets the worker with this address go on. A worker that was killed meanwhile is none any more.
    pub fn wake(&self, address: Ipv4Addr) -> Result<()> {
        self.signal(address, Signal::CONT, "waking a client")
    }

    fn signal(&self, address: Ipv4Addr, signal: Signal, doing: &str) -> Result<()> {
        let mut with_address = self.at_work.iter().filter(|member| member.job.address == address);
        with_address.try_for_each(|member| kill_process(pid(&member.process)?, signal).doing(doing))
    }

    pub fn wake_all(&self) -> Result<()> {
        self.at_work
            .iter()
            .try_for_each(|member| kill_process(pid(&member.process)?, Signal::CONT).doing("waking a client"))
    }

    /// Waits until all have finished, for at most `ms` milliseconds, and returns those that have not. They are killed.
    pub fn finish(&mut self, ms: u64) -> Result<Vec<String>> {
        let mut failed = None;
        wait_until(ms, || {
            self.at_work.iter_mut().all(|member| match member.process.try_wait() {
                Ok(Some(status)) if !status.success() => {
                    failed = Some(member.job.name.clone());
                    true
                }
                Ok(Some(_)) => true,
                Ok(None) | Err(_) => false,
            })
        });
        if let Some(name) = failed {
            return Err(Failure(format!("worker {name} failed")));
        }
        let mut late = Vec::new();
        for mut member in self.at_work.drain(..) {
            if member.process.try_wait()?.is_none() {
                late.push(member.job.name.clone());
                let at = now();
                member.process.kill()?;
                member.process.wait()?;
                self.dead.push((member.job, at));
            } else {
                self.dead.push((member.job, Micros::MAX));
            }
        }
        Ok(late)
    }

    /// Returns the histories of all workers. All must have ended.
    pub fn lives(&self) -> Result<Vec<Life>> {
        let life = |(job, died): &(Job, Micros)| {
            let life = Life::read(&job.name, &job.history())?;
            Ok(Life { killed: Some(*died).filter(|died| *died != Micros::MAX), ..life })
        };
        self.dead.iter().map(life).collect()
    }

    /// Leaves the histories behind, and says where.
    pub fn keep(&mut self) -> PathBuf {
        self.dir.disable_cleanup(true);
        self.dir.path().to_owned()
    }

    fn hire(&mut self) -> Result<()> {
        let job = self.next_job();
        let process = Command::new(env::current_exe()?).args(job.words()).spawn().doing("starting a worker")?;
        self.at_work.push(Member { job, process });
        Ok(())
    }

    fn next_job(&mut self) -> Job {
        self.started += 1;
        Job {
            dir: self.dir.path().to_owned(),
            name: format!("w{}", self.started),
            address: address(self.started),
            seed: self.seed,
            counters: self.counters,
            acknowledgement: self.acknowledgement,
        }
    }

    fn index(&self, choice: u64) -> usize {
        usize::try_from(choice % (self.at_work.len().max(1) as u64)).unwrap_or(0)
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        for member in &mut self.at_work {
            // The process may have ended already.
            let _ = member.process.kill();
            let _ = member.process.wait();
        }
    }
}

/// Returns the address of the worker with this number: 127.1.0.1, and so on.
fn address(number: u64) -> Ipv4Addr {
    let number = u32::try_from(number).unwrap_or(u32::MAX) % (1 << 16);
    Ipv4Addr::from_bits(Ipv4Addr::new(127, 1, 0, 0).to_bits() + number)
}

fn pid(process: &Child) -> Result<Pid> {
    let id = i32::try_from(process.id()).ok().and_then(Pid::from_raw);
    id.ok_or_else(|| Failure("a process without an id".into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_stopped(member: &Member) -> bool {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", member.process.id())).unwrap();
        stat.rsplit_once(") ").unwrap().1.starts_with('T')
    }

    #[test]
    fn only_the_worker_that_is_woken_goes_on() {
        let mut workers = Workers::new(0, 1, Acknowledgement::Never).unwrap();
        for _ in 0..2 {
            let (job, process) = (workers.next_job(), Command::new("sleep").arg("60").spawn().unwrap());
            workers.at_work.push(Member { job, process });
        }
        let [first, second] = [0, 1].map(|choice| workers.address(choice).unwrap());
        workers.stop(first).unwrap();
        workers.stop(second).unwrap();
        wait_until(5000, || workers.at_work.iter().all(is_stopped));
        workers.wake(second).unwrap();
        wait_until(5000, || !is_stopped(&workers.at_work[1]));
        assert_eq!([0, 1].map(|at| is_stopped(&workers.at_work[at])), [true, false]);
    }

    #[test]
    fn a_worker_that_was_killed_is_not_woken() {
        let workers = Workers::new(0, 1, Acknowledgement::Never).unwrap();
        workers.wake(address(1)).unwrap();
    }
}
