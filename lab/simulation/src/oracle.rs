//! Checks the locks that clients believe to hold. A belief that turns out wrong has to be explained: its effect did not
//! reach the server that decides now, its lease has ended by the clock of that server, or it ended with a session that
//! this server knows and that the client has replaced on another one.

use dlock_core::Mode;
use dlock_testkit::exclusion::{Hold, Span, violations};

use crate::clients::Why;
use crate::clients::{Belief, Bond, Clients, Connection};
use crate::servers::{Place, Servers};

/// Beliefs that were wrong, by their reason.
#[derive(Clone, Copy, Debug, Default)]
pub struct Explained {
    pub lost: usize,
    pub clock: usize,
    pub unbound: usize,
}

impl Explained {
    pub fn add(&mut self, other: &Explained) {
        self.lost += other.lost;
        self.clock += other.clock;
        self.unbound += other.unbound;
    }
}

/// Watches what servers grant, in the order of the true time.
#[derive(Default)]
pub struct Oracle {
    pub explained: Explained,
    spans: Vec<Span>,
}

impl Oracle {
    /// A server has granted a hold: nobody whom it excludes believes to hold the lock without an explanation.
    pub fn granted(&mut self, servers: &Servers, clients: &mut Clients, server: usize, owner: usize, belief: &Belief) {
        for (client, other) in clients.all.iter_mut().enumerate().filter(|(client, _)| *client != owner) {
            other.beliefs.retain(|theirs| {
                if theirs.key != belief.key || !theirs.excludes(belief) || !theirs.is_live(servers.now_us) {
                    return true;
                }
                let why = explain(servers, server, theirs).unwrap_or_else(|| {
                    panic!("two owners hold key {}: {client} by {theirs:?}, {owner} by {belief:?}", belief.key)
                });
                assert!(
                    why == Why::Lost || theirs.token < belief.token,
                    "tokens do not rise: {theirs:?}, then {belief:?}"
                );
                self.note(why);
                self.end(servers.now_us, client, theirs);
                false
            });
        }
    }

    /// A client was told that it does not hold what it believes to hold.
    pub fn missed(&mut self, servers: &Servers, server: usize, client: usize, belief: &Belief) {
        if belief.is_live(servers.now_us) {
            let why = explain(servers, server, belief);
            self.note(why.unwrap_or_else(|| panic!("a hold of {client} was lost: {belief:?}")));
        }
    }

    /// A belief ends.
    pub fn end(&mut self, now_us: u64, owner: usize, belief: &Belief) {
        let until = belief.end().map_or(now_us, |end| now_us.min(end));
        let mut add = |key: String, mode| {
            let hold = Hold { token: belief.token, key, owner: owner.to_string(), mode };
            self.spans.push(Span { hold, from: belief.from, until: until.max(belief.from) });
        };
        add(belief.key.to_string(), belief.mode);
        // A number is like a lock that only one has.
        belief.slot.into_iter().for_each(|slot| add(format!("{} number {slot}", belief.key), Mode::Exclusive));
    }

    /// Where nothing can be lost, the checker of all other histories has to agree.
    pub fn finish(&self, servers: &Servers) {
        let Explained { lost, clock, unbound } = self.explained;
        // The tokens of two primaries, or of two nodes where a free lock moves, rise by their clocks only.
        let may_differ = servers.faults.promotions + servers.faults.moves > 0 && servers.has_wrong_clock();
        // The writes of a former primary are lost, too; its tokens may be older than those of the new one.
        let lost_units = servers.faults.lost_units + servers.faults.former_units;
        if lost_units + lost + clock + unbound == 0 && !may_differ {
            let found = violations(&self.spans);
            assert!(found.is_empty(), "{found:?}");
        }
    }

    fn note(&mut self, why: Why) {
        match why {
            Why::Lost => self.explained.lost += 1,
            Why::Clock => self.explained.clock += 1,
            Why::Unbound => self.explained.unbound += 1,
        }
    }
}

