//! A scope: a small instance of the engine, with the actions that are possible in each of its states.

use std::fmt;

use dlock_core::Command;
use dlock_core::engine::{OpenIf, Permission, Role};
use dlock_testkit::histories::{ClientNo, History, How, KeyNo, Op, Somebody, Step, Who, World, plain};

/// The steps that lead from one state to the next.
#[derive(Clone, Debug)]
pub struct Action(pub Vec<Step>);

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))
    }
}

/// A small instance: who takes part, and what may happen.
#[derive(Clone, Debug)]
pub struct Scope {
    pub name: &'static str,
    pub owners: usize,
    pub keys: usize,
    /// How many connections there are that wait, and to which holds are bound.
    pub clients: usize,
    /// The requests for locks. Each is tried with the keys, owners and connections of the scope.
    pub enters: Vec<How>,
    /// The releases and renewals. Their key, owner and connection are placeholders for those of the scope.
    pub others: Vec<Op>,
    pub events: Vec<Event>,
    /// `dlock.session-grace`, in ms.
    pub grace: Option<u64>,
    pub max_waiters: Option<usize>,
    pub turns: Turns,
    /// How many requests of one owner wait at most.
    pub threads: usize,
    /// The greatest number of actions in a row, in `make check-model` and in `make test`.
    pub depth: [usize; 2],
    /// The states that the test expects the scope to reach, named as in `Reached`: otherwise it tests too little.
    pub reaches: &'static [&'static str],
}

/// Something that happens besides requests for locks, releases and renewals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// Time passes until the next lease or key ends, or the timer is due.
    Time,
    /// Half of the lease of most requests passes.
    HalfTime,
    /// `DEL` of a key.
    Delete,
    /// `FLUSHALL`.
    Flush,
    /// `CLIENT UNBLOCK` of a waiter, or the end of its time limit.
    Unblock,
    /// A connection ends.
    Gone,
    /// `DLOCK.SESSION` opens the named session, is its heartbeat, or closes it.
    Session,
    /// `CLIENT PAUSE`, and later its end.
    Pause,
    /// The server refuses writes, and later accepts them again.
    RefuseWrites,
    /// The primary becomes a replica, and later a primary again.
    Demote,
    /// The primary dies, and its replica takes over.
    FailOver,
}

/// When the timer runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turns {
    /// At the end of each action, until it has nothing left to do.
    EndWithEachAction,
    /// In an action of its own, so that several other actions may precede it, like the commands of a transaction.
    EndSometime,
}

/// Time passes in multiples of this, and fingerprints round times up to it. The random part of the time of a renewal
/// therefore makes no state differ from another.
pub const GRID_MS: u64 = 10;
/// Half of the lease that most requests of `instances` give.
const HALF_MS: u64 = 50;
/// The timeout of the named session, in ms: the shortest that is allowed.
const SESSION: u64 = 300;
/// The lease of a request that gives none, in ms.
const DEFAULT_LEASE: u64 = 100;

impl Scope {
    /// Returns the history with its settings, without steps.
    pub fn history(&self) -> History {
        History { grace: self.grace, max_waiters: self.max_waiters, ..History::new(DEFAULT_LEASE) }
    }

    /// Returns the possible actions in a state. Of the owners that neither hold nor wait, one stands for all; likewise
    /// of the connections that neither wait nor have a hold bound.
    pub fn actions(&self, world: &World) -> Vec<Action> {
        let mut ops = Vec::new();
        let refuses_writes = !world.server().space.permissions.is_empty();
        // Only a primary that accepts writes runs these commands.
        if world.server().role == Role::Primary && !refuses_writes {
            self.add_enters(world, &mut ops);
            self.add_others(world, &mut ops);
        }
        self.add_events(world, &mut ops);
        let then_tick = self.turns == Turns::EndWithEachAction;
        let mut actions: Vec<Action> = ops.into_iter().map(|op| Action(vec![Step { op, then_tick }])).collect();
        if self.turns == Turns::EndSometime && world.server().is_due() {
            actions.push(Action(vec![Step { op: Op::Wait(0), then_tick: true }]));
        }
        if self.events.contains(&Event::RefuseWrites) && world.server().role == Role::Primary {
            // A single action changes all keys. The timer runs after the last of them.
            let permission = if refuses_writes { Permission::Full } else { Permission::ReleaseOnly };
            let step =
                |key| Step { op: Op::SetPermission(key, permission), then_tick: then_tick && key + 1 == self.keys };
            actions.push(Action((0..self.keys).map(step).collect()));
        }
        actions
    }

