//! Named sessions: heartbeats, what silences a client, and how it binds its holds again where its session is not known.

use dlock_core::Mode;
use dlock_core::engine::OpenIf;
use dlock_testkit::histories::Lease;
use dlock_testkit::histories::leave::{Fence, Renewal};
use dlock_testkit::histories::naive::Reply;

use super::Run;
use crate::clients::{Belief, Bond, Named, Session, user_of};
use crate::plan::{Command, OTHER_NODE};

impl Run {
    /// A heartbeat is due. A client that is silent sends it afterwards.
    pub(super) fn beat(&mut self, client: usize, node: usize) {
        let Some(Session { bond, until, .. }) = self.clients.all[client].sessions[node] else { return };
        let silent_until = self.clients.all[client].silent_until;
        if self.servers.now_us < silent_until {
            self.put_off(client, node, silent_until);
            return;
        }
        if self.servers.now_us >= until {
            // The session may live on while its server is paused, but the client no longer uses it.
            self.close_sessions(client);
            return;
        }
        let server = if self.servers.is_writing(bond.server) { bond.server } else { self.server_of(client, node) };
        self.put_off(client, node, self.servers.now_us + RETRY_US);
        if self.servers.is_writing(server) {
            match self.send_beat(client, bond.id, server, OpenIf::Open) {
                Reply::Number(_) => self.has_beaten(client, node),
                _ if self.servers.is_serving(server) => self.open(client, node, server),
                _ => {}
            }
        }
        // The slot of a bound key may have moved to the other node.
        if self.servers.is_serving(OTHER_NODE) && !self.bound_elsewhere(client, 1).is_empty() {
            self.have_session(client, 1, OTHER_NODE);
            self.bind_anew(client, 1, OTHER_NODE);
        }
    }

    fn put_off(&mut self, client: usize, node: usize, until: u64) {
        if let Some(session) = &mut self.clients.all[client].sessions[node] {
            session.next_beat = until;
        }
    }

    fn send_beat(&mut self, client: usize, id: usize, server: usize, only: OpenIf) -> Reply {
        self.counts.events += 1;
        self.counts.beats += 1;
        self.servers.set_clock(server);
        self.servers.all[server].world.heartbeat(user_of(client), id, only, timeout_ms(client))
    }

    /// The server has replied: the session lasts from when the heartbeat was sent.
    fn has_beaten(&mut self, client: usize, node: usize) {
        let (now, timeout) = (self.servers.now_us, timeout_ms(client) * 1000);
        let client = &mut self.clients.all[client];
        let Some(session) = &mut client.sessions[node] else { return };
        (session.until, session.next_beat) = (now + timeout, now + timeout / 3);
        let bond = Some(Bond::Named(session.bond));
        client
            .beliefs
            .iter_mut()
            .filter(|belief| belief.session == bond)
            .for_each(|belief| belief.until = now + timeout);
    }

    /// Opens a session on this server, unless the client has one there: its next command names the session.
    pub(super) fn have_session(&mut self, client: usize, node: usize, server: usize) {
        if self.clients.all[client].sessions[node].is_none_or(|session| session.bond.server != server) {
            self.open(client, node, server);
        }
    }

    /// Opens the session with `NX`, and binds each hold again.
    fn open(&mut self, client: usize, node: usize, server: usize) {
        let id = self.clients.session_id(client);
        if self.send_beat(client, id, server, OpenIf::New) == Reply::Nil {
            // The client was here before.
            assert_eq!(self.send_beat(client, id, server, OpenIf::Open), Reply::Number(1), "it is open");
        }
        let number = self.servers.all[server].world.model().session(user_of(client), id).expect("it is open").number;
        let bond = Named { id, server, run: self.servers.run(server), number };
        self.clients.all[client].sessions[node] = Some(Session { bond, until: 0, next_beat: 0 });
        self.has_beaten(client, node);
        self.end_turn(server);
        self.bind_anew(client, node, server);
    }

