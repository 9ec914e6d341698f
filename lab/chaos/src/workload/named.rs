//! Work in a named session: the worker beats while it works, and opens the session again where it is not known.

use super::{Held, check_of, lock, pause, release, semaphore, take_as, write};
use crate::failure::Result;
use crate::history::Reply;
use crate::worker::Worker;
use crate::workload::Options;

/// A session, and what is bound to it.
struct Session {
    id: String,
    timeout_ms: u64,
    held: Vec<Held>,
}

/// Takes one to three locks in a session, works, and ends in one of the ways in which clients end.
pub fn in_session(worker: &mut Worker) -> Result<()> {
    // The session may end by `vanish`, which must not cut off holds of earlier work that are bound to this connection.
    worker.hang_up()?;
    let (id, timeout_ms) = (worker.fresh_session(), worker.random.within(500..1001));
    let mut session = Session { id, timeout_ms, held: Vec::new() };
    session.open(worker)?;
    for _ in 0..worker.random.within(1..4) {
        session.take(worker)?;
    }
    for _ in 0..worker.random.within(1..9) {
        pause(worker, timeout_ms / 3);
        session.beat(worker)?;
        session.held.iter().try_for_each(|held| check_of(worker, held))?;
        if worker.random.one_in(8) {
            session.replace(worker)?;
        }
    }
    session.end(worker)
}

impl Session {
    fn open(&self, worker: &mut Worker) -> Result<()> {
        worker.ask(&format!("DLOCK.SESSION {} PX {} NX", self.id, self.timeout_ms)).map(drop)
    }

    fn take(&mut self, worker: &mut Worker) -> Result<()> {
        let (key, owner) = (lock(worker), worker.fresh_owner());
        // A long lease ends with the session.
        let lease = if worker.random.one_in(3) { 4000 } else { worker.random.within(300..1501) };
        let has_request = worker.random.one_in(2);
        let request = if has_request { " REQUEST first" } else { "" };
        let options = Options { text: format!("BLOCK 200 SESSIONID {}{request}", self.id), has_request };
        let semaphore = semaphore(worker);
        let (verb, key, wanted) = match worker.random.below(8) {
            0..=3 => ("ACQUIRE", key, ""),
            4 => ("RACQUIRE", key, ""),
            5 => ("RLOCK", key, ""),
            6 => ("MACQUIRE 1", key, ""),
            _ => ("SACQUIRE", semaphore, "3"),
        };
        let is_exclusive = !matches!(verb, "RLOCK" | "SACQUIRE");
        let Some(held) = take_as(worker, verb, (key, owner, lease), wanted, &options)? else { return Ok(()) };
        if is_exclusive && worker.random.one_in(2) {
            write(worker, &held)?;
        }
        self.held.push(held);
        self.beat(worker)
    }

    fn beat(&mut self, worker: &mut Worker) -> Result<()> {
        let reply = worker.ask(&format!("DLOCK.SESSION {} PX {} XX", self.id, self.timeout_ms))?;
        if reply.is_some_and(|reply| reply.is_error("NOSESSION")) { self.bind_anew(worker) } else { Ok(()) }
    }

    /// Opens the session where it is not known, and binds each hold to it. Forgets the holds that are lost.
    fn bind_anew(&mut self, worker: &mut Worker) -> Result<()> {
        self.open(worker)?;
        for held in std::mem::take(&mut self.held) {
            let Held { key, owner, lease, token } = &held;
            let command = format!("DLOCK.RENEW {key} {owner} PX {lease} TOKEN {token} SESSIONID {}", self.id);
            if worker.ask(&command)? != Some(Reply::Nil) {
                worker.acknowledge()?;
                self.held.push(held);
            }
        }
        Ok(())
    }

    /// A new session takes over what this one has, and this one ends.
    fn replace(&mut self, worker: &mut Worker) -> Result<()> {
        let old = std::mem::replace(&mut self.id, worker.fresh_session());
        self.bind_anew(worker)?;
        worker.ask(&format!("DLOCK.SESSION {old} CLOSE"))?;
        self.held.iter().try_for_each(|held| check_of(worker, held))
    }

    fn end(mut self, worker: &mut Worker) -> Result<()> {
        match worker.random.below(10) {
            0..=2 => self.release(worker),
            3 => worker.ask(&format!("DLOCK.SESSION {} CLOSE", self.id)).map(drop),
            // The session outlives the connection.
            4 | 5 => {
                worker.hang_up()?;
                self.beat(worker)?;
                self.held.iter().try_for_each(|held| check_of(worker, held))?;
                self.release(worker)
            }
            6 | 7 => worker.vanish(),
            // No heartbeat comes any more.
            _ => Ok(()),
        }
    }

    fn release(&self, worker: &mut Worker) -> Result<()> {
        self.held.iter().try_for_each(|held| release(worker, held, "ALL"))
    }
}