    fn add_enters(&self, world: &World, ops: &mut Vec<Op>) {
        let (owners, clients) = (self.owners_to_try(world), self.clients_to_try(world));
        for how in &self.enters {
            let keys: Vec<Vec<KeyNo>> = match how.command {
                Command::Macquire => vec![(0..self.keys).collect()],
                _ => (0..self.keys).map(|key| vec![key]).collect(),
            };
            // The connection matters only to a request that waits or binds.
            let clients = if how.blocks || how.binds { clients.as_slice() } else { &[0] };
            for (owner, keys) in owners.iter().flat_map(|owner| keys.iter().map(move |keys| (*owner, keys))) {
                // `threads` limits the waiting requests of an owner. A request that the new one repeats does not count.
                let waiting = world.model().waiting.iter().filter(|other| other.owner == owner);
                let own = waiting.filter(|other| how.id.is_none() || other.how.id != how.id || other.keys != *keys);
                if own.count() < self.threads {
                    let enter =
                        |client| Op::Enter { client, owner: Some(Somebody::Any(owner)), keys: keys.clone(), how: *how };
                    ops.extend(clients.iter().copied().map(enter));
                }
            }
        }
    }

    fn add_others(&self, world: &World, ops: &mut Vec<Op>) {
        let clients = self.clients_to_try(world);
        for key in 0..self.keys {
            let holds = |owner: &Who| world.model().live(key).any(|hold| hold.owner == *owner);
            let (holders, others): (Vec<Who>, Vec<Who>) = (0..self.owners).partition(holds);
            // An owner that does not hold the lock tries to release it, too, if there is a holder.
            let stranger = others.first().copied().filter(|_| !holders.is_empty());
            for op in &self.others {
                let fill = |owner, client| filled(op, key, owner, client);
                match op {
                    Op::Renew { binds: true, .. } => {
                        ops.extend(holders.iter().flat_map(|owner| clients.iter().map(|client| fill(*owner, *client))));
                    }
                    Op::Renew { .. } => ops.extend(holders.iter().map(|owner| fill(*owner, 0))),
                    _ => ops.extend(holders.iter().copied().chain(stranger).map(|owner| fill(owner, 0))),
                }
            }
        }
    }

    fn add_events(&self, world: &World, ops: &mut Vec<Op>) {
        let has = |event| self.events.contains(&event);
        let (server, model) = (world.server(), world.model());
        let exists = |key: &KeyNo| server.space.exists(&plain::key_name(*key));
        let is_empty = !(0..self.keys).any(|key| exists(&key));
        // Time alone changes nothing then.
        let is_idle = is_empty && server.engine.wake_at().is_none();
        ops.extend((has(Event::Time) && !is_idle).then(|| Op::Wait(self.until_due(world) * 1000)));
        ops.extend((has(Event::HalfTime) && !is_idle).then_some(Op::Wait(HALF_MS * 1000)));
        if server.role == Role::Primary {
            ops.extend((0..self.keys).filter(|key| has(Event::Delete) && exists(key)).map(Op::Delete));
            ops.extend((has(Event::Flush) && !is_empty).then_some(Op::Flush(None)));
        }
        ops.extend((0..model.waiting.len()).filter(|_| has(Event::Unblock)).map(Op::Abandon));
        let has_part = |client: &ClientNo| is_bound(world, *client) || is_waiting(world, *client);
        ops.extend((0..self.clients).filter(|client| has(Event::Gone) && has_part(client)).map(Op::ClientGone));
        if has(Event::Session) && server.role != Role::Replica {
            let beat = |only| Op::Beat { client: 0, session: 0, only, timeout: SESSION };
            ops.extend([beat(OpenIf::New), beat(OpenIf::Open), Op::Close(0, 0)]);
        }
        match server.role {
            Role::Primary => {
                ops.extend(has(Event::Pause).then_some(Op::Pause));
                ops.extend(has(Event::Demote).then_some(Op::Demote));
                ops.extend((has(Event::FailOver) && !is_empty).then_some(Op::FailOver));
            }
            Role::HeldStill => ops.push(Op::Resume),
            Role::Replica => ops.push(Op::Promote),
        }
    }