    /// `RENEW … TOKEN … SESSIONID` for what is bound to a session elsewhere, or to an earlier one.
    fn bind_anew(&mut self, client: usize, node: usize, server: usize) {
        for (key, mode, token) in self.bound_elsewhere(client, node) {
            let connection = self.connection(client, &[key]).filter(|connection| connection.server == server);
            let Some(connection) = connection else { return };
            let (mode, fence, named) = (Some(mode), Fence::Is(token), Some(self.clients.session_id(client)));
            let renewal = Renewal { client: 0, owner: client, mode, lease: Lease::Own, fence, binds: true, named };
            self.counts.bound_anew += 1;
            self.execute(client, connection, &Command::RenewOf(key, renewal), true);
        }
    }

    /// The holds on a node that are bound to another session than the client has there.
    fn bound_elsewhere(&self, client: usize, node: usize) -> Vec<(usize, Mode, u64)> {
        let own = self.clients.all[client].sessions[node].map(|session| Bond::Named(session.bond));
        let beliefs = self.clients.all[client].beliefs.iter().filter(|belief| {
            let is_named = matches!(belief.session, Some(Bond::Named(_)));
            is_named && belief.session != own && self.node_of(belief.key) == node
        });
        beliefs.map(|belief| (belief.key, belief.mode, belief.token)).collect()
    }

    // Misfortunes of a client.

    /// The client does nothing for a while.
    pub(super) fn fall_silent(&mut self, client: usize, for_us: u64) {
        self.counts.silences += 1;
        let until = self.servers.now_us + for_us;
        let client = &mut self.clients.all[client];
        client.silent_until = client.silent_until.max(until);
    }

    /// The network is cut: the client's last heartbeats arrive, and nothing else does. No server notices that the
    /// client is disconnected.
    pub(super) fn cut_off(&mut self, client: usize, for_us: u64) {
        if !self.is_silent(client) {
            for Session { bond, .. } in self.clients.all[client].sessions.into_iter().flatten() {
                if self.servers.is_writing(bond.server) {
                    self.send_beat(client, bond.id, bond.server, OpenIf::Open);
                }
            }
        }
        self.disconnect(client, false);
        self.fall_silent(client, for_us);
    }

    pub(super) fn is_silent(&self, client: usize) -> bool {
        self.servers.now_us < self.clients.all[client].silent_until
    }

    /// The client is gone. Servers hear that its connections have ended.
    pub(super) fn die(&mut self, client: usize) {
        self.disconnect(client, true);
        self.lose_sessions(client);
        self.clients.all[client].silent_until = 0;
    }

    /// The client has no session any more, and holds nothing by one.
    fn lose_sessions(&mut self, client: usize) {
        let is_named = |belief: &mut Belief| matches!(belief.session, Some(Bond::Named(_)));
        for belief in self.clients.all[client].beliefs.extract_if(.., is_named) {
            self.oracle.end(self.servers.now_us, client, &belief);
        }
        self.clients.forget_sessions(client);
    }

    /// `CLOSE`, on each node.
    pub(super) fn close_sessions(&mut self, client: usize) {
        if self.is_silent(client) {
            return;
        }
        let sessions = self.clients.all[client].sessions;
        self.lose_sessions(client);
        for Session { bond, .. } in sessions.into_iter().flatten() {
            if self.servers.is_writing(bond.server) {
                self.servers.set_clock(bond.server);
                self.servers.all[bond.server].world.close_named(user_of(client), bond.id);
                self.end_turn(bond.server);
            }
        }
    }

    /// `client` sends a heartbeat for the session of `with`, whose user is another, and closes it. Neither may have an
    /// effect on that session.
    pub(super) fn meddle(&mut self, client: usize, with: usize) {
        if user_of(client) == user_of(with) {
            return;
        }
        for Session { bond, .. } in self.clients.all[with].sessions.into_iter().flatten() {
            if self.servers.is_writing(bond.server) {
                self.send_beat(client, bond.id, bond.server, OpenIf::Open);
                self.servers.all[bond.server].world.close_named(user_of(client), bond.id);
                self.end_turn(bond.server);
            }
        }
    }
}

/// Returns when a client's sessions end without a heartbeat, in ms.
const fn timeout_ms(client: usize) -> u64 {
    300 + 150 * client as u64
}

/// When a client tries again.
const RETRY_US: u64 = 20_000;
