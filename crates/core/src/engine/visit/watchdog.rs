//! How a visit extends the leases of holds whose sessions are open. `session_holds/renewal.rs` says when.

use crate::engine::keyspace::{OpenKey, Replication};
use crate::engine::state::budget::PIECE;
use crate::engine::visit::Visit;
use crate::{Change, Effect, Expiry, Hold, LeaseChoice};

impl<T, K: OpenKey> Visit<'_, T, K> {
    /// Forgets the bindings of holds whose leases ended before they were extended: some of them, if there are many.
    pub(crate) fn forget_lapsed(&mut self) {
        let now = self.now.ms();
        for _ in 0..PIECE {
            let due = self.record.as_ref().and_then(|record| record.bound.due(now));
            let Some((id, binding)) = due.filter(|(_, binding)| binding.deadline <= now) else { return };
            let (owner, mode) = (binding.owner.clone(), binding.mode);
            // A hold whose session has ended may have a grace left.
            match &mut self.record {
                Some(record) if record.bound.ended_of(&owner, mode).is_some() => record.bound.skip_renewal(id),
                _ => self.unbind(&owner, mode),
            }
        }
    }

    /// Extends the leases that are due: some of them, if there are many.
    pub(crate) fn extend(&mut self) {
        let now = self.now.ms();
        for _ in 0..PIECE {
            let Some(record) = &mut self.record else { return };
            let Some((id, binding)) = record.bound.due(now) else { return };
            let (owner, mode) = (binding.owner.clone(), binding.mode);
            if record.bound.ended_of(&owner, mode).is_some() {
                record.bound.skip_renewal(id);
                continue;
            }
            let hold = self.open.lock().live(&owner, mode, now);
            let renewed = hold.filter(|hold| hold.token == binding.token).and_then(|hold| {
                let (_, deadline) = LeaseChoice::Own.resolve(now, hold.lease)?;
                Some(Hold { deadline: hold.up_to_cap(deadline), ..hold.clone() })
            });
            match renewed {
                Some(hold) => {
                    // An earlier TTL that a client set stays: only commands replace it.
                    let change = Change::Put { hold, expiry: Expiry::Keep };
                    self.apply(Effect { clock: now, change }, Replication::Effect);
                }
                // The hold has lapsed, or is gone.
                None => self.unbind(&owner, mode),
            }
        }
        self.budget.should_yield = true;
    }
}
