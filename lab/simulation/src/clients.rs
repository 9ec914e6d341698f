//! The clients: connections, requests that are lost or late, and what a client believes to hold.

use dlock_core::Mode;
use dlock_testkit::histories::SessionNo;

use crate::plan::{CLIENTS, Command, OTHER_USER};
use crate::servers::Place;

/// A client with one owner. It talks to the replicated servers and to the other node, over a connection each.
#[derive(Default)]
pub struct Client {
    pub connections: [Option<Connection>; 2],
    pub waiting: Option<Waiting>,
    /// The last request that has an id.
    pub last: Option<Command>,
    pub beliefs: Vec<Belief>,
    /// The client's named session on the replicated servers, and the one on the other node.
    pub sessions: [Option<Session>; 2],
    /// How many ids it has used for sessions before.
    ids: usize,
    /// The time until which it hangs or is cut off, in µs of the true time.
    pub silent_until: u64,
}

/// A named session, as far as the client can know.
#[derive(Clone, Copy, Debug)]
pub struct Session {
    pub bond: Named,
    /// The time until which it lasts at least, in µs of the true time.
    pub until: u64,
    /// When the next heartbeat is sent.
    pub next_beat: u64,
}

/// The place of a named session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Named {
    pub id: SessionNo,
    pub server: usize,
    /// How often the server had forgotten its sessions.
    pub run: usize,
    /// The number by which holds know it there.
    pub number: u64,
}

/// The session that a hold is bound to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bond {
    Connection(Connection),
    Named(Named),
}

impl Bond {
    pub fn server(&self) -> usize {
        match self {
            Bond::Connection(connection) => connection.server,
            Bond::Named(named) => named.server,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Connection {
    pub id: u64,
    pub server: usize,
}

/// A request that waits on a server.
#[derive(Clone, Debug)]
pub struct Waiting {
    pub connection: Connection,
    pub ticket: u64,
    pub keys: Vec<usize>,
}

/// A hold, as far as the client can know.
#[derive(Clone, Debug)]
pub struct Belief {
    pub key: usize,
    pub mode: Mode,
    pub token: u64,
    /// The number of the permit, if it has one.
    pub slot: Option<u32>,
    /// Since when, in µs of the true time.
    pub from: u64,
    /// Until when it lasts without the session of a connection.
    pub until: u64,
    /// Until when it lasts at most: its cap.
    pub last: u64,
    /// The session that it is bound to.
    pub session: Option<Bond>,
    /// Where its deadlines are in the streams, in order.
    pub deadlines: Vec<(Place, u64)>,
    /// Where a primary may have removed the hold, and why: the lease had ended by the clock of that primary, or a
    /// session ended there to which the client does not bind the hold any more.
    pub ended: Vec<(Place, Why)>,
}

impl Belief {
    /// Returns whether the two cannot be true of one lock at the same time.
    pub fn excludes(&self, other: &Belief) -> bool {
        let same_number = self.slot.is_some() && self.slot == other.slot;
        same_number || self.mode == Mode::Exclusive || other.mode == Mode::Exclusive
    }

    /// Returns when it ends; `None`: with its connection.
    pub fn end(&self) -> Option<u64> {
        let has_connection = matches!(self.session, Some(Bond::Connection(_)));
        let end = if has_connection { self.last } else { self.until.min(self.last) };
        (end < u64::MAX).then_some(end)
    }

    pub fn is_live(&self, now_us: u64) -> bool {
        now_us < self.end().unwrap_or(now_us + 1)
    }
}

/// A request on its way.
pub struct Late {
    pub client: usize,
    pub connection: Connection,
    pub command: Command,
}

#[derive(Default)]
pub struct Clients {
    pub all: [Client; CLIENTS],
    /// Connections that clients have given up and whose servers do not know it.
    pub ghosts: Vec<Connection>,
    pub late: Vec<Late>,
    connections: u64,
}

impl Clients {
    /// Returns a new connection.
    pub fn connect(&mut self, client: usize, server: usize) -> Connection {
        self.connections += 1;
        Connection { id: self.connections * USERS + user_of(client), server }
    }

    /// The id that the client's session has.
    pub fn session_id(&self, client: usize) -> SessionNo {
        client + CLIENTS * self.all[client].ids
    }

    /// The client has no session any more, and the next gets another id.
    pub fn forget_sessions(&mut self, client: usize) {
        self.all[client].sessions = [None; 2];
        self.all[client].ids += 1;
    }

    /// Returns the next heartbeat: the true time, the client, and which of its sessions.
    pub fn next_beat(&self) -> Option<(u64, usize, usize)> {
        let sessions = self.all.iter().enumerate().flat_map(|(client, all)| {
            let due =
                move |(node, session): (usize, &Option<Session>)| Some((session.as_ref()?.next_beat, client, node));
            all.sessions.iter().enumerate().filter_map(due)
        });
        sessions.min()
    }

    /// The client gives up a connection, and what it holds by it.
    pub fn give_up(&mut self, client: usize, connection: Connection) {
        let client = &mut self.all[client];
        for place in &mut client.connections {
            if *place == Some(connection) {
                *place = None;
            }
        }
        client.beliefs.retain(|belief| belief.session != Some(Bond::Connection(connection)));
        if client.waiting.as_ref().is_some_and(|waiting| waiting.connection == connection) {
            client.waiting = None;
        }
    }

    /// A server is gone, with all its connections.
    pub fn lose_server(&mut self, server: usize) {
        for client in 0..CLIENTS {
            for connection in self.all[client].connections.into_iter().flatten() {
                if connection.server == server {
                    self.give_up(client, connection);
                }
            }
        }
        self.ghosts.retain(|ghost| ghost.server != server);
        self.late.retain(|late| late.connection.server != server);
    }

    /// Ends a client's beliefs about its locks: it cannot know any more.
    pub fn doubt(&mut self, client: usize, keys: &[usize]) {
        self.all[client].beliefs.retain(|belief| !keys.contains(&belief.key));
    }
}

/// The number of users in the model, which takes the user of a client from the number of its connection.
const USERS: u64 = dlock_testkit::histories::CLIENTS as u64;

/// Returns the common part of the numbers of a client's connections.
pub const fn user_of(client: usize) -> u64 {
    if client == OTHER_USER { 0 } else { 1 }
}

/// Why a client was wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// The effect had not reached this server.
    Lost,
    /// By the clock of the server, the lease has ended.
    Clock,
    /// The server did not know the session, so that nobody extended the lease there, or an earlier session ended it.
    Unbound,
}
