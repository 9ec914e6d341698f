//! Named sessions, on the engine and on the model.

use dlock_core::engine::{Fault, Heartbeat, OpenIf, Role, UserState};
use dlock_core::{Keyspace, Owner};

use super::World;
use super::turn::split;
use crate::histories::how::How;
use crate::histories::naive::Reply;
use crate::histories::named::MAX_STEP_US;
use crate::histories::plain;
use crate::histories::values::{ClientNo, KEYS, KeyNo, LONG_SESSION_MS, SHORT_SESSION_MS, SessionNo};

/// How often the timer runs while a session is open, in µs.
const BEAT_US: u64 = 50_000;
/// The most runs of the timer after which a session whose time is over may still be open. The first run after a stall
/// ends no session.
const TURNS_LATE: usize = 2;

impl World {
    pub(super) fn idle(&mut self, turns: usize) {
        for _ in 0..turns {
            self.wait(BEAT_US);
            self.tick();
        }
    }

    pub(super) fn beat(&mut self, client: ClientNo, id: SessionNo, only: OpenIf, timeout: u64) {
        self.heartbeat(self.clients[client], id, only, timeout);
    }

    /// Sends a heartbeat for the session `id` as the client with the id `client`. Returns 1 if the heartbeat opens or
    /// keeps the session.
    pub fn heartbeat(&mut self, client: u64, id: SessionNo, only: OpenIf, timeout: u64) -> Reply {
        let (session, user) = (plain::session(id), self.naive.user_of(client));
        let beat = Heartbeat { id: &session, user: plain::user(user), timeout: plain::lease(timeout), only };
        let times = (self.server.space.uptime(), self.server.space.now());
        let reply = match self.server.engine.keep_session(beat, times, || UserState::Enabled) {
            Ok(None) => Reply::Nil,
            Ok(Some(_)) => Reply::Number(1),
            Err(Fault::NoSession(_)) => Reply::NoSession,
            Err(fault) => panic!("{fault:?}"),
        };
        assert_eq!(reply, self.naive.heartbeat_reply(client, id, only), "{id} {:?}", self.naive);
        if reply == Reply::Number(1) {
            let named = self.server.engine.look_up_session(&session, Some(plain::user(user))).expect("an open session");
            self.naive.heartbeat(client, id, Some(named), timeout);
        }
        self.reached.count(match reply {
            Reply::Number(_) => "heartbeat",
            Reply::Nil => "session opened twice",
            _ => "heartbeat refused",
        });
        reply
    }

    /// Opens the session that a request names, unless it is open. Requests that may wait are left out: they also meet
    /// sessions that are not open.
    pub(super) fn open_for(&mut self, client: ClientNo, how: &How) {
        if let Some(id) = how.named
            && self.naive.session(self.clients[client], id).is_none()
            && !how.blocks
        {
            self.beat(client, id, OpenIf::Any, [SHORT_SESSION_MS, LONG_SESSION_MS][id]);
        }
    }

    pub(super) fn close_session(&mut self, client: ClientNo, id: SessionNo) {
        self.close_named(self.clients[client], id);
    }

    /// Closes the session `id` as the client with the id `client`. Returns 1 if that ends the session.
    pub fn close_named(&mut self, client: u64, id: SessionNo) -> Reply {
        let (session, now) = (plain::session(id), self.server.space.now());
        let user = plain::user(self.naive.user_of(client));
        let reply = match self.server.engine.close_session(&session, user, now) {
            None => Reply::Nil,
            Some(_) => Reply::Number(1),
        };
        assert_eq!(reply, self.naive.close_session(client, id), "{id} {:?}", self.naive);
        // The requests that waited for the session.
        let answers = split(self.server.take_outputs(), 0, None).0;
        self.answers(answers);
        self.reached.count_if("session closed", reply == Reply::Number(1));
        reply
    }

    /// Returns the sessions that the timer has ended. Fails if one of them has ended early, or another one late.
    pub(super) fn sessions_ended(&mut self) -> Vec<u64> {
        let now = self.naive.uptime_us();
        let ran_at = std::mem::replace(&mut self.ran_at, now);
        let mut ended = Vec::new();
        for session in &self.naive.sessions {
            let open = self.server.engine.look_up_session(&plain::session(session.id), Some(plain::user(session.user)));
            if open.ok() == session.named {
                continue;
            }
            assert_eq!(self.server.role, Role::Primary, "{session:?} ended on a server that is no primary");
            assert!(now >= session.beat_at + session.timeout, "{session:?} ended at {now}");
            ended.push(session.number);
        }
        if self.server.role != Role::Primary {
            return ended;
        }
        for session in self.naive.sessions.iter_mut().filter(|session| !ended.contains(&session.number)) {
            session.passed += now.saturating_sub(ran_at.max(session.beat_at)).min(MAX_STEP_US);
            // The heartbeat may have come at any moment of a step.
            if session.passed >= session.timeout + MAX_STEP_US {
                session.turns_late += 1;
                assert!(session.turns_late <= TURNS_LATE, "{session:?} has not ended at {now}");
            }
        }
        ended
    }

    pub(super) fn end_named(&mut self, session: u64) {
        self.naive.end_named(session, self.grace);
        self.reached.count("named session ended");
        let waits = self.naive.waiting.iter().any(|waiter| waiter.session == Some(session));
        self.reached.count_if("named session ended with a waiter", waits);
    }

    /// Fails unless the engine lists the open sessions, and the holds that are bound to each.
    pub(in crate::histories) fn compare_sessions(&mut self) {
        for session in self.naive.sessions.clone() {
            let (id, now) = (plain::session(session.id), self.server.space.now());
            let listed = self.server.engine.list_session(&id, plain::user(session.user), usize::MAX, now);
            let listed = listed.expect("an open session");
            let is_seen = |key: &KeyNo| self.naive.keys[*key].unnoticed.is_none();
            let who = |owner: &[u8]| plain::who(&Owner::new(owner).expect("an owner"));
            let mut listed: Vec<_> = listed
                .iter()
                .map(|hold| ((hold.db, hold.key.to_vec()), who(hold.owner), hold.mode, hold.token.get()))
                .collect();
            let bound = |key: KeyNo| {
                let holds = self.naive.live(key).filter(|hold| hold.session == Some(session.number));
                holds.map(move |hold| (plain::key_name(key), hold.owner, hold.mode, hold.token)).collect::<Vec<_>>()
            };
            let mut wanted: Vec<_> = (0..KEYS.len()).filter(is_seen).flat_map(bound).collect();
            // The engine notices an early expiry later.
            listed.retain(|(name, ..)| (0..KEYS.len()).filter(is_seen).any(|key| plain::key_name(key) == *name));
            listed.sort_unstable();
            wanted.sort_unstable();
            assert_eq!(listed, wanted, "{session:?} {:?}", self.naive);
        }
        for user in [0, 1] {
            let listed =
                self.server.engine.list_sessions(Some(plain::user(user)), usize::MAX, self.server.space.uptime());
            let listed: Vec<_> = listed.into_iter().map(|session| session.id).collect();
            let mut open: Vec<_> = self.naive.sessions.iter().filter(|session| session.user == user).collect();
            open.sort_unstable_by_key(|session| plain::session(session.id));
            assert_eq!(listed, open.iter().map(|session| plain::session(session.id)).collect::<Vec<_>>());
        }
    }
}
