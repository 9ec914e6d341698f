//! The clients: connections, requests that are lost or late, and what a client believes to hold.

use dlock_core::Mode;

use crate::oracle::Why;
use crate::plan::{CLIENTS, Command};
use crate::servers::Place;

/// A client with one owner. It talks to the replicated servers and to the other node, over a connection each.
#[derive(Default)]
pub struct Client {
    pub connections: [Option<Connection>; 2],
    pub waiting: Option<Waiting>,
    /// The last request that has an id.
    pub last: Option<Command>,
    pub beliefs: Vec<Belief>,
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
    /// Since when, in µs of the true time.
    pub from: u64,
    /// Until when it lasts without a session.
    pub until: u64,
    /// The connection that it is bound to.
    pub session: Option<Connection>,
    /// Where its deadlines are in the streams, in order.
    pub deadlines: Vec<(Place, u64)>,
    /// Where a primary may have removed it: by its clock it had ended, or a session has that the client has replaced.
    pub ended: Vec<(Place, Why)>,
}

impl Belief {
    pub fn is_live(&self, now_us: u64) -> bool {
        self.session.is_some() || now_us < self.until
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
    /// A connection that nobody has had before.
    pub fn connect(&mut self, server: usize) -> Connection {
        self.connections += 1;
        Connection { id: self.connections, server }
    }

    /// The client gives up a connection, and what it holds by it.
    pub fn give_up(&mut self, client: usize, connection: Connection) {
        let client = &mut self.all[client];
        for place in &mut client.connections {
            if *place == Some(connection) {
                *place = None;
            }
        }
        client.beliefs.retain(|belief| belief.session != Some(connection));
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

    /// What a client believes of its locks ends: it cannot know any more.
    pub fn doubt(&mut self, client: usize, keys: &[usize]) {
        self.all[client].beliefs.retain(|belief| !keys.contains(&belief.key));
    }
}
