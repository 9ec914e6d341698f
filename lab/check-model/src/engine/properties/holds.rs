//! What must hold of holds: nothing gives, changes or ends one without a cause.

use dlock_core::{Command, Mode};

use super::{ALL_OR_NONE, Checked, EXCLUSION, Grant, LIMIT, SESSIONS, Step, holds_if, same};
use crate::engine::action::{Action, Fence, Release, Wanted};
use crate::engine::world::{Held, Reply};

impl Step<'_> {
    /// Every change of a hold has a cause.
    pub(super) fn check_holds(&self) -> Checked {
        if self.forgets_ends() {
            return Ok(());
        }
        let (before, after) = (&self.before.situation, &self.after.situation);
        for hold in &after.holds {
            let is_beside = |other: &&Held| other.key == hold.key && other.owner != hold.owner;
            let mut others = after.holds.iter().filter(is_beside);
            let is_alone = hold.mode == Mode::Shared || others.next().is_none();
            holds_if(is_alone, EXCLUSION, || format!("{hold:?} is not alone: {:?}", after.holds))?;
        }
        // What is there was granted, or was there before.
        for hold in &after.holds {
            let granted: u64 = self.granted_entries(hold);
            let old = before.holds.iter().find(|old| same(old, hold));
            let released = old.map_or(0, |_| self.released_entries(hold));
            let count = old.map_or(0, |old| old.count) + granted;
            let how = || format!("{old:?} became {hold:?}, {granted} granted and {released} released");
            holds_if(count == hold.count + released, LIMIT, how)?;
            if let Some(old) = old {
                let may_shorten = matches!(self.action, Action::Renew(_) | Action::Gone(_) | Action::Resume);
                let is_shorter = hold.end < old.end && !may_shorten && self.scope.grace.is_none();
                holds_if(!is_shorter, EXCLUSION, || format!("{old:?} became {hold:?}"))?;
            }
        }
        for old in before.holds.iter().filter(|old| !after.holds.iter().any(|hold| same(old, hold))) {
            let how = || format!("{old:?} has ended");
            holds_if(self.may_end(old), EXCLUSION, how)?;
            let is_alive = old.session.is_some_and(|session| self.after.ids.contains(&session));
            let lapsed = old.end <= self.after.now && is_alive && !self.scope.stops();
            holds_if(!lapsed, SESSIONS, || format!("{old:?} has lapsed"))?;
        }
        // What was bound to a connection that is gone.
        if self.after.is_at_work && !self.after.is_due && *self.action != Action::FailOver {
            let is_left = |hold: &&Held| {
                let old = before.holds.iter().find(|old| same(old, hold));
                let session = old.and_then(|old| old.session);
                session.is_some_and(|session| !self.after.ids.contains(&session))
                    && (self.scope.grace.is_none() || hold.session.is_some())
            };
            let left = after.holds.iter().find(is_left);
            holds_if(left.is_none(), SESSIONS, || format!("{left:?} outlives its session"))?;
        }
        for grant in self.grants() {
            let mode = grant.enter.how.want.want().mode();
            for key in &grant.enter.keys {
                let hold = after.hold(*key, grant.enter.owner, mode);
                let property = if grant.enter.keys.len() > 1 { ALL_OR_NONE } else { EXCLUSION };
                let has_it = hold.is_some_and(|hold| hold.token == grant.token);
                let how = || format!("{:?} was granted {}: {hold:?}", grant.enter, grant.token);
                holds_if(has_it || self.gives_up(&grant), property, how)?;
            }
            if let Wanted::Permits(_, limit) = grant.enter.how.want
                && !grant.is_replay
            {
                self.check_limit(&grant, u64::from(limit))?;
            }
        }
        for hold in after.holds.iter().filter(|hold| !before.holds.iter().any(|old| same(old, hold))) {
            let grants = self.grants().filter(|grant| grant.token == hold.token).count();
            holds_if(grants > 0, ALL_OR_NONE, || format!("{hold:?}, but nobody was told"))?;
        }
        Ok(())
    }

    /// Whether the action is the owner's release, which ends what a wait that was due came to just before.
    fn gives_up(&self, grant: &Grant<'_>) -> bool {
        let Action::Release(Release { key, owner, .. }) = self.action else { return false };
        let is_own = grant.enter.owner == *owner && grant.enter.keys.contains(key);
        let was_late = self.before.is_due || !self.before.is_at_work;
        is_own && was_late && self.happened.reply == Reply::Number(1)
    }

    /// The entries that were taken when a grant was made: those of later grants in the same step do not count.
    fn check_limit(&self, grant: &Grant<'_>, limit: u64) -> Checked {
        let key = grant.enter.keys[0];
        let is_shared = |other: &Grant<'_>| other.enter.how.want.want().mode() == Mode::Shared;
        let on_key = self.grants().filter(|other| other.enter.keys == [key] && !other.is_replay && is_shared(other));
        let own = u64::from(grant.enter.how.want.want().entries());
        // A command that is granted comes before those that it lets in; a wait that ends, after those ahead of it.
        let later: u64 = on_key
            .skip_while(|other| other.enter != grant.enter || other.token != grant.token)
            .map(|other| u64::from(other.enter.how.want.want().entries()))
            .sum::<u64>()
            .saturating_sub(own);
        let taken = self.after.situation.entries(key).saturating_sub(later);
        let how = || format!("{taken} entries with {:?}: {:?}", grant.enter, self.after.situation.holds);
        // The exclusive owner is restricted by its own entries only, which are all that there are.
        holds_if(taken <= limit, LIMIT, how)
    }

    fn granted_entries(&self, hold: &Held) -> u64 {
        let is_of = |grant: &Grant<'_>| {
            !grant.is_replay
                && grant.enter.owner == hold.owner
                && grant.enter.keys.contains(&hold.key)
                && grant.enter.how.want.want().mode() == hold.mode
                && grant.token == hold.token
        };
        self.grants().filter(is_of).map(|grant| u64::from(grant.enter.how.want.want().entries())).sum()
    }

    /// How many entries of a hold that is still there the action has given back.
    fn released_entries(&self, hold: &Held) -> u64 {
        match (self.action, &self.happened.reply) {
            (Action::Release(Release { key, owner, how }), Reply::Number(0)) => {
                let asked = how.request.map(|id| (Command::Release, id));
                let repeats = |old: &Held| asked.is_some() && old.request == asked;
                let is_named =
                    |old: &Held| old.key == *key && old.owner == *owner && how.mode.is_none_or(|mode| mode == old.mode);
                let named: Vec<&Held> = self.before.situation.holds.iter().filter(|old| is_named(old)).collect();
                // Of two modes, a token names one: the one that has changed.
                let is_it = is_named(hold) && (named.len() == 1 || self.changed(hold));
                if is_it && !named.iter().any(|old| repeats(old)) { u64::from(how.entries.unwrap_or(0)) } else { 0 }
            }
            _ => 0,
        }
    }

    fn changed(&self, hold: &Held) -> bool {
        self.before.situation.holds.iter().any(|old| same(old, hold) && old.count != hold.count)
    }

    /// Whether a hold that is gone had a reason to go.
    fn may_end(&self, old: &Held) -> bool {
        if old.end <= self.after.now {
            return true;
        }
        match self.action {
            Action::Release(Release { key, owner, how }) => {
                let is_named = how.mode.is_none_or(|mode| mode == old.mode);
                // The token of another hold names none of the owner's.
                let is_named = is_named && how.token != Fence::Other;
                (*key, *owner) == (old.key, old.owner) && is_named && self.happened.reply == Reply::Number(1)
            }
            Action::Delete(key) => *key == old.key,
            Action::Flush => true,
            Action::Gone(client) => old.session == Some(self.before.ids[*client]),
            _ => false,
        }
    }
}
