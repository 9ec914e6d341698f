//! Compares the visible state of the engine with that of the model, and the replica with the primary.

use dlock_core::engine::{Detail, ShownSession};
use dlock_core::{Keyspace, LockMode, Mode, UnixMs};

use super::held;
use super::naive::{Counts, Hold, Request};
use super::plain;
use super::world::World;
use crate::histories::naive::Session;
use crate::histories::values::{KEYS, KeyNo};
use crate::keyspace::name;

impl World {
    /// Fails unless the engine, the model and the replica agree.
    pub(super) fn compare(&mut self) {
        self.sync_replica();
        self.audit();
        for key in 0..KEYS.len() {
            self.compare_holds(key);
            self.compare_expiry(key);
            if !self.naive.keys[key].is_other {
                self.compare_inspection(key);
            }
        }
        self.compare_sessions();
        let stats = self.server.engine.stats();
        let counts = Counts {
            grants: stats.grants,
            reentries: stats.reentries,
            refusals: stats.refusals,
            renewals: stats.renewals,
            waits: stats.waits,
            deadlocks: stats.deadlocks,
            replays: stats.replays,
        };
        assert_eq!(counts, self.naive.counts);
        let gauges = self.server.engine.gauges();
        let queues = (0..KEYS.len()).filter(|key| !self.naive.queue(*key).is_empty()).count();
        assert_eq!((gauges.waiters, gauges.queues), (self.naive.waiting.len(), queues));
        assert_eq!(gauges.last_token, self.naive.last_token.max(self.server.engine.memory().tokens.last()));
        self.reached.waiting = self.reached.waiting.max(gauges.waiters);
    }

    /// Fails unless the engine's own tables agree with each other.
    pub(super) fn audit(&self) {
        self.server.engine.audit().unwrap_or_else(|how| panic!("{how}: {:?}", self.naive));
    }

    /// Fails unless the engine and the model have the same live holds. The engine does not store sessions in holds.
    fn compare_holds(&self, key: KeyNo) {
        let now = self.naive.now();
        let lock = self.server.space.lock(&plain::key_name(key));
        let stored = held::sorted(lock.live_holds(UnixMs::new(now)).map(held::hold).collect());
        let live = self.naive.keys[key].holds.iter().filter(|hold| now < hold.deadline);
        let plain = live.map(|hold| Hold { session: None, ended: None, ..hold.clone() });
        assert_eq!(stored, held::sorted(plain.collect()), "{key} {:?}", self.naive);
    }

    /// Fails unless a key expires at its last deadline, or at the earlier time that a client has set. While a request
    /// waits, the key may expire up to [`GRACE_MS`] later. A key whose TTL a client has extended or removed is in
    /// `late`, and may expire at any time.
    fn compare_expiry(&self, key: KeyNo) {
        let name = plain::key_name(key);
        let lock = self.server.space.lock(&name);
        let (Some(expiry), Some(last)) = (self.server.space.expiry(&name), lock.last_deadline()) else { return };
        let last = last.get();
        if let Some(early) = self.naive.keys[key].early {
            assert_eq!(expiry, Some(early), "{key} {:?}", self.naive);
        } else if !self.late.contains(&key) {
            let longest = last + GRACE_MS;
            let is_right = expiry.is_some_and(|expiry| last <= expiry && expiry <= longest);
            assert!(is_right, "key {key} expires at {expiry:?}, its last lease ends at {last}: {:?}", self.naive);
        }
    }

