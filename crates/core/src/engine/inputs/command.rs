//! The work that every command does on a lock beside its own.
//!
//! # Implementation details
//! All functions on the way of an uncontended lock, from the command to the reply, are `inline(always)`, and none is a
//! closure. The compiler leaves some of them out of line by itself, and a pair of commands costs a sixth more of the
//! module's own instructions (`make bench-instr` shows it).
//!
//! Functions that run only for a lock with a record, with many holds or with lapsed ones are `inline(never)`: inlined,
//! they take registers from the way of all others, and the compiler computes parts of them before the test.

use crate::engine::keyspace::{Keyspace, NotOpen, OpenKey};
use crate::engine::state::budget::Budget;
use crate::engine::state::engine::Engine;
use crate::engine::state::ids::RecordId;
use crate::engine::visit::Visit;
use crate::{Name, Now, Owner};

/// How often a command begins again because a request for several locks has become the head. Then it queues behind it.
const MAX_RESTARTS: u32 = 16;

/// A command on one lock.
#[derive(Clone, Copy)]
pub(super) struct OnLock<'a> {
    pub name: Name<'a>,
    /// The index of the lock's key among those of the command.
    pub own: usize,
    pub now: Now,
    /// The owner whose ended holds are released first, however many there are.
    pub owner: &'a Owner,
    /// Whether the command binds holds: then the lock needs a record.
    pub session: bool,
}

/// The own work of a command on its lock, after all that is due there. A closure cannot be marked `inline`.
pub(super) trait Work<T> {
    /// The result of the work.
    type Done;

    /// Whether the work always sets when the lock is due next. It is then not set before the work as well.
    const RESCHEDULES: bool = false;

    /// Does it.
    fn run<K: OpenKey>(self, visit: &mut Visit<'_, T, K>) -> Self::Done;
}

/// Only what is due.
pub(super) struct Nothing;

impl<T> Work<T> for Nothing {
    type Done = ();

    fn run<K: OpenKey>(self, _: &mut Visit<'_, T, K>) {}
}

impl<T> Engine<T> {
    /// Begins a command.
    #[inline]
    pub(super) fn begin(&mut self, now: Now) -> Budget {
        self.parts.backlog.begin(now);
        Budget::TURN
    }

    /// Runs a command on one lock. It does what is due there, then the command's own work, which serves the queue itself
    /// if it frees something. Requests for several locks come last.
    #[inline(always)]
    pub(super) fn on_lock<S: Keyspace, W: Work<T>>(
        &mut self,
        space: &mut S,
        command: OnLock<'_>,
        budget: &mut Budget,
        work: W,
    ) -> Result<W::Done, NotOpen> {
        let OnLock { name, own, now, owner, session } = command;
        let mut restarts = 0..MAX_RESTARTS;
        loop {
            let id = self.prepare(space, command, budget);
            let head = self.head_of(id);
            let id = if session { Some(self.find_or_create(name)) } else { id };
            let mut visit = match self.open(space, id, name, Some(own), (now, &mut *budget)) {
                Ok(visit) => visit,
                Err(why) => {
                    id.into_iter().for_each(|id| self.drop_if_idle(id));
                    return Err(why);
                }
            };
            // Due work comes first: the command sees the lock after that.
            if visit.record.is_some() {
                visit.release_ended();
                visit.release_ended_of(owner);
                let several = if W::RESCHEDULES { visit.serve_first() } else { visit.serve() };
                // A request that becomes the head now may get in, and comes before the command, too.
                if several.is_some() && several != head && restarts.next().is_some() {
                    visit.close();
                    continue;
                }
            }
            let done = work.run(&mut visit);
            visit.close();
            drop(visit);
            if let Some(id) = id {
                self.serve_several(space, id, now, budget);
                self.drop_if_idle(id);
            }
            return Ok(done);
        }
    }

    /// Returns the record of the lock, after a request for several locks that is the head, and was not looked at since,
    /// had its turn.
    #[inline]
    fn prepare<S: Keyspace>(&mut self, space: &mut S, command: OnLock<'_>, budget: &mut Budget) -> Option<RecordId> {
        let id = self.look_up(command.name)?;
        self.serve_several(space, id, command.now, budget);
        // A record that has nothing left to remember is gone.
        self.registry.get(id).map(|record| record.id)
    }
}