    /// Returns the time until the next lease or key ends, or the timer is due, in ms, up to the next point of the grid.
    /// Without any of these, one step of the grid.
    fn until_due(&self, world: &World) -> u64 {
        let (space, now) = (&world.server().space, world.server().space.ms());
        let ends = (0..self.keys).flat_map(|key| {
            let key = plain::key_name(key);
            let mut ends: Vec<u64> = space.lock(&key).stored_holds().map(|hold| hold.deadline.get()).collect();
            // A key is still there in the millisecond of its expiry.
            ends.extend(space.expiry(&key).flatten().map(|at| at + 1));
            ends
        });
        let wakes = world.server().engine.wake_at().map(|at| at.get());
        let next = ends.chain(wakes).filter(|at| *at > now).min();
        next.map_or(now + GRID_MS, |at| at.next_multiple_of(GRID_MS)) - now
    }

    /// Returns the owners that have a stored hold or wait, and one other.
    fn owners_to_try(&self, world: &World) -> Vec<Who> {
        let is_known = |owner: &Who| {
            let stored = |key| {
                let lock = world.server().space.lock(&plain::key_name(key));
                lock.stored_holds().any(|hold| plain::who(&hold.owner) == *owner)
            };
            (0..self.keys).any(stored) || world.model().waiting.iter().any(|waiter| waiter.owner == *owner)
        };
        let fresh = (0..self.owners).find(|owner| !is_known(owner));
        (0..self.owners).filter(is_known).chain(fresh).collect()
    }

    /// Returns the connections that do not wait and to which a hold is bound, and one other that does not wait.
    fn clients_to_try(&self, world: &World) -> Vec<ClientNo> {
        let free: Vec<ClientNo> = (0..self.clients).filter(|client| !is_waiting(world, *client)).collect();
        let (mut clients, fresh): (Vec<ClientNo>, Vec<ClientNo>) =
            free.into_iter().partition(|client| is_bound(world, *client));
        clients.extend(fresh.first());
        clients
    }
}

fn is_waiting(world: &World, client: ClientNo) -> bool {
    world.model().waiting.iter().any(|waiter| waiter.client == world.client(client))
}

fn is_bound(world: &World, client: ClientNo) -> bool {
    let mut holds = world.model().keys.iter().flat_map(|key| &key.holds);
    holds.any(|hold| hold.session == Some(world.client(client)))
}

/// Returns a release or a renewal with this key and owner, and a renewal with this connection.
fn filled(op: &Op, key: KeyNo, owner: Who, client: ClientNo) -> Op {
    let who = Somebody::Any(owner);
    match *op {
        Op::Release { mode, entries, token, id, .. } => Op::Release { key, who, mode, entries, token, id },
        Op::Renew { mode, lease, token, binds, named, .. } => {
            Op::Renew { client, key, who, mode, lease, token, binds, named }
        }
        _ => unreachable!("neither a release nor a renewal: {op:?}"),
    }
}