/// Returns why a server may decide as if a belief were wrong.
fn explain(servers: &Servers, server: usize, belief: &Belief) -> Option<Why> {
    let here = servers.place(server);
    if let Some((_, why)) = belief.ended.iter().find(|(place, _)| servers.contains(here, *place)) {
        return Some(*why);
    }
    let known = belief.deadlines.iter().rposition(|(place, _)| servers.contains(here, *place));
    let Some(known) = known else { return Some(Why::Lost) };
    let has_ended = servers.clock(server) / 1000 >= belief.deadlines[known].1;
    let is_last = known + 1 == belief.deadlines.len();
    let is_bound_here = belief.session.is_none_or(|bond| match bond {
        Bond::Connection(connection) => connection.server == server,
        Bond::Named(named) => (named.server, named.run) == (server, servers.run(server)),
    });
    match (has_ended, is_last) {
        (false, _) => None,
        (true, false) => Some(Why::Lost),
        (true, true) if is_bound_here => Some(Why::Clock),
        (true, true) => Some(Why::Unbound),
    }
}

/// Writes down which beliefs have ended by the clock of this primary.
pub fn note_lapsed(servers: &Servers, clients: &mut Clients, server: usize) {
    let next = servers.next_place(server);
    for belief in clients.all.iter_mut().flat_map(|client| &mut client.beliefs) {
        if let Some(why) = explain(servers, server, belief).filter(|why| *why != Why::Lost)
            && !belief.ended.iter().any(|(ended, _)| servers.contains(next, *ended))
        {
            belief.ended.push((next, why));
        }
    }
}

/// Writes down which beliefs end on this server with a connection, because it has not heard of the session that they are
/// bound to on another server.
pub fn note_session_end(servers: &Servers, clients: &mut Clients, connection: Connection) {
    let Connection { id, server } = connection;
    let (next, model) = (servers.next_place(server), servers.all[server].world.model());
    for (owner, client) in clients.all.iter_mut().enumerate() {
        for belief in &mut client.beliefs {
            let is_elsewhere = belief.session.is_none_or(|bond| bond.server() != server);
            let hold = model.mine(belief.key, owner, belief.mode).filter(|hold| hold.token == belief.token);
            if is_elsewhere && hold.is_some_and(|hold| hold.session == Some(id)) {
                belief.ended.push((next, Why::Unbound));
            }
        }
    }
}

/// Returns the holds that are bound to a named session on this server though their client has bound them to another one
/// elsewhere: the client, the place of its belief, and the session.
pub fn named_elsewhere(servers: &Servers, clients: &Clients, server: usize) -> Vec<(usize, usize, u64)> {
    let model = servers.all[server].world.model();
    let mut found = Vec::new();
    for (owner, client) in clients.all.iter().enumerate().filter(|_| !model.sessions.is_empty()) {
        for (at, belief) in client.beliefs.iter().enumerate() {
            let hold = model.mine(belief.key, owner, belief.mode).filter(|hold| hold.token == belief.token);
            let session = hold.and_then(|hold| hold.session);
            if let Some(session) = session.filter(|_| belief.session.is_none_or(|bond| bond.server() != server)) {
                found.push((owner, at, session));
            }
        }
    }
    found
}

/// Writes down that the beliefs among these whose session has ended were removed at `next`.
pub fn note_named_ends(
    servers: &Servers,
    clients: &mut Clients,
    (server, next): (usize, Place),
    bound: Vec<(usize, usize, u64)>,
) {
    let model = servers.all[server].world.model();
    for (owner, at, _) in bound.into_iter().filter(|(_, _, session)| !model.is_open(*session)) {
        clients.all[owner].beliefs[at].ended.push((next, Why::Unbound));
    }
}

/// Writes down the deadline of a hold on a server, unless the last entry has the same deadline and the same lineage.
pub fn note_deadline(belief: &mut Belief, place: Place, deadline: u64) {
    if belief.deadlines.last().is_none_or(|(at, last)| *last != deadline || at.lineage != place.lineage) {
        belief.deadlines.push((place, deadline));
    }
}
