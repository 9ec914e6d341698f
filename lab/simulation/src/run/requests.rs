//! The way of a request from a client to a server, and the ends of connections.

use dlock_core::Command as Verb;
use dlock_testkit::histories::How;
use dlock_testkit::histories::leave::{Fence, Leave, Renewal};
use dlock_testkit::histories::naive::{Reply, Request};

use super::Run;
use crate::clients::{Bond, Connection, Late};
use crate::oracle::{note_lapsed, note_session_end};
use crate::plan::{Command, Fate, OTHER_NODE};

impl Run {
    /// Returns the node of the cluster that serves a key. Node 0 is the primary of the replicated servers; node 1 is
    /// the server `OTHER_NODE`, to which the slot of a key may have moved.
    pub(super) fn node_of(&self, key: usize) -> usize {
        usize::from(self.servers.is_moved(key))
    }

    /// Returns the server of a node to which a client connects.
    pub(super) fn server_of(&self, client: usize, node: usize) -> usize {
        // Every third client goes on with the former primary: it hears late that another server was promoted.
        let former = self.servers.former.filter(|_| client.is_multiple_of(3));
        if node == 1 { OTHER_NODE } else { former.unwrap_or(self.servers.primary) }
    }

    /// Returns the client's connection to the server that it takes for the one of these keys, and opens a connection if
    /// needed. Returns `None` if that server does not answer.
    pub(super) fn connection(&mut self, client: usize, keys: &[usize]) -> Option<Connection> {
        let node = self.node_of(keys[0]);
        if let Some(connection) = self.clients.all[client].connections[node] {
            if self.servers.is_writing(connection.server) {
                return self.servers.is_serving(connection.server).then_some(connection);
            }
            // A replica replies `READONLY`: the client closes the connection and looks for the primary.
            self.close(client, connection, true);
        }
        let server = self.server_of(client, node);
        if !self.servers.is_serving(server) {
            return None;
        }
        let connection = self.clients.connect(client, server);
        self.clients.all[client].connections[node] = Some(connection);
        Some(connection)
    }

    /// Sends a command. `fate`: whether it and its reply arrive. A client that waits or is silent sends nothing.
    pub(super) fn send(&mut self, client: usize, command: &Command, fate: Fate) {
        if self.clients.all[client].waiting.is_some() || self.is_silent(client) {
            return;
        }
        let Some(mut command) = self.resolve(client, command) else { return };
        let keys = keys_of(&command);
        let Some(connection) = self.connection(client, &keys) else { return };
        if matches!(command, Command::Enter { how: How { id: Some(_), .. }, .. }) {
            self.clients.all[client].last = Some(command.clone());
        }
        self.name_session(client, connection.server, &mut command);
        match fate {
            Fate::Answered => self.execute(client, connection, &command, true),
            Fate::Lost { noticed } => self.close(client, connection, noticed),
            Fate::ReplyLost { noticed } => {
                self.doubt(client, &keys);
                self.execute(client, connection, &command, false);
                self.close(client, connection, noticed);
            }
            Fate::Late => {
                self.doubt(client, &keys);
                self.close(client, connection, false);
                self.clients.late.push(Late { client, connection, command });
            }
        }
    }

    /// Puts the client's session on this server into a command that names a session. Opens the session if needed.
    fn name_session(&mut self, client: usize, server: usize, command: &mut Command) {
        let named = match command {
            Command::Enter { how, .. } => &mut how.named,
            Command::RenewOf(_, renewal) => &mut renewal.named,
            _ => return,
        };
        if named.is_some() {
            *named = Some(self.clients.session_id(client));
            self.have_session(client, usize::from(server == OTHER_NODE), server);
        }
    }

    /// Returns the command with one of the holds that the client believes to have, if it is a release or a renewal.
    /// `None`: the client believes to hold nothing.
    fn resolve(&self, client: usize, command: &Command) -> Option<Command> {
        let beliefs = &self.clients.all[client].beliefs;
        let pick = |hold: usize| (!beliefs.is_empty()).then(|| hold % beliefs.len());
        Some(match command {
            Command::Enter { .. } => command.clone(),
            Command::Release { hold, entries, mode, names_token, id } => {
                let belief = &beliefs[pick(*hold)?];
                let mode = mode.map(|_| belief.mode);
                let token = names_token.then_some(belief.token);
                let asked = id.map(|id| (Verb::Release, id));
                Command::ReleaseOf(belief.key, Leave { owner: client, mode, entries: *entries, token, asked })
            }
            Command::Renew { hold, lease, binds, names_token, names_session } => {
                let belief = &beliefs[pick(*hold)?];
                let fence = if *names_token { Fence::Is(belief.token) } else { Fence::Any };
                let (mode, lease, binds) = (Some(belief.mode), *lease, *binds);
                // The two zeros are placeholders: `execute` sets the connection, `name_session` the session.
                let named = names_session.then_some(0);
                Command::RenewOf(belief.key, Renewal { client: 0, owner: client, mode, lease, fence, binds, named })
            }
            Command::ReleaseOf(..) | Command::RenewOf(..) => command.clone(),
        })
    }

