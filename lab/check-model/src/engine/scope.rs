//! Who takes part, and which actions there are in which state.

use dlock_core::Mode;
use dlock_core::engine::Role;

use super::action::{
    Action, ClientNo, Enter, Fence, How, KeyNo, Release, ReleaseHow, Renew, RenewHow, Wanted, Who, key_name, who,
};
use super::world::World;

/// A small instance: who takes part, and what may happen.
#[derive(Clone, Debug)]
pub struct Scope {
    pub name: &'static str,
    pub owners: usize,
    pub keys: usize,
    /// Connections that wait and bind; others send commands that do neither.
    pub clients: usize,
    pub enters: Vec<How>,
    pub releases: Vec<ReleaseHow>,
    pub renews: Vec<RenewHow>,
    pub events: Vec<Event>,
    pub grace: Option<u64>,
    pub max_waiters: Option<usize>,
    pub turns: Turns,
    /// On how many connections an owner waits at most.
    pub threads: usize,
    /// How many actions there are at most, in `make check-model` and in `make test`.
    pub depth: [usize; 2],
    /// What it has to come to: otherwise it shows nothing.
    pub reaches: &'static [&'static str],
}

/// Something that happens beside commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    Time,
    HalfTime,
    Delete,
    Flush,
    Unblock,
    Gone,
    Pause,
    RefuseWrites,
    Demote,
    FailOver,
}

/// When the timer runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turns {
    /// At the end of each action, as long as it has something to do.
    EndWithEachAction,
    /// Some time, as between commands of a transaction.
    EndSometime,
}

impl Scope {
    /// Whether leases may run out although their connections live.
    pub fn stops(&self) -> bool {
        let stops = [Event::Pause, Event::RefuseWrites, Event::Demote, Event::FailOver];
        self.turns == Turns::EndSometime || self.events.iter().any(|event| stops.contains(event))
    }

    /// What may happen next. Of owners and connections that have no part in anything, one stands for all.
    pub(super) fn actions(&self, world: &mut World) -> Vec<Action> {
        let mut actions = Vec::new();
        let is_replica = world.role == Role::Replica;
        if !is_replica && !world.refuses_writes {
            self.add_enters(world, &mut actions);
            self.add_others(world, &mut actions);
        }
        self.add_events(world, &mut actions);
        actions
    }

    fn add_enters(&self, world: &World, actions: &mut Vec<Action>) {
        let owners = self.owners_to_try(world);
        let clients = self.clients_to_try(world);
        let keys: Vec<Vec<KeyNo>> = (0..self.keys).map(|key| vec![key]).collect();
        let all = [(0..self.keys).collect()];
        for how in &self.enters {
            let keys = if how.want == Wanted::All { all.as_slice() } else { keys.as_slice() };
            let clients: Vec<Option<ClientNo>> =
                if how.blocks || how.binds { clients.iter().copied().map(Some).collect() } else { vec![None] };
            for (owner, keys) in owners.iter().flat_map(|owner| keys.iter().map(move |keys| (*owner, keys))) {
                // Beside its threads of control, an owner that waits may have sent its request again.
                let is_waiting = |other: &super::world::Waiting| other.enter.owner == owner;
                let is_resent = |other: &super::world::Waiting| {
                    how.request.is_some() && other.enter.how.request == how.request && other.enter.keys == *keys
                };
                let own = world.waiting.iter().filter(|other| is_waiting(other) && !is_resent(other));
                if own.count() >= self.threads {
                    continue;
                }
                for client in &clients {
                    actions.push(Action::Enter(Enter { client: *client, owner, keys: keys.clone(), how: *how }));
                }
            }
        }
    }

