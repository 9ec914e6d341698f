//! The steps that all commands on one lock share.
//!
//! # Implementation details
//! The functions on the way of an uncontended lock, from the command to the reply, are `inline(always)`, or `inline`
//! where the compiler follows that, and the large ones are no closures. Without the attributes, the compiler leaves
//! some of them out of line, and a pair of commands costs a sixth more of the module's own instructions
//! (`make bench-instr` shows it).
//!
//! Most functions that run only for a lock with a record, with many holds or with lapsed ones are `inline(never)`:
//! inlined, they take registers from the common path, and the compiler computes parts of them before the condition is
//! tested.

use crate::engine::keyspace::{Keyspace, NotOpen, OpenKey};
use crate::engine::state::budget::Budget;
use crate::engine::state::engine::Engine;
use crate::engine::state::ids::RecordId;
use crate::engine::visit::Visit;
use crate::{Name, Now, Owner};

/// How often a command begins again because a request for several locks has become the head. After that, it runs while
/// that request still waits.
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

/// The own work of a command on its lock, after all that is due there. A trait, because a closure cannot be marked
/// `inline`.
pub(super) trait Work<T> {
    /// The result of the work.
    type Done;

    /// Whether the work always sets when the lock is due next. If so, the queue is served before the work by
    /// [`Visit::serve_first`], which leaves the time as it is if nothing has changed.
    const RESCHEDULES: bool = false;

    /// Does the work.
    fn run<K: OpenKey>(self, visit: &mut Visit<'_, T, K>) -> Self::Done;
}

/// No own work: the command only does what is due on the lock.
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

    /// Runs a command on one lock: first the work that is due there, then the command's own, which serves the queue
    /// itself if it frees something. A request for several locks that has become the head is served last.
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
            // Due work comes first, so that the command sees its result.
            if visit.record.is_some() {
                visit.release_ended();
                visit.release_ended_of(owner);
                let several = if W::RESCHEDULES { visit.serve_first() } else { visit.serve() };
                // A request for several locks that has just become the head may get in, and comes before the command.
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

    /// Serves a request for several locks that is the head of the lock's queue. Returns the record of the lock.
    #[inline]
    fn prepare<S: Keyspace>(&mut self, space: &mut S, command: OnLock<'_>, budget: &mut Budget) -> Option<RecordId> {
        let id = self.look_up(command.name)?;
        self.serve_several(space, id, command.now, budget);
        // Serving may have removed a record that had nothing left to remember.
        self.registry.get(id).map(|record| record.id)
    }
}