    /// Executes a late command, if its server still knows the connection. The client does not get the reply.
    pub(super) fn arrive(&mut self, late: &Late) {
        let Late { client, connection, command } = late;
        let keys = keys_of(command);
        let is_known = self.clients.ghosts.contains(connection);
        if !is_known || !self.servers.is_serving(connection.server) {
            return;
        }
        self.doubt(*client, &keys);
        self.execute(*client, *connection, command, false);
    }

    /// Executes a command on the server of a connection. `is_heard`: the client gets the reply.
    pub(super) fn execute(&mut self, client: usize, connection: Connection, command: &Command, is_heard: bool) {
        let server = connection.server;
        self.servers.set_clock(server);
        note_lapsed(&self.servers, &mut self.clients, server);
        self.counts.events += 1;
        match command {
            Command::Enter { keys, how } => {
                let request = Request {
                    ticket: 0,
                    client: connection.id,
                    owner: client,
                    is_drawn: false,
                    keys: keys.clone(),
                    how: *how,
                    since: 0,
                    is_upgrade: false,
                    session: None,
                };
                let entered = self.servers.all[server].world.request(request.clone());
                self.servers.record(server);
                match entered {
                    Some((_, Reply::Granted(token) | Reply::Replayed(token))) => {
                        self.granted(server, &request, token, is_heard);
                    }
                    Some((ticket, Reply::Waits)) => self.waits(client, connection, ticket, keys, is_heard),
                    Some((ticket, Reply::TakesOver(first))) => {
                        self.forget_ticket(server, first);
                        self.waits(client, connection, ticket, keys, is_heard);
                    }
                    Some(_) | None => {}
                }
            }
            Command::ReleaseOf(key, leave) => {
                let leave = *leave;
                let before = self.take_beliefs(client, *key);
                let reply = self.servers.all[server].world.release(*key, leave);
                self.servers.record(server);
                if is_heard {
                    self.has_left(server, leave, before, reply);
                }
            }
            Command::RenewOf(key, renewal) => {
                let renewal = Renewal { client: connection.id, ..*renewal };
                let reply = self.servers.all[server].world.renew(*key, renewal);
                self.servers.record(server);
                if is_heard {
                    self.was_renewed(server, *key, renewal, reply);
                }
            }
            Command::Release { .. } | Command::Renew { .. } => unreachable!("`resolve` replaces these commands"),
        }
        self.end_turn(server);
    }

    // Connections.

    /// Closes a connection on the client's side. If its server does not notice, the connection becomes a ghost.
    fn close(&mut self, client: usize, connection: Connection, is_noticed: bool) {
        for belief in self.clients.all[client]
            .beliefs
            .iter()
            .filter(|belief| belief.session == Some(Bond::Connection(connection)))
        {
            self.oracle.end(self.servers.now_us, client, belief);
        }
        self.clients.give_up(client, connection);
        if is_noticed { self.notice(connection) } else { self.clients.ghosts.push(connection) }
    }

    /// A server hears that a connection has ended.
    pub(super) fn notice(&mut self, connection: Connection) {
        let Connection { id, server } = connection;
        if self.servers.is_writing(server) {
            self.servers.set_clock(server);
            note_session_end(&self.servers, &mut self.clients, connection);
            self.servers.all[server].world.disconnect(id);
            self.end_turn(server);
        }
    }

    pub(super) fn disconnect(&mut self, client: usize, is_noticed: bool) {
        for connection in self.clients.all[client].connections.into_iter().flatten() {
            self.close(client, connection, is_noticed);
        }
    }
}

fn keys_of(command: &Command) -> Vec<usize> {
    match command {
        Command::Enter { keys, .. } => keys.clone(),
        Command::ReleaseOf(key, _) | Command::RenewOf(key, _) => vec![*key],
        Command::Release { .. } | Command::Renew { .. } => Vec::new(),
    }
}