    fn add_others(&self, world: &mut World, actions: &mut Vec<Action>) {
        let holds = world.holds();
        let clients = self.clients_to_try(world);
        for key in 0..self.keys {
            let holders = || (0..self.owners).filter(|owner| holds.iter().any(|h| (h.key, h.owner) == (key, *owner)));
            let stranger = (0..self.owners).find(|owner| !holders().any(|holder| holder == *owner));
            let stranger = stranger.filter(|_| holders().next().is_some());
            for owner in holders().chain(stranger) {
                for how in &self.releases {
                    actions.push(Action::Release(Release { key, owner, how: *how }));
                }
            }
            for owner in holders() {
                for how in &self.renews {
                    let clients: Vec<Option<ClientNo>> =
                        if how.binds { clients.iter().copied().map(Some).collect() } else { vec![None] };
                    let renew = |client| Action::Renew(Renew { client, key, owner, how: *how });
                    actions.extend(clients.into_iter().map(renew));
                }
            }
        }
    }

    fn add_events(&self, world: &mut World, actions: &mut Vec<Action>) {
        let has = |event| self.events.contains(&event);
        let is_empty = (0..self.keys).all(|key| !world.space.exists(&key_name(key)));
        let is_idle = is_empty && world.engine.wake_at().is_none();
        if has(Event::Time) && !is_idle {
            actions.push(Action::Pass);
        }
        if has(Event::HalfTime) && !is_idle {
            actions.push(Action::PassHalf);
        }
        if self.turns == Turns::EndSometime && world.is_due() {
            actions.push(Action::Tick);
        }
        if has(Event::Delete) && world.role == Role::Primary {
            let exists = |key: &KeyNo| world.space.exists(&key_name(*key));
            actions.extend((0..self.keys).filter(exists).map(Action::Delete));
        }
        if has(Event::Flush) && world.role == Role::Primary && !is_empty {
            actions.push(Action::Flush);
        }
        let sessions: Vec<u64> = world.holds().iter().filter_map(|hold| hold.session).collect();
        for client in 0..self.clients {
            let is_waiting = world.is_waiting(client);
            if has(Event::Unblock) && is_waiting {
                actions.push(Action::Unblock(client));
            }
            if has(Event::Gone) && (is_waiting || sessions.contains(&world.clients[client])) {
                actions.push(Action::Gone(client));
            }
        }
        match world.role {
            Role::Primary => {
                actions.extend(has(Event::Pause).then_some(Action::Pause));
                actions.extend(has(Event::Demote).then_some(Action::Demote));
                actions.extend((has(Event::FailOver) && !is_empty).then_some(Action::FailOver));
                if has(Event::RefuseWrites) {
                    let next = if world.refuses_writes { Action::AcceptWrites } else { Action::RefuseWrites };
                    actions.push(next);
                }
            }
            Role::HeldStill => actions.push(Action::Resume),
            Role::Replica => actions.push(Action::Promote),
        }
    }

    /// The owners that have part in something, and one more.
    fn owners_to_try(&self, world: &World) -> Vec<Who> {
        let is_known = |owner: &Who| {
            let holds = |key| {
                world
                    .space
                    .lock(&key_name(key))
                    .stored_holds()
                    .any(|hold: &dlock_core::Hold| who(&hold.owner) == *owner)
            };
            (0..self.keys).any(holds) || world.waiting.iter().any(|waiting| waiting.enter.owner == *owner)
        };
        let fresh = (0..self.owners).find(|owner| !is_known(owner));
        (0..self.owners).filter(is_known).chain(fresh).collect()
    }

    /// The connections that do not wait: those that are bound, and one more.
    fn clients_to_try(&self, world: &World) -> Vec<ClientNo> {
        let snapshot = world.engine.snapshot();
        let is_bound = |client: &ClientNo| {
            let id = world.clients[*client];
            snapshot.records.iter().any(|record| record.bound.iter().any(|binding| binding.client.0 == id))
        };
        let free: Vec<ClientNo> = (0..self.clients).filter(|client| !world.is_waiting(*client)).collect();
        let fresh = free.iter().copied().find(|client| !is_bound(client));
        free.iter().copied().filter(is_bound).chain(fresh).collect()
    }
}

