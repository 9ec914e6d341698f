//! What must hold of every action.

mod holds;
mod requests;

use dlock_core::engine::{Answer, Fault, GRACE_MS, Role};
use dlock_core::{Hold, Lock, UnixMs};
use stateright::Property;

use super::action::{Action, Enter, Who, key_name};
use super::rules::Situation;
use super::scope::Scope;
use super::world::{Happened, Held, MOST_TICKS, RETRY_MS, Reply, Told, World};
use crate::explorer::{Broken, Explorer, Instance, NO_PANIC};

pub const EXCLUSION: &str =
    "a live hold excludes others, and only its owner, its lease, its session or its key ends it";
pub const LIMIT: &str = "live shared entries are within the limit at each grant, and entries add up";
pub const ALL_OR_NONE: &str = "several locks are taken together or not at all";
pub const TOKENS: &str = "tokens rise";
pub const SERVED: &str = "nobody waits, or is turned away, who could go";
pub const ORDER: &str = "nobody passes a waiter";
pub const QUEUES: &str = "every waiter is in exactly its queues";
pub const WAKE_UPS: &str = "a wake-up is set for everything that time changes";
pub const REFUSALS: &str = "a refused or failed command changes nothing";
pub const REQUESTS: &str = "a request that comes twice counts once";
pub const DEADLOCK: &str = "a deadlock is refused when it would begin, and nothing else is";
pub const REPLICA: &str = "a replica has what its primary has";
pub const SESSIONS: &str = "a session's holds live as long as it, and no longer";

type Checked = Result<(), Broken>;

fn holds_if(is_so: bool, property: &'static str, how: impl FnOnce() -> String) -> Checked {
    if is_so { Ok(()) } else { Err(Broken { property, how: how() }) }
}

/// A grant, by a command or at the end of a wait.
struct Grant<'a> {
    enter: &'a Enter,
    token: u64,
    /// Its answer came from the record of an earlier one.
    is_replay: bool,
    waited: bool,
}

impl Instance for World {
    type Scope = Scope;
    type Action = Action;

    fn begin(scope: &Scope) -> World {
        World::new(scope)
    }

    fn actions(&self, scope: &Scope) -> Vec<Action> {
        scope.actions(&mut self.clone())
    }

    fn play(&mut self, scope: &Scope, action: &Action) {
        self.act(scope, action);
        self.highest = self.engine.memory().tokens.last();
    }

    fn check(&mut self, scope: &Scope, action: &Action, reached: &mut dyn FnMut(&'static str)) -> Checked {
        let before = self.look();
        let happened = self.act(scope, action);
        let after = self.look();
        for what in reaches(action, &happened) {
            reached(what);
        }
        let step = Step { scope, action, before: &before, happened: &happened, after: &after };
        self.check_tables(&step)?;
        step.check_holds()?;
        self.check_tokens(&step)?;
        step.check_order()?;
        self.check_served(&step)?;
        step.check_deadlock()?;
        step.check_refusal()?;
        self.check_wake_ups(&step)?;
        self.check_replica()?;
        self.check_repeat(&step)
    }

    fn fingerprint(&self) -> u64 {
        self.digest()
    }

    fn properties() -> Vec<Property<Explorer<World>>> {
        crate::always![
            EXCLUSION,
            LIMIT,
            ALL_OR_NONE,
            TOKENS,
            SERVED,
            ORDER,
            QUEUES,
            WAKE_UPS,
            REFUSALS,
            REQUESTS,
            DEADLOCK,
            REPLICA,
            SESSIONS,
            NO_PANIC,
        ]
    }
}

/// What can be seen of a server, before and after an action.
struct Look {
    situation: Situation,
    now: u64,
    wake_at: Option<u64>,
    is_due: bool,
    is_at_work: bool,
    /// Whether holds of ended sessions are still to be released.
    has_ended: bool,
    ids: Vec<u64>,
}

struct Step<'a> {
    scope: &'a Scope,
    action: &'a Action,
    before: &'a Look,
    happened: &'a Happened,
    after: &'a Look,
}