    /// Fails unless `INFO … FULL` and `CHECK` show what the model has.
    fn compare_inspection(&mut self, key: KeyNo) {
        let (key_name, now) = (plain::key_name(key), self.server.space.now());
        let key_end = self.server.space.expiry(&key_name).flatten();
        let end = |hold: &Hold| hold.end().min(key_end.unwrap_or(u64::MAX));
        let (ms, us) = (now.ms().get(), now.us());
        let visible: Vec<Hold> = self.naive.live(key).filter(|hold| end(hold) > ms).cloned().collect();
        let queue: Vec<Request> = self.naive.queue(key).into_iter().cloned().collect();
        let lock = self.server.space.lock(&key_name).clone();
        let expiry = key_end.map(UnixMs::new);
        let shown = self.server.engine.inspect(name(&key_name), &lock, expiry, now, &Detail::Full(usize::MAX));
        let Some(shown) = shown else {
            return assert!(visible.is_empty() && queue.is_empty(), "{key} {:?}", self.naive);
        };
        let has = |mode| visible.iter().any(|hold| hold.mode == mode);
        let mode = match (has(Mode::Exclusive), has(Mode::Shared)) {
            (false, false) => LockMode::Free,
            (true, false) => LockMode::Exclusive,
            (false, true) => LockMode::Shared,
            (true, true) => LockMode::Both,
        };
        let mut owners: Vec<usize> = visible.iter().map(|hold| hold.owner).collect();
        owners.sort_unstable();
        owners.dedup();
        assert_eq!((shown.summary.mode, shown.summary.holders), (mode, owners.len() as u64), "{key} {:?}", self.naive);
        assert_eq!(shown.summary.entries, visible.iter().map(|hold| hold.count).sum::<u64>());
        assert_eq!(shown.summary.token.map(|token| token.get()), visible.iter().map(|hold| hold.token).max());
        assert_eq!(shown.ttl, visible.iter().map(|hold| end(hold) - ms).max().unwrap_or(0));
        let holds = shown.holds.expect("the full detail has holds");
        assert!(holds.is_sorted_by_key(|shown| shown.hold.token));
        let mut holds: Vec<_> = holds
            .iter()
            .map(|shown| {
                let hold = held::hold(&shown.hold);
                (
                    (hold.token, hold.owner, hold.mode, hold.count),
                    shown.ttl,
                    shown.cap,
                    shown.session.as_ref().map(|session| self.number_of(session, &shown.hold)),
                )
            })
            .collect();
        let wanted = visible.iter();
        let mut wanted: Vec<_> = wanted
            .map(|hold| {
                let session = hold.session.filter(|_| hold.ended.is_none());
                let cap = hold.cap.map(|cap| cap.saturating_sub(ms));
                ((hold.token, hold.owner, hold.mode, hold.count), end(hold) - ms, cap, session)
            })
            .collect();
        holds.sort_unstable();
        wanted.sort_unstable();
        assert_eq!(holds, wanted, "{key} {:?}", self.naive);
        assert_eq!(shown.waiters, queue.len());
        let waiters: Vec<_> = shown
            .queue
            .expect("the full detail has the queue")
            .into_iter()
            .map(|waiter| {
                let keys = waiter.keys;
                (
                    plain::who(&waiter.owner),
                    waiter.mode,
                    waiter.waiting,
                    waiter.client.0,
                    waiter.permits,
                    waiter.limit,
                    keys,
                )
            })
            .collect();
        let wanted: Vec<_> = queue
            .iter()
            .map(|waiter| {
                let (want, waiting) = (waiter.how.want, us.saturating_sub(waiter.since) / 1000);
                (waiter.owner, want.mode(), waiting, waiter.client, want.entries(), want.limit(), waiter.keys.len())
            })
            .collect();
        assert_eq!(waiters, wanted, "{key} {:?}", self.naive);
        for hold in &visible {
            let left = visible.iter().filter(|other| other.token == hold.token).map(|other| end(other) - ms).max();
            let checked = self.server.engine.check(name(&key_name), &lock, expiry, now, plain::token(hold.token));
            assert_eq!(checked, left, "{key} {:?}", self.naive);
        }
        // No hold has the token 7.
        assert_eq!(self.server.engine.check(name(&key_name), &lock, expiry, now, plain::token(7)), None);
    }

    /// Returns the model's number of the session of a hold, which decides between equal ids of two users.
    fn number_of(&self, session: &ShownSession, hold: &dlock_core::Hold) -> u64 {
        match session {
            ShownSession::Connection(client) => client.0,
            ShownSession::Named(id) => {
                let hold = held::hold(hold);
                let numbers: Vec<_> = (0..KEYS.len())
                    .flat_map(|key| self.naive.live(key))
                    .filter(|other| (other.owner, other.mode, other.token) == (hold.owner, hold.mode, hold.token))
                    .filter_map(|other| other.session)
                    .collect();
                let has_id = |session: &&Session| plain::session(session.id) == *id;
                let mut open = self.naive.sessions.iter().filter(has_id);
                let same = open.clone().find(|session| numbers.contains(&session.number));
                same.or_else(|| open.next())
                    .unwrap_or_else(|| panic!("a hold is bound to {id:?}: {:?}", self.naive))
                    .number
            }
        }
    }

    /// Applies to the replica what the primary has replicated so far.
    pub(super) fn drain(&mut self) {
        self.server.space.replicate_to(&mut self.replica, &mut self.replica_memory);
    }

    /// Brings the replica up to date, and fails unless it has the locks of the primary. On the primary, keys with
    /// waiters may expire up to [`GRACE_MS`] later.
    pub(super) fn sync_replica(&mut self) {
        // In a deployment, each replica is a `World` of its own.
        if self.deployed.is_some() {
            return;
        }
        self.drain();
        for key in 0..KEYS.len() {
            let name = plain::key_name(key);
            let (ours, theirs) = (self.server.space.lock(&name), self.replica.lock(&name));
            if self.server.space.has_expired(&name) {
                continue;
            }
            let stored = |lock: &dlock_core::Lock| held::sorted(lock.stored_holds().map(held::hold).collect());
            assert_eq!(stored(theirs), stored(ours), "{key}");
            if ours.is_empty() || self.late.contains(&key) {
                continue;
            }
            let last = ours.last_deadline().map_or(0, UnixMs::get);
            let (ours, theirs) = (self.server.space.expiry(&name).flatten(), self.replica.expiry(&name).flatten());
            let is_grace = theirs == Some(last) && ours.is_some_and(|ours| ours > last && ours <= last + GRACE_MS);
            assert!(ours == theirs || is_grace, "key {key} expires at {ours:?}, on the replica at {theirs:?}");
        }
    }
}

/// The most by which a primary's key with waiters outlives its last lease, in ms.
const GRACE_MS: u64 = 50;