/// All scopes.
pub fn scopes() -> Vec<Scope> {
    vec![
        exclusive(),
        readers(),
        semaphore(),
        threads(),
        several(),
        sessions(),
        sessions_of_several(),
        grace(),
        requests(),
        turns(),
        failures(),
    ]
}

const SHORT: u64 = 100;
/// The shortest lease that a session may have.
const LONG: u64 = 300;

/// A request that waits.
const fn waits(want: Wanted) -> How {
    How { want, lease: SHORT, blocks: true, binds: false, request: None }
}

/// A request that does not.
const fn tries(want: Wanted) -> How {
    How { blocks: false, ..waits(want) }
}

const fn in_session(how: How) -> How {
    How { binds: true, lease: LONG, ..how }
}

const fn asked(how: How, id: u8) -> How {
    How { request: Some(id), ..how }
}

const ONE: ReleaseHow = ReleaseHow { mode: None, entries: Some(1), token: Fence::None, request: None };
const ALL: ReleaseHow = ReleaseHow { entries: None, ..ONE };

const fn of_mode(mode: Mode) -> ReleaseHow {
    ReleaseHow { mode: Some(mode), ..ONE }
}

const RENEW: RenewHow = RenewHow { lease: None, binds: false, token: Fence::None };

fn scope(name: &'static str) -> Scope {
    Scope {
        name,
        owners: 3,
        keys: 1,
        clients: 2,
        enters: Vec::new(),
        releases: vec![ONE],
        renews: Vec::new(),
        events: vec![Event::Time],
        grace: None,
        max_waiters: None,
        turns: Turns::EndWithEachAction,
        threads: 1,
        depth: [8, 5],
        reaches: &["grants", "refusals", "waits", "grants after a wait"],
    }
}

fn exclusive() -> Scope {
    use Wanted::{Again, Once};
    Scope {
        enters: vec![tries(Once), waits(Once), tries(Again), waits(Again)],
        releases: vec![
            ONE,
            ALL,
            ReleaseHow { token: Fence::Mine, ..ONE },
            ReleaseHow { token: Fence::Other, ..ONE },
            ReleaseHow { entries: Some(2), ..ONE },
        ],
        renews: vec![RENEW, RenewHow { lease: Some(200), token: Fence::Other, ..RENEW }],
        events: vec![Event::Time, Event::HalfTime, Event::Delete, Event::Unblock, Event::Gone],
        depth: [20, 8],
        ..scope("exclusive")
    }
}

fn readers() -> Scope {
    use Wanted::{Again, Read};
    Scope {
        clients: 3,
        enters: vec![tries(Read), waits(Read), tries(Again), waits(Again)],
        releases: vec![of_mode(Mode::Shared), of_mode(Mode::Exclusive), ALL, ONE],
        events: vec![Event::Time, Event::HalfTime, Event::Unblock],
        reaches: &["grants", "waits", "deadlocks", "grants after a wait", "upgrades after a wait"],
        depth: [11, 6],
        ..scope("readers and upgrades")
    }
}

fn semaphore() -> Scope {
    use Wanted::{Again, Once, Permits, Read};
    Scope {
        clients: 3,
        enters: vec![
            tries(Permits(1, 2)),
            waits(Permits(1, 2)),
            waits(Permits(2, 2)),
            tries(Permits(2, 3)),
            waits(Once),
            tries(Again),
            tries(Read),
        ],
        releases: vec![ONE, ReleaseHow { entries: Some(2), ..ONE }, ALL],
        events: vec![Event::Time, Event::HalfTime, Event::Unblock],
        reaches: &["grants", "refusals", "waits", "deadlocks", "grants after a wait"],
        depth: [10, 5],
        ..scope("semaphore, limit 2")
    }
}