impl World {
    fn look(&mut self) -> Look {
        Look {
            situation: Situation { holds: self.holds(), waiting: self.waiting.clone() },
            now: self.now(),
            wake_at: self.engine.wake_at().map(UnixMs::get),
            is_due: self.is_due(),
            is_at_work: self.role == Role::Primary && !self.refuses_writes && self.catches_up_at <= self.now(),
            has_ended: self.engine.snapshot().records.iter().any(|record| !record.ended.is_empty()),
            ids: self.clients.clone(),
        }
    }

    fn check_tables(&self, step: &Step<'_>) -> Checked {
        self.engine.audit().map_err(|how| Broken { property: QUEUES, how })?;
        let snapshot = self.engine.snapshot();
        for key in 0..step.scope.keys {
            let (name, queue) = (key_name(key), step.after.situation.queue(key));
            let record = snapshot.records.iter().find(|record| record.name.key == name.1);
            let found: Vec<u64> = record.iter().flat_map(|record| &record.queue).map(|found| *found.ticket).collect();
            let wanted: Vec<u64> = queue.iter().map(|waiting| waiting.ticket).collect();
            holds_if(found == wanted, QUEUES, || format!("the queue of key {key} is {found:?}, not {wanted:?}"))?;
        }
        let is_at_rest = step.happened.ticks < MOST_TICKS;
        holds_if(is_at_rest, WAKE_UPS, || "the timer always has something to do".to_owned())
    }

    fn check_tokens(&mut self, step: &Step<'_>) -> Checked {
        let mut given: Vec<(u64, Who)> = Vec::new();
        for hold in &step.after.situation.holds {
            let is_new = !step.forgets_ends() && !step.before.situation.holds.iter().any(|old| same(old, hold));
            if !is_new {
                continue;
            }
            let how = || format!("{hold:?} after token {}", self.highest);
            holds_if(hold.token > self.highest, TOKENS, how)?;
            let is_fresh = given.iter().all(|(token, owner)| *token != hold.token || *owner == hold.owner);
            holds_if(is_fresh, TOKENS, || format!("{hold:?} has the token of another"))?;
            given.push((hold.token, hold.owner));
        }
        // In the order in which they were given.
        let tokens: Vec<u64> =
            step.grants().filter(|grant| !grant.is_replay && grant.waited).map(|g| g.token).collect();
        let is_new = |token: &&u64| **token > self.highest;
        let rising = tokens.iter().filter(is_new).is_sorted();
        holds_if(rising, TOKENS, || format!("tokens were given in the order {tokens:?}"))?;
        let highest = given.iter().map(|(token, _)| *token).chain([self.highest]).max().unwrap_or(0);
        let (ours, theirs) = (self.engine.memory().tokens.last(), self.replica_memory.tokens.last());
        holds_if(ours >= highest, TOKENS, || format!("the token clock is {ours} after {highest}"))?;
        holds_if(theirs >= highest, TOKENS, || format!("the token clock of the replica is {theirs} after {highest}"))?;
        self.highest = self.highest.max(ours);
        Ok(())
    }

    /// Time alone changes who could go at the end of a lease, and at that of a session.
    fn check_wake_ups(&self, step: &Step<'_>) -> Checked {
        let Look { situation, now, wake_at, .. } = step.after;
        if self.role != Role::Primary {
            return Ok(());
        }
        let wakes = |by: u64| wake_at.is_some_and(|at| at <= by.max(self.catches_up_at));
        if !step.after.is_at_work {
            let waits = situation.whose_turn().is_some();
            return holds_if(!waits || wakes(*now + RETRY_MS), WAKE_UPS, || format!("not before {wake_at:?}"));
        }
        for end in situation.holds.iter().map(|hold| hold.end) {
            let then = situation.at(end);
            if let Some(waiting) = then.whose_turn() {
                let how = || format!("at {end} it is the turn of {waiting:?}, but the timer runs at {wake_at:?}");
                holds_if(wakes(end), WAKE_UPS, how)?;
            }
        }
        for hold in situation.holds.iter().filter(|hold| hold.session.is_some()) {
            let due = hold.end - hold.lease + hold.lease / 3;
            let how = || format!("{hold:?} is due for renewal at {due}, but the timer runs at {wake_at:?}");
            holds_if(wakes(due.max(*now)), WAKE_UPS, how)?;
        }
        Ok(())
    }

