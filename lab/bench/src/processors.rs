//! The processor of each thread and server. Where the scheduler decides, it moves a client and its server together and
//! apart, and the figures tell of that.

use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;

use crate::error::Error;
use crate::server::Server;

/// Keeps servers on one processor and, until it is dropped, this thread on another. Does nothing if there is one
/// processor only.
pub struct Apart {
    before: CpuSet,
}

impl Apart {
    pub fn keep<'a>(servers: impl IntoIterator<Item = &'a Server>) -> Result<Self, Error> {
        let before = sched_getaffinity(THIS).map_err(failed)?;
        let has = |at: &usize| before.is_set(*at).unwrap_or(false);
        let (first, last) = ((0..CpuSet::count()).find(has), (0..CpuSet::count()).rfind(has));
        if let (Some(first), Some(last)) = (first, last)
            && first < last
        {
            for server in servers {
                sched_setaffinity(Pid::from_raw(server.process()), &only(first)?).map_err(failed)?;
            }
            sched_setaffinity(THIS, &only(last)?).map_err(failed)?;
        }
        Ok(Self { before })
    }
}

impl Drop for Apart {
    fn drop(&mut self) {
        // The next measurement may have more threads, which need all processors. The mask was valid before, so the call
        // cannot fail.
        let _ = sched_setaffinity(THIS, &self.before);
    }
}

fn only(processor: usize) -> Result<CpuSet, Error> {
    let mut set = CpuSet::new();
    set.set(processor).map_err(failed)?;
    Ok(set)
}

fn failed(error: nix::Error) -> Error {
    Error::io("choosing a processor")(error.into())
}

/// The calling thread.
const THIS: Pid = Pid::from_raw(0);
