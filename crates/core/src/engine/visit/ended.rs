//! How a visit settles holds whose sessions have ended: it releases them, or sets their deadline to the end of the
//! grace.

use crate::engine::keyspace::{OpenKey, Replication};
use crate::engine::state::budget::PIECE;
use crate::engine::state::outbox::Event;
use crate::engine::visit::Visit;
use crate::{Change, Effect, Expiry, Hold, Mode, Owner, UnixMs, Want};

impl<T, K: OpenKey> Visit<'_, T, K> {
    /// Releases holds whose sessions have ended, or gives them the end of their grace: some of them, if there are many.
    #[inline(never)]
    pub(crate) fn release_ended(&mut self) {
        loop {
            let next = self.record.as_ref().and_then(|record| record.bound.next_ended());
            let Some((_, binding, _)) = next else { return };
            if self.budget.settles == 0 {
                break;
            }
            self.budget.settles -= 1;
            let (owner, mode) = (binding.owner.clone(), binding.mode);
            self.settle_one(&owner, mode);
        }
        self.budget.should_yield = true;
        // An exclusive hold blocks all requests, so it is settled beyond the budget.
        if let Some(owner) = self.open.lock().exclusive(UnixMs::ZERO).map(|hold| hold.owner.clone()) {
            self.release_ended_of(&owner);
        }
    }

    /// Releases the holds of one owner whose session has ended.
    #[inline]
    pub(crate) fn release_ended_of(&mut self, owner: &Owner) {
        if self.record.as_ref().is_some_and(|record| record.bound.has_ended()) {
            for mode in [Mode::Exclusive, Mode::Shared] {
                self.settle_one(owner, mode);
            }
        }
    }

    /// Before a grant with `SLOT`, releases the holds that count as released and whose number is below the lowest free
    /// one: the new hold gets the lowest number.
    pub(crate) fn free_slot(&mut self, want: Want) {
        if !want.has_slot() {
            return;
        }
        let now = self.now.ms();
        for _ in 0..PIECE {
            let free = self.open.lock().holds.free_slot(self.effect_clock());
            let looks = &mut self.budget.looks;
            let ended = self.record.as_mut().and_then(|record| record.bound.lowest_ended_slot(now, looks));
            let Some((_, owner)) = ended.filter(|(slot, _)| *slot < free) else { return };
            let owner = owner.clone();
            self.settle_one(&owner, Mode::Shared);
        }
    }

    /// Releases a hold whose session has ended. If the grace still runs, unbinds the hold instead, and sets its
    /// deadline to the end of the grace.
    fn settle_one(&mut self, owner: &Owner, mode: Mode) {
        let ended = self.record.as_ref().and_then(|record| record.bound.ended_of(owner, mode));
        let Some((binding, end)) = ended.map(|(_, binding, end)| (binding.clone(), end)) else { return };
        self.unbind(owner, mode);
        let now = self.now;
        let is_it = |hold: &&Hold| hold.token == binding.token;
        // The hold may have lapsed since its session ended. A hold that had lapsed before that is left alone.
        let hold = self.open.lock().live(owner, mode, end.at.min(now.ms())).filter(is_it);
        let Some(hold) = hold else { return };
        let deadline = hold.up_to_cap(end.deadline());
        let effect = if end.grace.is_some() && deadline > now.ms() {
            let hold = Hold { deadline, ..hold.clone() };
            // By the clock of the session's end, the hold is live. By a later one, the effect could count a lapse.
            Effect { clock: end.at.min(now.ms()), change: Change::Put { hold, expiry: Expiry::Keep } }
        } else if hold.is_live(now.ms()) {
            Effect { clock: now.ms(), change: Change::Remove { owner: owner.clone(), mode: Some(mode) } }
        } else {
            // The hold has lapsed since: the effect only drops it, at once or when all holds in a grace are settled.
            Effect { clock: now.ms(), change: Change::Sweep }
        };
        // A hold whose grace is over has ended by its deadline, which is no release.
        let is_released = matches!(effect.change, Change::Remove { .. }) && end.grace.is_none();
        if effect.change != Change::Sweep || self.open.lock().has_lapsed(self.effect_clock()) {
            self.apply(effect, Replication::Effect);
        }
        let outbox = &mut self.parts.outbox;
        outbox.stats.session_ends += 1;
        if is_released {
            outbox.note_session_ends(std::iter::once(binding.token), 1, now.us());
            outbox.stats.releases += 1;
            self.emit(Event::Release);
        }
    }
}