    fn check_replica(&self) -> Checked {
        for key in 0..self.keys() {
            let name = key_name(key);
            if self.space.has_expired(&name) {
                continue;
            }
            let (ours, theirs) = (self.space.lock(&name), self.replica.lock(&name));
            let how = || format!("key {key} of the replica: {:?} and not {:?}", stored(theirs), stored(ours));
            holds_if(stored(ours) == stored(theirs), REPLICA, how)?;
            let last = ours.last_deadline().map(UnixMs::get);
            let (ours, theirs) = (self.space.expiry(&name).flatten(), self.replica.expiry(&name).flatten());
            let is_grace = theirs == last && ours == last.map(|last| last + GRACE_MS);
            let how = || format!("key {key} expires at {ours:?}, on the replica at {theirs:?}");
            holds_if(ours == theirs || is_grace, REPLICA, how)?;
        }
        Ok(())
    }
}

impl Step<'_> {
    fn grants(&self) -> impl Iterator<Item = Grant<'_>> {
        let command = match (self.action, &self.happened.reply) {
            (Action::Enter(enter), Reply::Granted(token)) => Some((enter, *token, false)),
            (Action::Enter(enter), Reply::Replayed(token)) => Some((enter, *token, true)),
            _ => None,
        };
        let command =
            command.map(|(enter, token, is_replay)| Grant { enter, token, is_replay, waited: false }).into_iter();
        let told = self.happened.told.iter().filter_map(|Told { waiting, answer }| {
            let Answer::Granted(token, _) = answer else { return None };
            let recorded = waiting.enter.keys.iter().all(|key| self.before.situation.has_record(*key, &waiting.enter));
            Some(Grant { enter: &waiting.enter, token: token.get(), is_replay: recorded, waited: true })
        });
        command.chain(told)
    }

    /// A demoted server forgets the end of a session that it has not carried out, and its replica never heard of it.
    fn forgets_ends(&self) -> bool {
        self.before.has_ended && matches!(self.action, Action::Demote | Action::FailOver)
    }
}

fn same(a: &Held, b: &Held) -> bool {
    (a.key, a.owner, a.mode, a.token) == (b.key, b.owner, b.mode, b.token)
}

fn stored(lock: &Lock) -> Vec<&Hold> {
    lock.stored_holds().collect()
}

/// The result of an action, which shows that a scope reaches the states that are hard.
fn reaches(action: &Action, happened: &Happened) -> Vec<&'static str> {
    let mut reached = Vec::new();
    if let Action::Enter(enter) = action {
        reached.push(match &happened.reply {
            Reply::Granted(_) => "grants",
            Reply::Replayed(_) => "replays",
            Reply::Waits => "waits",
            Reply::TakesOver => "places taken over",
            Reply::Fault(Fault::Deadlock(_)) => "deadlocks",
            Reply::Fault(_) => "faults",
            Reply::None | Reply::Nil | Reply::Number(_) => "refusals",
        });
        if enter.keys.len() > 1 && matches!(happened.reply, Reply::Granted(_)) {
            reached.push("grants of several");
        }
    }
    for told in &happened.told {
        reached.push(match (&told.answer, told.waiting.is_upgrade, told.waiting.enter.keys.len()) {
            (Answer::Granted(..), true, _) => "upgrades after a wait",
            (Answer::Granted(..), _, 2..) => "grants of several after a wait",
            (Answer::Granted(..), ..) => "grants after a wait",
            (Answer::Nil | Answer::Fault(_), ..) => "waits that ended otherwise",
        });
    }
    reached
}
