//! The states that are the same: those that differ only in the names of owners and connections, in the time of day and
//! in the numbers of tokens.

use std::hash::{DefaultHasher, Hash, Hasher};

use dlock_core::engine::Role;
use dlock_core::{BindTo, LeaseChoice, RequestId, SessionKey, UnixMs};
use dlock_testkit::histories::{CLIENTS, KEYS, Who, World, plain};

use crate::scope::GRID_MS;

/// Names in the order in which they are met.
#[derive(Default)]
struct Labels<T>(Vec<T>);

impl<T: PartialEq> Labels<T> {
    fn of(&mut self, name: T) -> usize {
        let at = self.0.iter().position(|known| *known == name);
        at.unwrap_or_else(|| {
            self.0.push(name);
            self.0.len() - 1
        })
    }
}

/// Returns the same for worlds that behave the same. Everything is visited in an order that does not depend on names.
pub fn fingerprint(world: &World) -> u64 {
    let server = world.server();
    let clients_now: Vec<u64> = (0..CLIENTS).map(|client| world.client(client)).collect();
    let mut hasher = DefaultHasher::new();
    let (now, now_us) = (server.space.ms(), server.space.ms() * 1000);
    let (mut owners, mut clients) = (Labels::<Who>::default(), Labels::<u64>::default());
    let left = |time: UnixMs| time.get().saturating_sub(now);
    let rounded = |time: Option<UnixMs>| time.map(|time| left(time).next_multiple_of(GRID_MS));
    let mut tokens: Vec<u64> = Vec::new();
    let snapshot = server.engine.snapshot();
    for key in 0..KEYS.len() {
        tokens.extend(server.space.lock(&plain::key_name(key)).stored_holds().map(|hold| hold.token.get()));
    }
    for record in &snapshot.records {
        tokens.extend(record.bound.iter().map(|binding| binding.token.get()));
    }
    tokens.sort_unstable();
    tokens.dedup();
    let rank = |token: u64| tokens.binary_search(&token).unwrap_or(usize::MAX);
    let mut client = |id: u64| (clients.of(id), clients_now.contains(&id));
    let asked = |request: Option<&RequestId>| request.map(|request| (request.command() as u8, request.id()[0]));

    let refuses_writes = !server.space.permissions.is_empty();
    (server.role == Role::Primary, server.role == Role::Replica, refuses_writes).hash(&mut hasher);
    (server.engine.memory().tokens.last() >= now_us, left(snapshot.not_before)).hash(&mut hasher);
    for session in &world.model().sessions {
        let since = now_us.saturating_sub(session.beat_at);
        (session.id, session.timeout, session.passed, since, session.turns_late).hash(&mut hasher);
        client(session.number).hash(&mut hasher);
    }
    for key in 0..KEYS.len() {
        let name = plain::key_name(key);
        let (lock, model) = (server.space.lock(&name), &world.model().keys[key]);
        let from_now = |time: Option<u64>| time.map(|time| time.saturating_sub(now));
        (from_now(model.early), from_now(model.unnoticed)).hash(&mut hasher);
        lock.stored().hash(&mut hasher);
        for hold in lock.stored_holds() {
            (owners.of(plain::who(&hold.owner)), hold.mode, hold.count, hold.lease).hash(&mut hasher);
            (left(hold.deadline), rank(hold.token.get()), asked(hold.request())).hash(&mut hasher);
            (hold.cap().map(left), hold.slot()).hash(&mut hasher);
        }
        for space in [&server.space, world.replica()] {
            let expiry = space.expiry(&name).map(|at| at.map(|at| at.saturating_sub(now)));
            (expiry, space.has_expired(&name)).hash(&mut hasher);
        }
    }
    snapshot.records.len().hash(&mut hasher);
    for record in &snapshot.records {
        record.name.key.hash(&mut hasher);
        (record.has_ttl_grace, record.lost_last_waiter, record.is_stale).hash(&mut hasher);
        (rounded(record.queue_due), rounded(record.visit_at)).hash(&mut hasher);
        record.queue.len().hash(&mut hasher);
        for waiter in &record.queue {
            let request = waiter.request;
            let lease = match request.lease {
                LeaseChoice::Own => 0,
                LeaseChoice::For(lease) => lease.get(),
                LeaseChoice::Until(at) => at.get(),
            };
            let want = (request.want.mode(), request.want.entries(), request.want.limit());
            let kind = std::mem::discriminant(&request.want);
            (owners.of(plain::who(&request.owner)), want, kind, lease, asked(request.id.as_deref())).hash(&mut hasher);
            request.cap.hash(&mut hasher);
            let bound_to = match request.session {
                BindTo::Nothing => None,
                BindTo::Connection => Some(waiter.client.0),
                BindTo::Named(named) => Some(named.map_or(u64::MAX, |named| session(world, SessionKey::Named(named)))),
            };
            (client(waiter.client.0), bound_to.map(&mut client), waiter.is_upgrade, waiter.in_the_way)
                .hash(&mut hasher);
        }
        let mut bound: Vec<_> = record.bound.iter().collect();
        bound.sort_by_key(|binding| (binding.token, binding.mode));
        bound.len().hash(&mut hasher);
        for binding in bound {
            (owners.of(plain::who(binding.owner)), binding.mode, rank(binding.token.get())).hash(&mut hasher);
            (client(session(world, binding.key)), left(binding.deadline), rounded(binding.renew_at)).hash(&mut hasher);
        }
        for (id, at, grace) in &record.ended {
            (client(session(world, *id)), now.saturating_sub(at.get()), grace).hash(&mut hasher);
        }
    }
    (snapshot.marked.len(), snapshot.ttls.len()).hash(&mut hasher);
    snapshot.marked.iter().chain(&snapshot.ttls).for_each(|name| name.key.hash(&mut hasher));
    hasher.finish()
}

/// Returns the session of a binding, among the connections: a named one has a number that no connection has.
fn session(world: &World, key: SessionKey) -> u64 {
    match key {
        SessionKey::Connection(client) => client.0,
        SessionKey::Named(named) => {
            let open = world.model().sessions.iter().find(|session| session.named == Some(named));
            open.map_or(u64::MAX, |session| session.number)
        }
    }
}
