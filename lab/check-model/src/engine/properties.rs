//! What must hold of every action.

use dlock_core::engine::{Answer, Fault, GRACE_MS, Role};
use dlock_core::{Change, Lock, Mode, UnixMs, decode_effect};
use dlock_testkit::keyspace::Replicated;
use stateright::Property;

use super::action::{Action, Enter, Fence, KeyNo, Release, Wanted, Who, key_name};
use super::rules::Scene;
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
        self.highest = self.engine.memory.tokens.last();
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
    scene: Scene,
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
            scene: Scene { holds: self.holds(), waiting: self.waiting.clone() },
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
            let (name, queue) = (key_name(key), step.after.scene.queue(key));
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
        for hold in &step.after.scene.holds {
            let is_new = !step.forgets_ends() && !step.before.scene.holds.iter().any(|old| same(old, hold));
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
        let (ours, theirs) = (self.engine.memory.tokens.last(), self.replica_memory.tokens.last());
        holds_if(ours >= highest, TOKENS, || format!("the token clock is {ours} after {highest}"))?;
        holds_if(theirs >= highest, TOKENS, || format!("the token clock of the replica is {theirs} after {highest}"))?;
        self.highest = self.highest.max(ours);
        Ok(())
    }

    fn check_served(&self, step: &Step<'_>) -> Checked {
        let (after, before) = (step.after, step.before);
        let has_room = |enter: &Enter| enter.keys.iter().all(|key| after.scene.queue(*key).is_empty());
        if let (Action::Enter(enter), Reply::Nil) = (step.action, &step.happened.reply) {
            let may_go = has_room(enter) || after.scene.may_pass(enter);
            let could_go = may_go && before.scene.lets_in(enter) && after.scene.lets_in(enter);
            holds_if(!could_go, SERVED, || "it got nil".to_owned())?;
        }
        if after.is_due || !after.is_at_work {
            return Ok(());
        }
        match after.scene.whose_turn() {
            None => Ok(()),
            Some(waiting) => Err(Broken { property: SERVED, how: format!("it waits: {waiting:?}") }),
        }
    }

    /// Time alone changes who could go at the end of a lease, and at that of a session.
    fn check_wake_ups(&self, step: &Step<'_>) -> Checked {
        let Look { scene, now, wake_at, .. } = step.after;
        if self.role != Role::Primary {
            return Ok(());
        }
        let wakes = |by: u64| wake_at.is_some_and(|at| at <= by.max(self.catches_up_at));
        if !step.after.is_at_work {
            let waits = scene.whose_turn().is_some();
            return holds_if(!waits || wakes(*now + RETRY_MS), WAKE_UPS, || format!("not before {wake_at:?}"));
        }
        for end in scene.holds.iter().map(|hold| hold.end) {
            let then = scene.at(end);
            if let Some(waiting) = then.whose_turn() {
                let how = || format!("at {end} it is the turn of {waiting:?}, but the timer runs at {wake_at:?}");
                holds_if(wakes(end), WAKE_UPS, how)?;
            }
        }
        for hold in scene.holds.iter().filter(|hold| hold.session.is_some()) {
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

    /// What was answered is answered again, and nothing changes.
    fn check_repeat(&self, step: &Step<'_>) -> Checked {
        let Happened { reply, .. } = step.happened;
        let expected = match (step.action, reply) {
            (Action::Enter(enter), Reply::Granted(token) | Reply::Replayed(token)) if enter.how.request.is_some() => {
                Reply::Replayed(*token)
            }
            (Action::Release(release), Reply::Number(0)) if release.how.request.is_some() => Reply::Number(0),
            _ => return Ok(()),
        };
        let mut again = self.clone();
        let before = again.holds();
        let happened = again.act(step.scope, step.action);
        let is_once = happened.reply == expected && before == again.holds();
        holds_if(is_once, REQUESTS, || format!("first {reply:?}, then {:?}", happened.reply))
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
            let recorded = waiting.enter.keys.iter().all(|key| self.before.scene.has_record(*key, &waiting.enter));
            Some(Grant { enter: &waiting.enter, token: token.get(), is_replay: recorded, waited: true })
        });
        command.chain(told)
    }

    /// A demoted server forgets the end of a session that it has not carried out, and its replica never heard of it.
    fn forgets_ends(&self) -> bool {
        self.before.has_ended && matches!(self.action, Action::Demote | Action::FailOver)
    }

    /// Every change of a hold has a cause.
    fn check_holds(&self) -> Checked {
        if self.forgets_ends() {
            return Ok(());
        }
        let (before, after) = (&self.before.scene, &self.after.scene);
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
        let taken = self.after.scene.entries(key).saturating_sub(later);
        let how = || format!("{taken} entries with {:?}: {:?}", grant.enter, self.after.scene.holds);
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
                let asked = how.request.map(|id| (dlock_core::Command::Release, id));
                let repeats = |old: &Held| asked.is_some() && old.request == asked;
                let is_named =
                    |old: &Held| old.key == *key && old.owner == *owner && how.mode.is_none_or(|mode| mode == old.mode);
                let named: Vec<&Held> = self.before.scene.holds.iter().filter(|old| is_named(old)).collect();
                // Of two modes, a token names one: the one that has changed.
                let is_it = is_named(hold) && (named.len() == 1 || self.changed(hold));
                if is_it && !named.iter().any(|old| repeats(old)) { u64::from(how.entries.unwrap_or(0)) } else { 0 }
            }
            _ => 0,
        }
    }

    fn changed(&self, hold: &Held) -> bool {
        self.before.scene.holds.iter().any(|old| same(old, hold) && old.count != hold.count)
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

    /// Whoever was ahead got in before.
    fn check_order(&self) -> Checked {
        let before = &self.before.scene;
        let mut waiting = before.waiting.clone();
        // Whoever left without an answer was in nobody's way any more.
        waiting.retain(|other| {
            let is_it = |waiting: &super::world::Waiting| waiting.id == other.id;
            self.after.scene.waiting.iter().any(is_it) || self.happened.told.iter().any(|told| is_it(&told.waiting))
        });
        for Told { waiting: served, answer } in &self.happened.told {
            let is_it = |waiting: &super::world::Waiting| waiting.id == served.id;
            if let (Answer::Granted(..), Some(at)) = (answer, waiting.iter().position(is_it)) {
                let scene = Scene { holds: Vec::new(), waiting: waiting.clone() };
                for key in &served.enter.keys {
                    let head = scene.queue(*key).first().map(|head| head.id);
                    let how = || format!("{served:?} passed {head:?} on key {key}");
                    holds_if(head == Some(served.id), ORDER, how)?;
                }
                waiting.remove(at);
            } else if !matches!(self.happened.reply, Reply::TakesOver) {
                waiting.retain(|other| !is_it(other));
            }
        }
        let (Action::Enter(enter), Reply::Granted(token)) = (self.action, &self.happened.reply) else { return Ok(()) };
        // What is due is done before a command is looked at.
        if before.may_pass(enter) || self.before.is_due {
            return Ok(());
        }
        for other in before.waiting.iter().filter(|other| shares_key(&other.enter.keys, &enter.keys)) {
            let still_waits = self.after.scene.waiting.iter().any(|waiting| waiting.id == other.id);
            let came_later = self.happened.told.iter().any(|told| {
                told.waiting.id == other.id && matches!(&told.answer, Answer::Granted(later, _) if later.get() > *token)
            });
            let is_same = enter.how.request.is_some()
                && other.enter.how.request == enter.how.request
                && other.enter.owner == enter.owner;
            let how = || format!("{enter:?} passed {other:?}");
            holds_if(is_same || !still_waits && !came_later, ORDER, how)?;
        }
        Ok(())
    }

    fn check_deadlock(&self) -> Checked {
        let Action::Enter(enter) = self.action else { return Ok(()) };
        let is_settled = !self.before.is_due && self.before.is_at_work;
        match &self.happened.reply {
            Reply::Fault(Fault::Deadlock(_)) => {
                let scene = self.joined(enter);
                let why = scene.closes_a_cycle(TICKET) || self.before.scene.hinders_itself(enter).is_some();
                holds_if(why || !is_settled, DEADLOCK, || format!("{enter:?} was refused for no reason"))
            }
            Reply::Waits if is_settled => {
                let hinders = self.before.scene.hinders_itself(enter);
                holds_if(hinders.is_none(), DEADLOCK, || format!("{enter:?} waits, but {hinders:?}"))?;
                let closes = self.joined(enter).closes_a_cycle(TICKET);
                holds_if(!closes, DEADLOCK, || format!("{enter:?} waits for itself"))
            }
            _ => Ok(()),
        }
    }

    /// The scene before the action, with a request at the end of the queues.
    fn joined(&self, enter: &Enter) -> Scene {
        let mut scene = self.before.scene.clone();
        let is_upgrade = enter.how.want == Wanted::Again
            && enter.keys.iter().any(|key| scene.hold(*key, enter.owner, Mode::Shared).is_some());
        let id = dlock_core::engine::WaiterId::default();
        scene.waiting.push(super::world::Waiting { id, ticket: TICKET, enter: enter.clone(), is_upgrade });
        scene
    }

    fn check_refusal(&self) -> Checked {
        let is_refused = matches!(self.happened.reply, Reply::Nil | Reply::Fault(_));
        let is_settled = !self.before.is_due && !self.before.has_ended && self.happened.told.is_empty();
        if !is_refused || !is_settled {
            return Ok(());
        }
        let (before, after) = (self.before, self.after);
        let tickets = |look: &Look| look.scene.waiting.iter().map(|waiting| waiting.ticket).collect::<Vec<_>>();
        let is_same = before.scene.holds == after.scene.holds && tickets(before) == tickets(after);
        holds_if(is_same, REFUSALS, || format!("{:?} became {:?}", before.scene.holds, after.scene.holds))?;
        let wakes = (before.wake_at, after.wake_at);
        let is_sooner = wakes.0.is_some_and(|before| wakes.1.is_none_or(|after| after > before));
        holds_if(!is_sooner, REFUSALS, || format!("the timer ran at {:?}, and now at {:?}", wakes.0, wakes.1))?;
        let is_sweep = |what: &Replicated| match what {
            Replicated::Effect(bytes) => decode_effect(bytes).is_ok_and(|effect| effect.change == Change::Sweep),
            Replicated::Release(_) => false,
            Replicated::Removed => true,
        };
        let is_silent = self.happened.stream.iter().all(|(_, what)| is_sweep(what));
        holds_if(is_silent, REFUSALS, || format!("it replicated {:?}", self.happened.stream))
    }
}

/// The ticket of a request that is only thought of.
const TICKET: u64 = u64::MAX;

fn same(a: &Held, b: &Held) -> bool {
    (a.key, a.owner, a.mode, a.token) == (b.key, b.owner, b.mode, b.token)
}

fn shares_key(a: &[KeyNo], b: &[KeyNo]) -> bool {
    a.iter().any(|key| b.contains(key))
}

fn stored(lock: &Lock) -> Vec<&dlock_core::Hold> {
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