/// A writer waits on two connections, and a reader behind it that has the lock already.
fn threads() -> Scope {
    use Wanted::{Once, Permits};
    Scope {
        clients: 3,
        threads: 2,
        enters: vec![tries(Permits(1, 2)), waits(Permits(1, 2)), waits(Once)],
        events: vec![Event::Time, Event::Unblock],
        reaches: &["grants", "refusals", "waits", "deadlocks", "grants after a wait"],
        depth: [9, 5],
        ..scope("owners that wait twice")
    }
}

fn several() -> Scope {
    use Wanted::{All, Once, Read};
    Scope {
        keys: 2,
        clients: 3,
        enters: vec![waits(All), tries(All), waits(Once), tries(Once), waits(Read)],
        releases: vec![ONE],
        events: vec![Event::Time, Event::Delete, Event::Unblock],
        reaches: &["grants of several", "waits", "deadlocks", "grants after a wait", "grants of several after a wait"],
        depth: [6, 4],
        ..scope("two locks")
    }
}

fn sessions() -> Scope {
    use Wanted::{Once, Read};
    Scope {
        enters: vec![in_session(tries(Once)), in_session(waits(Once)), in_session(waits(Read)), tries(Once)],
        renews: vec![RenewHow { binds: true, lease: Some(LONG), ..RENEW }, RenewHow { lease: Some(SHORT), ..RENEW }],
        events: vec![Event::Time, Event::Gone, Event::Delete, Event::Pause],
        depth: [8, 5],
        ..scope("sessions")
    }
}

fn sessions_of_several() -> Scope {
    use Wanted::{All, Once};
    Scope {
        keys: 2,
        enters: vec![in_session(waits(All)), in_session(waits(Once)), tries(Once)],
        events: vec![Event::Time, Event::Gone, Event::Flush],
        reaches: &["grants of several", "waits", "grants of several after a wait"],
        depth: [14, 4],
        ..scope("sessions on two locks")
    }
}

fn grace() -> Scope {
    use Wanted::{Once, Read};
    Scope {
        grace: Some(SHORT),
        enters: vec![in_session(waits(Once)), in_session(waits(Read)), tries(Once), waits(Read)],
        renews: vec![RenewHow { binds: true, lease: Some(LONG), ..RENEW }],
        events: vec![Event::Time, Event::Gone, Event::Pause],
        depth: [9, 5],
        ..scope("sessions with a grace")
    }
}

fn requests() -> Scope {
    use Wanted::{Again, All, Once, Read};
    Scope {
        owners: 2,
        keys: 2,
        clients: 3,
        enters: vec![
            asked(waits(Once), 1),
            asked(tries(Again), 1),
            asked(waits(Again), 2),
            asked(waits(Read), 1),
            asked(waits(All), 1),
        ],
        releases: vec![ONE, ReleaseHow { request: Some(3), ..ONE }],
        events: vec![Event::Time, Event::Gone],
        reaches: &["grants", "waits", "replays", "places taken over", "grants after a wait"],
        depth: [5, 4],
        ..scope("requests sent twice")
    }
}

fn turns() -> Scope {
    use Wanted::{Again, All, Once, Permits, Read};
    Scope {
        keys: 2,
        enters: vec![waits(Once), tries(Again), waits(All), waits(Read), tries(Permits(1, 2))],
        events: vec![Event::Time, Event::Delete, Event::Flush, Event::Unblock],
        turns: Turns::EndSometime,
        max_waiters: Some(3),
        depth: [6, 4],
        ..scope("turns of several commands")
    }
}

fn failures() -> Scope {
    use Wanted::{All, Once, Read};
    Scope {
        keys: 2,
        enters: vec![waits(Once), tries(Once), in_session(waits(Read)), waits(All)],
        events: vec![
            Event::Time,
            Event::Gone,
            Event::Pause,
            Event::RefuseWrites,
            Event::Demote,
            Event::FailOver,
            Event::Flush,
        ],
        depth: [5, 4],
        ..scope("pauses, refused writes, failovers")
    }
}
