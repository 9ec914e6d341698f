//! What the contract says of a request: whether it could go, and whom it waits for.

use dlock_core::{Command, Mode};

use super::action::{Enter, KeyNo, Wanted, Who};
use super::world::{Held, Waiting};

/// What can be seen of a server at some time.
#[derive(Clone)]
pub struct Situation {
    pub holds: Vec<Held>,
    /// In the order in which they came.
    pub waiting: Vec<Waiting>,
}

impl Situation {
    pub fn on(&self, key: KeyNo) -> impl Iterator<Item = &Held> {
        self.holds.iter().filter(move |hold| hold.key == key)
    }

    pub fn hold(&self, key: KeyNo, owner: Who, mode: Mode) -> Option<&Held> {
        self.on(key).find(|hold| (hold.owner, hold.mode) == (owner, mode))
    }

    /// The queue of a key, the head first.
    pub fn queue(&self, key: KeyNo) -> Vec<&Waiting> {
        let on_key = self.waiting.iter().filter(|waiting| waiting.enter.keys.contains(&key));
        let (upgrades, others): (Vec<_>, Vec<_>) = on_key.partition(|waiting| waiting.is_upgrade);
        upgrades.into_iter().chain(others).collect()
    }

    /// The same at a later time, if nothing happens.
    pub fn at(&self, time: u64) -> Situation {
        let mut situation = self.clone();
        situation.holds.retain(|hold| hold.end > time);
        situation
    }

    /// The permits that are taken.
    pub fn entries(&self, key: KeyNo) -> u64 {
        self.on(key).filter(|hold| hold.mode == Mode::Shared).map(|hold| hold.count).sum()
    }

    /// Whether the locks let the request in, whoever waits.
    pub fn lets_in(&self, enter: &Enter) -> bool {
        let Enter { owner, keys, how, .. } = enter;
        let is_recorded = |key: &KeyNo| self.has_record(*key, enter);
        let is_open = |key: &KeyNo| {
            let others = |mode| self.on(*key).any(|hold| hold.owner != *owner && hold.mode == mode);
            let mine = |mode| self.hold(*key, *owner, mode);
            match how.want {
                Wanted::Once | Wanted::All => self.on(*key).next().is_none(),
                Wanted::Again => mine(Mode::Exclusive).is_some() || !(others(Mode::Exclusive) || others(Mode::Shared)),
                Wanted::Read => !others(Mode::Exclusive),
                Wanted::Permits(permits, limit) => {
                    let own = mine(Mode::Shared).map_or(0, |hold| hold.count);
                    let taken = if mine(Mode::Exclusive).is_some() { own } else { self.entries(*key) };
                    !others(Mode::Exclusive) && taken + u64::from(permits) <= u64::from(limit)
                }
            }
        };
        keys.iter().all(is_recorded) || keys.iter().all(is_open)
    }

    /// Whether the hold that a request leads to records it already.
    pub fn has_record(&self, key: KeyNo, enter: &Enter) -> bool {
        let asked: Option<(Command, u8)> = enter.how.request.map(|id| (enter.how.want.command(), id));
        let hold = self.hold(key, enter.owner, enter.how.want.want().mode());
        asked.is_some() && hold.is_some_and(|hold| hold.request == asked)
    }

    /// The first waiter whose turn it is.
    pub fn whose_turn(&self) -> Option<&Waiting> {
        let is_head = |waiting: &&Waiting| {
            waiting.enter.keys.iter().all(|key| self.queue(*key).first().is_some_and(|head| head.id == waiting.id))
        };
        self.waiting.iter().filter(is_head).find(|waiting| self.lets_in(&waiting.enter))
    }

    /// Whether the owner of a request passes those that wait for the key.
    pub fn may_pass(&self, enter: &Enter) -> bool {
        let [key] = *enter.keys else { return false };
        let has = |mode| self.hold(key, enter.owner, mode).is_some();
        let is_alone = self.on(key).all(|hold| hold.owner == enter.owner);
        match enter.how.want {
            Wanted::Once | Wanted::All => false,
            Wanted::Again => has(Mode::Exclusive) || (has(Mode::Shared) && is_alone),
            Wanted::Read => has(Mode::Shared) || has(Mode::Exclusive),
            Wanted::Permits(..) => has(Mode::Exclusive),
        }
    }

    /// Why a request would wait forever by what its owner itself has, or by a second upgrade.
    pub fn hinders_itself(&self, enter: &Enter) -> Option<&'static str> {
        let Enter { owner, keys, how, .. } = enter;
        let has = |key: &KeyNo, mode| self.hold(*key, *owner, mode).is_some();
        let has_any = |key: &KeyNo| has(key, Mode::Exclusive) || has(key, Mode::Shared);
        let key = &keys[0];
        match how.want {
            Wanted::Once | Wanted::All if keys.iter().any(has_any) => Some("its owner holds the lock"),
            Wanted::Again if has(key, Mode::Shared) && !has(key, Mode::Exclusive) => {
                let is_second = |waiting: &&Waiting| waiting.is_upgrade && waiting.enter.owner != *owner;
                self.queue(*key).iter().any(is_second).then_some("it is the second upgrade")
            }
            Wanted::Permits(permits, limit) => {
                let own = self.hold(*key, *owner, Mode::Shared).map_or(0, |hold| hold.count);
                let is_alone = self.on(*key).all(|hold| hold.owner == *owner);
                if own + u64::from(permits) > u64::from(limit) {
                    Some("its owner's permits exceed the limit")
                } else if own > 0 && !has(key, Mode::Exclusive) && is_alone && !self.queue(*key).is_empty() {
                    Some("its owner is the only holder, and a waiter is ahead")
                } else {
                    None
                }
            }
            Wanted::Once | Wanted::All | Wanted::Again | Wanted::Read => None,
        }
    }

    /// Whether a request that waits, the one with this ticket, waits for its own owner through others.
    pub fn closes_a_cycle(&self, ticket: u64) -> bool {
        let origin = self.waiting.iter().find(|waiting| waiting.ticket == ticket).expect("it waits");
        let waits = |owner: Who| self.waiting.iter().filter(|waiting| waiting.enter.owner == owner).collect::<Vec<_>>();
        if waits(origin.enter.owner).len() > 1 {
            return false;
        }
        let (mut met, mut next) = (vec![origin.enter.owner], vec![origin]);
        while let Some(waiting) = next.pop() {
            for owner in self.waits_for(waiting) {
                if owner == origin.enter.owner {
                    return true;
                }
                // An owner that waits on several connections is several.
                if !met.contains(&owner)
                    && let [waiting] = waits(owner).as_slice()
                {
                    met.push(owner);
                    next.push(waiting);
                }
            }
        }
        false
    }

    /// The owners ahead, and the holders that a request or one ahead excludes; without requests ahead of owners that
    /// wait on several connections.
    fn waits_for(&self, waiting: &Waiting) -> Vec<Who> {
        let mut owners = Vec::new();
        let is_of = |owner: Who| move |other: &&Waiting| other.enter.owner == owner;
        let waits_once = |other: &&Waiting| self.waiting.iter().filter(is_of(other.enter.owner)).count() == 1;
        for key in &waiting.enter.keys {
            let queue = self.queue(*key);
            let ahead = queue.into_iter().take_while(|other| other.id != waiting.id);
            let ahead: Vec<&Waiting> = ahead.filter(waits_once).collect();
            owners.extend(ahead.iter().map(|other| other.enter.owner));
            let excludes = |other: &Waiting, hold: &Held| {
                let is_exclusive = |mode| mode == Mode::Exclusive;
                other.enter.owner != hold.owner
                    && (is_exclusive(other.enter.how.want.want().mode()) || is_exclusive(hold.mode))
            };
            let is_in_the_way =
                |hold: &&Held| excludes(waiting, hold) || ahead.iter().any(|other| excludes(other, hold));
            owners.extend(self.on(*key).filter(is_in_the_way).map(|hold| hold.owner));
        }
        owners
    }
}
